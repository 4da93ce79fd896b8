// SPDX-License-Identifier: GPL-2.0

//! Decides how long a session that lost its last path is kept for its client.

use rtrs_core::proto::PathWait;

use super::quota::NS_PER_SEC;

/// Seconds that are added to the time a client names. A client may learn later than the server that
/// the last path is gone (after 25 s, by its heartbeats), and a path that it begins to connect
/// before its time is over takes up to 30 s.
pub const GRACE_SECS: u32 = 60;

/// Limits set by the administrator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linger {
    /// Seconds for a client that does not say how long it waits; 0: no session is kept.
    pub secs: u32,
    /// Maximum of seconds for a client that does.
    pub max_secs: u32,
}

impl Linger {
    /// Returns the seconds for which to keep a session if its client's requests wait for `wait`.
    /// The client can make the time longer, never shorter; 0: the session is not kept.
    pub fn of(self, wait: PathWait) -> u32 {
        if self.secs == 0 {
            return 0;
        }
        let wish = match wait {
            PathWait::Unsaid => self.secs,
            PathWait::Secs(secs) => secs.get().saturating_add(GRACE_SECS),
            PathWait::Forever => self.max_secs,
        };
        wish.min(self.max_secs).max(self.secs)
    }
}

/// Whether a timer for `secs` seconds that has fired is that of an earlier outage: the last path went
/// `gone_ns` ago, in nanoseconds. The timer itself may fire early by a part of a second.
pub fn is_early(secs: u32, gone_ns: u64) -> bool {
    gone_ns < u64::from(secs.saturating_sub(1)).saturating_mul(NS_PER_SEC)
}
