// SPDX-License-Identifier: GPL-2.0

//! Uevents: telling user space that paths, and with them the session, come and go.
//!
//! Sending an event waits for other senders, and may wait for memory. Memory may wait for requests
//! that wait for the owner task of a path. So a work item on a queue of its own sends events, and
//! an owner task only leaves a note.
//!
//! # Locking
//!
//! `state` is a spinlock, innermost.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use rtrs_bindings::{
    lock::{
        new_spinlock_irq,
        SpinLockIrq, //
    },
    workqueue::{
        Queue,
        WorkExt, //
    },
};
use rtrs_core::uevent::{
    Health,
    PathEvent, //
};

use super::Session;
use crate::path::{
    Path,
    PathName, //
};

/// Maximum of notes. If there are more, the oldest are dropped.
const MAX_NOTES: usize = 64;

/// A path has come, or gone.
struct Note {
    path: Arc<Path>,
    up: bool,
    /// The session has come or gone with it.
    session: bool,
    /// The number of connected paths at that time.
    health: Health,
    number: u64,
}

struct State {
    /// The session is visible.
    open: bool,
    /// Paths that are up.
    up: u32,
    /// Number of the last event.
    number: u64,
    /// With room for `MAX_NOTES`.
    notes: KVec<Note>,
}

/// State of uevents.
#[pin_data]
pub(super) struct Uevents {
    queue: Queue,
    #[pin]
    state: SpinLockIrq<State>,
}

impl Uevents {
    pub(super) fn new(queue: Queue) -> Result<impl PinInit<Self>> {
        let notes = KVec::with_capacity(MAX_NOTES, GFP_KERNEL)?;
        Ok(pin_init!(Self {
            queue,
            state <- new_spinlock_irq!(
                State {
                    open: false,
                    up: 0,
                    number: 0,
                    notes,
                },
                "rtrs_uevents"
            ),
        }))
    }
}

impl Session {
    /// Returns how many paths are connected now.
    pub(crate) fn health(&self) -> Health {
        let mut health = Health::default();
        self.for_each_path(|path| {
            health.paths = health.paths.saturating_add(1);
            if path.is_connected() {
                health.up = health.up.saturating_add(1);
            }
        });
        health
    }

    /// The session is visible: later changes are sent.
    pub(super) fn open_uevents(&self) {
        self.uevents.state.lock().open = true;
    }

    /// A path is about to take requests, or to stop taking them. Owner task of the path.
    pub(crate) fn note_path(self: &Arc<Self>, path: &Arc<Path>, up: bool) {
        let mut paths = 0u32;
        self.for_each_path(|_| paths = paths.saturating_add(1));
        let forgotten = {
            let mut state = self.uevents.state.lock();
            let before = state.up;
            state.up = if up {
                before.saturating_add(1)
            } else {
                before.saturating_sub(1)
            };
            let session = (before == 0) != (state.up == 0);
            if !state.open {
                return;
            }
            state.number = state.number.wrapping_add(1);
            let oldest = if state.notes.len() < MAX_NOTES {
                None
            } else {
                state.notes.remove(0).ok()
            };
            let note = Note {
                path: path.clone(),
                up,
                session,
                health: Health {
                    up: state.up,
                    paths,
                },
                number: state.number,
            };
            // Does not fail: there is room, as notes are pushed nowhere else.
            let _ = state.notes.push_within_capacity(note);
            oldest
        };
        // Dropped without the lock.
        drop(forgotten);
        self.uevent_work.enqueue(&self.uevents.queue, self);
    }

    /// Sends the notes. Work item; may sleep.
    pub(super) fn send_uevents(&self) {
        loop {
            let Ok(note) = self.uevents.state.lock().notes.remove(0) else {
                return;
            };
            let event = PathEvent {
                up: note.up,
                session_too: note.session,
                session: self.name().as_str(),
                path: &PathName(&note.path),
                health: note.health,
                number: note.number,
            };
            // Best effort: without memory there is no event.
            let _ = self.with_files(|files| match files {
                Some(files) => event.send(|vars| files.uevent(vars)),
                None => Ok(()),
            });
        }
    }
}
