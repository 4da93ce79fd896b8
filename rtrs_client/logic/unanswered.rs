// SPDX-License-Identifier: GPL-2.0

//! A server that is alive, but does not answer requests.
//!
//! Heartbeats show that the server is alive, but not that it executes requests: a connection may be
//! stuck, and a server may have lost requests. The age of requests shows that. But a disk may be
//! slow, and only the server can judge that. So a link is *stalled* if its oldest request has
//! waited for the time-out, and no other one was answered for as long. Then the link is given up,
//! and its requests are sent again.
//!
//! They may be slow again, over any path, and then giving up links gains nothing. So each link
//! given up in a row, without an answer on any path of the session in between, doubles the
//! time-out, and after [`MAX_IN_A_ROW`] of them no link is given up. The log still reports waiting
//! requests.
//!
//! If other requests are answered, an old request is only reported in the log.

use crate::atomic::{
    Atomic,
    Relaxed, //
};

/// Links of a session that are given up in a row, without an answer in between.
pub const MAX_IN_A_ROW: u32 = 3;

/// The action for a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Fine,
    /// Report it in the log.
    Slow,
    /// No request is answered: report it, and give the link up.
    Stalled,
}

/// State of a link. Times are nanoseconds of a monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// Latest time before which a request was answered, or the link was new.
    answered: u64,
    /// Time at which the oldest request of the last look was sent, or later.
    since: u64,
}

impl Unanswered {
    /// The state of a link that was just established.
    pub const fn new(now: u64) -> Self {
        Self {
            answered: now,
            since: now,
        }
    }

    /// Ends an interval, in which a request was answered or not; and requests wait or not. Returns
    /// whether the age of the oldest is needed for [`Unanswered::look`]: about once per time-out.
    pub fn interval(
        &mut self,
        now: u64,
        answered: bool,
        waits: bool,
        timeout: Option<u64>,
    ) -> bool {
        if answered {
            self.answered = now;
        }
        if !waits {
            self.since = now;
        }
        timeout.is_some_and(|timeout| waits && now.saturating_sub(self.since) >= timeout)
    }

    /// The oldest request was sent `age` ago.
    pub fn look(&mut self, now: u64, age: u64, timeout: u64) -> Verdict {
        if age < timeout {
            self.since = now.saturating_sub(age);
            return Verdict::Fine;
        }
        if now.saturating_sub(self.answered) < timeout {
            // The next look is when no request was answered for the time-out, or else one time-out
            // from now.
            self.since = self.answered;
            Verdict::Slow
        } else {
            self.since = now;
            Verdict::Stalled
        }
    }
}

/// Number of links of a session that were given up in a row. Shared between its paths.
pub struct InARow(Atomic<u32>);

impl InARow {
    /// No link was given up.
    pub fn new() -> Self {
        Self(Atomic::<u32>::new(0))
    }

    /// A request was answered.
    pub fn answered(&self) {
        if self.0.load(Relaxed) != 0 {
            self.0.store(0, Relaxed);
        }
    }

    /// Returns the present time-out in nanoseconds; `None` if there is none.
    pub fn timeout_ns(&self, ms: u32) -> Option<u64> {
        let times = 1u64 << self.0.load(Relaxed).min(MAX_IN_A_ROW);

        (ms != 0).then(|| {
            u64::from(ms)
                .saturating_mul(1_000_000)
                .saturating_mul(times)
        })
    }

    /// A link is stalled. Returns whether it may be given up.
    pub fn may_give_up(&self) -> bool {
        if self.0.load(Relaxed) >= MAX_IN_A_ROW {
            return false;
        }
        self.0.fetch_add(1, Relaxed);
        true
    }
}

impl Default for InARow {
    fn default() -> Self {
        Self::new()
    }
}
