// SPDX-License-Identifier: GPL-2.0

//! Work that any of several tasks may ask for. One task at a time does it, and none waits.
//!
//! ```text
//!           ask             ask
//!   Free ---------> Taken ------> Again
//!    ^ ^             | ^           |
//!    | +----leave----+ +---leave---+
//!    |               |             |
//!    | +----------abandon----------+
//!    |
//!    +---- end ---> Ended
//! ```
//!
//! The task that asks first has the lead, and does the work. A task that asks meanwhile goes away: the
//! one that has the lead does the work once more before it leaves. So whatever a task did before it
//! asked is seen by a round of the work that begins afterwards, or there are no rounds any more.

use crate::atomic::{
    Atomic,
    Full, //
};

const FREE: u32 = 0;
const TAKEN: u32 = 1;
const AGAIN: u32 = 2;
const ENDED: u32 = 3;

/// The right to do the work. Any context.
pub struct Solo(Atomic<u32>);

/// The right, in the hands of one task. Dropping it is to leave, although there may be more to do: the
/// caller has to see to it that it is done.
pub struct Lead<'a>(&'a Solo);

impl Solo {
    /// No task has the lead.
    pub fn new() -> Self {
        Self(Atomic::<u32>::new(FREE))
    }

    /// Asks for the work. Returns the lead if no task has it.
    #[inline]
    #[must_use = "the work is to be done"]
    pub fn ask(&self) -> Option<Lead<'_>> {
        let mut old = FREE;
        loop {
            let new = match old {
                FREE => TAKEN,
                TAKEN | AGAIN => AGAIN,
                _ => return None,
            };
            // ORDERING: Full, also if nothing changes: what this task did before is seen by the task
            // that exchanges the word next, and so by the next round.
            match self.0.cmpxchg(old, new, Full) {
                Ok(_) if new == TAKEN => return Some(Lead(self)),
                Ok(_) => return None,
                Err(now) => old = now,
            }
        }
    }

    /// Ends the work: no task gets the lead any more. Returns `false`, and does nothing, while a task
    /// has it.
    pub fn end(&self) -> bool {
        // ORDERING: Full, so that the caller sees all that was done with the lead.
        self.0.cmpxchg(FREE, ENDED, Full).is_ok()
    }
}

impl<'a> Lead<'a> {
    /// Leaves after a round of the work. Returns the lead if a task has asked for another one.
    #[inline]
    #[must_use = "the work is to be done once more"]
    pub fn leave(self) -> Option<Self> {
        // ORDERING: Full, for both: the task that has the lead next sees all that this one did, and
        // the next round sees what the task that asked did before.
        if self.0 .0.cmpxchg(TAKEN, FREE, Full).is_ok() {
            core::mem::forget(self);
            return None;
        }
        // While a task has the lead, others can only make it `AGAIN`.
        let _ = self.0 .0.cmpxchg(AGAIN, TAKEN, Full);
        Some(self)
    }

    /// Leaves, although there may be more to do; the same as to drop it.
    pub fn abandon(self) {}
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        // ORDERING: As in `leave()`.
        self.0 .0.xchg(FREE, Full);
    }
}

impl Default for Solo {
    fn default() -> Self {
        Self::new()
    }
}
