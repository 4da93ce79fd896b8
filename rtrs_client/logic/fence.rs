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
//! fence. But a request that has failed may still execute, on any server: there is no second copy
//! that waits for it. Its user may write to the same place next, and its chunk is free for the next
//! request. So the session keeps the fences of requests that failed, and no path comes up before
//! they are over ([`FailedFences`]).

const NS_PER_MS: u64 = 1_000_000;

/// The time until which the requests of a link are held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    until_ns: u64,
}

impl Fence {
    /// For a link that was severed at `now_ns`, with `in_flight` requests to send again. `None` if
    /// there are none, or the operator has disabled it with an `ms` of 0.
    pub const fn new(now_ns: u64, ms: u32, in_flight: u64) -> Option<Self> {
        if in_flight == 0 || ms == 0 {
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
    /// The time at which the fences of all links to servers that order copies are over. The
    /// requests of these links may fail later.
    ordered_until_ns: u64,
    /// The time at which all fences are over of requests that failed.
    until_ns: u64,
    /// A path is about to come up: from here on requests may find it at any time.
    is_coming_up: bool,
}

impl FailedFences {
    /// The requests behind `fence` are not held back, as their server orders copies.
    pub fn note_ordered(&mut self, fence: &Fence) {
        self.ordered_until_ns = self.ordered_until_ns.max(fence.until_ns);
    }

    /// Requests that were not held back fail now. Returns `false` if they must not fail yet, as a
    /// path is about to come up that would not wait for them.
    pub fn fail_ordered(&mut self) -> bool {
        if self.is_coming_up {
            return false;
        }
        self.until_ns = self.until_ns.max(self.ordered_until_ns);
        true
    }

    /// Requests behind `fence` fail now, without waiting for it. Returns `false` if they must not
    /// fail yet, likewise.
    pub fn fail_behind(&mut self, fence: &Fence) -> bool {
        if self.is_coming_up {
            return false;
        }
        self.until_ns = self.until_ns.max(fence.until_ns);
        true
    }

    /// A path is about to come up. Returns `false` if it must not yet: a request that has failed
    /// may still execute.
    pub fn begin_coming_up(&mut self, now_ns: u64) -> bool {
        self.is_coming_up = now_ns >= self.until_ns;
        self.is_coming_up
    }

    /// The path is up, or does not come.
    pub fn end_coming_up(&mut self) {
        self.is_coming_up = false;
    }
}
