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
    last: Atomic<usize>,
    found: Atomic<u32>,
}

impl PollTracker {
    /// Nothing found yet.
    pub(super) fn new() -> Self {
        Self {
            last: Atomic::new(0),
            found: Atomic::new(0),
        }
    }

    /// Takes the next completion; returns the number of those that the same poll has found,
    /// itself included. One at a time.
    #[inline]
    pub(super) fn next(&self, wc: &Wc) -> u32 {
        let addr = core::ptr::from_ref(wc).addr();
        let behind = self.last.load(Relaxed).wrapping_add(size_of::<Wc>());
        let found = if addr == behind {
            self.found.load(Relaxed).saturating_add(1)
        } else {
            1
        };
        self.last.store(addr, Relaxed);
        self.found.store(found, Relaxed);
        found
    }
}
