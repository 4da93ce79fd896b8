// SPDX-License-Identifier: GPL-2.0

//! Requests that wait for a path.
//!
//! While no path is connected a request is not failed, but parked: its slot has
//! all that is needed to send it later, so that waiting takes no memory. When a
//! path comes back the parked requests are sent; when none has come back for
//! `fast_io_fail_tmo` seconds they are failed, and so is what is submitted after
//! that, until a path is back.
//!
//! What may be sent later is limited by what the server remembers. If it has
//! forgotten the session (all mainline servers do, as soon as the last path is
//! gone) a request may mean something else to it now: to RNBD, another device.
//! Such requests are failed, and the user is told that the session was lost,
//! before the first new request can go out.
//!
//! # Locking
//!
//! `state` is a spinlock, interrupts off. The cells of the session's requests
//! are taken inside it, to park one and to release it.
//!
//! # Context
//!
//! Parking: any. Resuming and failing: work items of the session, and the owner
//! tasks of its paths.

use kernel::{
    prelude::*,
    sync::Arc,
    time::msecs_to_jiffies, //
};
use rtrs_bindings::{
    errno,
    lock::{
        new_spinlock_irq,
        SpinLockIrq, //
    },
    time,
    workqueue::{
        DelayedWorkExt,
        WorkExt, //
    },
};

use super::{
    Io,
    Session, //
};
use crate::atomic::{
    Atomic,
    Relaxed, //
};

/// How long requests wait for a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailAfter {
    /// So many seconds; 0 is not to wait.
    Secs(u32),
    /// For ever.
    Never,
}

impl FailAfter {
    /// Longest time that can be asked for, in seconds: a day.
    pub(crate) const MAX_SECS: u32 = 86_400;

    /// From a number, negative for [`FailAfter::Never`].
    pub(crate) fn from_int(secs: i32) -> Self {
        match u32::try_from(secs) {
            Ok(secs) => Self::Secs(secs.min(Self::MAX_SECS)),
            Err(_) => Self::Never,
        }
    }

    /// The number [`FailAfter::from_int`] takes.
    pub(crate) fn to_int(self) -> i32 {
        match self {
            Self::Secs(secs) => i32::try_from(secs).unwrap_or(i32::MAX),
            Self::Never => -1,
        }
    }

    /// From what is written to a file: seconds, or `off`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text == "off" {
            return Some(Self::Never);
        }
        match text.parse() {
            Ok(secs) if secs <= Self::MAX_SECS => Some(Self::Secs(secs)),
            _ => None,
        }
    }
}

/// How soon requests are offered again to paths whose queues were full: the
/// device empties them all the time.
const FULL_RETRY_MS: u32 = 1;

#[derive(Default)]
struct State {
    /// Requests parked.
    count: u32,
    /// The time to wait is over, or the server has forgotten the session.
    failing: bool,
    /// The session is being closed.
    closing: bool,
    /// Since when there is no path, in monotonic nanoseconds; known from the first
    /// request that finds none.
    since_ns: Option<u64>,
    /// The timer runs.
    armed: bool,
}

/// What a session has for it.
#[pin_data]
pub(super) struct Waiting {
    fail_after: Atomic<i32>,
    #[pin]
    state: SpinLockIrq<State>,
}

impl Waiting {
    pub(super) fn new(fail_after: FailAfter) -> impl PinInit<Self> {
        pin_init!(Self {
            fail_after: Atomic::new(fail_after.to_int()),
            state <- new_spinlock_irq!(State::default(), "rtrs_waiting"),
        })
    }
}

impl Session {
    /// How long requests wait for a path.
    pub(crate) fn fail_after(&self) -> FailAfter {
        FailAfter::from_int(self.waiting.fail_after.load(Relaxed))
    }

    /// Changes that; holds for requests that wait already, from now on.
    pub(crate) fn set_fail_after(self: &Arc<Self>, after: FailAfter) {
        self.waiting.fail_after.store(after.to_int(), Relaxed);
        let mut state = self.waiting.state.lock();
        if state.count > 0 {
            self.arm(&mut state);
        }
    }

    /// Starts the timer for what is left of the time, if there is a time.
    fn arm(self: &Arc<Self>, state: &mut State) {
        let left = self.time_left_ms(state);
        state.armed = left.is_some();
        if let Some(ms) = left {
            self.fail_timer.mod_delayed(self, msecs_to_jiffies(ms));
        }
    }

    /// Milliseconds until requests are failed, from when there was no path; `None` is
    /// never.
    fn time_left_ms(&self, state: &State) -> Option<u32> {
        match self.fail_after() {
            FailAfter::Secs(secs) => {
                let now = time::now_ns();
                let waited = now.saturating_sub(state.since_ns.unwrap_or(now));
                let ms = secs.min(FailAfter::MAX_SECS).saturating_mul(1000);
                let waited_ms = u32::try_from(waited / 1_000_000).unwrap_or(u32::MAX);
                Some(ms.saturating_sub(waited_ms))
            }
            FailAfter::Never => None,
        }
    }

    /// Parks a request that no path took.
    ///
    /// # Errors
    ///
    /// `ECONNABORTED` if it has to be failed instead: it is the caller's still.
    pub(super) fn park(self: &Arc<Self>, id: u16) -> Result {
        let after = self.fail_after();
        {
            let mut state = self.waiting.state.lock();
            if state.closing
                || state.failing
                || after == FailAfter::Secs(0)
                || !self.has_paths()
                || !self.set_parked(id, true)
            {
                return Err(errno::ECONNABORTED);
            }
            state.count = state.count.saturating_add(1);
            if state.since_ns.is_none() {
                state.since_ns = Some(time::now_ns());
            }
            if !state.armed {
                self.arm(&mut state);
            }
        }
        // A path may have come back, or the last one may have been removed, just
        // before: nobody else would notice.
        if self.is_connected() || !self.has_paths() {
            self.wake_waiting(0);
        }
        Ok(())
    }

    /// Has parked requests looked after, `delay_ms` from now. Any context.
    pub(super) fn wake_waiting(self: &Arc<Self>, delay_ms: u32) {
        if delay_ms == 0 {
            self.resume_work.enqueue(&self.queue, self);
        } else {
            self.fail_timer
                .mod_delayed(self, msecs_to_jiffies(delay_ms));
        }
    }

    /// Takes one parked request, if there is one at `id`.
    fn unpark(&self, id: u16) -> Option<Io> {
        let mut state = self.waiting.state.lock();
        if !self.is_parked(id) || !self.set_parked(id, false) {
            return None;
        }
        state.count = state.count.saturating_sub(1);
        drop(state);
        self.peek_io(id)
    }

    fn each_parked(&self, mut f: impl FnMut(u16, Io) -> bool) {
        for id in 0..self.depth() {
            if self.waiting.state.lock().count == 0 {
                return;
            }
            if let Some(io) = self.unpark(id) {
                if !f(id, io) {
                    return;
                }
            }
        }
    }

    /// Sends what is parked, as far as paths take it. Work item.
    pub(super) fn resume(self: &Arc<Self>) {
        if !self.has_paths() {
            self.fail_waiting();
            return;
        }
        self.each_parked(|id, io| match self.issue(id, &io) {
            Ok(()) => true,
            Err(e) if e == errno::ECONNABORTED => {
                self.park_or_fail(id);
                false
            }
            Err(e) if e == ENOMEM => {
                self.park_or_fail(id);
                self.wake_waiting(FULL_RETRY_MS);
                false
            }
            Err(e) => {
                self.complete(id, e.to_errno());
                true
            }
        });
    }

    /// Parks a request, or completes it with an error.
    pub(super) fn park_or_fail(self: &Arc<Self>, id: u16) {
        if let Err(e) = self.park(id) {
            self.complete(id, e.to_errno());
        }
    }

    /// Completes what is parked with an error.
    pub(super) fn fail_waiting(&self) {
        self.each_parked(|id, _| {
            self.complete(id, errno::ECONNABORTED.to_errno());
            true
        });
    }

    /// The timer: the time is over, or it is time to try again.
    pub(super) fn waiting_timeout(self: &Arc<Self>) {
        if self.is_connected() {
            self.waiting.state.lock().armed = false;
            self.resume();
            return;
        }
        let count = {
            let mut state = self.waiting.state.lock();
            if self.time_left_ms(&state).is_none_or(|ms| ms > 0) {
                // It was another matter, see `wake_waiting()`, or the time was changed.
                self.arm(&mut state);
                return;
            }
            state.armed = false;
            state.failing = true;
            state.count
        };
        pr_warn!(
            "{}: no path for {} s: {} requests fail\n",
            self.name(),
            self.fail_after().to_int(),
            count
        );
        self.fail_waiting();
        self.note_failing();
    }

    /// A path takes requests, in a session the server knows as well as we do.
    pub(super) fn stop_failing(self: &Arc<Self>) {
        let waiting = {
            let mut state = self.waiting.state.lock();
            state.failing = false;
            state.since_ns = None;
            state.count
        };
        if waiting > 0 {
            self.wake_waiting(0);
        } else {
            self.fail_timer.cancel_sync();
            self.waiting.state.lock().armed = false;
        }
    }

    /// The server has forgotten the session: what is parked is not to be sent, and
    /// the user has to know before anything else is. Sleeps until they do.
    pub(crate) fn lost(self: &Arc<Self>) {
        self.waiting.state.lock().failing = true;
        self.fail_waiting();
        self.note_failing();
        self.flush_events();
    }

    /// The session is being closed: nothing waits any more. Sleeps.
    pub(super) fn stop_waiting(&self) {
        self.waiting.state.lock().closing = true;
        self.fail_timer.cancel_sync();
        self.resume_work.cancel_sync();
        self.fail_waiting();
    }
}
