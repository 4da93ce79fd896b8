// SPDX-License-Identifier: GPL-2.0

//! A decaying average of latencies that any number of CPUs feed.

use crate::atomic::{
    Atomic,
    Relaxed, //
};

/// Weight of a new sample: 1/8, as TCP smooths its round trips.
const WEIGHT_SHIFT: u32 = 3;

/// Largest sample taken as it is in nanoseconds: a good hour.
const MAX_SAMPLE: u64 = 1 << 42;

/// The average. 0 means that there is no sample yet.
pub struct LatencyAvg {
    /// Nanoseconds, times 2^3.
    scaled: Atomic<u64>,
}

impl LatencyAvg {
    /// An average without samples.
    pub fn new() -> Self {
        Self {
            scaled: Atomic::<u64>::new(0),
        }
    }

    /// Takes a sample in nanoseconds.
    ///
    /// Samples taken at the same time on several CPUs may get lost, which an average can bear and
    /// a shared counter on the IO path would pay for with every request.
    pub fn add(&self, sample_ns: u64) {
        let sample = sample_ns.clamp(1, MAX_SAMPLE);
        let old = self.scaled.load(Relaxed);

        // The first sample is the average.
        // No overflow, no underflow: a scaled average is at most 2^45, and the eighth taken away
        // is part of it.
        let new = if old == 0 {
            sample << WEIGHT_SHIFT
        } else {
            (old - (old >> WEIGHT_SHIFT)).saturating_add(sample)
        };
        if new != old {
            self.scaled.store(new, Relaxed);
        }
    }

    /// The average in nanoseconds, 0 without samples.
    pub fn get(&self) -> u64 {
        match self.scaled.load(Relaxed) {
            0 => 0,
            scaled => (scaled >> WEIGHT_SHIFT).max(1),
        }
    }

    /// Forgets all samples: those of before a reconnect say nothing about the new link.
    pub fn reset(&self) {
        self.scaled.store(0, Relaxed);
    }
}

impl Default for LatencyAvg {
    fn default() -> Self {
        Self::new()
    }
}
