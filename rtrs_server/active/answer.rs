// SPDX-License-Identifier: GPL-2.0

//! Answers, and operations that wait for room in a send queue.
//!
//! Locking and context: see [`super`].

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Full,
            Relaxed, //
        },
        rcu,
        Arc, //
    },
};

use rtrs_bindings::{
    compat::smp_mb,
    ib::{
        Endpoint,
        NotPosted,
        PostError,
        QueuePair,
        LARGE, //
    },
};

use super::{
    Active,
    Chunk, //
};
use crate::{
    chunk::{
        AnswerKind,
        Attempt,
        Deferred,
        NotAnswered, //
    },
    logic::chunk_state::End,
    op::Op,
    path::Path,
    trace, //
};

impl Active {
    /// Answers the request of `op`; its chunk becomes free for the next request.
    ///
    /// An operation that cannot be answered is dropped.
    #[inline(always)]
    pub(crate) fn answer(&self, op: KBox<Op>, errno: i32) {
        // One after the other: for both together the compiler makes more of it.
        let Some(equipped) = self.endpoint(op.cid()) else {
            return;
        };
        let Some(chunk) = self.chunk(op.buf_id()) else {
            return;
        };
        // References to both, so that the place in the table need not be kept.
        let (ep, qp): (&Endpoint<Path>, _) = (equipped, equipped.qp());

        trace::answer(&op, qp, errno);
        if errno != 0 {
            return self.answer_with_care(chunk, ep.handler(), qp, op, errno);
        }
        // All else is found again if it fails, so that less has to be kept over the post.
        let failed = |e| Self::not_answered_here(ep, chunk, e);
        let kind = op.answer_kind();
        // Each kind has code of its own, in which nothing is asked about the others.
        let end = match kind {
            AnswerKind::Empty => chunk.answer_plain::<false>(qp, op, failed),
            _ if kind.has_keys() => match kind {
                AnswerKind::Write => chunk.answer_new_key(qp, op, failed),
                _ => {
                    if kind.has_data() {
                        self.hold_if_ahead(ep, qp);
                    }
                    chunk.answer_keys(qp, op, failed)
                }
            },
            AnswerKind::Data if op.request().data_len() > LARGE => {
                return self.answer_large(chunk, ep, qp, op);
            }
            AnswerKind::Data => chunk.answer_plain::<true>(qp, op, failed),
            AnswerKind::Count => chunk.answer_counted(qp, op, failed),
            _ => return self.answer_large(chunk, ep, qp, op),
        };
        if let Some(end @ End::Run(_)) = end {
            ep.handler().session.after_end(chunk.buf_id(), end);
        }
    }

    /// If many data are under way on `qp`, of the connection of `ep`, its further requests wait. Called
    /// before more data are posted: afterwards would keep more in registers. If these are the last ones,
    /// there is nothing that has to wait.
    #[inline(always)]
    fn hold_if_ahead(&self, ep: &Endpoint<Path>, qp: &QueuePair) {
        if qp.is_ahead() {
            self.hold(ep, qp);
        }
    }

    #[cold]
    #[inline(never)]
    fn hold(&self, ep: &Endpoint<Path>, qp: &QueuePair) {
        if let Some(inbox) = self.inboxes.get(usize::from(ep.index())) {
            inbox.as_arc_borrow().hold(|| qp.is_ahead());
        }
    }

    /// Posts an answer without an error that may have many data, and is not usual.
    #[inline(never)]
    fn answer_large(&self, chunk: &Chunk, ep: &Endpoint<Path>, qp: &QueuePair, op: KBox<Op>) {
        self.hold_if_ahead(ep, qp);
        self.answer_with_care(chunk, ep.handler(), qp, op, 0);
    }

    /// Posts an error, or an answer that changes or tells a key in a way that is not usual.
    #[inline(never)]
    fn answer_with_care(
        &self,
        chunk: &Chunk,
        path: &Arc<Path>,
        qp: &QueuePair,
        op: KBox<Op>,
        errno: i32,
    ) {
        match chunk.answer(qp, op, errno, path.client.keeps_keys, Attempt::First) {
            Ok(end) => path.session.after_end(chunk.buf_id(), end),
            Err(e) => self.not_answered(path, chunk, e, errno),
        }
    }

    /// Handles an answer without an error that was not posted on the connection of `ep`.
    #[cold]
    #[inline(never)]
    fn not_answered_here(ep: &Endpoint<Path>, chunk: &Chunk, e: NotAnswered<'_, Path>) {
        let guard = rcu::read_lock();
        let path = ep.handler();

        match path.active(&guard) {
            Some(active) => active.not_answered(path, chunk, e, 0),
            // The path is closing.
            None => lost(path, chunk.buf_id(), e),
        }
    }

    #[cold]
    #[inline(never)]
    fn not_answered(&self, path: &Arc<Path>, chunk: &Chunk, e: NotAnswered<'_, Path>, errno: i32) {
        let buf_id = chunk.buf_id();

        match e {
            NotPosted::Kept(PostError::Full, answered) => {
                let op = answered.op;
                let cid = op.cid();
                self.stall(chunk, op, Deferred::Answer(errno), cid);
                // The room may have come between the attempt and the entry in the line, and nothing
                // may be left on the queue that would announce more.
                self.make_room(path, cid);
            }
            e => lost(path, buf_id, e),
        }
    }

    /// Makes an operation wait for room in the send queue of connection `cid`.
    ///
    /// [`Active::make_room`] has to follow: there may be room already, and nothing may be left on
    /// the queue that would announce it.
    pub(super) fn stall(&self, chunk: &Chunk, mut op: KBox<Op>, deferred: Deferred, cid: u16) {
        let buf_id = chunk.buf_id();

        op.set_deferred(deferred);
        chunk.stall(op);
        self.stalled_len.fetch_add(1, Full);
        // Does not fail: each connection has a line. The chunk is in none, as the caller had its
        // operation.
        let _ = self.stalled.lock().push(cid, buf_id);
    }

    /// A send was retired, so there may be room in the queue of `ep`.
    pub(crate) fn retired(&self, ep: &Endpoint<Path>, qp: &QueuePair) {
        // ORDERING: A task that stalls an operation counts it before it tries again. Either it sees
        // the room, or this function sees the count. It is the same for one that holds the inbox.
        smp_mb();
        if self.is_stalled() {
            self.make_room(ep.handler(), ep.index());
        }
        if let Some(inbox) = self.inboxes.get(usize::from(ep.index())) {
            inbox.as_arc_borrow().resume(|| qp.is_ahead());
        }
    }

    /// Whether something waits for room.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled_len.load(Relaxed) != 0
    }

    /// Continues operations that wait for room in the send queue of connection `cid`, the one that
    /// waits longest first, until one does not fit. Must be called without a lock held.
    ///
    /// Other connections are not looked at, so a client that does not receive on one pays for that
    /// one. No room is overlooked. It comes with a retired send, which is followed by this function
    /// or finds nothing stalled, see [`Active::retired`]. Here the lock decides. If an attempt is
    /// under way, then it may not have seen the room, and is repeated should it fail. If no attempt
    /// is, then this function makes one, or nothing waits yet: an operation that comes later is
    /// attempted later, and that attempt sees the room.
    #[cold]
    #[inline(never)]
    pub(crate) fn make_room(&self, path: &Arc<Path>, cid: u16) {
        let mut next = self.stalled.lock().attend(cid);

        while let Some(buf_id) = next {
            next = if self.unstall(path, buf_id, cid) {
                self.stalled_len.fetch_sub(1, Full);
                self.stalled.lock().succeeded(cid)
            } else {
                let again = self.stalled.lock().failed(cid, buf_id);
                again.then_some(buf_id)
            };
        }
    }

    /// The same for all connections.
    pub(crate) fn make_all_room(&self, path: &Arc<Path>) {
        for ep in self.eps.iter() {
            self.make_room(path, ep.index());
        }
    }

    /// Tries a stalled operation again. Returns `false` if there is still no room: it is back in
    /// its chunk then.
    fn unstall(&self, path: &Arc<Path>, buf_id: u16, cid: u16) -> bool {
        let Some(chunk) = self.chunk(buf_id) else {
            return true;
        };

        match self.go_on(path, chunk, cid) {
            Some(op) => {
                chunk.stall(op);
                false
            }
            None => true,
        }
    }

    /// Continues a stalled operation. Returns it if there is still no room.
    fn go_on(&self, path: &Arc<Path>, chunk: &Chunk, cid: u16) -> Option<KBox<Op>> {
        let op = chunk.unstall()?;
        let buf_id = op.buf_id();

        match op.deferred() {
            Deferred::Invalidate => self.invalidate(path, chunk, cid, op).err(),
            Deferred::Answer(errno) => {
                let qp = self.endpoint(cid)?.qp();
                match chunk.answer(qp, op, errno, path.client.keeps_keys, Attempt::Again) {
                    Ok(end) => path.session.after_end(buf_id, end),
                    Err(NotPosted::Kept(PostError::Full, answered)) => return Some(answered.op),
                    Err(e) => lost(path, buf_id, e),
                }
                None
            }
        }
    }
}

/// Handles an answer that will not be posted.
#[cold]
fn lost(path: &Arc<Path>, buf_id: u16, e: NotAnswered<'_, Path>) {
    match e {
        NotPosted::Kept(e, answered) => {
            if e != PostError::Closed {
                path.post_failed(e);
            }
            drop(answered);
        }
        NotPosted::Given(e, end) => {
            // The chunk is free already.
            path.post_failed(e);
            path.session.after_end(buf_id, end);
        }
    }
}
