// SPDX-License-Identifier: GPL-2.0

//! Which requests somebody will come for.
//!
//! A block driver in C does not say of a request that it will be polled for: the C API has no
//! word for it. What is known is who polls. So each CPU remembers the queue that was last polled
//! on it: for a short while, what is submitted there goes out on that queue, since who polls once
//! polls for what they submit next as well. A guess that is wrong costs time, not correctness:
//! somebody else looks after the queues that nobody polls.

use crate::atomic::{
    Atomic,
    Relaxed, //
};

/// How long a CPU is taken to poll after it last did, in nanoseconds.
pub const HOT_NS: u64 = 5_000_000;

/// Bits of the word that hold the queue; what is lost of the time are 65 microseconds.
const QUEUE_BITS: u64 = 0xffff;

/// What one CPU remembers.
pub struct PollHint {
    /// Time and queue; 0 for never.
    word: Atomic<u64>,
}

impl PollHint {
    /// Nobody has polled.
    pub fn new() -> Self {
        Self {
            word: Atomic::<u64>::new(0),
        }
    }

    /// Queue `queue` is being polled at `now_ns` of a monotonic clock.
    pub fn polled(&self, queue: u16, now_ns: u64) {
        self.word
            .store(now_ns & !QUEUE_BITS | u64::from(queue), Relaxed);
    }

    /// The queue for what is submitted at `now_ns`, if somebody polls.
    pub fn queue(&self, now_ns: u64) -> Option<u16> {
        let word = self.word.load(Relaxed);
        let at = word & !QUEUE_BITS;
        if at == 0 || now_ns.saturating_sub(at) > HOT_NS {
            return None;
        }
        u16::try_from(word & QUEUE_BITS).ok()
    }
}

impl Default for PollHint {
    fn default() -> Self {
        Self::new()
    }
}
