// SPDX-License-Identifier: GPL-2.0

//! The usual answers: the request was carried out, and keys change or are told. [`Reply::post`]
//! posts all others.
//!
//! They are filled in on the forms of the queue pair.
//!
//! # Context
//!
//! Any.

use super::{
    Give,
    NotPosted,
    Reply,
    REPLY_BODY, //
};
use crate::ib::{
    mr::NewKey,
    queue::{
        PostError,
        QueuePair, //
    },
};

/// How an answer invalidates the peer's key of the place of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidation {
    /// The key stays valid.
    None,
    /// By a message without bytes, which comes before the answer.
    Ahead,
    /// The answer is the message that invalidates the key. It has no immediate value.
    Answer,
}

/// What an answer does with keys. Its parts are known where it is posted, so that nothing is asked
/// about them.
#[derive(Clone, Copy)]
pub struct Keys<'a> {
    /// There are data: those that are [wanted](Give::wanted). They come from the first pages if a
    /// region is registered, otherwise from the other ones if there are any.
    pub has_data: bool,
    /// The region that is registered, and its key. If the answer has no bytes, the peer counts: its
    /// value says that the key is the next one.
    pub register: Option<NewKey<'a>>,
    /// What is done with the key of the place of the data.
    pub invalidation: Invalidation,
    /// The answer has the bytes that were [set](Reply::set_body) last. An
    /// [invalidation](Invalidation::Answer) that is the answer always has them.
    pub has_bytes: bool,
}

impl Reply {
    /// Sets the bytes of answers.
    #[inline(always)]
    pub fn set_body(&self, bytes: [u8; REPLY_BODY]) {
        if let Some(body) = &self.body {
            self.write_body(body, bytes);
        }
    }

    /// Posts an answer on `qp` as [`post`](Self::post) does: data, registration, invalidation, and
    /// bytes, as far as `keys` has them, and an immediate value, unless the [invalidation is the
    /// answer](Invalidation::Answer). [Gives](Give) `what` away.
    ///
    /// If it cannot be posted, `failed` gets the error that [`post`](Self::post) would return, and
    /// the result is `None`.
    #[inline(always)]
    pub fn post_keys<G: Give>(
        &self,
        qp: &QueuePair,
        keys: Keys<'_>,
        what: G,
        failed: impl FnOnce(NotPosted<G>),
    ) -> Option<G::Given> {
        let by_inval = keys.invalidation == Invalidation::Answer;
        let has_bytes = keys.has_bytes || by_inval;
        let foreign = |key: NewKey<'_>| !qp.is_of(key.mr().domain());
        let no_bytes = has_bytes && self.body.is_none();
        if no_bytes || !qp.is_of(&self.domain) || keys.register.is_some_and(foreign) {
            failed(NotPosted::Kept(PostError::Invalid, what));
            return None;
        }
        let memory = match keys.register {
            Some(_) => &self.memory[0],
            None => &self.plain,
        };
        if keys.has_data {
            self.hand_over(memory, &what);
        }
        let mut filling = qp.forms();
        let (len, to) = what.wanted();
        if keys.has_data {
            if !memory.has(len) {
                drop(filling);
                failed(NotPosted::Kept(PostError::Invalid, what));
                return None;
            }
            // SAFETY: The memory has that many bytes, not none, and is of the domain, see above. This
            // is the only write.
            unsafe { filling.write(memory.dma, len, to) };
        }
        if let Some(key) = keys.register {
            // SAFETY: The region is of the domain, see above, and of pages of it, which stay as long.
            // This is the only registration.
            unsafe { filling.register(key.mr().as_raw(), key.rkey()) };
        }
        if keys.invalidation == Invalidation::Ahead {
            // SAFETY: This is the only one.
            unsafe { filling.invalidate(to.rkey) };
        }
        let imm = match keys.invalidation {
            Invalidation::Ahead => self.imms.inval,
            _ if keys.register.is_some() && !has_bytes => self.imms.next_key,
            _ => self.imms.plain,
        };
        let filled = match &self.body {
            // SAFETY: These are the addresses of the body, which is of the domain, see above.
            Some(body) if by_inval => unsafe { filling.told_by_inval(&body.addresses, to.rkey) },
            // SAFETY: As above.
            Some(body) if has_bytes => unsafe { filling.told(&body.addresses, imm) },
            _ => filling.value(imm),
        };
        Self::post_filled(filled, what, failed)
    }
}
