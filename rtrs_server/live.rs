// SPDX-License-Identifier: GPL-2.0

//! What a path has while it carries IO: connections, chunks, their operations.
//!
//! A [`Live`] is made and unmade by the path's owner task and published by RCU in between. Who
//! finds it may post on its queue pairs for as long as the read lock is held; what is found in a
//! slot is owned by who takes it out.
//!
//! # Locking
//!
//! `Slot::place` (any context, interrupts off), then `Live::stalled`, then the queue pairs' own.
//! The slot is locked from before an answer is posted until the session's word for the chunk is
//! given back: the next request for the chunk, which an answered client may send at once, waits
//! for that moment.

use kernel::{
    prelude::*,
    sync::{
        atomic::Atomic,
        Arc, //
    },
};

use rtrs_bindings::{
    ib::{
        Chain,
        Endpoint,
        Mr,
        PostError, //
    },
    lock::{
        new_spinlock_irq,
        SpinLockIrq, //
    },
    time::now_ns,
};
use rtrs_core::proto::{
    Dir,
    ProtoError,
    ReadMsg,
    Request,
    WriteMsg, //
};

use crate::{
    inbox::Inbox,
    logic::{
        chunk_state::Begin,
        ring::Ring, //
    },
    op::{
        Arrival,
        Op, //
    },
    path::{
        Fault,
        Path, //
    },
    trace,
};

mod answer;
mod slot;

pub(crate) use self::slot::Slot;
use self::slot::{
    Held,
    Place,
    Todo, //
};

/// An operation that waits for room in a send queue.
#[derive(Clone, Copy)]
struct Stalled {
    /// Its chunk.
    buf_id: u16,
    /// The connection in whose queue it needs room.
    cid: u16,
}

/// Stalled operations, who waits longest first.
type Waiting = Ring<KVVec<Option<Stalled>>>;

/// Dropped in this order: queue pairs are drained and destroyed before what they use.
pub(crate) struct Live {
    /// By connection id.
    eps: KVVec<Pin<KBox<Endpoint<Path>>>>,
    /// By buffer id.
    slots: KVVec<Pin<KBox<Slot>>>,
    /// By connection id.
    inboxes: KVVec<Arc<Inbox>>,
    /// Keys of groups of chunks, if keys do not change.
    groups: KVec<Mr>,
    /// Bytes of data up to which requests are copied, if keys change; 0 for none.
    copy_max: u32,
    /// Stalled operations; there is room for all.
    stalled: Pin<KBox<SpinLockIrq<Waiting>>>,
    /// Operations that are stalled or just being tried again.
    stalled_len: Atomic<u32>,
    /// Counts retired sends while something is stalled.
    progress: Atomic<u32>,
}

impl Live {
    /// All that was made. May sleep.
    pub(crate) fn new(
        eps: KVVec<Pin<KBox<Endpoint<Path>>>>,
        slots: KVVec<Pin<KBox<Slot>>>,
        inboxes: KVVec<Arc<Inbox>>,
        groups: KVec<Mr>,
        copy_max: u32,
    ) -> Result<KBox<Self>> {
        let room = Ring::new(KVVec::from_elem(None, slots.len(), GFP_KERNEL)?);

        Ok(KBox::new(
            Self {
                eps,
                slots,
                inboxes,
                groups,
                copy_max,
                stalled: KBox::pin_init(new_spinlock_irq!(room, "rtrs_srv_stalled"), GFP_KERNEL)?,
                stalled_len: Atomic::new(0),
                progress: Atomic::new(0),
            },
            GFP_KERNEL,
        )?)
    }

    /// The connections, by connection id.
    pub(crate) fn endpoints(&self) -> &[Pin<KBox<Endpoint<Path>>>] {
        &self.eps
    }

    /// The chunks, by buffer id.
    pub(crate) fn slots(&self) -> &[Pin<KBox<Slot>>] {
        &self.slots
    }

    /// Keys of groups of chunks, if keys do not change.
    pub(crate) fn groups(&self) -> &[Mr] {
        &self.groups
    }

    fn slot(&self, buf_id: u16) -> Result<&Slot, Fault> {
        match self.slots.get(usize::from(buf_id)) {
            Some(slot) => Ok(slot),
            None => Err(Fault::Proto(ProtoError::BufId)),
        }
    }

    fn endpoint(&self, cid: u16) -> Option<&Endpoint<Path>> {
        self.eps.get(usize::from(cid)).map(|ep| &**ep)
    }

    /// Leaves an operation that owns its chunk for the user. Any context.
    fn deliver(&self, op: KBox<Op>) {
        // There is an inbox for each connection.
        if let Some(inbox) = self.inboxes.get(usize::from(op.arrival().cid)) {
            inbox.put(op);
        }
    }

    /// A request for chunk `buf_id` arrived.
    pub(crate) fn arrived(
        &self,
        path: &Arc<Path>,
        buf_id: u16,
        arrival: Arrival,
    ) -> Result<(), Fault> {
        let slot = self.slot(buf_id)?;
        let mut place = slot.place.lock();

        let mut op = match core::mem::replace(&mut place.op, Place::Out) {
            Place::Idle(op) => op,
            other => {
                place.op = other;
                return Err(Fault::Busy);
            }
        };
        let now = now_ns();
        op.arrive(arrival, now);
        slot.came(arrival.cid, now);
        trace::recv(path, &op);
        match path.session().begin(buf_id, path.incarnation()) {
            Some(Begin::Run) => op.set_busy(),
            Some(Begin::Parked(other) | Begin::Replaced(other)) => {
                trace::parked(path, &op);
                place.op = Place::Parked(op);
                drop(place);
                path.session().given_up(other, buf_id);
                return Ok(());
            }
            Some(Begin::Violation) | None => {
                place.op = Place::Idle(op);
                return Err(Fault::Busy);
            }
        }
        let ready = self.open(path, slot, &mut place, op);
        drop(place);
        if let Some(op) = ready {
            self.deliver(op);
        }
        if self.is_stalled() {
            self.make_room(path);
        }
        Ok(())
    }

    /// The chunk's operation on another path is over: ours, which was parked, runs.
    ///
    /// `false` if there is none; the chunk's word is the caller's to give back then. If something is
    /// [stalled](Live::is_stalled) afterwards then [`Live::make_room`] has to follow, in a task: this
    /// is called with the session's list of paths locked.
    pub(crate) fn unpark(&self, path: &Arc<Path>, buf_id: u16) -> bool {
        let Ok(slot) = self.slot(buf_id) else {
            return false;
        };
        let mut place = slot.place.lock();

        match core::mem::replace(&mut place.op, Place::Out) {
            Place::Parked(mut op) => {
                op.set_busy();
                let ready = self.open(path, slot, &mut place, op);
                drop(place);
                if let Some(op) = ready {
                    self.deliver(op);
                }
                true
            }
            other => {
                place.op = other;
                false
            }
        }
    }

    /// Whether the chunk has an operation here that is not answered. An answer that is just being
    /// posted is waited for: its client may be faster than we are.
    pub(crate) fn is_under_way(&self, buf_id: u16) -> bool {
        self.slot(buf_id)
            .is_ok_and(|slot| !matches!(slot.place.lock().op, Place::Idle(_)))
    }

    /// Gives the chunks' words back that belong to operations which nobody is going to execute. For
    /// when nobody finds this any more: the client has sent them over another path, where they
    /// wait.
    pub(crate) fn give_up(&self, path: &Path) {
        for inbox in self.inboxes.iter() {
            inbox.close();
        }
        for slot in self.slots.iter() {
            let busy = match &mut slot.place.lock().op {
                Place::Idle(_) | Place::Out => None,
                Place::Parked(op) | Place::Invalidating(op) | Place::Stalled(op, _) => {
                    op.take_busy().then(|| op.buf_id())
                }
            };
            if let Some(buf_id) = busy {
                path.session().end(buf_id, path.incarnation());
            }
        }
    }

    /// Makes sure that the client cannot change what the user gets, if that is the mode: few data are
    /// copied, the key of others is invalidated. An operation that nothing has to be waited for
    /// is returned.
    fn open(
        &self,
        path: &Arc<Path>,
        slot: &Slot,
        place: &mut Held,
        mut op: KBox<Op>,
    ) -> Option<KBox<Op>> {
        let Some(mr) = slot.mr() else {
            return Some(op);
        };
        let most = self.copy_max;
        // What is wrong with a message is found when it cannot be changed any more.
        if most != 0 && parse(path, slot, &op).is_ok_and(|request| op.make_private(request, most)) {
            return Some(op);
        }
        let buf_id = op.buf_id();

        let cid = place.registered_on.unwrap_or(op.arrival().cid);
        if let Some(op) = self.post_inval(path, mr, cid, place, op) {
            place.op = Place::Stalled(op, Todo::Invalidate);
            self.stall(Stalled { buf_id, cid });
        }
        None
    }

    /// Posts the invalidation on connection `cid`. The operation is returned if there is no room for
    /// it.
    fn post_inval(
        &self,
        path: &Arc<Path>,
        mr: &Mr,
        cid: u16,
        place: &mut Held,
        op: KBox<Op>,
    ) -> Option<KBox<Op>> {
        let token = Some(u32::from(op.buf_id()));
        // The completion waits for the lock of the place.
        place.op = Place::Invalidating(op);
        let result = match self.endpoint(cid).and_then(Endpoint::qp) {
            Some(qp) => Chain::<1>::new(qp).local_inv(mr.rkey()).post(token),
            None => Err(PostError::Invalid),
        };

        match result {
            Ok(()) => None,
            Err(PostError::Full) => match core::mem::replace(&mut place.op, Place::Out) {
                Place::Invalidating(op) => Some(op),
                _ => None,
            },
            // Torn down already: the operation goes with its slot.
            Err(PostError::Closed) => None,
            Err(e) => {
                path.post_failed(e);
                None
            }
        }
    }

    /// The chunk's key is invalid now.
    pub(crate) fn invalidated(&self, path: &Path, buf_id: u16) -> Result<(), Fault> {
        let mut place = self.slot(buf_id)?.place.lock();

        match core::mem::replace(&mut place.op, Place::Out) {
            Place::Invalidating(op) => {
                drop(place);
                trace::invalidated(path, &op);
                self.deliver(op);
            }
            other => place.op = other,
        }
        Ok(())
    }

    /// Parses the request of an operation that owns its chunk.
    pub(crate) fn parse(&self, path: &Path, op: &Op) -> Result<Request, Fault> {
        parse(path, self.slot(op.buf_id())?, op)
    }
}

/// Parses the request of an operation that owns the chunk of `slot`.
#[inline(always)]
fn parse(path: &Path, slot: &Slot, op: &Op) -> Result<Request, Fault> {
    let geometry = path.geometry();
    let arrival = op.arrival();
    let mut message = [0; Request::MAX_MSG];

    let range = Request::msg_range(geometry, arrival.off)?;
    // All of it, as a rule, which is copied by words; less is left at the end of a chunk.
    let (read, message) = if range.len() == Request::MAX_MSG {
        (slot.chunk.read(range.start, &mut message), &message[..])
    } else {
        let rest = message
            .get_mut(..range.len())
            .ok_or(Fault::Proto(ProtoError::Length))?;
        (slot.chunk.read(range.start, rest), &*rest)
    };
    read.map_err(|_| Fault::Proto(ProtoError::Offset))?;
    let request = Request::parse(geometry, arrival.off, message)?;
    // What was written has to be what the immediate value says was written.
    if written_len(&request) != to_usize(arrival.byte_len) {
        return Err(Fault::Proto(ProtoError::Length));
    }
    slot.chunk.sync_for_cpu(0, to_usize(request.total_len()));
    slot.wants(request.dir());
    Ok(request)
}

/// Bytes that the client of a request has written to the chunk.
fn written_len(request: &Request) -> usize {
    let (data, message) = match (request.dir(), request.dest()) {
        (Dir::Write, _) => (request.data_range().len(), WriteMsg::SIZE),
        (Dir::Read, Some(_)) => (0, ReadMsg::MAX_SIZE),
        (Dir::Read, None) => (0, ReadMsg::SIZE_NO_DESC),
    };

    data.saturating_add(usize::from(request.usr_len()))
        .saturating_add(message)
}

fn to_usize(len: u32) -> usize {
    // CAST: `usize` has at least 32 bits wherever there is RDMA.
    len as usize
}
