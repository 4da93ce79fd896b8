// SPDX-License-Identifier: GPL-2.0

//! Whether the client of a session lives, for somebody else who wants its name.
//!
//! # Locking
//!
//! `Session::question` (spinlock, interrupts off), then `Session::paths`.

use kernel::sync::atomic::Relaxed;

use super::Session;
use crate::logic::admission::Verdict;

impl Session {
    /// Whether its client has left in an orderly way, for what can be seen from here. Any context.
    pub(crate) fn has_left(&self) -> bool {
        self.left.load(Relaxed)
    }

    /// A path that was up ends; `left` if its client ended it. Any context.
    pub(crate) fn note_end(&self, left: bool) {
        self.left.store(left, Relaxed);
    }

    /// Whether its client lives: asks it on all paths that there are, and listens. To be called again
    /// and again until there is an answer, at `now` nanoseconds of the monotonic clock. A path that
    /// is just starting answers for it: the client has asked for its chunks. Any context.
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
