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
    /// Address behind the completion that was taken last.
    behind: Atomic<usize>,
    /// Number of completions that its poll has found before it.
    before: Atomic<u32>,
}

impl PollTracker {
    /// Nothing found yet.
    pub(super) fn new() -> Self {
        Self {
            behind: Atomic::new(0),
            before: Atomic::new(0),
        }
    }

    /// Takes the next completion. Returns the number of completions that the same poll has found
    /// before it. Called by one thread at a time.
    #[inline(always)]
    pub(super) fn next(&self, wc: &Wc) -> u32 {
        let addr = core::ptr::from_ref(wc).addr();
        let before = match addr == self.behind.load(Relaxed) {
            // No overflow: the array is short.
            true => self.before.load(Relaxed).wrapping_add(1),
            false => 0,
        };

        self.behind
            .store(addr.wrapping_add(size_of::<Wc>()), Relaxed);
        self.before.store(before, Relaxed);
        before
    }
}
