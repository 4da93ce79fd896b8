// SPDX-License-Identifier: GPL-2.0

//! A chunk of a path, and where its operation is.
//!
//! # Locking
//!
//! See the top of [`super`].

use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
};

use rtrs_bindings::{
    ib::{
        Mr,
        Region,
        Reply,
        REPLY_BODY, //
    },
    lock::{
        new_spinlock_irq,
        SpinLockIrq, //
    },
};
use rtrs_core::proto::Dir;

use crate::op::Op;

const READ: u32 = Dir::Read as u32;
const WRITE: u32 = Dir::Write as u32;
/// The message was not read yet.
const DIR_UNKNOWN: u32 = u32::MAX;

/// Where the operation of a chunk is.
pub(crate) enum Place {
    /// Here; nothing runs.
    Idle(KBox<Op>),
    /// With whoever executes it.
    Out,
    /// Here, until the chunk's operation on another path is over.
    Parked(KBox<Op>),
    /// Here, until the chunk's key is invalid.
    Invalidating(KBox<Op>),
    /// Here, until the send queue has room.
    Stalled(KBox<Op>, Todo),
}

/// What a stalled operation was about to post.
#[derive(Clone, Copy)]
pub(crate) enum Todo {
    /// The invalidation of the chunk's key.
    Invalidate,
    /// The answer, with this errno (negative or 0).
    Answer(i32),
}

/// What the lock of a slot guards.
pub(crate) struct Held {
    pub(super) op: Place,
    pub(super) reply: Reply,
    /// The connection on whose queue the chunk's key was last registered; `None` if that was before
    /// the path was started, and is over. The key is invalidated there: on another queue that could
    /// come before the registration, if the client lets the first one wait, and the key would be
    /// valid while the user has the data.
    pub(super) registered_on: Option<u16>,
}

impl Held {
    /// The operation is here again.
    #[inline(always)]
    pub(super) fn put(&mut self, op: Place) {
        match core::mem::replace(&mut self.op, op) {
            // Spelled out, as the compiler would call a function to drop it.
            Place::Out => (),
            other => drop(other),
        }
    }
}

/// One chunk of a path.
#[pin_data]
pub(crate) struct Slot {
    #[pin]
    pub(super) place: SpinLockIrq<Held>,
    pub(super) chunk: Region,
    /// The chunk's own key, if that changes with each request.
    mr: Option<Mr>,
    /// Of its last request, for who looks on: when it came, and over which connection; what it
    /// wants.
    since: Atomic<u64>,
    cid: Atomic<u32>,
    dir: Atomic<u32>,
}

impl Slot {
    /// The slot of a chunk and its operation. Answers to copied requests send from `private`. If its
    /// key changes with each request then answers carry the new one, which is in `rkeys` for all
    /// chunks. May sleep.
    pub(crate) fn new(
        chunk: Region,
        private: Option<&Region>,
        mr: Option<Mr>,
        rkeys: Option<&Region>,
        op: KBox<Op>,
    ) -> Result<Pin<KBox<Self>>> {
        let body = rkeys.map(|rkeys| (rkeys, usize::from(op.buf_id()) * REPLY_BODY));
        let held = Held {
            reply: Reply::new(&chunk, private, body)?,
            op: Place::Idle(op),
            registered_on: None,
        };
        KBox::pin_init(
            pin_init!(Self {
                place <- new_spinlock_irq!(held, "rtrs_srv_slot"),
                chunk,
                mr,
                since: Atomic::new(0),
                cid: Atomic::new(0),
                dir: Atomic::new(DIR_UNKNOWN),
            }),
            GFP_KERNEL,
        )
    }

    /// The chunk's own key, if that changes with each request.
    pub(crate) fn mr(&self) -> Option<&Mr> {
        self.mr.as_ref()
    }

    /// The chunk's memory.
    pub(crate) fn region(&self) -> &Region {
        &self.chunk
    }

    /// A request came over connection `cid`, at `since` nanoseconds.
    pub(super) fn came(&self, cid: u16, since: u64) {
        self.since.store(since, Relaxed);
        self.cid.store(cid.into(), Relaxed);
        self.dir.store(DIR_UNKNOWN, Relaxed);
    }

    /// What it wants is known.
    pub(super) fn wants(&self, dir: Dir) {
        self.dir.store(dir as u32, Relaxed);
    }

    /// Connection, direction and time in nanoseconds of the last request.
    pub(crate) fn stamp(&self) -> (u16, Option<Dir>, u64) {
        let dir = match self.dir.load(Relaxed) {
            READ => Some(Dir::Read),
            WRITE => Some(Dir::Write),
            _ => None,
        };

        // CAST: it was made from one.
        (self.cid.load(Relaxed) as u16, dir, self.since.load(Relaxed))
    }

    /// What the request of the chunk waits for; `None` if there is none. Any context.
    pub(crate) fn waits_for(&self) -> Option<&'static str> {
        match &self.place.lock().op {
            Place::Idle(_) => None,
            Place::Out => Some("user"),
            Place::Parked(_) => Some("other path"),
            Place::Invalidating(_) => Some("invalidation"),
            Place::Stalled(..) => Some("send queue"),
        }
    }
}
