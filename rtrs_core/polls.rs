// SPDX-License-Identifier: GPL-2.0

//! How many completions are found at a time.
//!
//! # Context
//!
//! Counting: any but NMI. All else: any.

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
    /// Most completions found by a poll, if it is more than one. Rarely written; if two do at the same
    /// time then what gets lost is one sample.
    most: Atomic<u32>,
}

impl PollStats {
    /// All zero. Sleeps.
    pub fn new() -> Result<Self> {
        Ok(Self {
            counters: Counters::new()?,
            most: Atomic::<u32>::new(0),
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
        if position > self.most.load(Relaxed) {
            self.most.store(position, Relaxed);
        }
    }

    /// Most completions found by one poll.
    pub fn most(&self) -> u32 {
        let one = u32::from(self.polls() != 0);
        self.most.load(Relaxed).max(one)
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
        self.most.store(0, Relaxed);
    }
}
