// SPDX-License-Identifier: GPL-2.0

//! A path that is lost again and again soon after it has come up.
//!
//! Such a path may be able to connect, and to answer heartbeats, and still not carry data, for
//! example if large packets are dropped on the way. Each time it comes up it would get requests
//! that have to be sent again over another path, after a while. So after [`FREE`] such losses in a
//! row it is *on trial* when it comes up: only its heartbeats use it while another path can take
//! the requests. A trial takes [`FIRST_SECS`], and each further one twice as long as the last, up
//! to [`LONGEST_SECS`].
//!
//! A path that has been up for [`GOOD_SECS`] after its trial has a clean record again.

const NS_PER_SEC: u64 = 1_000_000_000;

/// Number of losses in a row, each soon after the path came up, that have no consequence.
pub const FREE: u32 = 4;

/// Seconds of the first trial.
pub const FIRST_SECS: u64 = 8;

/// Seconds of the longest trial.
pub const LONGEST_SECS: u64 = 512;

/// Seconds of uptime after which a loss does not count as one in a row.
pub const GOOD_SECS: u64 = 60;

/// The record of a path's losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    losses: u32,
    /// The end of the trial, or the time when the path came up if there was no trial.
    good_since_ns: u64,
}

impl Record {
    /// A clean record.
    pub const fn new() -> Self {
        Self {
            losses: 0,
            good_since_ns: 0,
        }
    }

    /// The path came up. Returns the end of its trial; 0 if it is not on trial.
    pub fn came_up(&mut self, now_ns: u64) -> u64 {
        let secs = match self.losses.checked_sub(FREE) {
            None | Some(0) => 0,
            Some(more) => 1u64
                .checked_shl(more.saturating_sub(1))
                .map_or(LONGEST_SECS, |n| FIRST_SECS.saturating_mul(n))
                .min(LONGEST_SECS),
        };

        self.good_since_ns = now_ns.saturating_add(secs.saturating_mul(NS_PER_SEC));
        if secs == 0 {
            0
        } else {
            self.good_since_ns
        }
    }

    /// The path, which was up, was lost.
    pub fn lost(&mut self, now_ns: u64) {
        let good_ns = now_ns.saturating_sub(self.good_since_ns);

        self.losses = if good_ns >= GOOD_SECS.saturating_mul(NS_PER_SEC) {
            1
        } else {
            self.losses.saturating_add(1)
        };
    }

    /// Losses in a row.
    pub const fn losses(&self) -> u32 {
        self.losses
    }
}
