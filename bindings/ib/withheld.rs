// SPDX-License-Identifier: GPL-2.0

//! Receives that have completed, and wait to be posted again together with others.
//!
//! Posting a batch of receives costs little more than posting one, and the peer does not rely on all
//! of them being posted. The tokens of the receives that wait are consecutive: receives complete in
//! the order in which they were posted, and they are posted in the order of their tokens. If a
//! token is not the next one, the waiting receives are posted, and that token starts a new run.
//!
//! Everything here is called by the handler of completions, which runs on one thread at a time,
//! except [`Withheld::allow`].

use crate::atomic::{
    Atomic,
    Relaxed, //
};

/// The tokens that wait.
pub struct Withheld {
    /// The first one; those up to the one before `behind` wait, too.
    first: Atomic<u32>,
    behind: Atomic<u32>,
    /// Number of tokens that may still join them without a post.
    left: Atomic<u32>,
    /// Number of receives that are posted at a time.
    batch: Atomic<u32>,
}

impl Withheld {
    /// No tokens; each one is posted at once.
    pub fn new() -> Self {
        Self {
            first: Atomic::<u32>::new(0),
            behind: Atomic::<u32>::new(0),
            left: Atomic::<u32>::new(0),
            batch: Atomic::<u32>::new(1),
        }
    }

    /// Allows up to `receives` to wait, but no more than `most - 1`. Any context.
    pub fn allow(&self, receives: u32, most: u32) {
        self.batch
            .store(receives.saturating_add(1).min(most).max(1), Relaxed);
    }

    /// Number of receives that are posted at a time.
    pub fn batch(&self) -> u32 {
        self.batch.load(Relaxed)
    }

    /// Adds `token`, if it follows those that wait and nothing has to be posted for it. Otherwise
    /// does nothing and returns `false`: [`add`](Self::add) has to follow.
    #[inline(always)]
    pub fn join(&self, token: u32) -> bool {
        if token != self.behind.load(Relaxed) {
            return false;
        }
        // Stored in any case: then this is one instruction. If none is left, `add()` sets it anew.
        let (left, none_left) = self.left.load(Relaxed).overflowing_sub(1);
        self.left.store(left, Relaxed);
        if none_left {
            return false;
        }
        // No overflow: there are as many receives in memory.
        self.behind
            .store(self.behind.load(Relaxed).wrapping_add(1), Relaxed);
        true
    }

    /// Adds `token`. Returns the first and the last token of receives that have to be posted now,
    /// and do not wait any more.
    pub fn add(&self, token: u32) -> Option<(u32, u32)> {
        let (first, behind) = (self.first.load(Relaxed), self.behind.load(Relaxed));
        // No overflow: as in `join()`.
        let end = token.wrapping_add(1);
        let first = match first == behind {
            true => token,
            false if token == behind => first,
            false => {
                self.set(token, end);
                return Some((first, behind.wrapping_sub(1)));
            }
        };

        if end.wrapping_sub(first) < self.batch() {
            self.set(first, end);
            return None;
        }
        self.set(end, end);
        Some((first, token))
    }

    /// The tokens from `first` to the one before `behind` wait.
    fn set(&self, first: u32, behind: u32) {
        // No overflow: they follow one another.
        let next = behind.wrapping_sub(first).saturating_add(1);

        self.first.store(first, Relaxed);
        self.behind.store(behind, Relaxed);
        self.left.store(self.batch().saturating_sub(next), Relaxed);
    }
}

impl Default for Withheld {
    fn default() -> Self {
        Self::new()
    }
}
