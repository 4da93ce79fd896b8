// SPDX-License-Identifier: GPL-2.0

//! Statistics: how many completions a poll finds at a time.
//!
//! # Context
//!
//! Counting: any but NMI. Everything else: any.

use kernel::prelude::*;
use rtrs_bindings::percpu::Counters;

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
    /// The most completions found by a poll besides its first. Rarely written; if two CPUs write it
    /// at the same time, one sample is lost.
    most: Atomic<u32>,
}

impl PollStats {
    /// Starts with all counts at zero. Sleeps.
    pub fn new() -> Result<Self> {
        Ok(Self {
            counters: Counters::new()?,
            most: Atomic::<u32>::new(0),
        })
    }

    /// Counts a completion of a poll that has found `before` completions before it.
    #[inline(always)]
    pub fn count(&self, before: u32) {
        // A poll usually finds one completion, which costs one counter.
        if before == 0 {
            return self.counters.add(POLLS, 1);
        }
        self.counters.add(MORE, 1);
        if before > self.most.load(Relaxed) {
            self.most.store(before, Relaxed);
        }
    }

    /// The most completions found by one poll.
    pub fn most(&self) -> u32 {
        let first = u32::from(self.polls() != 0);
        self.most.load(Relaxed).saturating_add(first)
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
