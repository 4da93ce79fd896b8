// SPDX-License-Identifier: GPL-2.0

//! How long requests are held back that may still be executing on the path that ended.
//!
//! A request that was in flight is sent again over another path. A server of ours lets the second
//! copy wait for the first; one that does not say so executes both side by side, and the client is
//! told when either is over. What the first copy writes after that, or reads from a chunk that
//! has the data of another request by then, is damage. The client cannot know when the first copy
//! is over. It can give it time: the requests of such a link are held back until the *fence* is over,
//! counted from when nothing of the link is on its way any more.

const NS_PER_MS: u64 = 1_000_000;

/// Until when the requests of a link are held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    until_ns: u64,
}

impl Fence {
    /// For a link that was severed at `now_ns`, with `in_flight` requests to be sent again. `None` if
    /// nothing has to be held back: there is nothing, or the server orders copies, or the operator
    /// wants none, which is `ms` of 0.
    pub const fn new(now_ns: u64, ms: u32, orders_copies: bool, in_flight: u64) -> Option<Self> {
        if orders_copies || in_flight == 0 || ms == 0 {
            return None;
        }
        // CAST: it gets larger.
        let until_ns = now_ns.saturating_add((ms as u64).saturating_mul(NS_PER_MS));
        Some(Self { until_ns })
    }

    /// Whether they are held back still. Not if the session is `failing`: then they are not sent
    /// again, but fail, and their users are not to wait for that.
    pub const fn holds(&self, now_ns: u64, failing: bool) -> bool {
        now_ns < self.until_ns && !failing
    }
}
