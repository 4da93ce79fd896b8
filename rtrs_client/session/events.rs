// SPDX-License-Identifier: GPL-2.0

//! Link events: telling the user that the session lost its last path, or has one again.
//!
//! The user's callback may wait for permits. Requests in flight hold permits, and need the owner
//! tasks of paths to be failed over. So the callback is called from a work item of the session, on
//! a queue of its own, and an owner task only leaves a note.
//!
//! # Locking
//!
//! `state` is a spinlock, held for a few instructions, innermost.

use kernel::{
    prelude::*,
    sync::Arc,
    time::{
        delay::fsleep,
        Delta, //
    },
};
use rtrs_bindings::{
    lock::{
        new_spinlock_irq,
        SpinLockIrq, //
    },
    noio, time,
    try_lock::TryLock,
    workqueue::{
        Queue,
        WorkExt, //
    },
};

use super::{
    long_lock::LongGuard,
    restore::Outcome,
    Session, //
};
use crate::{
    link::Link,
    logic::{
        creation::{
            Creation,
            Creator, //
        },
        link_events::LinkState,
        silence::{
            Seen,
            Silence, //
        },
        turn, //
    },
    params::FailAfter,
    path::Path, //
};

pub use crate::logic::link_events::LinkEvent;

/// A user that receives link events.
pub trait Events: Send + Sync + 'static {
    /// Handles an event. Called from a task, one event at a time, after the user has the session,
    /// and not any more when it has been closed. May sleep, and wait for permits and requests of
    /// the session; must not close it.
    fn link_event(&self, event: LinkEvent);
}

#[derive(Default)]
struct State {
    told: LinkState,
    /// The server has said that it does not know the session, which was not handled yet.
    forgotten: bool,
    creator: Creator,
    /// Whether the path is heard that waits for an answer of another one.
    newcomer: Silence,
}

/// The reason for which a link is given up.
type Why = &'static str;

/// Interval, in milliseconds, at which a path that waits for an answer of another one is looked at.
const LOOK_MS: i64 = 20;

/// Looks for which a path may count as up although its link has failed: its owner task runs within
/// milliseconds, unless there is no memory for another thread and it waits for this one.
const MAX_OVERDUE: u32 = 100;

/// The turn of a path to come up. No other path comes up meanwhile.
#[must_use = "the next path has its turn as soon as this is dropped"]
pub(crate) struct ComingUp<'a> {
    session: &'a Session,
    /// Dropped last.
    _lock: LongGuard<'a>,
}

impl Drop for ComingUp<'_> {
    fn drop(&mut self) {
        self.session.end_coming_up();
    }
}

/// State of link events.
#[pin_data]
pub(super) struct LinkEvents {
    /// For calls to the user, which may take long.
    queue: Queue,
    /// The user. It belongs to the work item until the session is closed, and is not used after
    /// that.
    user: TryLock<Option<Arc<dyn Events>>>,
    #[pin]
    state: SpinLockIrq<State>,
}

impl LinkEvents {
    pub(super) fn new(queue: Queue, user: Option<Arc<dyn Events>>) -> impl PinInit<Self> {
        pin_init!(Self {
            queue,
            user: TryLock::new(user),
            state <- new_spinlock_irq!(State::default(), "rtrs_link_events"),
        })
    }
}

impl Session {
    /// The session is connected and is about to be handed to its user.
    pub(super) fn announce_events(&self) {
        self.events.state.lock().told.open();
    }

    /// The C user has shown that it has the session, or the Rust user is about to get it: from now
    /// on it receives events. Any context.
    pub(crate) fn hand_over(self: &Arc<Self>) {
        if self.events.state.lock().told.hand_over() {
            self.wake_events();
        }
    }

    /// A path takes requests: tells all that count paths. Owner task of the path.
    pub(crate) fn path_up(self: &Arc<Self>) {
        // First: a user that is told that the session is connected must find it so.
        self.stop_waiting_for_path();
        self.events.state.lock().told.path_up();
        self.start_watch();
        self.wake_events();
    }

    /// A path takes no requests any more. Owner task of the path.
    pub(crate) fn path_down(self: &Arc<Self>) {
        self.events.state.lock().told.path_down();
        if self.wait_for_path() && self.fail_after() == FailAfter::Secs(0) {
            self.note_failing();
        }
    }

    /// Requests are failed from now on. Not noted if the session is being closed.
    pub(super) fn note_failing(self: &Arc<Self>) {
        if self.is_closing() {
            return;
        }
        self.events.state.lock().told.fail();
        self.wake_events();
    }

    /// Whether `path` may make the server create the session. It may if no path is up, and no other
    /// path is asking now. It counts as asking until [`end_creation`](Self::end_creation). Any
    /// context.
    pub(crate) fn may_be_created_by(&self, path: &Path) -> Creation {
        let me = core::ptr::from_ref(path).addr();
        let now = time::now_ns();
        let mut state = self.events.state.lock();

        if state.told.is_up() {
            return Creation::Known;
        }
        state.creator.ask(me, now)
    }

    /// The server has `answered` `path`, or will not answer. Any context.
    pub(crate) fn end_creation(&self, path: &Path, answered: bool) {
        let me = core::ptr::from_ref(path).addr();
        let now = time::now_ns();

        self.events.state.lock().creator.end(me, now, answered);
    }

    /// The server has accepted a path, and has `kept` the session or not. If not, it has a session
    /// from now on and will report it as kept, even if this path never comes up. So it is noted
    /// here, also while other paths are believed to be up. Any context.
    pub(crate) fn accepted(&self, kept: bool) {
        let mut state = self.events.state.lock();

        if !kept && state.told.is_opened() {
            state.forgotten = true;
        }
    }

    /// A path is about to come up over `link`, which knows whether the server had kept the session.
    /// If another path shows that it is up, the server knows it. Owner task of the path; sleeps in
    /// the user's callback, for the server's answers, and for other paths. Returns whether the link
    /// can be published, or why not. If it can, the caller publishes it, and drops the turn when
    /// the path is up.
    pub(crate) fn take_turn(self: &Arc<Self>, link: &Link) -> (ComingUp<'_>, Result<(), Why>) {
        let turn = ComingUp {
            session: self,
            _lock: self.recreate_lock.lock(),
        };
        let usable = self
            .know_server(link)
            .and_then(|()| self.wait_for_failed(link))
            .and_then(|()| match link.core.has_failed() {
                true => Err("it has failed"),
                false => Ok(()),
            });

        (turn, usable)
    }

    /// Finds out whether the server knows the session, and acts upon it if not.
    fn know_server(self: &Arc<Self>, link: &Link) -> Result<(), Why> {
        let forgotten = core::mem::take(&mut self.events.state.lock().forgotten);
        let outcome = match self.decide(link, forgotten) {
            turn::State::Known => return Ok(()),
            turn::State::Forgotten if self.is_believed() => self.restore(link),
            // Requests are failing already, and the user will set up everything again.
            turn::State::Forgotten => Outcome::Lost,
            _ => {
                // The next path decides.
                self.events.state.lock().forgotten |= forgotten;
                return Err("waiting for another path");
            }
        };
        match outcome {
            Outcome::Restored => Ok(()),
            Outcome::Lost => {
                self.lost();
                Ok(())
            }
            Outcome::LinkLost => {
                self.events.state.lock().forgotten = true;
                Err("opening devices again")
            }
        }
    }

    /// Waits until no request executes at the server that has failed here. From then on no request
    /// fails that may still execute, until the path is up.
    fn wait_for_failed(&self, link: &Link) -> Result<(), Why> {
        while !self.begin_coming_up() {
            if !self.goes_on(link) {
                return Err("waiting for failed requests");
            }
            fsleep(Delta::from_millis(LOOK_MS));
        }
        Ok(())
    }

    fn is_believed(&self) -> bool {
        self.events.state.lock().told.is_believed()
    }

    /// Finds out whether the server still has the session; `forgotten` says that it told some path
    /// that it has not. With `recreate_lock`, so no other path comes up; sleeps.
    fn decide(self: &Arc<Self>, link: &Link, forgotten: bool) -> turn::State {
        let path = &*link.core.path;
        let mut decision = turn::State::Begun;
        let mut overdue = 0u32;

        loop {
            let answered = decision == turn::State::Asking && self.has_answer(path);
            overdue = match self.has_failed_path() {
                true => overdue.saturating_add(1),
                false => 0,
            };
            let well = self.goes_on(link) && overdue < MAX_OVERDUE;
            let next = {
                let state = self.events.state.lock();
                decision.next(turn::Look {
                    doubt: state.told.is_opened() && (forgotten || !link.core.is_kept()),
                    up: state.told.is_up(),
                    answered,
                    well,
                })
            };
            if next.is_final() {
                return next;
            }
            if next != decision && next == turn::State::Asking {
                self.events.state.lock().newcomer = Silence::new();
                self.question_others(path);
            }
            decision = next;
            self.hear_newcomer(link);
            fsleep(Delta::from_millis(LOOK_MS));
        }
    }

    /// Notes whether the path was heard that is about to come up over `link`. If it was not, since
    /// the watch has looked last, asks it.
    fn hear_newcomer(&self, link: &Link) {
        let heard = link.heard();
        let due = {
            let mut state = self.events.state.lock();
            if heard {
                state.newcomer.hear();
            }
            !state.newcomer.is_heard_lately()
        };
        if due {
            link.ask();
        }
    }

    /// Ends an interval of the watch. Returns whether a path that is about to come up shows that
    /// the server is well.
    pub(super) fn end_interval_of_newcomer(&self) -> bool {
        let newcomer = &mut self.events.state.lock().newcomer;

        newcomer.interval(Seen {
            heard: false,
            waits: false,
            excused: false,
        });
        newcomer.is_heard()
    }

    /// Whether `link`, which is about to come up, can be used, and no task waits for the owner task
    /// of its path, or of another one that may wait for this one. Any context.
    pub(super) fn goes_on(&self, link: &Link) -> bool {
        let mut awaited = false;
        self.for_each_path(|path| awaited |= path.has_urgent_note());
        !awaited && !link.core.has_failed() && !self.is_closing()
    }

    /// Whether the link of some path has failed, and the owner task has not taken it back. Any
    /// context.
    fn has_failed_path(&self) -> bool {
        let mut failed = false;
        self.for_each_path(|path| failed |= path.has_failed_link());
        failed
    }

    fn wake_events(self: &Arc<Self>) {
        if !self.events.state.lock().told.is_closed() {
            self.event_work.enqueue(&self.events.queue, self);
        }
    }

    /// Sends the pending events, and none after that: the user's module may go then. May sleep.
    pub(super) fn close_events(&self) {
        self.flush_events();
        self.events.state.lock().told.close();
        self.event_work.cancel_sync();
        // Dropped here: the holder of the last reference to the session may drop that when the
        // module is gone.
        drop(self.events.user.try_take().and_then(|mut user| user.take()));
    }

    /// Sends the pending events. Work item; sleeps in the user's callback.
    pub(super) fn tell_events(&self) {
        // There is one such work item, and closing waits for it.
        let Some(held) = self.events.user.try_take() else {
            return;
        };
        let Some(user) = held.as_ref() else {
            return;
        };
        loop {
            let Some(event) = self.events.state.lock().told.tell() else {
                return;
            };
            self.before_event(event);
            // The callback may allocate, and memory reclaim may wait for this work item.
            noio::scope(|| user.link_event(event));
        }
    }

    /// Waits until all events were sent. May sleep.
    pub(super) fn flush_events(&self) {
        self.event_work.flush();
    }
}
