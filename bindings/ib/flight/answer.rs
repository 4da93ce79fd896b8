// SPDX-License-Identifier: GPL-2.0

//! What the peer's answer does to a flight.
//!
//! An answer belongs to the queue pair that it came over. It has no effect on a flight that was
//! posted on another one of the domain: only posts of the same queue are in order, so that an
//! invalidation follows the registration of the key, and only its receives prove that the key is
//! invalid. One of another domain does no more than an answer that the peer has made up: it counts
//! as the answer, no key is taken for invalid, and nothing is posted.
//!
//! The peer may invalidate a key before it has got the request, and the device before it has
//! registered the key. The device refuses that, as each key that is posted differs from the one
//! before it, which the device has until then (`Drop` of `Building`). So a key that a device has
//! invalidated was registered.
//!
//! Only the handler of a receive handles answers, see [`Receiving`], one at a time for its queue pair. No
//! flight ends without its answer. So until this handler has taken the answer off the word, no flight of
//! the queue pair ends and is used again. After that it can: its own completions may be handled on
//! another processor, or before the call that handles the answer returns.

use super::{
    word::{
        Answered,
        Succeeded, //
    },
    Flight,
    Landing,
    Violation, //
};
use crate::{
    atomic::Relaxed,
    ib::{
        endpoint::Handler,
        queue::{
            PostError,
            QueuePair,
            Receiving, //
        },
    },
    raw, //
};

impl<H: Handler> Flight<H> {
    /// Handles the peer's answer, which came over `qp`, and says success, but not that the peer has
    /// invalidated the key. Returns the landing if the flight waits for nothing else; otherwise nothing
    /// has changed, and [`succeeded`](Self::succeeded) has to follow.
    #[inline(always)]
    pub fn land_answered(&self, qp: Receiving<'_>) -> Option<Landing<'_, H>> {
        if !self.word.land_answered(qp.lane()) {
            return None;
        }
        qp.count_landed();
        Some(Landing::new(self, 0))
    }

    /// Handles such an answer in any case. A key that was registered is invalidated. `counts` is called
    /// if the answer counts, before the flight can be over.
    pub fn succeeded(&self, qp: Receiving<'_>, counts: impl FnOnce()) -> Outcome<'_, H> {
        // Lanes are unique in a domain only: `invalidate()` looks at that, too.
        match self.word.succeeded(qp.lane(), counts) {
            Succeeded::Over => {
                qp.count_landed();
                Outcome::Over(Landing::new(self, 0))
            }
            Succeeded::Sending => {
                self.reap_or_expect(&qp, false);
                Outcome::Noted
            }
            Succeeded::Keyed => match self.invalidate(&qp) {
                Ok(()) => {
                    self.reap_or_expect(&qp, true);
                    Outcome::Noted
                }
                Err(e) => Outcome::NotInvalidated(e),
            },
            Succeeded::Unclear => Outcome::Unclear,
        }
    }

    /// Handles such an answer if the peer claims that it has invalidated the key, and has done so:
    /// see [`answered`](Self::answered). Returns the landing if the flight waits for nothing else;
    /// otherwise nothing has changed.
    #[inline(always)]
    pub fn returned(&self, qp: Receiving<'_>) -> Option<Landing<'_, H>> {
        let proven = || self.is_returned(qp);
        if !self.word.land_returned(qp.lane(), proven) {
            return None;
        }
        qp.count_landed();
        Some(Landing::new(self, 0))
    }

    /// Whether the last invalidation that `qp` has received was of the key of the flight, after the
    /// flight began. `qp` must have the flight's lane.
    #[inline(always)]
    fn is_returned(&self, qp: Receiving<'_>) -> bool {
        let (rkey, at) = qp.invalidated();
        qp.is_of(self.domain()) && rkey == self.rkey.load(Relaxed) && at > self.began.load(Relaxed)
    }

    /// Handles any answer of the peer, which came over `qp`, with `result` 0 or a negative errno.
    /// `returned` is the peer's claim that it has invalidated the key. It is believed only if the
    /// queue pair's last invalidation was of this key, after the flight began; otherwise this
    /// invalidates the key.
    ///
    /// Returns the landing if the flight waits for nothing else.
    ///
    /// # Errors
    ///
    /// See [`AnswerError`].
    pub fn answered(
        &self,
        qp: Receiving<'_>,
        result: i32,
        returned: bool,
    ) -> Result<Option<Landing<'_, H>>, AnswerError> {
        if !qp.is_of(self.domain()) {
            return Err(AnswerError::Violation(Violation::WrongLane));
        }
        let proven = || returned && self.is_returned(qp);
        match self.word.answered(qp.lane(), result, proven) {
            Ok(Answered::Over(result)) => {
                qp.count_landed();
                Ok(Some(Landing::new(self, result)))
            }
            Ok(Answered::Needs(needs)) => {
                if needs.has_invalidated() {
                    self.invalidate(&qp).map_err(AnswerError::Post)?;
                }
                self.reap_or_expect(&qp, needs.has_invalidated());
                Ok(None)
            }
            Err(violation) => Err(AnswerError::Violation(violation)),
        }
    }

    /// The flight was answered, and waits for its own completions. They may come, and end it, before
    /// this returns. `invalidates` is set if one of them is that of an invalidation that was just posted.
    #[inline(never)]
    fn reap_or_expect(&self, qp: &QueuePair, invalidates: bool) {
        // On another domain's queue pair no completion of this flight comes.
        if qp.is_of(self.domain()) {
            qp.reap_or_expect(invalidates, || self.word.expect(qp.lane()));
        }
    }

    /// Posts the invalidation of the key, which completes to this flight. Called for the only
    /// answer that counts, with a queue pair that has the flight's lane.
    #[inline(never)]
    fn invalidate(&self, qp: &QueuePair) -> Result<(), PostError> {
        if !qp.is_of(self.domain()) {
            return Err(PostError::Closed);
        }
        let wrs = self.wrs.get();
        let cqe = core::ptr::from_ref(&self.invalidated).cast_mut();
        let room = match qp.reserve(1, true) {
            Err(PostError::Full) if qp.reap() => qp.reserve(1, true),
            room => room,
        }?;
        // The answer can come before the acknowledgment of the send, which the device then repeats
        // with the key. With the fence cxgb4 waits with the invalidation; irdma and soft RoCE
        // always do. A device that does not wait may end the connection, no more.
        let fence = raw::ib_send_flags_IB_SEND_FENCE;
        // SAFETY: By the invariant of the flight, `inval` is accessed here only, as this is called
        // for the only answer that counts. The work request is linked, and refers to nothing but
        // the key. The queue pair is the one that the flight was posted on: it has its domain, and
        // in that no other one has its lane. So it is of an endpoint with this handler, and the
        // registration precedes the invalidation.
        unsafe {
            let wr = &raw mut (*wrs).inval;
            (*wr).ex.invalidate_rkey = self.rkey.load(Relaxed);
            room.post_with(wr, wr, cqe, fence).map_err(PostError::from)
        }
    }
}

/// The effect of an answer that says success.
pub enum Outcome<'f, H: Handler> {
    /// It was the last event of the flight.
    Over(Landing<'f, H>),
    /// The flight waits for its own completions, or these have come meanwhile: it may be over, and used
    /// again.
    Noted,
    /// The key could not be invalidated, see [`AnswerError::Post`].
    NotInvalidated(PostError),
    /// Nothing has changed: the caller must call [`Flight::answered`].
    Unclear,
}

/// The reason why an answer failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerError {
    /// There is no such request; nothing has changed.
    Violation(Violation),
    /// The key could not be invalidated: the request stays in flight, and the connection must be
    /// ended.
    Post(PostError),
}
