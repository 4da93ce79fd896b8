// SPDX-License-Identifier: GPL-2.0

//! Predicts for which requests a task will poll.
//!
//! A block driver in C does not say whether it will poll for a request: the C API has no parameter
//! for it. But the session sees when a task polls. So each CPU remembers the queue that was last
//! polled on it. For a short while, requests that are submitted there go out on that queue, since a
//! task that polls once polls for its next request as well. A wrong guess costs time, not
//! correctness: the guard checks queues that are not polled.

use crate::atomic::{
    Atomic,
    Relaxed, //
};

/// How long after its last poll a CPU counts as polling, in nanoseconds.
pub const HOT_NS: u64 = 5_000_000;

/// Bits of the word that hold the queue. The time loses a precision of 65 microseconds.
const QUEUE_BITS: u64 = 0xffff;

/// State of one CPU.
pub struct PollHint {
    /// Time and queue; 0 if there was none.
    word: Atomic<u64>,
}

impl PollHint {
    /// No poll yet.
    pub fn new() -> Self {
        Self {
            word: Atomic::<u64>::new(0),
        }
    }

    /// Notes that queue `queue` is being polled at `now_ns` of a monotonic clock.
    pub fn polled(&self, queue: u16, now_ns: u64) {
        self.word
            .store(now_ns & !QUEUE_BITS | u64::from(queue), Relaxed);
    }

    /// Returns the queue for a request that is submitted at `now_ns`, if this CPU counts as
    /// polling.
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
