// SPDX-License-Identifier: GPL-2.0

//! Receives that have completed, and wait to be posted again together with others.
//!
//! Posting a batch of receives costs little more than posting one, and the peer does not rely on all
//! of them being posted. The receives of a connection complete in the order in which they were
//! posted, and their user posts each of them again, in that order. If they were first posted in the
//! order of their tokens, and nothing in between, the tokens take turns, and it is enough to count
//! those that wait; otherwise each is posted at once. Whether the last one has the token that it must
//! have is checked when they are posted. Receives of one token are only counted.
//!
//! Everything here is called by the handler of receives, which runs on one thread at a time,
//! except [`Withheld::allow`].

use crate::atomic::{
    Atomic,
    Relaxed, //
};

/// The receives that wait: of tokens that take turns, with [`add`](Self::add), or of one token, with
/// [`add_alike`](Self::add_alike).
pub struct Withheld {
    /// The token of the first one of a run: of those that are posted together.
    first: Atomic<u32>,
    /// The number of receives of the run, at least 1. If it is 1, the token can be any.
    run: Atomic<u32>,
    /// The number of them that may still wait.
    left: Atomic<u32>,
    /// The number of receives that are posted at a time.
    batch: Atomic<u32>,
    /// The number of tokens that take turns.
    tokens: Atomic<u32>,
}

impl Withheld {
    /// None; each one is posted at once.
    pub fn new() -> Self {
        Self {
            first: Atomic::<u32>::new(0),
            run: Atomic::<u32>::new(1),
            left: Atomic::<u32>::new(0),
            batch: Atomic::<u32>::new(1),
            tokens: Atomic::<u32>::new(0),
        }
    }

    /// Allows up to `receives` to wait, but no more than `most - 1`. The tokens below `tokens` take
    /// turns from now on; if that is 0, receives with tokens are still posted at once. Any context.
    pub fn allow(&self, receives: u32, most: u32, tokens: u32) {
        // The handler may see one of the two first: a run is then shorter.
        self.tokens.store(tokens, Relaxed);
        self.batch
            .store(receives.saturating_add(1).min(most).max(1), Relaxed);
    }

    /// Number of receives that are posted at a time.
    pub fn batch(&self) -> u32 {
        self.batch.load(Relaxed)
    }

    /// Adds the next one, if nothing has to be posted for it. Otherwise returns `false`:
    /// [`add`](Self::add) or [`add_alike`](Self::add_alike) has to follow.
    #[inline(always)]
    pub fn join(&self) -> bool {
        // Stored in any case: then this is one instruction. If none is left, `add()` sets it anew.
        let (left, none_left) = self.left.load(Relaxed).overflowing_sub(1);
        self.left.store(left, Relaxed);
        !none_left
    }

    /// Adds the last one of a run, which has this `token`. Returns the first and the last token of
    /// receives that have to be posted now, and do not wait any more; `None` if it is another token
    /// than the order of receives demands.
    pub fn add(&self, token: u32) -> Option<(u32, u32)> {
        let run = self.run.load(Relaxed);
        let first = match run {
            1 => token,
            _ => self.first.load(Relaxed),
        };
        // No overflow: there are as many receives in memory.
        if token.wrapping_sub(first).wrapping_add(1) != run {
            self.left.store(0, Relaxed);
            return None;
        }

        let tokens = self.tokens.load(Relaxed);
        let next = match token.wrapping_add(1) {
            next if next < tokens => next,
            _ => 0,
        };
        self.first.store(next, Relaxed);
        self.begin(self.batch().min(tokens.saturating_sub(next)).max(1));
        Some((first, token))
    }

    /// Adds the last one of a run of receives that do not differ. Returns the number of receives
    /// that have to be posted now.
    pub fn add_alike(&self) -> u32 {
        let run = self.run.load(Relaxed);

        self.begin(self.batch());
        run
    }

    /// Begins a run of this many receives, at least 1.
    fn begin(&self, run: u32) {
        self.run.store(run, Relaxed);
        self.left.store(run.saturating_sub(1), Relaxed);
    }
}

impl Default for Withheld {
    fn default() -> Self {
        Self::new()
    }
}
