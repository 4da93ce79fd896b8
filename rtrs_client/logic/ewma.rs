// SPDX-License-Identifier: GPL-2.0

//! A decaying average of latencies to which any number of CPUs add samples.
//!
//! The longer there was no sample, the more the next one counts. After a path was slow once,
//! requests may avoid it, and only heartbeats measure it, some seconds apart. A few of them must be
//! enough to forget the old latency.

use crate::atomic::{
    Atomic,
    Relaxed, //
};

/// Weight of a sample that follows another one soon: 1/8, as TCP smooths its round trips.
const WEIGHT_SHIFT: u32 = 3;

/// Nanoseconds without a sample that add another eighth to the weight of the next.
const GAP_NS: u64 = 500_000_000;

/// Maximum of eighths: a single sample may be an outlier.
const MAX_WEIGHT: u64 = 7;

/// Largest sample that is not cut, in nanoseconds: a little more than an hour.
const MAX_SAMPLE: u64 = 1 << 42;

/// The average. 0 means that there is no sample yet.
pub struct LatencyAvg {
    /// Nanoseconds, times 2^3.
    scaled: Atomic<u64>,
    /// Time of the latest sample.
    at_ns: Atomic<u64>,
}

impl LatencyAvg {
    /// An average without samples.
    pub fn new() -> Self {
        Self {
            scaled: Atomic::<u64>::new(0),
            at_ns: Atomic::<u64>::new(0),
        }
    }

    /// Adds a sample in nanoseconds, taken at `now_ns` of a clock that does not go back.
    ///
    /// Samples that are added at the same time on several CPUs may get lost. That does not matter
    /// for an average, while a shared counter would make each request slower.
    pub fn add(&self, sample_ns: u64, now_ns: u64) {
        let sample = sample_ns.clamp(1, MAX_SAMPLE);
        let old = self.scaled.load(Relaxed);
        // Samples of several CPUs may be seen in any order.
        let gap = now_ns.saturating_sub(self.at_ns.load(Relaxed));
        let weight = (gap / GAP_NS).saturating_add(1).min(MAX_WEIGHT);

        // The first sample is the average.
        // No overflow, no underflow: a scaled average is at most 2^45, of which at most seven
        // eighths are taken away, and seven samples are below 2^45.
        let new = if old == 0 {
            sample << WEIGHT_SHIFT
        } else {
            (old - (old >> WEIGHT_SHIFT) * weight).saturating_add(sample * weight)
        };
        if new != old {
            self.scaled.store(new, Relaxed);
        }
        self.at_ns.store(now_ns, Relaxed);
    }

    /// The average in nanoseconds, 0 without samples.
    pub fn get(&self) -> u64 {
        match self.scaled.load(Relaxed) {
            0 => 0,
            scaled => (scaled >> WEIGHT_SHIFT).max(1),
        }
    }

    /// Forgets all samples: those from before a reconnect say nothing about the new link.
    pub fn reset(&self) {
        self.scaled.store(0, Relaxed);
    }
}

impl Default for LatencyAvg {
    fn default() -> Self {
        Self::new()
    }
}
