// SPDX-License-Identifier: GPL-2.0

//! Answers to the client, and the end of an operation.

use kernel::prelude::*;

use rtrs_bindings::ib::{
    Answer,
    Bytes,
    Give,
    Imms,
    Invalidation,
    Keys,
    NewKey,
    NotPosted,
    PostError,
    QueuePair,
    Remote,
    Source,
    REPLY_BODY, //
};
use rtrs_core::proto::{
    Imm,
    IoErrno,
    Request,
    RkeyRsp, //
};

use super::{
    marks::AnswerKind,
    Chunk,
    Home,
    Op, //
};
use crate::logic::chunk_state::End;

/// An attempt to post an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attempt {
    First,
    /// There was no room at the attempt before.
    Again,
}

/// An operation that is answered. Its chunk and the session's state of it are given back with it.
pub(crate) struct Answered<'a, H: Home> {
    chunk: &'a Chunk<H>,
    pub(crate) op: KBox<Op<H>>,
    /// The answer registers the chunk's key.
    registered: bool,
}

impl<H: Home> Give for Answered<'_, H> {
    type Given = End;

    #[inline(always)]
    fn wanted(&self) -> (u32, Remote) {
        destination(&self.op)
    }

    #[inline(always)]
    fn give(self) -> End {
        let mut op = self.op;

        op.clear_busy();
        if self.registered {
            op.note_registered();
        }
        self.chunk.rest(op);
        self.chunk.state.end()
    }
}

/// Why an answer was not posted.
pub(crate) type NotAnswered<'a, H> = NotPosted<Answered<'a, H>>;

impl<H: Home> Chunk<H> {
    /// Posts the answer to the request of `op`, all of it or nothing: 0 or a negative errno, and
    /// the data of a read. If the chunk's key does not change, then a client that `keeps_keys` is
    /// not told it.
    ///
    /// When there is room for the answer, the operation rests and its use of the session's state
    /// ends: the client needs no more for its next request. [`Session::after_end`] has to follow.
    ///
    /// # Errors
    ///
    /// See [`Reply::post`](rtrs_bindings::ib::Reply::post).
    ///
    /// [`Session::after_end`]: crate::session::Session::after_end
    pub(crate) fn answer<'a>(
        &'a self,
        qp: &QueuePair,
        mut op: KBox<Op<H>>,
        errno: i32,
        keeps_keys: bool,
        attempt: Attempt,
    ) -> Result<End, NotAnswered<'a, H>> {
        op.forget_message();
        let answered = self.answered(op);
        let op = &answered.op;
        if !op.is_read() {
            return Err(NotPosted::Kept(PostError::Invalid, answered));
        }
        let request = op.request();
        let data = data(request, op.is_private(), errno);
        let invalidate = request.inval_rkey();
        let Some(imm) = result_imm(op.buf_id(), errno, invalidate.is_some()) else {
            return Err(NotPosted::Kept(PostError::Invalid, answered));
        };
        let key_is_told = self.mr().is_some() && !(op.is_private() && keeps_keys);
        if key_is_told || invalidate.is_some() {
            let answer = Answer {
                data,
                invalidate,
                body: None,
                imm,
            };
            return self.answer_with_keys(qp, answered, key_is_told, answer, attempt);
        }

        self.reply.post_message(qp, data, imm, answered)
    }

    /// The same for a request that was [read as it arrived](Chunk::read_usual) and carried out, if
    /// its answer neither changes nor tells a key, and has data if `DATA` is set: almost all of the
    /// work request is ready. Calls `failed` if it cannot be posted.
    #[inline(always)]
    pub(crate) fn answer_plain<'a, const DATA: bool>(
        &'a self,
        qp: &QueuePair,
        op: KBox<Op<H>>,
        failed: impl FnOnce(NotAnswered<'a, H>),
    ) -> Option<End> {
        self.reply
            .post_plain::<_, DATA>(qp, self.answered(op), failed)
    }

    /// An operation the answer of which does not register the chunk's key.
    #[inline(always)]
    fn answered(&self, op: KBox<Op<H>>) -> Answered<'_, H> {
        Answered {
            chunk: self,
            op,
            registered: false,
        }
    }

    /// An operation the answer of which registers the chunk's key.
    #[inline(always)]
    fn registering(&self, op: KBox<Op<H>>) -> Answered<'_, H> {
        Answered {
            registered: true,
            ..self.answered(op)
        }
    }

    /// Answers a request that was [read as it arrived](Chunk::read_usual) and carried out, if its
    /// answer [has keys](AnswerKind::has_keys), and is no [write](Self::answer_new_key).
    #[inline(always)]
    pub(crate) fn answer_keys<'a>(
        &'a self,
        qp: &QueuePair,
        op: KBox<Op<H>>,
        failed: impl FnOnce(NotAnswered<'a, H>),
    ) -> Option<End> {
        let kind = op.answer_kind();
        if kind.registers() {
            return self.answer_changing(qp, kind, op, failed);
        }
        let keys = |has_data, invalidation, bytes| Keys {
            has_data,
            register: None,
            invalidation,
            bytes,
        };
        let answered = self.answered(op);
        // Each kind has code of its own, in which nothing is asked about the others.
        if kind.is_by_inval() {
            let retells = kind == AnswerKind::RetellInval;
            if let (true, Some(mr)) = (retells, self.mr()) {
                let told = Bytes::Ending(RkeyRsp::rkey_bytes(mr.rkey()));
                let keys = keys(true, Invalidation::Answer, told);
                return self.reply.post_keys(qp, keys, answered, failed);
            }
            let keys = keys(true, Invalidation::Answer, Bytes::Same);
            return self.reply.post_keys(qp, keys, answered, failed);
        }
        match kind {
            AnswerKind::KeepRead => {
                let keys = keys(true, Invalidation::Ahead, Bytes::None);
                self.reply.post_keys(qp, keys, answered, failed)
            }
            AnswerKind::TellRead => {
                let keys = keys(true, Invalidation::Ahead, Bytes::Same);
                self.reply.post_keys(qp, keys, answered, failed)
            }
            _ => {
                let keys = keys(false, Invalidation::None, Bytes::Same);
                self.reply.post_keys(qp, keys, answered, failed)
            }
        }
    }

    /// The same for an answer that [registers](AnswerKind::registers) the chunk with a new key, and
    /// tells it.
    #[inline(always)]
    fn answer_changing<'a>(
        &'a self,
        qp: &QueuePair,
        kind: AnswerKind,
        mut op: KBox<Op<H>>,
        failed: impl FnOnce(NotAnswered<'a, H>),
    ) -> Option<End> {
        let key = self.reply.change_key(op.key_right());
        match kind {
            AnswerKind::Inval => {
                let keys = |key| told(key, true, Invalidation::Answer);
                self.answer_renewed(qp, op, key, keys, failed)
            }
            AnswerKind::Read => {
                let keys = |key| told(key, true, Invalidation::Ahead);
                self.answer_renewed(qp, op, key, keys, failed)
            }
            // No other kind registers a key and comes here.
            _ => {
                failed(NotPosted::Kept(PostError::Invalid, self.answered(op)));
                None
            }
        }
    }

    /// Posts an answer that registers the chunk with its new `key`, if there is one; `keys` describes it.
    #[inline(always)]
    fn answer_renewed<'a>(
        &'a self,
        qp: &QueuePair,
        op: KBox<Op<H>>,
        key: Result<NewKey<'a>>,
        keys: impl FnOnce(NewKey<'a>) -> Keys<'a>,
        failed: impl FnOnce(NotAnswered<'a, H>),
    ) -> Option<End> {
        let Ok(key) = key else {
            failed(NotPosted::Kept(PostError::Invalid, self.answered(op)));
            return None;
        };

        self.reply
            .post_keys(qp, keys(key), self.registering(op), failed)
    }

    /// The same for [`AnswerKind::Write`].
    #[inline(always)]
    pub(crate) fn answer_new_key<'a>(
        &'a self,
        qp: &QueuePair,
        mut op: KBox<Op<H>>,
        failed: impl FnOnce(NotAnswered<'a, H>),
    ) -> Option<End> {
        let key = self.reply.change_key(op.key_right());
        let keys = |key| told(key, false, Invalidation::None);

        self.answer_renewed(qp, op, key, keys, failed)
    }

    /// The bytes that tell the chunk's key.
    fn told(&self, rkey: u32) -> [u8; REPLY_BODY] {
        let buf_id = self.buf_id();

        RkeyRsp { buf_id, rkey }.to_bytes()
    }

    /// The same for [`AnswerKind::Count`]: the chunk's key is the next one, which the client knows.
    #[inline(always)]
    pub(crate) fn answer_counted<'a>(
        &'a self,
        qp: &QueuePair,
        mut op: KBox<Op<H>>,
        failed: impl FnOnce(NotAnswered<'a, H>),
    ) -> Option<End> {
        let key = self.reply.count_key(op.key_right());
        let keys = |key| Keys {
            has_data: false,
            register: Some(key),
            invalidation: Invalidation::None,
            bytes: Bytes::None,
        };

        self.answer_renewed(qp, op, key, keys, failed)
    }

    /// Posts an answer that changes or tells a key.
    fn answer_with_keys<'a>(
        &'a self,
        qp: &QueuePair,
        mut answered: Answered<'a, H>,
        key_is_told: bool,
        mut answer: Answer,
        attempt: Attempt,
    ) -> Result<End, NotAnswered<'a, H>> {
        let mr = self.mr().filter(|_| key_is_told);
        // For private data the key was not invalidated.
        let register = mr.filter(|_| !answered.op.is_private());
        // One new key for each answer: keys repeat after 256, and a client that caused as many
        // attempts would have the old key again.
        let changes = register.is_some() && attempt == Attempt::First;
        if changes && self.reply.change_key(answered.op.key_right()).is_err() {
            return Err(NotPosted::Kept(PostError::Invalid, answered));
        }
        answer.body = mr.map(|mr| self.told(mr.rkey()));
        answered.registered = register.is_some();

        self.reply.post(qp, answered.registered, &answer, answered)
    }
}

/// The keys of an answer that registers `key`, and tells it.
#[inline(always)]
fn told(key: NewKey<'_>, has_data: bool, invalidation: Invalidation) -> Keys<'_> {
    Keys {
        has_data,
        register: Some(key),
        invalidation,
        bytes: Bytes::Ending(RkeyRsp::rkey_bytes(key.rkey())),
    }
}

/// Returns the length and destination of the data that the client wants.
#[inline(always)]
fn destination<H: Home>(op: &Op<H>) -> (u32, Remote) {
    let (len, addr, rkey) = op.request().wanted();

    (len, Remote { addr, rkey })
}

/// Returns the data that go to the client, with their source and destination.
fn data(request: &Request, is_private: bool, errno: i32) -> Option<(Source, u32, Remote)> {
    let source = match is_private {
        true => Source::Second,
        false => Source::First,
    };
    let to = request.dest()?.desc;

    // No more than the client asked for: the descriptor is as long as the data.
    (errno == 0).then_some((
        source,
        to.len,
        Remote {
            addr: to.addr,
            rkey: to.rkey,
        },
    ))
}

/// Returns the immediate values of the answers without an error of a chunk.
pub(super) fn imms(buf_id: u16) -> Option<Imms> {
    let msg_id = u32::from(buf_id);

    Some(Imms {
        plain: result_imm(buf_id, 0, false)?,
        inval: result_imm(buf_id, 0, true)?,
        next_key: Imm::IoRspNextKey { msg_id }.encode().ok()?,
    })
}

/// Returns the immediate value that tells the result of the request of a chunk.
fn result_imm(buf_id: u16, errno: i32, inval: bool) -> Option<u32> {
    let errno = match errno {
        0 => IoErrno::SUCCESS,
        _ => IoErrno::from_kernel(errno),
    };
    let imm = Imm::IoRsp {
        msg_id: u32::from(buf_id),
        errno,
        inval,
    };

    imm.encode().ok()
}
