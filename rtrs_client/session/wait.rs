// SPDX-License-Identifier: GPL-2.0

//! Requests that wait for a path.
//!
//! While no path is connected, a request does not fail but is parked. Its place has all that is
//! needed to send it later, so waiting takes no memory. When a path comes back, the parked requests
//! are sent. If none has come back for `fast_io_fail_tmo` seconds, they fail, and so do later
//! requests, until a path is back. A request that was lost in flight, and is lost again soon after
//! a path came back, fails then if the first loss was that long ago: a path may be able to connect,
//! and not to carry it.
//!
//! A message without data on the service connection, for example one that closes a device, waits at
//! most [`BRIEF_MS`], counted from the first waiting message of this kind: closing a device must
//! not hang because the server is gone. The server closes the remaining devices when the session
//! ends.
//!
//! The state of the server limits which requests may be sent later. If the server has forgotten the
//! session (mainline's servers do that when the last path is gone), a request may have another
//! meaning now: for RNBD, another device. If the user is RNBD, its devices are opened again, and
//! requests continue ([`super::restore`]). Otherwise, and if that fails, such requests fail, and
//! the user is told that the session was lost, before the first new request can be sent.
//!
//! # Locking
//!
//! `state` is a spinlock, interrupts off. Whether a request is parked, and waits briefly, is only
//! changed with it held. The rest of its [`Mark`], and the request itself, belong to the owner of
//! its turn: the task that cleared the mark.
//!
//! # Context
//!
//! Parking: any. Resuming and failing: work items of the session, and the owner tasks of its paths.

mod parked;

use self::parked::Which;
use super::Session;
use crate::{
    atomic::{
        Atomic,
        Relaxed, //
    },
    logic::{
        fence::{
            FailedFences,
            Fence, //
        },
        trial::GOOD_SECS, //
    },
    params::FailAfter,
    request::{
        Connection,
        Turn, //
    },
    trace, //
};
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
    ratelimit::pr_warn_ratelimited,
    rcu, time,
    workqueue::{
        DelayedWorkExt,
        WorkExt, //
    },
};

/// Interval at which requests are offered again when there are paths, but none took them. The
/// device empties its queues all the time, and the owner of a failed path notices that soon.
const RETRY_MS: u32 = 1;

/// How long a message without data on the service connection waits for a path, in milliseconds.
const BRIEF_MS: u32 = 5000;

/// A loss of a path that was up for at least this long, in milliseconds, begins a new wait.
const GOOD_MS: u64 = 1000 * GOOD_SECS;

/// Whether a request waits for a path.
pub(super) struct Mark {
    parked: Atomic<bool>,
    /// The request waits for [`BRIEF_MS`] only.
    brief: Atomic<bool>,
    /// Of a request that was lost in flight: when the outage began since which it waits, in
    /// monotonic nanoseconds; 0 if it was sent again at once. Changed like `user_id`.
    lost_ns: Atomic<u64>,
    /// The user's number of the request's device, if the message has the server's number. Changed
    /// by the owner of the request's turn.
    user_id: Atomic<u32>,
}

impl Mark {
    pub(super) fn new() -> Self {
        Self {
            parked: Atomic::new(false),
            brief: Atomic::new(false),
            lost_ns: Atomic::new(0),
            user_id: Atomic::new(0),
        }
    }
}

/// Whole milliseconds from `since_ns` to `now_ns`.
fn ms_since(since_ns: u64, now_ns: u64) -> u32 {
    u32::try_from(now_ns.saturating_sub(since_ns) / 1_000_000).unwrap_or(u32::MAX)
}

#[derive(Default)]
struct State {
    /// Number of parked requests.
    count: u32,
    /// Number of those that wait for [`BRIEF_MS`] only.
    brief: u32,
    /// Number of these that were taken out, and are neither sent nor over.
    brief_in_hand: u32,
    /// Time since which there is one of those, in monotonic nanoseconds.
    brief_since_ns: u64,
    /// Paths that are up.
    up: u32,
    /// Time since which no path is up, in monotonic nanoseconds.
    since_ns: Option<u64>,
    /// Time since which some path is up, or was until then, in monotonic nanoseconds.
    up_since_ns: u64,
    /// It was up for a short time only.
    was_brief: bool,
    /// The time to wait is over for all, or the server has forgotten the session.
    failing: bool,
    /// The session is being closed.
    closing: bool,
    /// What a path has to wait for before it comes up.
    failed_fences: FailedFences,
}

/// State of waiting requests.
#[pin_data]
pub(super) struct Waiting {
    fail_after: Atomic<i32>,
    /// The first request that is offered to paths next. Changed by [`Session::resume`].
    next: Atomic<u32>,
    #[pin]
    state: SpinLockIrq<State>,
}

impl State {
    /// Whether there are messages that wait briefly, or were taken out and not sent yet.
    fn has_brief(&self) -> bool {
        self.brief != 0 || self.brief_in_hand != 0
    }

    fn count(&self, which: Which) -> u32 {
        match which {
            Which::All | Which::AllInOrder => self.count,
            Which::Brief => self.brief,
        }
    }
}

impl Waiting {
    pub(super) fn new(fail_after: FailAfter) -> impl PinInit<Self> {
        pin_init!(Self {
            fail_after: Atomic::new(fail_after.to_int()),
            next: Atomic::new(0),
            state <- new_spinlock_irq!(State::default(), "rtrs_waiting"),
        })
    }
}

impl Session {
    /// How long requests wait for a path.
    pub(crate) fn fail_after(&self) -> FailAfter {
        FailAfter::from_int(self.waiting.fail_after.load(Relaxed))
    }

    /// Changes that time, also for requests that wait already. May sleep.
    pub(crate) fn set_fail_after(self: &Arc<Self>, after: FailAfter) {
        self.waiting.fail_after.store(after.to_int(), Relaxed);
        self.fail_timer.cancel_sync();
        let at_once = {
            let state = self.waiting.state.lock();
            if state.up == 0 {
                self.arm(&state);
            }
            state.since_ns.is_some() && after == FailAfter::Secs(0)
        };
        // Also if no request waits: the next one does not wait.
        if at_once {
            self.note_failing();
        }
    }

    /// Starts the timer for the next time at which waiting requests fail, if there is one: at once
    /// if there is no path.
    fn arm(self: &Arc<Self>, state: &State) {
        let brief_ms = (state.brief > 0)
            .then(|| BRIEF_MS.saturating_sub(ms_since(state.brief_since_ns, time::now_ns())));
        let earliest = match (self.time_left_ms(state), brief_ms) {
            (Some(all), Some(brief)) => Some(all.min(brief)),
            (all, brief) => all.or(brief),
        };
        let next = match self.has_paths() {
            true => earliest.filter(|_| state.count > 0),
            false => Some(0),
        };

        match next {
            Some(ms) if !state.closing => {
                self.fail_timer.mod_delayed(self, msecs_to_jiffies(ms));
            }
            _ => {}
        }
    }

    /// Milliseconds until all requests fail, counted from the loss of the last path; `None` means
    /// never.
    fn time_left_ms(&self, state: &State) -> Option<u32> {
        self.left_ms(state.since_ns)
    }

    /// The same for a request that waits since then.
    fn left_ms(&self, since_ns: Option<u64>) -> Option<u32> {
        match self.fail_after() {
            FailAfter::Secs(secs) => {
                let now = time::now_ns();
                let waited_ms = ms_since(since_ns.unwrap_or(now), now);
                let ms = secs.min(FailAfter::MAX_SECS).saturating_mul(1000);
                Some(ms.saturating_sub(waited_ms))
            }
            FailAfter::Never => None,
        }
    }

    /// A path is up.
    pub(super) fn stop_waiting_for_path(self: &Arc<Self>) {
        let mut state = self.waiting.state.lock();
        if state.up == 0 {
            state.up_since_ns = time::now_ns();
        }
        state.up = state.up.saturating_add(1);
        state.failing = false;
        state.since_ns = None;
        if state.count > 0 && !state.closing {
            self.resume_work.enqueue(&self.queue, self);
        }
    }

    /// A path is down. Returns whether it was the last.
    pub(super) fn wait_for_path(self: &Arc<Self>) -> bool {
        let mut state = self.waiting.state.lock();
        state.up = state.up.saturating_sub(1);
        if state.up > 0 {
            return false;
        }
        let now = time::now_ns();
        state.was_brief = u64::from(ms_since(state.up_since_ns, now)) < GOOD_MS;
        state.since_ns = Some(now);
        self.arm(&state);
        true
    }

    /// Parks a request that no path took.
    ///
    /// # Errors
    ///
    /// `ECONNABORTED` if the request has to fail instead: the caller still owns it.
    pub(super) fn park<'t>(
        self: &Arc<Self>,
        id: u16,
        turn: Turn<'t>,
    ) -> Result<(), (Error, Turn<'t>)> {
        let mut state = self.waiting.state.lock();
        let mut lost_for_good = false;
        let may_wait = if state.closing {
            false
        } else if state.up == 0 {
            let wait = self.fail_after() != FailAfter::Secs(0);
            let waits = !state.failing && wait && self.has_paths();
            let too_long = waits && turn.failover && self.is_lost_for_good(&state, id);
            let fails = !waits || too_long;
            // One that may still execute waits for a path that is about to come up, unless the
            // session is failing: the server may have forgotten it.
            let held =
                fails && turn.failover && !state.failed_fences.fail_ordered() && !state.failing;
            lost_for_good = too_long && !held;
            !fails || held
        } else {
            true
        };
        let Some(mark) = self.mark(id).filter(|_| may_wait) else {
            drop(state);
            if lost_for_good {
                pr_warn_ratelimited!(
                    "{}: a request was lost again and again for {} s: it fails\n",
                    self.name(),
                    self.fail_after().to_int()
                );
            }
            return Err((errno::ECONNABORTED, turn));
        };
        let brief = turn.connection == Connection::Admin && turn.loan.is_empty();
        turn.lend();
        mark.parked.store(true, Relaxed);
        mark.brief.store(brief, Relaxed);
        state.count = state.count.saturating_add(1);
        if brief {
            if state.brief == 0 {
                state.brief_since_ns = time::now_ns();
            }
            state.brief = state.brief.saturating_add(1);
        }
        trace::park(self, id, state.up);
        if state.up > 0 {
            self.retry.mod_delayed(self, msecs_to_jiffies(RETRY_MS));
        } else if state.count == 1 || brief && state.brief == 1 {
            self.arm(&state);
        }
        Ok(())
    }

    /// Whether request `id`, which was lost in flight, has waited for long enough. Its time goes on
    /// if it was sent again, and lost again soon after a path came up: the path may be able to
    /// connect, and not to carry the request. Otherwise it begins with the present outage.
    fn is_lost_for_good(&self, state: &State, id: u16) -> bool {
        let Some(mark) = self.mark(id) else {
            return false;
        };
        let since = mark.lost_ns.load(Relaxed);
        if since != 0 && state.was_brief {
            return self.left_ms(Some(since)) == Some(0);
        }
        mark.lost_ns.store(state.since_ns.unwrap_or(0), Relaxed);
        false
    }

    /// Request `id` was lost in flight, for the first time. Called by the owner of its turn.
    pub(super) fn begin_losses(&self, id: u16) {
        if let Some(mark) = self.mark(id) {
            mark.lost_ns.store(0, Relaxed);
        }
    }

    /// Whether a request fails at once because no path is up: the time to wait is over or zero, or
    /// there is no path to wait for. Any context.
    pub(crate) fn is_failing(&self) -> bool {
        let state = self.waiting.state.lock();
        state.closing || state.up == 0 && (self.is_over(&state) || !self.has_paths())
    }

    /// Whether requests that were in flight fail instead of being sent again: there is no path, and
    /// none is waited for. Any context.
    pub(super) fn sends_nothing_again(&self) -> bool {
        let state = self.waiting.state.lock();
        self.is_without_path(&state)
    }

    fn is_without_path(&self, state: &State) -> bool {
        state.up == 0 && (state.closing || self.is_over(state))
    }

    /// The same for requests that `fence` holds back. Any context.
    pub(crate) fn fails_behind(&self, fence: &Fence) -> bool {
        let mut state = self.waiting.state.lock();
        // Requests may still find a path that goes down after it was subtracted from `up`. If there
        // is none to find, a request that is submitted because of this failure finds none either.
        if !self.is_without_path(&state) || self.is_connected() {
            return false;
        }
        // A session that is being closed has no later requests.
        state.failed_fences.fail_behind(fence) || state.closing
    }

    /// The requests that `fence` would hold back are sent again at once. Any context.
    pub(crate) fn note_ordered(&self, fence: &Fence) {
        self.waiting.state.lock().failed_fences.note_ordered(fence);
    }

    /// A path is about to come up. Returns `false` if it must not yet; otherwise
    /// [`end_coming_up`](Self::end_coming_up) has to follow. Any context.
    pub(super) fn begin_coming_up(&self) -> bool {
        let now = time::now_ns();
        self.waiting.state.lock().failed_fences.begin_coming_up(now)
    }

    /// The path is up, or does not come. Any context.
    pub(super) fn end_coming_up(&self) {
        self.waiting.state.lock().failed_fences.end_coming_up();
    }

    /// Whether the time to wait for a path is over, or zero.
    fn is_over(&self, state: &State) -> bool {
        state.failing || self.time_left_ms(state) == Some(0)
    }

    /// Requests that wait for a path. Any context.
    pub(crate) fn parked(&self) -> u32 {
        self.waiting.state.lock().count
    }

    /// Returns the place where the user's number of the device of request `id` is noted.
    pub(super) fn user_id_of(&self, id: u16) -> Option<&Atomic<u32>> {
        self.mark(id).map(|mark| &mark.user_id)
    }

    fn mark(&self, id: u16) -> Option<&Mark> {
        self.negotiated.get()?.marks.get(usize::from(id))
    }

    /// The last path was removed: none will come for waiting and later requests. Those that wait
    /// fail in the timer, unless there is a path again by then: the end of the session waits for
    /// the timer, and not for the caller. Any context.
    pub(super) fn fail_without_paths(self: &Arc<Self>) {
        self.arm(&self.waiting.state.lock());
        // A request may have failed, even if a path is added before the timer runs.
        self.note_failing();
    }

    /// The timer: the time may be over for all requests, or for those that wait briefly.
    pub(super) fn waiting_timeout(self: &Arc<Self>) {
        let (which, count) = {
            let mut state = self.waiting.state.lock();
            if state.up > 0 {
                return;
            }
            let over = !self.has_paths() || self.time_left_ms(&state) == Some(0);
            if over && !state.failed_fences.fail_ordered() {
                // A path is about to come up, or to fail.
                if !state.closing {
                    self.fail_timer
                        .mod_delayed(self, msecs_to_jiffies(RETRY_MS));
                }
                return;
            }
            if !self.has_paths() {
                drop(state);
                self.fail_waiting();
                return self.note_failing();
            }
            if over {
                state.failing = true;
                (Which::All, state.count)
            } else if state.brief > 0 && ms_since(state.brief_since_ns, time::now_ns()) >= BRIEF_MS
            {
                (Which::Brief, state.brief)
            } else {
                // The time was changed in the meantime.
                self.arm(&state);
                return;
            }
        };
        if which == Which::Brief {
            pr_warn_ratelimited!(
                "{}: no path for {} s: {} messages of the service connection fail\n",
                self.name(),
                BRIEF_MS / 1000,
                count
            );
            self.fail_parked(Which::Brief);
            self.arm(&self.waiting.state.lock());
            return;
        }
        pr_warn_ratelimited!(
            "{}: no path for {} s: {} requests fail\n",
            self.name(),
            self.fail_after().to_int(),
            count
        );
        self.fail_waiting();
        self.note_failing();
    }

    /// The server of a path has become another one, or a path was removed. If no path tries to
    /// connect any more, and the server of one is another one, requests stop waiting. Nothing
    /// happens if the session is being closed. Owner task of the path.
    pub(crate) fn fail_if_hopeless(self: &Arc<Self>) {
        let (mut hopeless, mut another) = (true, false);
        self.for_each_path(|path| {
            hopeless &= path.is_given_up();
            another |= path.is_incompatible();
        });
        if !hopeless || !another || self.is_closing() {
            return;
        }
        let count = {
            let mut state = self.waiting.state.lock();
            if state.up > 0 || state.since_ns.is_none() || state.failing {
                return;
            }
            // No path is about to come up.
            state.failed_fences.fail_ordered();
            state.failing = true;
            state.count
        };
        pr_warn_ratelimited!(
            "{}: the server has become another one: {} requests fail\n",
            self.name(),
            count
        );
        self.fail_waiting();
        self.note_failing();
    }

    /// The server has forgotten the session: requests that were made for it must not be sent, and
    /// the user must be told before new requests are sent. Sleeps until the user was told, and
    /// until no task sends without knowing. No path is up, and the one that is about to come up
    /// waits for requests that failed, after this.
    pub(super) fn lost(self: &Arc<Self>) {
        let count = {
            let mut state = self.waiting.state.lock();
            state.failed_fences.fail_ordered();
            state.failing = true;
            state.count
        };
        pr_warn_ratelimited!(
            "{}: the server does not know the session any more: {} requests fail\n",
            self.name(),
            count
        );
        self.fail_waiting();
        self.note_failing();
        self.flush_events();
        // Not before: a user that makes a request from now on knows. A task that saw the old number
        // sees no path that is published after this.
        self.forget_user();
        rcu::synchronize();
    }

    /// The session is being closed: no request waits any more. May sleep.
    pub(super) fn stop_waiting(&self) {
        // With this set, no timer is armed and no work is queued any more.
        self.waiting.state.lock().closing = true;
        self.fail_timer.cancel_sync();
        self.retry.cancel_sync();
        self.resume_work.cancel_sync();
        self.fail_waiting();
    }
}
