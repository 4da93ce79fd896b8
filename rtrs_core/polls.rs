// SPDX-License-Identifier: GPL-2.0

//! How many completions are found at a time.
//!
//! # Context
//!
//! Counting: any but NMI. All else: any.

use kernel::prelude::*;
use rtrs_bindings::percpu::{
    Counters,
    PerCpu, //
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
    /// Most completions found by a poll. Changed on the CPU itself; what gets lost when a task
    /// moves is one sample.
    most: PerCpu<Atomic<u32>>,
}

impl PollStats {
    /// All zero. Sleeps.
    pub fn new() -> Result<Self> {
        Ok(Self {
            counters: Counters::new()?,
            most: PerCpu::new(|_| Atomic::<u32>::new(0))?,
        })
    }

    /// A completion was found, the `position`th of its poll, from 1.
    #[inline]
    pub fn found(&self, position: u32) {
        // As a rule a poll finds one: that is one number.
        if position <= 1 {
            return self.counters.add(POLLS, 1);
        }
        self.counters.add(MORE, 1);
        let most = self.most.this();
        if position > most.load(Relaxed) {
            most.store(position, Relaxed);
        }
    }

    /// Most completions found by one poll.
    pub fn most(&self) -> u32 {
        let one = u32::from(self.polls() != 0);
        self.most
            .iter()
            .map(|(_, most)| most.load(Relaxed))
            .fold(one, u32::max)
    }

    /// All completions.
    pub fn completions(&self) -> u64 {
        // No overflow: so many there are not.
        self.polls().wrapping_add(self.counters.sum(MORE))
    }

    /// Polls that found any.
    pub fn polls(&self) -> u64 {
        self.counters.sum(POLLS)
    }

    /// Counts from zero.
    pub fn reset(&self) {
        self.counters.reset(POLLS);
        self.counters.reset(MORE);
        for (_, most) in self.most.iter() {
            most.store(0, Relaxed);
        }
    }
}
