// SPDX-License-Identifier: GPL-2.0

//! Which completions were found by the same poll.

use super::wc::Wc;
use crate::atomic::{
    Atomic,
    Relaxed, //
};

/// Tells polls of a completion queue apart.
///
/// The core polls up to 16 completions into an array and hands them out one by one, so each is
/// right behind the one before, unless a new poll has begun. The array may be on the stack of who
/// polls. A cache line of its own, as it is written with each completion.
#[repr(align(64))]
pub(super) struct PollTracker {
    /// The completion that was taken last.
    last: Atomic<usize>,
    /// Those of its poll that were found before the one at `next`, the last time that there was more
    /// than one: as a rule a poll finds one, which is one number.
    found: Atomic<u32>,
    next: Atomic<usize>,
}

impl PollTracker {
    /// Nothing found yet.
    pub(super) fn new() -> Self {
        Self {
            last: Atomic::new(0),
            found: Atomic::new(0),
            next: Atomic::new(0),
        }
    }

    /// Takes the next completion; returns the number of those that the same poll has found,
    /// itself included. One at a time.
    #[inline]
    pub(super) fn next(&self, wc: &Wc) -> u32 {
        let addr = core::ptr::from_ref(wc).addr();
        let first = addr != self.last.load(Relaxed).wrapping_add(size_of::<Wc>());

        self.last.store(addr, Relaxed);
        match first {
            true => 1,
            false => self.another(addr),
        }
    }

    /// The same for one that is not the first of its poll.
    fn another(&self, addr: usize) -> u32 {
        let before = match self.next.load(Relaxed) == addr {
            true => self.found.load(Relaxed),
            // The second one.
            false => 1,
        };
        let found = before.saturating_add(1);

        self.found.store(found, Relaxed);
        self.next.store(addr.wrapping_add(size_of::<Wc>()), Relaxed);
        found
    }
}
