// SPDX-License-Identifier: GPL-2.0

//! Limits how often something may happen: a number of times a second on average, and some at once.

use crate::atomic::{
    Atomic,
    Full,
    Relaxed, //
};

const NS_PER_SEC: u64 = 1_000_000_000;

/// Seconds without an event after which as many events as fit in them may happen at once.
pub const BURST_SECS: u64 = 16;

/// The state of one rate. Any number of CPUs may use it, in any context.
pub struct Rate {
    /// The time at which all events allowed so far would be over, were they spread evenly.
    until_ns: Atomic<u64>,
}

impl Rate {
    /// Nothing happened yet.
    pub fn new() -> Self {
        Self {
            until_ns: Atomic::<u64>::new(0),
        }
    }

    /// Whether an event may happen at `now_ns`, at `per_sec` a second, where 0 means no limit.
    pub fn allows(&self, per_sec: u32, now_ns: u64) -> bool {
        let Some(step) = NS_PER_SEC.checked_div(per_sec.into()) else {
            return true;
        };
        let limit = now_ns.saturating_add(BURST_SECS.saturating_mul(NS_PER_SEC));

        loop {
            let old = self.until_ns.load(Relaxed);
            let new = old.max(now_ns).saturating_add(step);
            if new > limit {
                return false;
            }
            if self.until_ns.cmpxchg(old, new, Full).is_ok() {
                return true;
            }
        }
    }
}

impl Default for Rate {
    fn default() -> Self {
        Self::new()
    }
}
