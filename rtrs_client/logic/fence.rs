// SPDX-License-Identifier: GPL-2.0

//! Decides how long requests are held back that may still execute on a path that has ended.
//!
//! A request that was in flight is sent again over another path. A server of this project lets the
//! second copy wait for the first. A server that does not announce this executes both in parallel,
//! and the client is told when one of them is over. Afterwards the first copy may write, or read
//! from a chunk that has the data of another request by then, which corrupts data. The client
//! cannot know when the first copy is over, but it can give it time: the requests of such a link
//! are held back until the *fence* is over, counted from the time when no packet of the link is on
//! its way any more.
//!
//! If no path is left and none is waited for, requests fail, and their users must not wait for a
//! fence. But a request that has failed frees its chunk, which the next request may use over
//! another path while the first copy still executes. So the session keeps the fences of requests
//! that failed, and no path comes up before they are over ([`FailedFences`]).

const NS_PER_MS: u64 = 1_000_000;

/// The time until which the requests of a link are held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    until_ns: u64,
}

impl Fence {
    /// For a link that was severed at `now_ns`, with `in_flight` requests to send again. `None` if
    /// no request has to be held back: there is none, the server orders copies, or the operator has
    /// disabled it with an `ms` of 0.
    pub const fn new(now_ns: u64, ms: u32, orders_copies: bool, in_flight: u64) -> Option<Self> {
        if orders_copies || in_flight == 0 || ms == 0 {
            return None;
        }
        // CAST: The value is widened.
        let until_ns = now_ns.saturating_add((ms as u64).saturating_mul(NS_PER_MS));
        Some(Self { until_ns })
    }

    /// Whether the time is over. Before that no request may be sent again.
    pub const fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.until_ns
    }
}

/// The fences of requests that failed, and the path that is about to come up, of a session.
#[derive(Debug, Default)]
pub struct FailedFences {
    /// The time at which all these fences are over.
    until_ns: u64,
    /// A path is about to come up: from here on requests may find it at any time.
    is_coming_up: bool,
}

impl FailedFences {
    /// Requests behind `fence` fail now, without waiting for it. Returns `false` if they must not
    /// fail yet, as a path is about to come up that knows nothing of this fence.
    pub fn fail_behind(&mut self, fence: &Fence) -> bool {
        if self.is_coming_up {
            return false;
        }
        self.until_ns = self.until_ns.max(fence.until_ns);
        true
    }

    /// A path is about to come up. Returns `false` if it must not yet: its server does not order
    /// copies, and a request that has failed may still execute there.
    pub fn begin_coming_up(&mut self, now_ns: u64, orders_copies: bool) -> bool {
        self.is_coming_up = orders_copies || now_ns >= self.until_ns;
        self.is_coming_up
    }

    /// The path is up, or does not come.
    pub fn end_coming_up(&mut self) {
        self.is_coming_up = false;
    }
}
