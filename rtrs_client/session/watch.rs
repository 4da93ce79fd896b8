// SPDX-License-Identifier: GPL-2.0

//! Watches for paths that have become silent; see [`silence`].
//!
//! # Context
//!
//! A work item of the session, armed while it has more than one path that takes requests, or one
//! that was asked for a sign of life. It is armed after a path was published or asked, and it reads
//! the published paths after it was taken off the queue, so these paths are never without it.

use kernel::{
    sync::Arc,
    time::{
        msecs_to_jiffies,
        Jiffies, //
    },
};
use rtrs_bindings::workqueue::DelayedWorkExt;

use super::Session;
use crate::{
    logic::silence,
    path::Path, //
};

impl Session {
    /// There is one more path. Any context.
    pub(super) fn start_watch(self: &Arc<Self>) {
        DelayedWorkExt::enqueue(&self.watch, self, self.interval(false));
    }

    /// The time for which a path may be silent has changed. Any context.
    pub(crate) fn restart_watch(self: &Arc<Self>) {
        // A whole interval from now: an interval that was cut short says nothing.
        self.watch.mod_delayed(self, self.interval(true));
    }

    /// The server has told `path` that it does not know the session: the other paths have to show
    /// that they are alive. Any context.
    pub(crate) fn doubt_others(self: &Arc<Self>, path: &Path) {
        let mut doubted = false;

        self.for_each_path(|other| {
            if !core::ptr::eq(&**other, path) {
                doubted |= other.doubt();
                other.ask();
            }
        });
        // Only for a path that was not doubted: each of several others may be refused in every
        // interval, and none of these would ever be over.
        if doubted {
            self.restart_watch();
        }
    }

    /// `path` is about to come up, and the server may have lost all other paths meanwhile: they
    /// have to show that they are alive. Task that has `recreate_lock`.
    pub(super) fn question_others(self: &Arc<Self>, path: &Path) {
        let mut questioned = false;

        self.for_each_path(|other| {
            questioned |= !core::ptr::eq(&**other, path) && other.question();
        });
        if questioned {
            self.restart_watch();
        }
    }

    /// Whether another path than `path` has shown so since. Task that has `recreate_lock`.
    pub(super) fn has_answer(&self, path: &Path) -> bool {
        let mut answered = false;

        self.for_each_path(|other| {
            answered |= !core::ptr::eq(&**other, path) && other.has_answered();
        });
        answered
    }

    /// Returns the time until the next look.
    fn interval(&self, busy: bool) -> Jiffies {
        // A path without requests is not expected to be heard, so fewer looks suffice until there
        // are some.
        let parts = if busy {
            silence::LOST
        } else {
            silence::LOST / 2
        };
        msecs_to_jiffies(self.settings.silent_path_ms.get() / parts)
    }

    /// Looks at all paths. Work item.
    pub(super) fn look_at_paths(self: &Arc<Self>) {
        let (mut up, mut busy, mut silent, mut asked) = (0u32, false, false, false);
        let mut heard = self.end_interval_of_newcomer();
        self.for_each_path(|path| {
            if let Some((seen, silence)) = path.end_interval() {
                up = up.saturating_add(1);
                busy |= seen.waits || silence.is_asked();
                silent |= silence.is_silent();
                heard |= silence.is_heard();
                asked |= silence.is_asked();
            }
        });
        if up < 2 && !asked {
            return;
        }
        if silent {
            self.for_each_path(|path| {
                if !path.fail_if_silent(heard) {
                    path.ask();
                }
            });
        }
        DelayedWorkExt::enqueue(&self.watch, self, self.interval(busy));
    }

    /// There are no paths any more. May sleep.
    pub(super) fn stop_watch(&self) {
        self.watch.cancel_sync();
    }
}
