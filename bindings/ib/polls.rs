// SPDX-License-Identifier: GPL-2.0

//! Recognises completions that were found by the same poll.

use super::wc::Wc;
use crate::atomic::{
    Atomic,
    Relaxed, //
};

/// Distinguishes the polls of a completion queue.
///
/// The core polls up to 16 completions into an array and hands them out one by one, so each lies
/// right behind the previous one, unless a new poll has begun. The array may be on the stack of the
/// polling task. The tracker has a cache line of its own, as it is written with each completion.
#[repr(align(64))]
pub(super) struct PollTracker {
    /// Address of the completion that was taken last.
    last: Atomic<usize>,
    /// Number of completions found by the poll before that at `next`, the last time that a poll
    /// found more than one. A poll usually finds one, which writes `last` only.
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

    /// Takes the next completion. Returns the number of completions that the same poll has found so
    /// far, including this one. Called by one thread at a time.
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

    /// As [`next`](Self::next), for a completion that is not the first of its poll.
    fn another(&self, addr: usize) -> u32 {
        let before = match self.next.load(Relaxed) == addr {
            true => self.found.load(Relaxed),
            // This is the second completion of its poll.
            false => 1,
        };
        let found = before.saturating_add(1);

        self.found.store(found, Relaxed);
        self.next.store(addr.wrapping_add(size_of::<Wc>()), Relaxed);
        found
    }
}
