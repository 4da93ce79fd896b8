// SPDX-License-Identifier: GPL-2.0

//! Functions of a path for the session's watch.
//!
//! # Context
//!
//! The session's watch, which does not run twice at a time.

use kernel::sync::rcu;
use rtrs_bindings::errno;

use super::Path;
use crate::logic::silence::{
    Seen,
    Silence, //
};

impl Path {
    /// Ends an interval. Returns what was seen in it and what is known now; `None` if the path does
    /// not take requests.
    pub(crate) fn end_interval(&self) -> Option<(Seen, Silence)> {
        let guard = rcu::read_lock();
        let link = self.link(&guard)?;
        let core = &link.core;
        let seen = Seen {
            heard: core.liveness.heard(),
            waits: link.inflight() > 0,
            excused: link.may_be_mute(),
        };
        let mut known = self.silence.lock();
        if known.0 != core.number {
            *known = (core.number, Silence::new());
        }
        known.1.interval(seen);
        Some((seen, known.1))
    }

    /// The server does not know the session, according to another path. Returns whether the path is
    /// doubted from now on.
    pub(crate) fn doubt(&self) -> bool {
        let guard = rcu::read_lock();
        let Some(link) = self.link(&guard) else {
            return false;
        };
        let mut known = self.silence.lock();
        if known.0 != link.core.number {
            *known = (link.core.number, Silence::new());
        }
        let doubted = known.1.doubt();
        if doubted {
            // Messages received before do not count.
            link.core.liveness.heard();
        }
        doubted
    }

    /// Asks for a sign of life.
    pub(crate) fn ask(&self) {
        let guard = rcu::read_lock();
        if let Some(link) = self.link(&guard) {
            link.ask();
        }
    }

    /// Ends the link if it was found silent for too long, given whether another path is heard.
    /// Returns whether it was.
    pub(crate) fn fail_if_silent(&self, other_heard: bool) -> bool {
        let guard = rcu::read_lock();
        let (number, known) = *self.silence.lock();
        match self.link(&guard) {
            // Not a link that has come since.
            Some(link) if link.core.number == number && known.is_lost(other_heard) => {
                let errno = errno::ETIMEDOUT.to_errno();
                let why = if known.is_doubted() {
                    "silent, and its server does not know the session"
                } else {
                    "silent, unlike other paths"
                };
                link.core.fail(why, errno);
                true
            }
            _ => false,
        }
    }
}
