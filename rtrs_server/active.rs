// SPDX-License-Identifier: GPL-2.0

//! The objects of a path while it carries IO: connections, chunks, their operations.
//!
//! An [`Active`] is made and unmade by the path's owner task and published by RCU in between. A
//! reader that finds it may post on its queue pairs for as long as it holds the read lock. An
//! operation found in a [chunk] is owned by the task that takes it out.
//!
//! # Locking
//!
//! `Active::stalled` is a leaf (any context, interrupts off). A chunk has no lock. An answer gives
//! back the chunk and the session's state of it with the send queue locked, before the device is
//! told; nothing is locked in there.

mod answer;

use kernel::{
    prelude::*,
    sync::{
        atomic::Atomic,
        rcu,
        Arc, //
    },
};

use rtrs_bindings::{
    ib::{
        Endpoint,
        Equipped,
        Mr,
        PostError,
        QueuePair, //
    },
    lock::{
        new_spinlock_irq,
        SpinLockIrq, //
    }, //
};
use rtrs_core::proto::{
    Geometry,
    IoTarget,
    ProtoError,
    Request, //
};

use crate::{
    chunk::{
        self,
        Arrival,
        Deferred,
        Origin,
        Read,
        Unparked,
        Usual, //
    },
    inbox::Inbox,
    logic::{
        chunk_state::Begin,
        lines::{
            Line,
            Lines, //
        },
    },
    op::Op,
    path::{
        Path,
        Violation, //
    },
    trace,
};

/// A chunk of a path.
pub(crate) type Chunk = chunk::Chunk<Path>;

/// Stalled operations, by the numbers of their chunks: a line for each connection with those that
/// wait for room in its send queue.
type Stalled = Lines<KVVec<Line>, KVVec<Option<u16>>>;

/// A request came for a chunk that already has an unanswered request.
#[cold]
#[inline(never)]
fn busy(path: &Arc<Path>) {
    path.violated(Violation::Busy);
}

/// Dropped in this order: queue pairs are drained and destroyed before the objects they use.
pub(crate) struct Active {
    /// By connection id.
    eps: KVVec<Equipped<Path>>,
    /// By buffer id.
    chunks: KVVec<Chunk>,
    /// By connection id.
    inboxes: KVVec<Arc<Inbox>>,
    geometry: Geometry,
    /// The requests that are read as they arrive.
    usual: Usual,
    /// Bytes of data up to which requests are copied, if keys change; 0 for none.
    copy_max: u32,
    /// Operations that are stalled or just being tried again.
    stalled_len: Atomic<u32>,
    /// Keys of groups of chunks, if keys do not change.
    groups: KVec<Mr>,
    stalled: Pin<KBox<SpinLockIrq<Stalled>>>,
}

impl Active {
    /// Makes an `Active` of its parts. May sleep.
    pub(crate) fn new(
        geometry: &Geometry,
        eps: KVVec<Equipped<Path>>,
        chunks: KVVec<Chunk>,
        inboxes: KVVec<Arc<Inbox>>,
        groups: KVec<Mr>,
        usual: Usual,
        copy_max: u32,
    ) -> Result<KBox<Self>> {
        let lines = KVVec::from_elem(Line::EMPTY, eps.len(), GFP_KERNEL)?;
        let stalled = Lines::new(lines, KVVec::from_elem(None, chunks.len(), GFP_KERNEL)?);

        Ok(KBox::new(
            Self {
                eps,
                chunks,
                inboxes,
                geometry: *geometry,
                usual,
                copy_max,
                stalled_len: Atomic::new(0),
                groups,
                stalled: KBox::pin_init(
                    new_spinlock_irq!(stalled, "rtrs_srv_stalled"),
                    GFP_KERNEL,
                )?,
            },
            GFP_KERNEL,
        )?)
    }

    /// The connections, by connection id.
    pub(crate) fn endpoints(&self) -> &[Equipped<Path>] {
        &self.eps
    }

    /// Drains the connections, and destroys their queue pairs. Sleeps; must not be called from a
    /// callback of a connection.
    pub(crate) fn destroy_qps(&mut self) {
        for ep in self.eps.iter_mut() {
            ep.destroy_qp();
        }
    }

    /// The chunks, by buffer id.
    pub(crate) fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    /// Keys of groups of chunks, if keys do not change.
    pub(crate) fn groups(&self) -> &[Mr] {
        &self.groups
    }

    /// A chunk.
    #[inline(always)]
    pub(crate) fn chunk(&self, buf_id: u16) -> Option<&Chunk> {
        self.chunks.get(usize::from(buf_id))
    }

    #[inline(always)]
    fn endpoint(&self, cid: u16) -> Option<&Equipped<Path>> {
        self.eps.get(usize::from(cid))
    }

    /// Queues an operation that owns its chunk for the user. Any context.
    #[inline(always)]
    fn deliver(&self, chunk: &Chunk, op: KBox<Op>, cid: u16) {
        chunk.queue(op);
        self.announce(chunk, cid);
    }

    /// The operation of `chunk` is queued: tells the inbox of connection `cid`.
    #[inline(always)]
    fn announce(&self, chunk: &Chunk, cid: u16) {
        // There is one inbox for each connection.
        if let Some(inbox) = self.inboxes.get(usize::from(cid)) {
            inbox.as_arc_borrow().put(chunk.buf_id(), chunk);
        }
    }

    /// A request arrived over the connection of `ep`, at `now` nanoseconds: `payload` says where it is,
    /// and `byte_len` how much was written. A violation is reported to the path.
    // No result on the usual way: results are passed in memory.
    #[inline(always)]
    pub(crate) fn arrived(
        &self,
        ep: &Endpoint<Path>,
        payload: u32,
        byte_len: u32,
        now: u64,
        origin: &mut impl Origin,
    ) {
        let (path, cid) = (ep.handler(), ep.index());
        let (buf_id, off) = self.geometry.codec().split(payload);
        if !self.usual.can_be_at(off) {
            return self.unusual(path, cid, payload, byte_len, now);
        }
        // CAST: `usize` has at least 32 bits.
        let Some(chunk) = self.chunks.get(buf_id as usize) else {
            return self.unusual(path, cid, payload, byte_len, now);
        };
        let Some(mut op) = chunk.claim() else {
            return busy(path);
        };
        let arrival = Arrival { cid, off, byte_len };

        chunk.set_arrival(now);
        trace::recv(path, &op, arrival);
        if !chunk.begin_free() {
            return match origin.put_into(chunk, arrival) {
                true => self.go_in(chunk, op, cid, off, byte_len, false),
                false => self.no_write(path, chunk, op, false),
            };
        }
        match origin.read_usual(chunk, &self.usual, arrival, &mut op) {
            Read::Done => self.deliver(chunk, op, cid),
            Read::Keyed => self.keyed(ep, cid, chunk, op),
            Read::Not => match origin.put_into(chunk, arrival) {
                true => self.go_in(chunk, op, cid, off, byte_len, true),
                false => self.no_write(path, chunk, op, true),
            },
        }
    }

    /// Handles a message that is no write, or has too many data. Its turn has `begun`, or its chunk is in use.
    #[cold]
    #[inline(never)]
    fn no_write(&self, path: &Arc<Path>, chunk: &Chunk, mut op: KBox<Op>, begun: bool) {
        op.forget_request();
        path.violated(Violation::Unexpected(
            "message that is no write of few data",
        ));
        if begun {
            // It goes, and gives the session's state back.
            op.set_busy();
            return drop(op);
        }
        chunk.rest(op);
    }

    /// Continues with a request that is [`Read::Keyed`], and came over connection `cid`, that of `ep`: it
    /// waits for the invalidation.
    #[inline(always)]
    fn keyed(&self, ep: &Endpoint<Path>, cid: u16, chunk: &Chunk, op: KBox<Op>) {
        // The queue pair is looked up here, so that no request has to have it at hand from the start.
        match ep.qp() {
            Some(qp) if op.registered_on() == cid => {
                // Found again if it fails, so that less has to be kept over the post.
                self.post_inval_on(qp, chunk, op, |e| Self::not_keyed_here(ep, chunk, e));
            }
            _ => self.keyed_elsewhere(chunk, op),
        }
    }

    /// The same if the chunk's key was registered on another connection, or on none yet.
    #[inline(never)]
    fn keyed_elsewhere(&self, chunk: &Chunk, op: KBox<Op>) {
        let on = op.invalidate_on();

        self.post_inval(chunk, on, op, |e| self.not_keyed(chunk, on, e));
    }

    /// Handles an invalidation that was not posted on the connection of `ep`.
    #[cold]
    #[inline(never)]
    fn not_keyed_here(ep: &Endpoint<Path>, chunk: &Chunk, e: PostError) {
        let guard = rcu::read_lock();

        // Without an `Active` the path is closing, and takes the operation out of the chunk when this
        // section is over.
        if let Some(active) = ep.handler().active(&guard) {
            active.not_keyed(chunk, ep.index(), e);
        }
    }

    /// Handles an invalidation that was not posted on connection `cid`.
    #[cold]
    #[inline(never)]
    fn not_keyed(&self, chunk: &Chunk, cid: u16, e: PostError) {
        // The key was registered on that connection.
        let Some(path) = self.endpoint(cid).map(|ep| ep.handler()) else {
            return;
        };
        if let Err(op) = self.not_invalidated(path, chunk, e) {
            self.stall(chunk, op, Deferred::Invalidate, cid);
            self.make_room(path, cid);
        }
    }

    /// The same for an offset at which no usual request is, or a number that no chunk has. A request that
    /// was sent never is at such an offset: it is not put into the chunk, so that it is found to be faulty.
    #[inline(never)]
    fn unusual(&self, path: &Arc<Path>, cid: u16, payload: u32, byte_len: u32, now: u64) {
        let IoTarget { buf_id, off } = match self.geometry.codec().decode(payload) {
            Ok(target) => target,
            Err(e) => return path.violated(e.into()),
        };
        let Some(chunk) = self.chunk(buf_id) else {
            return path.violated(ProtoError::BufId.into());
        };
        let Some(op) = chunk.claim() else {
            return busy(path);
        };
        let arrival = Arrival { cid, off, byte_len };

        chunk.set_arrival(now);
        trace::recv(path, &op, arrival);
        let begun = chunk.begin_free();
        self.go_in(chunk, op, cid, off, byte_len, begun);
    }

    /// Continues with a request that was not read. Its turn has `begun`, or its chunk is in use.
    // The parts of the arrival are passed by value: a whole one is passed in memory.
    #[inline(never)]
    fn go_in(
        &self,
        chunk: &Chunk,
        mut op: KBox<Op>,
        cid: u16,
        off: u32,
        byte_len: u32,
        begun: bool,
    ) {
        op.arrive(Arrival { cid, off, byte_len });
        // The operation came over that connection.
        let Some(path) = self.endpoint(op.cid()).map(|ep| ep.handler()) else {
            return;
        };
        op.forget_request();
        let op = match begun {
            true => op,
            false => match self.not_free(path, chunk, op) {
                Some(op) => op,
                None => return,
            },
        };
        if let Some(cid) = self.protect(path, chunk, op) {
            self.make_room(path, cid);
        }
    }

    /// Handles a chunk that another operation has. Returns `op` if it runs nevertheless.
    #[cold]
    fn not_free(&self, path: &Arc<Path>, chunk: &Chunk, op: KBox<Op>) -> Option<KBox<Op>> {
        let buf_id = op.buf_id();

        // It must not displace or close another path: the client has given up this one.
        if path.is_closing() {
            chunk.rest(op);
            return None;
        }
        chunk.wants_something(op.cid());
        match chunk.begin() {
            Begin::Run => Some(op),
            Begin::Parked(other) | Begin::Replaced(other) => {
                trace::parked(path, &op);
                let left = chunk.park(op).err();
                path.session.superseded(other, buf_id);
                left
            }
            Begin::Violation => {
                chunk.rest(op);
                busy(path);
                None
            }
        }
    }

    /// The chunk's operation on another path is over: the one that was parked here runs.
    ///
    /// Returns `false` if there is none; the caller has to give back the chunk's state then. If
    /// something is [stalled](Active::is_stalled) afterwards, then [`Active::make_all_room`] has to
    /// follow, in a task: this is called with the session's list of paths locked.
    pub(crate) fn unpark(&self, path: &Arc<Path>, buf_id: u16) -> bool {
        let Some(chunk) = self.chunk(buf_id) else {
            return false;
        };

        match chunk.unpark() {
            Unparked::Op(op) => {
                self.protect(path, chunk, op);
                true
            }
            Unparked::Called => true,
            Unparked::None => false,
        }
    }

    /// Whether the chunk has an operation here that is not answered.
    pub(crate) fn is_under_way(&self, buf_id: u16) -> bool {
        self.chunk(buf_id).is_some_and(|chunk| chunk.is_under_way())
    }

    /// Whether requests of connection `cid` are held, as many data are under way there.
    pub(crate) fn is_held(&self, cid: u16) -> bool {
        let inbox = self.inboxes.get(usize::from(cid));

        inbox.is_some_and(|inbox| inbox.is_held())
    }

    /// Gives back the chunks' states of operations that will not be executed. Called when no other
    /// task can find this any more. The client has sent these requests over another path, where
    /// they wait.
    pub(crate) fn release_waiting(&self) {
        for inbox in self.inboxes.iter() {
            inbox.release_waiting();
        }
        for chunk in self.chunks.iter() {
            drop(chunk.release_waiting());
        }
    }

    /// Makes sure that the client cannot change the data that the user gets, if that is the mode:
    /// small data are copied, and reads have private pages if they fit; for other data the chunk's
    /// key is invalidated. If the operation is stalled, returns the connection for which
    /// [`Active::make_room`] has to follow.
    fn protect(&self, path: &Arc<Path>, chunk: &Chunk, mut op: KBox<Op>) -> Option<u16> {
        op.set_busy();
        let copies = chunk.mr().is_some();
        let most = match copies {
            true if op.has_private() => self.copy_max,
            true => 0,
            false => u32::MAX,
        };
        // A faulty message is reported later, when the client cannot change it any more.
        if most != 0 {
            if let Ok(request) = chunk.parse(&self.geometry, op.arrival()) {
                let fits = request.data_len() <= most || copies && op.has_private_for(&request);
                if fits && Op::has_room(&request) {
                    // Does not fail: there is room.
                    if op.begin(request).is_ok() {
                        if copies {
                            op.make_private();
                        }
                        let cid = op.cid();
                        self.deliver(chunk, op, cid);
                        return None;
                    }
                }
            }
        }
        self.protect_later(path, chunk, op)
    }

    /// Continues with a request that cannot be copied at once.
    fn protect_later(&self, path: &Arc<Path>, chunk: &Chunk, mut op: KBox<Op>) -> Option<u16> {
        // It is parsed again later.
        op.forget_request();
        let arrival = op.arrival();
        chunk.wants_something(arrival.cid);
        if chunk.mr().is_none() {
            self.deliver(chunk, op, arrival.cid);
            return None;
        }
        let cid = op.invalidate_on();

        if let Err(op) = self.invalidate(path, chunk, cid, op) {
            self.stall(chunk, op, Deferred::Invalidate, cid);
            return Some(cid);
        }
        None
    }

    /// Posts the invalidation on connection `cid`.
    ///
    /// # Errors
    ///
    /// The operation, if there is no room.
    #[inline(never)]
    fn invalidate(
        &self,
        path: &Arc<Path>,
        chunk: &Chunk,
        cid: u16,
        op: KBox<Op>,
    ) -> Result<(), KBox<Op>> {
        let mut posted = Ok(());
        self.post_inval(chunk, cid, op, |e| {
            posted = self.not_invalidated(path, chunk, e);
        });
        posted
    }

    /// The same, but if it cannot be posted, `failed` gets the error, and
    /// [`Active::not_invalidated`] has to follow.
    #[inline(always)]
    fn post_inval(&self, chunk: &Chunk, cid: u16, op: KBox<Op>, failed: impl FnOnce(PostError)) {
        match self.endpoint(cid) {
            Some(ep) => self.post_inval_on(ep.qp(), chunk, op, failed),
            None => {
                chunk.wait_for_key(op);
                failed(PostError::Invalid);
            }
        }
    }

    /// The same, on `qp`.
    #[inline(always)]
    fn post_inval_on(
        &self,
        qp: &QueuePair,
        chunk: &Chunk,
        op: KBox<Op>,
        failed: impl FnOnce(PostError),
    ) {
        // The completion may come before this returns.
        chunk.wait_for_key(op);
        match chunk.mr() {
            Some(mr) => qp.invalidate(mr.rkey(), chunk.key_token(), failed),
            None => failed(PostError::Invalid),
        }
    }

    /// Handles an invalidation that was not posted.
    ///
    /// # Errors
    ///
    /// The operation, if there is no room.
    #[cold]
    fn not_invalidated(
        &self,
        path: &Arc<Path>,
        chunk: &Chunk,
        e: PostError,
    ) -> Result<(), KBox<Op>> {
        match e {
            // If the queue pair is torn down already, the operation goes with its chunk.
            PostError::Closed => Ok(()),
            PostError::Full => chunk.end_wait_for_key().map_or(Ok(()), Err),
            e => {
                path.post_failed(e);
                Ok(())
            }
        }
    }

    /// The key of chunk `buf_id` is invalid now.
    #[inline(always)]
    pub(crate) fn invalidated(&self, path: &Path, buf_id: u32) {
        // CAST: `usize` has at least 32 bits. There are as many tokens as chunks.
        let Some(chunk) = self.chunks.get(buf_id as usize) else {
            return;
        };
        if chunk.needs_sync() || trace::shows_invalidated() {
            return self.invalidated_op(path, chunk);
        }
        if let Some(cid) = chunk.key_is_invalid() {
            self.announce(chunk, cid);
        }
    }

    /// The same, if something has to be done with the operation.
    #[inline(never)]
    fn invalidated_op(&self, path: &Path, chunk: &Chunk) {
        if let Some(op) = chunk.end_wait_for_key() {
            trace::invalidated(path, &op);
            chunk.take_back(&op);
            let cid = op.cid();
            self.deliver(chunk, op, cid);
        }
    }

    /// Parses the request of an operation that owns its chunk.
    pub(crate) fn parse(&self, op: &Op) -> Result<Request, Violation> {
        let chunk = self.chunk(op.buf_id()).ok_or(ProtoError::BufId)?;

        Ok(chunk.parse(&self.geometry, op.arrival())?)
    }
}
