// SPDX-License-Identifier: GPL-2.0

//! Which of several paths asks the server to create the session.
//!
//! One at a time: servers of the C implementation that are asked by two create two sessions, each
//! with a part of the connections. The others leave it to that one until it was answered, has failed,
//! or has waited for longer than a server that can be reached takes: [`LEAST_NS`], or, if this session
//! has seen a server take longer, [`TIMES`] as long as that, and [`MOST_NS`] at most, since a path that
//! gets no answer must not hold up one that would.

/// For so long a path is waited for at least, in nanoseconds.
pub const LEAST_NS: u64 = 1_000_000_000;

/// The same, at most.
pub const MOST_NS: u64 = 10_000_000_000;

/// How many times longer than seen a server may take.
pub const TIMES: u64 = 4;

/// What a path that connects may want of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Creation {
    /// To create the session.
    Ask,
    /// Another path asks for that.
    GiveWay,
    /// It is there.
    Known,
}

/// Who asks, and how long that takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Creator {
    /// The path that asked, and when, in monotonic nanoseconds, until it is answered.
    asking: Option<(usize, u64)>,
    /// Longest time that a server has taken to answer that, in nanoseconds.
    slowest_ns: u64,
}

impl Creator {
    /// Whether path `me` may ask, at `now_ns`, when no path is up. If so it does.
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

    /// Path `me` was `answered`, or is not going to be.
    pub fn end(&mut self, me: usize, now_ns: u64, answered: bool) {
        let Some((_, since)) = self.asking.filter(|&(asking, _)| asking == me) else {
            return;
        };
        if answered {
            self.slowest_ns = self.slowest_ns.max(now_ns.saturating_sub(since));
        }
        self.asking = None;
    }

    /// How long a path that asks is waited for.
    pub fn patience_ns(&self) -> u64 {
        self.slowest_ns
            .saturating_mul(TIMES)
            .clamp(LEAST_NS, MOST_NS)
    }
}
