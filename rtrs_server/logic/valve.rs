// SPDX-License-Identifier: GPL-2.0

//! Whether requests of a connection are handed to the user, or wait.
//!
//! ```text
//!         shut             hold
//!   Open -------> Shut ----------> Held
//!    ^             |                |
//!    +----open-----+-----open-------+
//! ```
//!
//! A task that finds a reason to wait shuts the valve. A task that finds the reason gone opens it. The
//! worker that hands requests over stops at a valve that is not open, and notes that. The task that
//! opens it then has to start the worker.
//!
//! A task that has shut the valve must look for its reason once more: it may have gone before, and the
//! task that has ended it may have found the valve open.

use crate::atomic::{
    Atomic,
    Full,
    Relaxed, //
};

/// The worker goes on.
const OPEN: u32 = 0;
/// The worker stops before the next request.
const SHUT: u32 = 1;
/// The worker has stopped.
const HELD: u32 = 2;

/// A valve. Any context.
pub struct Valve(Atomic<u32>);

impl Valve {
    /// An open one.
    pub fn new() -> Self {
        Self(Atomic::<u32>::new(OPEN))
    }

    /// Whether it is open. May be out of date.
    #[inline(always)]
    pub fn is_open(&self) -> bool {
        self.0.load(Relaxed) == OPEN
    }

    /// Whether the worker has stopped. May be out of date.
    pub fn is_held(&self) -> bool {
        self.0.load(Relaxed) == HELD
    }

    /// Shuts it. What the caller reads afterwards is not older than that.
    pub fn shut(&self) {
        let mut old = OPEN;
        // ORDERING: Full, also if nothing changes. Only an exchange that fails has none.
        while let Err(now) = self.0.cmpxchg(old, old.max(SHUT), Full) {
            old = now;
        }
    }

    /// Opens it. Returns whether the worker has stopped: the caller has to start it.
    #[must_use = "the worker has to be started"]
    pub fn open(&self) -> bool {
        // ORDERING: Full: the worker sees why.
        self.0.xchg(OPEN, Full) == HELD
    }

    /// The worker is about to hand a request over. Returns `false` if it has to stop: it is started
    /// again when the valve is opened.
    #[inline(always)]
    pub fn lets_through(&self) -> bool {
        self.is_open() || !self.holds()
    }

    /// Notes that the worker stops, unless the valve was opened meanwhile. Returns whether it stops.
    #[cold]
    #[inline(never)]
    fn holds(&self) -> bool {
        !matches!(self.0.cmpxchg(SHUT, HELD, Full), Err(OPEN))
    }
}

impl Default for Valve {
    fn default() -> Self {
        Self::new()
    }
}
