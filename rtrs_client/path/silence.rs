// SPDX-License-Identifier: GPL-2.0

//! Functions of a path for the session's watch.
//!
//! # Context
//!
//! The session's watch, which does not run twice at a time; owner tasks; and, as stated, the task
//! that has the session's `recreate_lock`.

use kernel::sync::rcu;
use rtrs_bindings::errno;

use super::Path;
use crate::logic::silence::{
    Seen,
    Silence, //
};

/// The state of the link with this number; a link that is new has none yet.
fn of_link(known: &mut (u32, Silence), number: u32) -> &mut Silence {
    if known.0 != number {
        *known = (number, Silence::new());
    }
    &mut known.1
}

impl Path {
    /// Ends an interval. Returns what was seen in it and what is known now; `None` if the path does
    /// not take requests.
    pub(crate) fn end_interval(&self) -> Option<(Seen, Silence)> {
        let guard = rcu::read_lock();
        let link = self.link(&guard)?;
        let core = &link.core;
        let (waits, excused) = (link.inflight() > 0, link.may_be_mute());
        let mut known = self.silence.lock();
        let silence = of_link(&mut known, core.number);
        let seen = Seen {
            // With the lock: what comes before a question is no answer to it.
            heard: link.heard(),
            waits,
            excused,
        };
        silence.interval(seen);
        Some((seen, *silence))
    }

    /// The server does not know the session, according to another path. Returns whether the path is
    /// doubted from now on.
    pub(crate) fn doubt(&self) -> bool {
        let guard = rcu::read_lock();
        let Some(link) = self.link(&guard) else {
            return false;
        };
        let mut known = self.silence.lock();
        let silence = of_link(&mut known, link.core.number);
        if silence.is_doubted() {
            return false;
        }
        // Messages received before count for an earlier question only.
        if link.heard() {
            silence.hear();
        }
        silence.doubt()
    }

    /// Another path is about to come up: this one has to show that the server still has it. Only
    /// messages count that are received from now on. Returns whether the path is up. Task that has
    /// the session's `recreate_lock`.
    pub(crate) fn question(&self) -> bool {
        let guard = rcu::read_lock();
        let Some(link) = self.link(&guard) else {
            return false;
        };
        {
            let mut known = self.silence.lock();
            let heard = link.heard();
            of_link(&mut known, link.core.number).question(heard);
        }
        link.ask();
        true
    }

    /// Whether the path is up, and was heard since it was [questioned](Self::question). Task that
    /// has the session's `recreate_lock`: no link has come since.
    pub(crate) fn has_answered(&self) -> bool {
        let guard = rcu::read_lock();
        let Some(link) = self.link(&guard) else {
            return false;
        };
        let mut known = self.silence.lock();
        let silence = of_link(&mut known, link.core.number);
        if link.heard() {
            silence.hear();
        }
        silence.has_answered()
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
