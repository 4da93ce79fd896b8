// SPDX-License-Identifier: GPL-2.0

//! One chunk of a path: its memory, its registration, its operation, the answer.
//!
//! This module does not know paths or sessions: they are the [`Home`] of the chunks.
//!
//! # The operation
//!
//! Each chunk has exactly one [`Op`], made with it. The task that has the box executes the request.
//! While no task has it, it is in the chunk, and the word of the chunk's berth says why ([`Stay`]):
//!
//! ```text
//!   Idle --claim--> (arriving) -----------------------------------> Queued --dequeue--> (user)
//!    ^                |  ^  \--wait--> Invalidating --invalidated--^                      |
//!    |                |  |                ^ |                                             |
//!    |              park unpark           | stall                                         |
//!    |                v  |                | v                                             |
//!    |               Parked              Stalled <--stall-- (answering) <-----------------+
//!    +-------------------------------------------------rest--/
//! ```
//!
//! In brackets: away, in a box that has an owner. So there is never a second operation for one
//! chunk, a request is answered once, and there is nothing to lock.
//!
//! A chunk rests when there is room for its answer, before the device is told about the answer: a
//! client that has the answer finds the chunk free. A client that does not wait for the answer
//! harms only itself: its early request uses the same memory, to which it has a key.

mod answer;
mod arrival;
mod marks;
mod op;

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
};

use rtrs_bindings::{
    berth::Berth,
    ib::{
        DmaPages,
        KeyToken,
        Mr,
        Reply,
        REPLY_BODY, //
    },
};
use rtrs_core::proto::{
    DataDir,
    RkeyRsp, //
};

use crate::logic::{
    chunk_state::{
        Begin,
        ChunkState,
        End,
        Incarnation, //
    },
    pile::PileLink, //
};

pub(crate) use self::{
    answer::{
        Attempt,
        NotAnswered, //
    },
    arrival::{
        Arrival,
        Origin,
        Read,
        Usual,
        Written, //
    },
    marks::AnswerKind,
    op::{
        Deferred,
        Op,
        Parts, //
    },
};

/// The owner of chunks.
pub(crate) trait Home: Send + Sync + Sized + 'static {
    /// The object that an operation keeps for as long as it exists.
    type OpsRef: Send + Sync;

    /// The user has answered. Any context.
    fn answer(op: KBox<Op<Self>>, errno: i32);

    /// An operation that will not be answered is over. Any context.
    fn abandoned(&self, buf_id: u16);
}

/// The reason why the operation of a chunk is in the chunk.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Stay {
    /// Nothing runs.
    Idle = 1,
    /// Until the chunk's operation on another path is over.
    Parked,
    /// Until the chunk's key is invalid.
    Invalidating,
    /// Until the send queue has room.
    Stalled,
    /// Until the user has time for it.
    Queued,
}

// The same, as words of a berth.
const IDLE: u8 = Stay::Idle as u8;
const PARKED: u8 = Stay::Parked as u8;
const INVALIDATING: u8 = Stay::Invalidating as u8;
const STALLED: u8 = Stay::Stalled as u8;
const QUEUED: u8 = Stay::Queued as u8;

const READ: u32 = DataDir::Read as u32;
const WRITE: u32 = DataDir::Write as u32;
/// The message was not read yet.
const DIR_UNKNOWN: u32 = 0xff;
/// The shift of the direction; the connection is below it.
const DIR_SHIFT: u32 = 16;

/// The result of an attempt to unpark.
pub(crate) enum Unparked<H: Home> {
    /// The operation that was parked.
    Op(KBox<Op<H>>),
    /// It is just about to be parked; the task that parks it continues with it instead.
    Called,
    /// There is none.
    None,
}

/// The state of one chunk in its session, as one life of one path uses it. Any context.
pub(crate) struct UsedState {
    state: Arc<ChunkState>,
    inc: Incarnation,
    buf_id: u16,
}

impl UsedState {
    /// For chunk `buf_id` and the path's life `inc`.
    pub(crate) fn new(state: &Arc<ChunkState>, buf_id: u16, inc: Incarnation) -> Self {
        Self {
            state: state.clone(),
            inc,
            buf_id,
        }
    }

    /// The number of the chunk.
    fn buf_id(&self) -> u16 {
        self.buf_id
    }

    /// A request came; see [`ChunkState::try_begin`].
    pub(crate) fn begin(&self) -> Begin {
        self.state.try_begin(self.inc)
    }

    /// A request came; see [`ChunkState::begin_free`].
    #[inline(always)]
    pub(crate) fn begin_free(&self) -> bool {
        self.state.begin_free(self.inc)
    }

    /// The request is over; see [`ChunkState::end`].
    #[inline(always)]
    fn end(&self) -> End {
        self.state.end(self.inc)
    }
}

/// One chunk of a path. The fields that each request uses are in the first two cache lines.
#[repr(C, align(64))]
pub(crate) struct Chunk<H: Home> {
    op: Berth<Op<H>>,
    state: UsedState,
    /// Of its last request, for observers: time of arrival; connection and direction.
    since: Atomic<u64>,
    stamp: Atomic<u32>,
    /// Its link in the pile of chunks that wait for the user.
    below: PileLink,
    /// For the invalidation of its key.
    key_token: KeyToken,
    dma_pages: DmaPages,
    /// With the chunk's own key, if it changes with each request.
    reply: Reply,
}

impl<H: Home> AsRef<PileLink> for Chunk<H> {
    #[inline(always)]
    fn as_ref(&self) -> &PileLink {
        &self.below
    }
}

impl<H: Home> Chunk<H> {
    /// Makes a chunk with its operation, and with its `state` in the session. Answers to
    /// requests that are processed there send from `private`. The key changes with requests if there
    /// is an `mr`. Answers that have a key have `told`: the pages for those of all chunks, and the
    /// first one. May sleep.
    pub(crate) fn new(
        state: UsedState,
        dma_pages: DmaPages,
        private: Option<&DmaPages>,
        mr: Option<Mr>,
        told: Option<(&DmaPages, u32)>,
        op: KBox<Op<H>>,
    ) -> Result<Self> {
        let body = told.map(|(rkeys, rkey)| {
            let buf_id = op.buf_id();
            (
                rkeys,
                usize::from(buf_id) * REPLY_BODY,
                RkeyRsp { buf_id, rkey }.to_bytes(),
            )
        });
        let imms = answer::imms(op.buf_id()).ok_or(EINVAL)?;

        Ok(Self {
            state,
            below: PileLink::new(),
            key_token: KeyToken::new(op.buf_id().into()),
            stamp: Atomic::new(0),
            since: Atomic::new(0),
            reply: Reply::new(&dma_pages, private, body, mr, imms)?,
            dma_pages,
            op: Berth::new::<IDLE>(op),
        })
    }

    /// Its number.
    pub(crate) fn buf_id(&self) -> u16 {
        self.state.buf_id()
    }

    /// The chunk's own key, if it changes with each request.
    #[inline(always)]
    pub(crate) fn mr(&self) -> Option<&Mr> {
        self.reply.region()
    }

    /// The token of the invalidation of its key: its number.
    #[inline(always)]
    pub(crate) fn key_token(&self) -> KeyToken {
        self.key_token
    }

    /// The chunk's memory.
    pub(crate) fn dma_pages(&self) -> &DmaPages {
        &self.dma_pages
    }

    /// A request came, see [`UsedState::begin`].
    pub(crate) fn begin(&self) -> Begin {
        self.state.begin()
    }

    /// A request came, see [`UsedState::begin_free`].
    #[inline(always)]
    pub(crate) fn begin_free(&self) -> bool {
        self.state.begin_free()
    }

    //
    // Places of the operation.
    //

    /// A request came: takes its operation, unless that is under way.
    #[inline(always)]
    pub(crate) fn claim(&self) -> Option<KBox<Op<H>>> {
        self.op.take::<IDLE>()
    }

    /// The request is over.
    #[inline(always)]
    pub(crate) fn rest(&self, op: KBox<Op<H>>) {
        self.op.put::<IDLE>(op);
    }

    /// The request waits for the chunk's operation on another path. Returns the operation if that
    /// one is over meanwhile.
    pub(crate) fn park(&self, op: KBox<Op<H>>) -> Result<(), KBox<Op<H>>> {
        self.op.park::<PARKED>(op)
    }

    /// The chunk's operation on another path is over.
    pub(crate) fn unpark(&self) -> Unparked<H> {
        // Tries once more if it was parked in between.
        for _ in 0..2 {
            if let Some(op) = self.op.take::<PARKED>() {
                return Unparked::Op(op);
            }
            if self.op.call() {
                return Unparked::Called;
            }
        }
        Unparked::None
    }

    /// The request waits for the user.
    #[inline(always)]
    pub(crate) fn queue(&self, op: KBox<Op<H>>) {
        self.op.put::<QUEUED>(op);
    }

    /// The user has time for it. Returns `None` if it was given up.
    #[inline(always)]
    pub(crate) fn dequeue(&self) -> Option<KBox<Op<H>>> {
        self.op.take::<QUEUED>()
    }

    /// The request waits for its key to be invalid.
    #[inline(always)]
    pub(crate) fn wait_for_key(&self, op: KBox<Op<H>>) {
        self.op.put::<INVALIDATING>(op);
    }

    /// The key is invalid: the request waits for the user, if there is one. Returns the connection over
    /// which it came. The operation is not looked at.
    #[inline(always)]
    pub(crate) fn key_is_invalid(&self) -> Option<u16> {
        if !self.op.retag::<INVALIDATING, QUEUED>() {
            return None;
        }
        // The number was set when the request came.
        let (cid, _) = self.stamp();
        Some(cid)
    }

    /// The key is invalid, or will not become so.
    #[inline(always)]
    pub(crate) fn end_wait_for_key(&self) -> Option<KBox<Op<H>>> {
        self.op.take::<INVALIDATING>()
    }

    /// The operation waits for room in a send queue.
    pub(crate) fn stall(&self, op: KBox<Op<H>>) {
        self.op.put::<STALLED>(op);
    }

    /// There may be room.
    pub(crate) fn unstall(&self) -> Option<KBox<Op<H>>> {
        self.op.take::<STALLED>()
    }

    /// Takes a waiting operation that will not be executed.
    pub(crate) fn release_waiting(&self) -> Option<KBox<Op<H>>> {
        self.op.take_unless::<IDLE>()
    }

    /// Whether it has an operation that is not answered. Any context.
    pub(crate) fn is_under_way(&self) -> bool {
        self.op.tag() != Some(IDLE)
    }

    //
    // For observers.
    //

    /// A request came, at `now` nanoseconds.
    #[inline(always)]
    pub(crate) fn set_arrival(&self, now: u64) {
        self.since.store(now, Relaxed);
    }

    /// It came over connection `cid`; its direction is not known.
    pub(crate) fn wants_something(&self, cid: u16) {
        self.stamp
            .store(u32::from(cid) | DIR_UNKNOWN << DIR_SHIFT, Relaxed);
    }

    /// It came over connection `cid`, and its direction is known.
    fn set_dir(&self, cid: u16, dir: DataDir) {
        self.stamp
            .store(u32::from(cid) | (dir as u32) << DIR_SHIFT, Relaxed);
    }

    /// Returns the time when the last request came, in nanoseconds.
    pub(crate) fn since(&self) -> u64 {
        self.since.load(Relaxed)
    }

    /// Returns connection and direction of the last request.
    pub(crate) fn stamp(&self) -> (u16, Option<DataDir>) {
        let stamp = self.stamp.load(Relaxed);
        let dir = match stamp >> DIR_SHIFT {
            READ => Some(DataDir::Read),
            WRITE => Some(DataDir::Write),
            _ => None,
        };

        // CAST: The low half.
        (stamp as u16, dir)
    }

    /// Returns what the request of the chunk waits for; `None` if there is no request. `is_held` says
    /// whether those of a connection are not handed to the user now. Any context.
    pub(crate) fn waits_for(&self, is_held: impl FnOnce(u16) -> bool) -> Option<&'static str> {
        match self.op.tag() {
            Some(IDLE) => None,
            Some(PARKED) => Some("other path"),
            Some(INVALIDATING) => Some("invalidation"),
            Some(STALLED) => Some("send queue"),
            Some(QUEUED) if is_held(self.stamp().0) => Some("sent data"),
            _ => Some("user"),
        }
    }
}
