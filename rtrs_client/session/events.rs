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
    sync::Arc, //
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
        link_events::LinkState, //
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
        self.events.state.lock().told.path_up();
        self.stop_waiting_for_path();
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
    /// here. Any context.
    pub(crate) fn accepted(&self, kept: bool) {
        let mut state = self.events.state.lock();

        if !kept && state.told.is_opened() && !state.told.is_up() {
            state.forgotten = true;
        }
    }

    /// A path is about to come up over `link`, which knows whether the server had kept the session.
    /// If other paths are up, the server knows it. Owner task of the path; sleeps in the user's
    /// callback, for the server's answers, and for other paths. Returns whether the link can be
    /// published. The caller publishes the link, or gives it up, before it drops the guard.
    pub(crate) fn take_turn(self: &Arc<Self>, link: &Link) -> (LongGuard<'_>, bool) {
        let turn = self.recreate_lock.lock();
        let kept = link.core.is_kept();
        let (lost, believes) = {
            let mut state = self.events.state.lock();
            let forgotten = core::mem::take(&mut state.forgotten);
            let lost = state.told.is_opened() && !state.told.is_up() && (forgotten || !kept);
            (lost, state.told.is_believed())
        };
        let outcome = match (lost, believes) {
            (false, _) => return (turn, true),
            (true, true) => self.restore(link),
            // Requests are failing already, and the user will set up everything again.
            (true, false) => Outcome::Lost,
        };
        match outcome {
            Outcome::Restored => {}
            Outcome::Lost => self.lost(),
            Outcome::LinkLost => self.events.state.lock().forgotten = true,
        }
        (turn, outcome != Outcome::LinkLost)
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
