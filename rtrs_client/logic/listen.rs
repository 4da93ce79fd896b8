// SPDX-License-Identifier: GPL-2.0

//! Finds out that a server is silent over a link that is not in use yet.
//!
//! Such a link has no heartbeat, and the server may take long to answer: a device that it opens may
//! have to spin up. But it answers when it is asked for a sign of life meanwhile. If it does not,
//! the link is most likely dead, and paths that wait for its answer, or for their turn behind it,
//! wait in vain.
//!
//! Times are in nanoseconds of a monotonic clock.

/// Silence after which the server is asked, and interval at which it is asked again.
pub const ASK_NS: u64 = 500_000_000;

/// Silence after which the link is given up. A heartbeat may be lost, and a device may take some
/// seconds to send it again. Nothing is lost with the link but the time to connect.
pub const SILENT_NS: u64 = 5_000_000_000;

/// If there is more time than this between two looks, the machine stood still, and nothing follows
/// from the silence.
pub const GAP_NS: u64 = 1_000_000_000;

/// What is to be done at a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Wait,
    /// The server has to be asked.
    Ask,
    /// The link has to be given up.
    Silent,
}

/// What was heard over a link, and when.
#[derive(Clone, Copy, Debug)]
pub struct Listener {
    looked_ns: u64,
    heard_ns: u64,
    asked_ns: u64,
}

impl Listener {
    /// Begins at `now_ns`, as if the server was heard then.
    pub const fn new(now_ns: u64) -> Self {
        Self {
            looked_ns: now_ns,
            heard_ns: now_ns,
            asked_ns: now_ns,
        }
    }

    /// Looks at `now_ns`; `heard` says whether the server was heard since the last look.
    pub fn look(&mut self, now_ns: u64, heard: bool) -> Verdict {
        if heard || now_ns.saturating_sub(self.looked_ns) > GAP_NS {
            self.heard_ns = now_ns;
        }
        self.looked_ns = now_ns;
        let silent_ns = now_ns.saturating_sub(self.heard_ns);
        if silent_ns >= SILENT_NS {
            return Verdict::Silent;
        }
        if silent_ns >= ASK_NS && now_ns.saturating_sub(self.asked_ns) >= ASK_NS {
            self.asked_ns = now_ns;
            return Verdict::Ask;
        }
        Verdict::Wait
    }
}
