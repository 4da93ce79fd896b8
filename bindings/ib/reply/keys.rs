// SPDX-License-Identifier: GPL-2.0

//! The usual answers: the request was carried out, and keys change or are told. [`Reply::post`]
//! posts all others.
//!
//! They are filled in on the forms of the queue pair.
//!
//! # Context
//!
//! Any.

use kernel::prelude::*;

use super::{
    Give,
    NotPosted,
    Reply,
    BODY_END, //
};
use crate::ib::{
    mr::{
        KeyRight,
        Mr, //
    },
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
    /// The key with which the [region](Reply::region) is registered. If the answer has no bytes, the
    /// peer counts: its value says that the key is the next one.
    pub register: Option<NewKey<'a>>,
    /// What is done with the key of the place of the data.
    pub invalidation: Invalidation,
    /// The bytes of the answer. An [invalidation](Invalidation::Answer) that is the answer must have
    /// some.
    pub bytes: Bytes,
}

/// The key with which the region of a [`Reply`] is registered next.
#[derive(Clone, Copy)]
pub struct NewKey<'a> {
    reply: &'a Reply,
    /// Its region, so that this is not asked for again.
    mr: &'a Mr,
    rkey: u32,
}

impl NewKey<'_> {
    /// The key.
    #[inline(always)]
    pub fn rkey(&self) -> u32 {
        self.rkey
    }
}

/// The [bytes](super::REPLY_BODY) of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bytes {
    /// None.
    None,
    /// Those of the last answer of the [`Reply`] that had any, or those that it was made with.
    Same,
    /// The same, but for the second half, which is this.
    Ending([u8; BODY_END]),
}

impl Reply {
    /// Gives the [region](Self::region) a key different from its last one, for its next registration:
    /// a peer cannot use the old key, and the new one is any of 255, each as likely. `right` is the right
    /// to do so. Any context but NMI.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no region, or for the right to another key.
    #[inline(always)]
    pub fn change_key(&self, right: &mut KeyRight) -> Result<NewKey<'_>> {
        let mr = self.region().ok_or(EINVAL)?;
        let rkey = mr.change_rkey(right).ok_or(EINVAL)?;

        Ok(self.new_key(mr, rkey))
    }

    /// The same with the key that follows the last one, for a peer that is not told keys but counts
    /// them: the low byte is one higher, modulo 256.
    ///
    /// # Errors
    ///
    /// As for [`change_key`](Self::change_key).
    #[inline(always)]
    pub fn count_key(&self, right: &mut KeyRight) -> Result<NewKey<'_>> {
        let mr = self.region().ok_or(EINVAL)?;
        let rkey = mr.count_rkey(right).ok_or(EINVAL)?;

        Ok(self.new_key(mr, rkey))
    }

    /// The key `rkey` of the region, which is `mr`.
    #[inline(always)]
    fn new_key<'a>(&'a self, mr: &'a Mr, rkey: u32) -> NewKey<'a> {
        NewKey {
            reply: self,
            mr,
            rkey,
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
        let has_bytes = keys.bytes != Bytes::None;
        let foreign = |key: NewKey<'_>| !core::ptr::eq(key.reply, self);
        let lacks_bytes = match keys.bytes {
            Bytes::None => by_inval,
            Bytes::Same => !self.body.exists(),
            Bytes::Ending(_) => false,
        };
        if lacks_bytes || !qp.is_of(&self.domain) || keys.register.is_some_and(foreign) {
            failed(NotPosted::Kept(PostError::Invalid, what));
            return None;
        }
        if let Bytes::Ending(bytes) = keys.bytes {
            if let Err(e) = self.write_end(bytes) {
                failed(NotPosted::Kept(e, what));
                return None;
            }
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
            // SAFETY: The region is that of this object, and of the domain. What it describes are pages
            // of the domain, which stay as long.
            // This is the only registration.
            unsafe { filling.register(key.mr.as_raw(), key.rkey) };
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
        let addresses = self.body.addresses();
        let filled = match (has_bytes, by_inval) {
            // SAFETY: These are the addresses of the body, which is of the domain, and there is one, see
            // above.
            (true, true) => unsafe { filling.told_by_inval(addresses, to.rkey) },
            // SAFETY: As above.
            (true, false) => unsafe { filling.told(addresses, imm) },
            (false, _) => filling.value(imm),
        };
        let len = match keys.has_data {
            true => len,
            false => 0,
        };
        Self::post_filled(filled, len, what, failed)
    }
}
