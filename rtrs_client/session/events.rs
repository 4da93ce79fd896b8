// SPDX-License-Identifier: GPL-2.0

//! Telling the user that the session lost its last path, or has one again.
//!
//! The user's callback may wait for permits, which requests in flight hold,
//! which need the owner tasks of paths to be failed over: so it is called from a
//! work item of the session, and an owner task only leaves a note.
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
    workqueue::WorkExt, //
};

use super::Session;

/// What to tell, with the numbers of `enum rtrs_clt_link_ev`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum LinkEvent {
    /// The first path is back.
    Reconnected = 0,
    /// The last path is gone.
    Disconnected = 1,
}

#[derive(Default)]
struct State {
    /// Nothing is told before the session was handed to its user.
    opened: bool,
    /// Paths that are connected.
    up: u32,
    /// How often the last path was lost.
    losses: u32,
    /// What the user knows: losses, and whether there is a path.
    told_losses: u32,
    told_up: bool,
}

impl State {
    /// What the user has to be told next. A loss is always told, even if it is
    /// over: the server has forgotten the user's state.
    fn next(&mut self) -> Option<LinkEvent> {
        if !self.opened {
            None
        } else if self.told_up && self.told_losses != self.losses {
            self.told_losses = self.losses;
            self.told_up = false;
            Some(LinkEvent::Disconnected)
        } else if !self.told_up && self.up > 0 {
            self.told_losses = self.losses;
            self.told_up = true;
            Some(LinkEvent::Reconnected)
        } else {
            None
        }
    }
}

/// What a session remembers about it.
#[pin_data]
pub(super) struct LinkEvents {
    #[pin]
    state: SpinLockIrq<State>,
}

impl LinkEvents {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            state <- new_spinlock_irq!(State::default(), "rtrs_link_events"),
        })
    }
}

impl Session {
    /// The session is handed to its user, connected: from now on they are told.
    pub(super) fn announce_events(self: &Arc<Self>) {
        {
            let mut state = self.events.state.lock();
            state.opened = true;
            state.told_up = true;
            // A path may have been lost since it was connected.
            state.told_losses = 0;
        }
        self.wake_events();
    }

    /// A path takes requests.
    pub(crate) fn path_up(self: &Arc<Self>) {
        {
            let mut state = self.events.state.lock();
            state.up = state.up.saturating_add(1);
        }
        self.wake_events();
    }

    /// A path takes no requests any more.
    pub(crate) fn path_down(self: &Arc<Self>) {
        {
            let mut state = self.events.state.lock();
            state.up = state.up.saturating_sub(1);
            if state.up == 0 {
                state.losses = state.losses.wrapping_add(1);
            }
        }
        self.wake_events();
    }

    fn wake_events(self: &Arc<Self>) {
        if self.options.notifier.is_some() {
            self.event_work.enqueue(&self.queue, self);
        }
    }

    /// Tells what is to be told. Work item; sleeps in the user's callback.
    pub(super) fn tell_events(&self) {
        let Some(notifier) = self.options.notifier.as_ref() else {
            return;
        };
        loop {
            let Some(event) = self.events.state.lock().next() else {
                return;
            };
            // CAST: the numbers of the C enumeration.
            notifier.call(event as u32);
        }
    }

    /// Waits until everything was told. Sleeps.
    pub(super) fn flush_events(&self) {
        self.event_work.flush();
    }
}
