// SPDX-License-Identifier: GPL-2.0

//! Chooses which of several paths asks the server to create the session.
//!
//! One path at a time: servers of the C implementation that are asked by two create two sessions,
//! each with a part of the connections. The other paths wait until that path was answered, has
//! failed, or has waited for longer than a reachable server takes. That time is [`LEAST_NS`], or,
//! if this session has seen a server take longer, [`TIMES`] as long as that, at most [`MOST_NS`],
//! since a path that gets no answer must not hold up one that would.

/// Least time to wait for a path, in nanoseconds.
pub const LEAST_NS: u64 = 1_000_000_000;

/// Longest time to wait for a path, in nanoseconds.
pub const MOST_NS: u64 = 10_000_000_000;

/// Factor between the longest answer seen and the time to wait.
pub const TIMES: u64 = 4;

/// The request of a connecting path to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Creation {
    /// To create the session.
    Ask,
    /// Another path asks for the creation.
    GiveWay,
    /// The session exists.
    Known,
}

/// The path that asks, and the time that answers take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Creator {
    /// The path that is asking, and the time when it asked, in monotonic nanoseconds.
    asking: Option<(usize, u64)>,
    /// Longest time that a server has taken to answer, in nanoseconds.
    slowest_ns: u64,
}

impl Creator {
    /// Whether path `me` may ask, at `now_ns`, when no path is up. If so, it counts as asking.
    pub fn ask(&mut self, me: usize, now_ns: u64) -> Creation {
        match self.asking {
            Some((other, since))
                if other != me && now_ns.saturating_sub(since) < self.patience_ns() =>
            {
                Creation::GiveWay
            }
            _ => {
                self.asking = Some((me, now_ns));
                Creation::Ask
            }
        }
    }

    /// Path `me` was `answered`, or will not be answered.
    pub fn end(&mut self, me: usize, now_ns: u64, answered: bool) {
        let Some((_, since)) = self.asking.filter(|&(asking, _)| asking == me) else {
            return;
        };
        if answered {
            self.slowest_ns = self.slowest_ns.max(now_ns.saturating_sub(since));
        }
        self.asking = None;
    }

    /// Returns how long other paths wait for a path that asks.
    pub fn patience_ns(&self) -> u64 {
        self.slowest_ns
            .saturating_mul(TIMES)
            .clamp(LEAST_NS, MOST_NS)
    }
}
