// SPDX-License-Identifier: GPL-2.0

//! The marks of a session, by which a request is known to be made for an earlier life of the
//! server; see [`epoch`](crate::logic::epoch).
//!
//! # Order
//!
//! A task reads the present mark before the state that belongs to it (the server's numbers of the
//! devices), and again before a request is posted, so it does not send a message of another epoch.
//! The state is changed before the marks are.
//!
//! # Context
//!
//! Reading: any. Changing: the owner task of a path, while no path is up; one at a time.

use kernel::sync::atomic::{
    Acquire,
    Release, //
};

use crate::{
    atomic::{
        Atomic,
        Full,
        Relaxed, //
    },
    logic::epoch::Epoch,
};

/// The marks of a session.
pub(super) struct Epochs {
    /// Older requests are not sent unless they were translated.
    present: Atomic<u32>,
    /// The mark of new requests: the present one, unless all of them have to be translated.
    of_new: Atomic<u32>,
    /// Requests older than this one cannot be translated.
    oldest: Atomic<u32>,
}

impl Epochs {
    pub(super) fn new() -> Self {
        let first = || Atomic::new(Epoch::FIRST.to_word());

        Self {
            present: first(),
            of_new: first(),
            oldest: first(),
        }
    }

    /// Whether a request with the mark `word` can be sent as it is.
    #[inline(always)]
    pub(super) fn is_present(&self, word: u32) -> bool {
        word == self.present.load(Relaxed)
    }

    /// Returns the present mark. Later reads find the state that belongs to it, or to a later one.
    pub(super) fn present(&self) -> Epoch {
        Epoch::from_word(self.present.load(Acquire))
    }

    /// Returns the word of the mark for a new request, which is read before the request is sent.
    #[inline(always)]
    pub(super) fn of_new(&self) -> u32 {
        self.of_new.load(Acquire)
    }

    /// Returns the mark of the oldest requests that can be translated.
    pub(super) fn oldest(&self) -> Epoch {
        Epoch::from_word(self.oldest.load(Acquire))
    }

    /// Begins an epoch. Its requests are translated if server and user have different numbers of
    /// the devices (`shifted`).
    pub(super) fn begin(&self, shifted: bool) {
        let next = self.following(shifted);
        // In this order: a request with an old mark is translated, but one marked too early would
        // be lost.
        self.present.xchg(next.to_word(), Full);
        self.of_new.store(next.of_new().to_word(), Release);
    }

    /// Begins an epoch to which no earlier request can be translated.
    pub(super) fn begin_anew(&self) {
        // Set before the epoch: a task that sees the new epoch sees this.
        self.oldest.store(self.following(false).to_word(), Relaxed);
        self.begin(false);
    }

    fn following(&self, shifted: bool) -> Epoch {
        Epoch::from_word(self.present.load(Relaxed)).following(shifted)
    }
}
