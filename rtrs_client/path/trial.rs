// SPDX-License-Identifier: GPL-2.0

//! Whether a path is on trial; see [`trial`].
//!
//! # Context
//!
//! A trial is begun and cancelled by the owner task of the path, while `beat` does not run. `beat`
//! ends it when its time is over. The question whether there is one may be asked in any context.
//!
//! [`trial`]: crate::logic::trial

use rtrs_bindings::time;

use super::Path;
use crate::{
    atomic::Relaxed,
    logic::trial::Record, //
};

const NS_PER_SEC: u64 = 1_000_000_000;

impl Path {
    /// Whether the path only takes requests that no other path takes.
    pub(crate) fn is_on_trial(&self) -> bool {
        self.trial_end_ns.load(Relaxed) != 0
    }

    /// Returns the seconds that are left of its trial, rounded up; 0 if it is not on trial. A trial
    /// ends with a heartbeat, so its last second may be longer.
    pub(crate) fn trial_secs(&self) -> u64 {
        match self.trial_end_ns.load(Relaxed) {
            0 => 0,
            end_ns => end_ns
                .saturating_sub(time::now_ns())
                .div_ceil(NS_PER_SEC)
                .max(1),
        }
    }

    /// The path comes up: begins a trial if its `record` is bad.
    pub(super) fn begin_trial(&self, record: &mut Record) {
        let end_ns = record.came_up(time::now_ns());

        self.trial_end_ns.store(end_ns, Relaxed);
    }

    /// Ends the trial if its time is over.
    pub(super) fn end_trial(&self) {
        if self.is_on_trial() && self.trial_end_ns.load(Relaxed) <= time::now_ns() {
            self.no_trial();
        }
    }

    /// Ends or cancels the trial.
    pub(super) fn no_trial(&self) {
        self.trial_end_ns.store(0, Relaxed);
    }
}
