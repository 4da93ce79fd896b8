// SPDX-License-Identifier: GPL-2.0

//! Statistics: how many completions a poll finds at a time.
//!
//! # Context
//!
//! Counting: any but NMI. Everything else: any.

use kernel::prelude::*;
use rtrs_bindings::{
    ib::Polled,
    percpu::Counters, //
};

use crate::atomic::{
    Atomic,
    Relaxed, //
};

const POLLS: usize = 0;
/// Completions that were not the first of their poll.
const MORE: usize = 1;
const COUNTERS: usize = 2;

/// Counts of completions, by whether they were the first that a poll found. Per CPU.
pub struct PollStats {
    counters: Counters<COUNTERS>,
    /// The one that was farthest behind the first of its poll. Rarely written; if two CPUs write it at
    /// the same time, one sample is lost.
    most: Atomic<usize>,
}

impl PollStats {
    /// Starts with all counts at zero. Sleeps.
    pub fn new() -> Result<Self> {
        Ok(Self {
            counters: Counters::new()?,
            most: Atomic::<usize>::new(0),
        })
    }

    /// Counts a completion. One the place of which is not known counts as the first of its poll.
    #[inline(always)]
    pub fn count(&self, polled: Polled) {
        if polled == Polled::FIRST {
            return self.counters.add(POLLS, 1);
        }
        if polled.offset() > self.most.load(Relaxed) {
            return self.count_farthest(polled);
        }
        self.counters.add(MORE, 1);
    }

    /// The same for one that is farther behind the first than any before, or has no known place. Rare,
    /// but no call, for which the caller would have to save registers.
    #[inline(always)]
    fn count_farthest(&self, polled: Polled) {
        if polled.before().is_none() {
            return self.counters.add(POLLS, 1);
        }
        self.most.store(polled.offset(), Relaxed);
        self.counters.add(MORE, 1);
    }

    /// The most completions found by one poll.
    pub fn most(&self) -> u32 {
        let first = u32::from(self.polls() != 0);
        let more = Polled::at(self.most.load(Relaxed)).before();
        more.unwrap_or(0).saturating_add(first)
    }

    /// The number of all completions.
    pub fn completions(&self) -> u64 {
        // No overflow: the number stays far below 2^64.
        self.polls().wrapping_add(self.counters.sum(MORE))
    }

    /// The number of polls that found a completion.
    pub fn polls(&self) -> u64 {
        self.counters.sum(POLLS)
    }

    /// Resets all counts to zero.
    pub fn reset(&self) {
        self.counters.reset(POLLS);
        self.counters.reset(MORE);
        self.most.store(0, Relaxed);
    }
}
