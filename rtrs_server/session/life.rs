// SPDX-License-Identifier: GPL-2.0

//! Whether the client of a session lives, for another session that wants its name.
//!
//! # Locking
//!
//! `Session::question` (spinlock, interrupts off), then `Session::paths`.

use kernel::sync::atomic::Relaxed;

use super::Session;
use crate::logic::admission::Verdict;

impl Session {
    /// Whether its client has left in an orderly way, as far as the server can tell. Any context.
    pub(crate) fn has_left(&self) -> bool {
        self.left.load(Relaxed)
    }

    /// A path that was up ends; `left` if its client ended it. Any context.
    pub(crate) fn note_end(&self, left: bool) {
        self.left.store(left, Relaxed);
    }

    /// Whether its client lives: asks it on all paths, and listens. `now` is in nanoseconds of the
    /// monotonic clock. The caller has to repeat this until there is an answer. A path that is just
    /// starting counts as an answer: the client has asked for its chunks. Any context.
    pub(crate) fn asked_for_life(&self, now: u64) -> Verdict {
        let mut question = self.question.lock();
        let paths = self.paths.lock();
        let alive = paths.iter().filter(|path| !path.is_closing());
        let verdict = question.poll(now, alive.clone().any(|path| path.was_heard()));

        if verdict == Verdict::Ask {
            alive.for_each(|path| path.ask());
        }
        verdict
    }
}
