// SPDX-License-Identifier: GPL-2.0

//! A server that lives, and does not answer requests.
//!
//! Heartbeats show that the server is there, and not that it does what it is asked to: a connection
//! may be stuck, and a server may have lost requests. What tells is the age of requests. But a disk
//! may be slow, and the server is the one to judge that. So a link is *stalled* if its oldest request
//! has waited for the time-out, and no other one was answered for as long. Then the link is given up,
//! and its requests are sent again.
//!
//! They may be slow again, over any path, and then giving up links gains nothing. So each time in a
//! row, without an answer on any path of the session in between, doubles the time-out, and after
//! [`MAX_IN_A_ROW`] times no link is given up. The log still says what waits.
//!
//! An old request among others that are answered is told in the log, and gives up nothing.

use crate::atomic::{
    Atomic,
    Relaxed, //
};

/// Links of a session that are given up in a row, without an answer in between.
pub const MAX_IN_A_ROW: u32 = 3;

/// What is to be done about a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Fine,
    /// To be told in the log.
    Slow,
    /// Nothing is answered: to be told, and to be given up.
    Stalled,
}

/// What is known of a link. Times are nanoseconds of a monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// Latest time by which something had been answered, or the link was new.
    answered: u64,
    /// When the oldest request that was known at the last look had been sent, or later.
    since: u64,
}

impl Unanswered {
    /// Of a link that was just established.
    pub const fn new(now: u64) -> Self {
        Self {
            answered: now,
            since: now,
        }
    }

    /// An interval is over, in which something was answered, or not; and requests wait, or none
    /// does. Whether the age of the oldest is of interest, which [`Unanswered::look`] then needs:
    /// about once per time-out.
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
            // The next look is when nothing was answered for so long, or else as long from now.
            self.since = self.answered;
            Verdict::Slow
        } else {
            self.since = now;
            Verdict::Stalled
        }
    }
}

/// How often links of a session were given up in a row. Shared between its paths.
pub struct InARow(Atomic<u32>);

impl InARow {
    /// None was.
    pub fn new() -> Self {
        Self(Atomic::<u32>::new(0))
    }

    /// A request was answered.
    pub fn answered(&self) {
        if self.0.load(Relaxed) != 0 {
            self.0.store(0, Relaxed);
        }
    }

    /// The time-out as it is now, in nanoseconds; `None` if there is none.
    pub fn timeout_ns(&self, ms: u32) -> Option<u64> {
        let times = 1u64 << self.0.load(Relaxed).min(MAX_IN_A_ROW);

        (ms != 0).then(|| {
            u64::from(ms)
                .saturating_mul(1_000_000)
                .saturating_mul(times)
        })
    }

    /// A link is stalled. Whether it may be given up.
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
