// SPDX-License-Identifier: GPL-2.0

//! Keeps a session without a path for a while, for a client that comes back, and then ends it. Also
//! finds out whether the client of a session is alive, when another session wants its name.
//!
//! # Locking
//!
//! `Session::announced`, then the registry; `Session::question` (spinlock, interrupts off), then
//! `Session::paths`.

use kernel::{
    sync::{
        atomic::{
            Acquire,
            Relaxed,
            Release, //
        },
        Arc, //
    },
    time::msecs_to_jiffies, //
};

use rtrs_bindings::workqueue::{
    impl_has_delayed_work,
    impl_work_item,
    DelayedOn,
    DelayedWorkExt,
    Queue, //
};
use rtrs_core::proto::PathWait;

use super::Session;
use crate::{
    logic::{
        admission::Verdict,
        linger::is_early, //
    },
    path::Path, //
};

impl_has_delayed_work! {
    impl HasDelayedWork<Self> for Session { self.expiry }
}
impl_work_item! {
    impl WorkItem<0> for Session { Self::expire }
}

impl DelayedOn for Session {
    fn queue(&self) -> &Queue {
        &self.ctx.queue
    }
}

impl Session {
    /// Sets how long requests wait at the client while it has no path. The latest path that came up
    /// counts. Any context.
    pub(super) fn set_path_wait(&self, wait: PathWait) {
        self.path_wait.store(wait.to_secs(), Relaxed);
    }

    /// Returns the seconds for which it is kept without a path. Any context.
    pub(crate) fn linger_secs(&self) -> u32 {
        let wait = PathWait::from_secs(self.path_wait.load(Relaxed));
        self.ctx.config.linger.of(wait)
    }

    /// The last path is gone: keeps the session for a client that comes back, or ends it. May
    /// sleep.
    pub(super) fn linger(self: &Arc<Self>) {
        let secs = self.linger_secs();
        // A client that was never told of chunks has left nothing with the user.
        let worth_it = self.is_kept() && self.served.load(Acquire);
        if secs == 0 || !worth_it || self.is_over() {
            // While another task is telling the user, each path that comes and goes would wait here
            // for the end of that.
            if !self.is_ending() {
                self.expire();
            }
            // A timer of an earlier outage would keep this session, and with it the queues of the
            // server, until it fires.
            self.expire_soon();
            return;
        }
        self.expiry
            .mod_delayed(self, msecs_to_jiffies(secs.saturating_mul(1000)));
        // The task that ends it may not have seen the timer. That of an earlier outage may just
        // have ended it.
        if self.is_over() || !self.is_kept() {
            self.expire_soon();
        }
    }

    /// Whether it is not kept any longer than it has paths. Any context.
    fn is_over(&self) -> bool {
        self.ctx.is_closing() || self.is_given_up()
    }

    /// Ends the session now, if it has no path, instead of when its time is over. Any context.
    pub(crate) fn expire_soon(self: &Arc<Self>) {
        self.expiry.mod_delayed(self, 0);
    }

    /// Whether the user has the session: it was told that it is up, and not that it is down. After
    /// a path was added under the registry's lock, a true result stays true. Any context.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept.load(Acquire)
    }

    /// A path of it is about to tell its client of chunks. Before that no client can have sent its
    /// user anything. Any context.
    pub(crate) fn note_served(&self) {
        self.served.store(true, Release);
    }

    /// Whether the user has the session, or may be just about to be told of it. Any context.
    pub(crate) fn is_known(&self) -> bool {
        // Looked at in this order: a path that has told the user is not starting any more.
        self.count(Path::is_starting) != 0 || self.is_kept()
    }

    /// Whether a session without a path is still to be kept for its client at `now`: its latest path
    /// has just gone, and [`linger`](Self::linger) has armed a timer for that, or is about to. Then
    /// the timer that has fired is that of an earlier outage. The registry is locked.
    pub(crate) fn lingers(&self, now: u64) -> bool {
        if self.is_over() || !self.is_kept() || !self.served.load(Acquire) {
            return false;
        }
        is_early(
            self.linger_secs(),
            now.saturating_sub(self.deserted_since()),
        )
    }

    /// Ends the session if it has no path. May sleep for as long as the user likes.
    fn expire(self: &Arc<Self>) {
        {
            // Locked first: a path that is added after the decision cannot come up before the
            // decision was carried out.
            let mut announced = self.announced.lock();
            // Decided with the registry locked, so that a client that comes back gets a correct
            // answer.
            if !self.ctx.registry.commit_end(self) {
                drop(announced);
                if self.is_deserted() {
                    self.linger_on();
                }
                return;
            }
            if announced.up {
                self.ctx.user.link_down(self);
                self.set_private(core::ptr::null_mut());
                announced.up = false;
                // A path that was added meanwhile tells the user of another session.
                self.served.store(false, Release);
                self.left.store(false, Relaxed);
            }
            self.ending.store(false, Release);
        }
        self.ctx.registry.forget(self);
    }

    /// The session is kept although its timer has fired, which may have been that of an earlier
    /// outage, set by a task that was late, in place of the latest one. Any context.
    fn linger_on(self: &Arc<Self>) {
        let ms = self.linger_secs().saturating_mul(1000);
        // Changes nothing if it is set.
        self.expiry.enqueue(self, msecs_to_jiffies(ms));
        // As in `linger()`.
        if self.is_over() || !self.is_kept() {
            self.expire_soon();
        }
    }

    /// The user's view of the session ends. `announced` and the registry are locked.
    pub(crate) fn unkeep(&self) {
        self.ending.store(true, Release);
        self.kept.store(false, Release);
    }

    /// Whether the user is being told that the session is down, and may know it by its name until
    /// that call has returned. With the registry locked, there is no time between the end of
    /// [`Session::is_kept`] and the start of this. Any context.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.load(Acquire)
    }

    /// Whether its client has left in an orderly way, as far as the server can tell. Any context.
    pub(crate) fn has_left(&self) -> bool {
        self.left.load(Relaxed)
    }

    /// A path that was up ends; `left` if its client ended it. Any context.
    pub(crate) fn note_end(&self, left: bool) {
        self.left.store(left, Relaxed);
    }

    /// Its client has lost its state: the session is not kept for it any more, and ends as soon as
    /// it has no path. Any context.
    pub(crate) fn give_up(self: &Arc<Self>) {
        self.given_up.store(true, Release);
        self.expire_soon();
    }

    /// Whether it was given up, and no path has come up since. Any context.
    pub(crate) fn is_given_up(&self) -> bool {
        self.given_up.load(Acquire)
    }

    /// Whether its client lives: asks it on all paths, and listens. `now` is in nanoseconds of the
    /// monotonic clock. The caller has to repeat this until there is an answer. A path that is just
    /// starting, or waits for the end of its session, counts as an answer: the client has asked for
    /// its chunks. Any context.
    pub(crate) fn asked_for_life(&self, now: u64) -> Verdict {
        let mut question = self.question.lock();
        if let Some(verdict) = question.recent(now) {
            return verdict;
        }
        let paths = self.paths.lock();
        let alive = paths.iter().filter(|path| !path.is_closing());
        let verdict = question.poll(now, alive.clone().any(|path| path.was_heard()));

        match verdict {
            Verdict::Ask => alive.for_each(|path| path.ask()),
            Verdict::AskAgain => alive.for_each(|path| path.ask_again()),
            Verdict::Wait | Verdict::Lives | Verdict::Silent => (),
        }
        verdict
    }
}
