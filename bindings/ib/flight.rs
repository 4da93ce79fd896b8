// SPDX-License-Identifier: GPL-2.0

//! Requests in flight: memory that is lent to the device, and to the peer, until that is over.
//!
//! A [`Flight`] is a place for one request: a message to the peer, by RDMA write with an immediate
//! value, and the data that goes out with it or that the peer is to write. It has what such a
//! request needs from one to the next, so that sending it is a few stores: a memory region, the
//! memory of the message, the work requests.
//!
//! # When memory is given back
//!
//! That a device is done with memory is what only completions say, and a wrong answer to the
//! question is memory corruption. So nobody is asked. The flight's own work requests complete to
//! the flight, and to nothing else; a key is known to be invalid when the queue pair has received
//! that, or an invalidation that the flight has posted is complete. The last event makes a
//! [`Landing`], and its end unmaps the memory. What the peer claims, its answer, is one more event
//! that the user of the memory waits for; it never stands for another one.
//!
//! # Lifetimes
//!
//! Flights belong to their [`Domain`] as its pages and regions do: they stay until its last queue
//! pair is gone, whoever drops [`Flights`] before.
//!
//! # Context
//!
//! Any, unless it is said.

#[expect(
    unreachable_pub,
    reason = "also built for the host, as a crate's module"
)]
mod word;

pub use self::word::{
    InFlight,
    Needs,
    Violation, //
};

use core::{
    cell::UnsafeCell,
    mem::{
        offset_of,
        ManuallyDrop, //
    },
    ops::Deref,
    ptr::{
        null_mut,
        NonNull, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

use self::word::{
    Answered,
    Own,
    Word, //
};
use super::{
    domain::{
        Direction,
        Domain,
        Keep,
        Region, //
    },
    endpoint::{
        Endpoint,
        Handler, //
    },
    mr::{
        self,
        Access, //
    },
    queue::{
        PostError,
        QueuePair, //
    },
    wc::Wc,
    wr::Remote, //
};
use crate::{
    atomic::{
        Atomic,
        Relaxed, //
    },
    loan::Loan,
    raw, //
};

/// Scatter/gather elements of a flight's send, the one of its message included.
pub const MAX_SGES: usize = 8;

/// The element of the message: the last one, what goes out before it lies before it.
const MESSAGE: usize = MAX_SGES - 1;

/// Data of a flight.
struct Data {
    /// Null for none.
    sgl: *mut raw::scatterlist,
    nents: u32,
    /// DMA segments.
    mapped: u32,
    dir: Direction,
    /// Described to the region, and to be registered for this.
    access: Option<Access>,
    /// Address and length of what the region describes.
    iova: u64,
    len: u32,
    /// The part of the region's key that consumers choose.
    key: u8,
    /// Bytes of the message.
    message_len: u32,
}

/// Work requests of a flight, as they are posted again and again. What never changes is set when
/// the flight is made, `next` above all: a driver reads that of the last one when the request may
/// be over already.
struct WorkRequests {
    reg: raw::ib_reg_wr,
    write: raw::ib_rdma_wr,
    inval: raw::ib_send_wr,
    sges: [raw::ib_sge; MAX_SGES],
}

/// A place for one request in flight.
///
/// # Invariants
///
/// `data` and `wrs` are touched by the owner of the flight only, see [`Word`]: a [`Building`] or a
/// [`Landing`], of which there is one at a time; `wrs.inval` by the handler of the completions of
/// the lane that the flight is on.
///
/// While the word is neither InFlight nor Landing no work request of the flight is outstanding, its
/// region is not registered, and its data not mapped, but for what a [`Building`] has mapped.
#[repr(C, align(64))]
pub struct Flight<H: Handler> {
    word: Word,
    /// Receives that the queue pair had completed when the flight began.
    began: Atomic<u32>,
    /// The key of the registration.
    rkey: Atomic<u32>,
    data: UnsafeCell<Data>,
    wrs: UnsafeCell<WorkRequests>,
    // What follows is set when it is made.
    mr: NonNull<raw::ib_mr>,
    message: NonNull<u8>,
    message_dma: u64,
    message_room: u32,
    index: u16,
    domain: NonNull<Domain>,
    /// Where its work requests complete: those that say something only if they fail, the send, the
    /// invalidation.
    failed: raw::ib_cqe,
    sent: raw::ib_cqe,
    invalidated: raw::ib_cqe,
    _handler: core::marker::PhantomData<fn(&H)>,
}

// SAFETY: A flight may be used from any thread: what is not atomic is its owner's.
unsafe impl<H: Handler> Send for Flight<H> {}
// SAFETY: See above.
unsafe impl<H: Handler> Sync for Flight<H> {}

/// What the domain keeps.
struct Memory<H: Handler> {
    flights: KVVec<Flight<H>>,
    /// Of the messages; the domain keeps them, too.
    _pages: KVec<Arc<crate::pages::Pages>>,
}

impl<H: Handler> Keep for Memory<H> {}

/// Flights of one domain, by number.
pub struct Flights<H: Handler> {
    memory: Arc<Memory<H>>,
    domain: Arc<Domain>,
}

impl<H: Handler> Deref for Flights<H> {
    type Target = [Flight<H>];

    #[inline(always)]
    fn deref(&self) -> &[Flight<H>] {
        &self.memory.flights
    }
}

impl<H: Handler> Flights<H> {
    /// `n` flights whose data has up to `pages` pages, and whose messages are in `messages`,
    /// `message_room` bytes each: as many to a region as fit. May sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` for messages that are too few or of another domain, `ENOMEM`, or what the driver
    /// says.
    pub fn new(
        domain: &Arc<Domain>,
        n: u16,
        pages: u32,
        messages: &[Region],
        message_room: u32,
    ) -> Result<Self> {
        let mut flights = KVVec::with_capacity(usize::from(n), GFP_KERNEL)?;
        let mut kept = KVec::with_capacity(messages.len(), GFP_KERNEL)?;
        let room = message_room as usize;
        let mut places = messages.iter().flat_map(|region| {
            let per_region = region.len().checked_div(room).unwrap_or(0);
            (0..per_region).map(move |i| (region, i.saturating_mul(room)))
        });
        for index in 0..n {
            let (region, offset) = places.next().ok_or(EINVAL)?;
            if !Arc::ptr_eq(region.domain(), domain) {
                return Err(EINVAL);
            }
            // The place is inside the region.
            let message = NonNull::new(region.pages().as_ptr().wrapping_add(offset));
            let flight = Flight::new(
                domain,
                index,
                domain.alloc_mr(pages)?,
                message.ok_or(EINVAL)?,
                region.dma() + offset as u64,
                message_room,
            );
            flights.push(flight, GFP_KERNEL)?;
        }
        for region in messages {
            kept.push(region.pages().clone(), GFP_KERNEL)?;
        }
        let mut memory = Memory {
            flights,
            _pages: kept,
        };
        for flight in memory.flights.iter_mut() {
            flight.link();
        }
        let memory = Arc::new(memory, GFP_KERNEL)?;
        domain.keep(memory.clone())?;
        Ok(Self {
            memory,
            domain: domain.clone(),
        })
    }

    /// Takes what is still in flight when no queue pair of the domain is left: nothing of it is on
    /// its way any more, and no key is good. `f` gets each, and whether it was answered.
    ///
    /// # Errors
    ///
    /// `EBUSY` while there is a queue pair.
    pub fn collect(&self, mut f: impl FnMut(Landing<'_, H>, InFlight)) -> Result {
        if !self.domain.has_ended() {
            return Err(EBUSY);
        }
        for flight in self.iter() {
            if let Some(found) = flight.word.collect() {
                // The queue pairs are gone: the device is done with the memory, and a key without a
                // queue pair to use it is none.
                let landing = Landing {
                    flight,
                    result: found.result,
                };
                f(landing, found);
            }
        }
        Ok(())
    }
}

impl<H: Handler> Flight<H> {
    fn new(
        domain: &Arc<Domain>,
        index: u16,
        mr: NonNull<raw::ib_mr>,
        message: NonNull<u8>,
        message_dma: u64,
        message_room: u32,
    ) -> Self {
        // INVARIANT: Idle, and nothing is mapped.
        Self {
            word: Word::new(),
            began: Atomic::new(0),
            rkey: Atomic::new(0),
            data: UnsafeCell::new(Data {
                sgl: null_mut(),
                nents: 0,
                mapped: 0,
                dir: Direction::ToDevice,
                access: None,
                iova: 0,
                len: 0,
                // SAFETY: The region is valid.
                // CAST: The low byte is the part that consumers choose.
                key: unsafe { raw::rtrs_helper_ib_mr_rkey(mr.as_ptr()) } as u8,
                message_len: 0,
            }),
            wrs: UnsafeCell::new(WorkRequests {
                reg: raw::ib_reg_wr::default(),
                write: raw::ib_rdma_wr::default(),
                inval: raw::ib_send_wr::default(),
                sges: [raw::ib_sge {
                    addr: message_dma,
                    length: 0,
                    lkey: domain.lkey(),
                }; MAX_SGES],
            }),
            mr,
            message,
            message_dma,
            message_room,
            index,
            domain: NonNull::from(&**domain),
            failed: raw::ib_cqe {
                done: Some(super::queue::send_done::<H>),
            },
            sent: raw::ib_cqe {
                done: Some(done::<H, SENT>),
            },
            invalidated: raw::ib_cqe {
                done: Some(done::<H, INVALIDATED>),
            },
            _handler: core::marker::PhantomData,
        }
    }

    /// Fills in what work requests have of where the flight is, which is its last place.
    fn link(&mut self) {
        let failed = core::ptr::from_ref(&self.failed).cast_mut();
        let invalidated = core::ptr::from_ref(&self.invalidated).cast_mut();
        let wrs = self.wrs.get_mut();
        wrs.reg.wr.next = &raw mut wrs.write.wr;
        wrs.reg.wr.__bindgen_anon_1.wr_cqe = failed;
        wrs.reg.wr.opcode = raw::ib_wr_opcode_IB_WR_REG_MR;
        wrs.reg.mr = self.mr.as_ptr();
        wrs.write.wr.next = null_mut();
        wrs.write.wr.opcode = raw::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM;
        wrs.inval.next = null_mut();
        wrs.inval.opcode = raw::ib_wr_opcode_IB_WR_LOCAL_INV;
        wrs.inval.__bindgen_anon_1.wr_cqe = invalidated;
    }

    /// Its number.
    #[inline(always)]
    pub fn index(&self) -> u16 {
        self.index
    }

    /// What is in flight, for display; it may be over when this returns.
    pub fn peek(&self) -> Option<InFlight> {
        self.word.peek()
    }

    #[inline(always)]
    fn domain(&self) -> &Domain {
        // SAFETY: A flight is reached by way of its `Flights`, or of a queue pair of the domain: both
        // hold a reference to it.
        unsafe { self.domain.as_ref() }
    }

    /// Begins a request; `None` while there is one.
    #[inline(always)]
    pub fn build(&self) -> Option<Building<'_, H>> {
        if !self.word.build() {
            return None;
        }
        let building = Building { flight: self };
        let data = building.data();
        data.access = None;
        Some(building)
    }

    /// The peer's answer came over `ep`, which is `lane`, with `result` 0 or a negative errno.
    /// `returned` is what the peer says of the key: that it was invalidated. It is believed if the
    /// queue pair has received that, right before, and after the flight began; otherwise the key is
    /// invalidated here. By the handler of the queue pair's completions.
    ///
    /// Returns the landing, if nothing else is to come.
    ///
    /// # Errors
    ///
    /// See [`AnswerError`].
    #[inline(always)]
    pub fn answered(
        &self,
        ep: &Endpoint<H>,
        lane: u16,
        result: i32,
        returned: bool,
    ) -> Result<Option<Landing<'_, H>>, AnswerError> {
        let qp = ep.qp().ok_or(AnswerError::Post(PostError::Closed))?;
        let returned = qp.take_invalidated().filter(|_| returned);
        let proven = || {
            returned.is_some_and(|(rkey, at)| {
                // CAST: The difference, modulo 2^32, of counts that are close to each other.
                let since = at.wrapping_sub(self.began.load(Relaxed)) as i32;
                rkey == self.rkey.load(Relaxed) && since > 0
            })
        };
        match self.word.answered(lane, result, proven) {
            Ok(Answered::Over(result)) => Ok(Some(Landing {
                flight: self,
                result,
            })),
            Ok(Answered::Needs(needs)) => {
                if needs.has_invalidated() {
                    self.invalidate(qp).map_err(AnswerError::Post)?;
                }
                Ok(None)
            }
            Err(violation) => Err(AnswerError::Violation(violation)),
        }
    }

    /// Posts the invalidation of the key, whose completion is the flight's.
    #[cold]
    fn invalidate(&self, qp: &QueuePair) -> Result<(), PostError> {
        if !qp.is_of(self.domain()) {
            return Err(PostError::Invalid);
        }
        let wrs = self.wrs.get();
        let cqe = core::ptr::from_ref(&self.invalidated).cast_mut();
        let mut room = qp.reserve(1, true)?;
        // SAFETY: By the invariant of the flight `inval` is ours: we handle its only answer. It is
        // linked, and names nothing but the key.
        unsafe {
            let wr = &raw mut (*wrs).inval;
            (*wr).ex.invalidate_rkey = self.rkey.load(Relaxed);
            room.post(wr, wr, cqe)
        }
    }
}

/// What is wrong with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerError {
    /// There is no such request; nothing has changed.
    Violation(Violation),
    /// The key could not be invalidated: the request stays in flight, and the connection has to end.
    Post(PostError),
}

/// A flight that is being prepared. Dropping it undoes what was done; [`cancel`](Self::cancel) also
/// gives the loan back.
#[must_use]
pub struct Building<'f, H: Handler> {
    flight: &'f Flight<H>,
}

/// How a post ended that was not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// All is on its way.
    All,
    /// A part is, or the peer has answered what it never got: the flight stays until it is
    /// [collected](Flights::collect), the connection has to end.
    Broken(PostError),
}

impl<'f, H: Handler> Building<'f, H> {
    #[inline(always)]
    #[expect(clippy::mut_from_ref)]
    fn data(&self) -> &mut Data {
        // SAFETY: By the invariant of the flight it is ours; the result is not kept beyond a call.
        unsafe { &mut *self.flight.data.get() }
    }

    /// Borrows the data of `loan` until the flight is over, and maps it for the device; returns the
    /// DMA segments, 0 for a loan without data.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the loan is borrowed, or the flight has data, `EINVAL` for a list that cannot be,
    /// `ENOMEM` when it cannot be mapped.
    #[inline(always)]
    pub fn borrow(&mut self, loan: &mut Loan, dir: Direction) -> Result<u32> {
        let data = self.data();
        let Some((sgl, nents)) = loan.list() else {
            return Ok(0);
        };
        if !data.sgl.is_null() || !loan.borrow_by(self.id()) {
            return Err(EBUSY);
        }
        let dev = self.flight.domain().device().as_raw();
        // SAFETY: The device is valid. By the invariant of the loan the list is valid and nobody
        // else's, until the loan is given back, before which it is unmapped.
        // CAST: `Loan` bounds it.
        let mapped =
            unsafe { raw::rtrs_helper_ib_dma_map_sg(dev, sgl, nents as i32, dir.as_raw()) };
        if mapped <= 0 {
            loan.give_back(self.id());
            return Err(ENOMEM);
        }
        data.sgl = sgl;
        data.nents = nents;
        // CAST: Positive.
        data.mapped = mapped as u32;
        data.dir = dir;
        Ok(data.mapped)
    }

    /// Describes the data, `len` bytes, to the flight's memory region, in pages of `page_size` bytes,
    /// under a new key: it is registered for `access` with the post.
    ///
    /// # Errors
    ///
    /// `EINVAL` when the list does not fit or has gaps within pages, or there is none.
    #[inline(always)]
    pub fn describe(&mut self, page_size: u32, len: u32, access: Access) -> Result<Remote> {
        let data = self.data();
        if data.sgl.is_null() {
            return Err(EINVAL);
        }
        let mr = self.flight.mr;
        // SAFETY: The list is mapped for the device of the region. That is not registered, nor about
        // to be, by the invariant of the flight, and ours to change.
        data.iova = unsafe { mr::map_list(mr, data.sgl, data.mapped, page_size) }?;
        data.len = len;
        data.key = data.key.wrapping_add(1);
        data.access = Some(access);
        // SAFETY: As above.
        let rkey = unsafe {
            raw::rtrs_helper_ib_mr_set_key(mr.as_ptr(), data.key);
            raw::rtrs_helper_ib_mr_rkey(mr.as_ptr())
        };
        self.flight.rkey.store(rkey, Relaxed);
        Ok(Remote {
            addr: data.iova,
            rkey,
        })
    }

    /// Writes `bytes` to offset `at` of the message, which ends there.
    ///
    /// # Errors
    ///
    /// `EINVAL` when there is no room for it.
    #[inline(always)]
    pub fn end_message<const N: usize>(&mut self, at: u32, bytes: [u8; N]) -> Result {
        let flight = self.flight;
        // CAST: A few bytes.
        let end = at.saturating_add(N as u32);
        if end > flight.message_room {
            return Err(EINVAL);
        }
        self.data().message_len = end;
        // SAFETY: Inside the flight's part of pages that are mapped for the device, of which nobody
        // has a reference.
        // CAST: `usize` has at least 32 bits.
        unsafe {
            let to = flight.message.as_ptr().add(at as usize);
            to.cast::<[u8; N]>().write_unaligned(bytes);
            raw::rtrs_helper_ib_dma_sync_for_device(
                flight.domain().device().as_raw(),
                flight.message_dma,
                end as usize,
                Direction::ToDevice.as_raw(),
            );
        }
        Ok(())
    }

    /// Posts it on `ep`, as `lane`: registration, if the data was [described](Self::describe) to the
    /// region; then data that goes out, and the message, to the peer's memory at `to`, with a word
    /// `imm`. The flight may be over before this returns.
    ///
    /// # Errors
    ///
    /// Why nothing was posted, with the flight as it was.
    #[inline(always)]
    pub fn post(
        self,
        ep: &Endpoint<H>,
        lane: u16,
        to: Remote,
        imm: u32,
    ) -> Result<Posted, (PostError, Self)> {
        let Some(qp) = ep.qp().filter(|qp| qp.is_of(self.flight.domain())) else {
            return Err((PostError::Closed, self));
        };
        let this = ManuallyDrop::new(self);
        let flight = this.flight;
        let data = this.data();
        let wrs = flight.wrs.get();
        let goes_out = !data.sgl.is_null() && data.dir != Direction::FromDevice;
        let mut needs = Needs::answer();
        // What goes out before the message.
        let mut before = 0;
        // SAFETY: By the invariant of the flight the work requests are ours. One by one, as a driver
        // may still look at `next` of the last one.
        unsafe {
            let sges = &raw mut (*wrs).sges;
            let write = &raw mut (*wrs).write;
            if goes_out {
                needs = needs.and_sent();
                if data.access.is_some() {
                    before = 1;
                    // The local key of a fast registration is its remote key.
                    (*sges)[MESSAGE - 1] = raw::ib_sge {
                        addr: data.iova,
                        length: data.len,
                        lkey: flight.rkey.load(Relaxed),
                    };
                } else {
                    before = data.mapped as usize;
                    if before > MESSAGE || before >= qp.max_sges() {
                        return Err((PostError::Invalid, ManuallyDrop::into_inner(this)));
                    }
                    raw::rtrs_helper_ib_sg_dma_list(
                        data.sgl,
                        data.mapped as i32,
                        sges.cast::<raw::ib_sge>().add(MESSAGE - before),
                        data.mapped,
                        flight.domain().lkey(),
                    );
                }
            }
            (*sges)[MESSAGE].length = data.message_len;
            (*write).wr.sg_list = sges.cast::<raw::ib_sge>().add(MESSAGE - before);
            // CAST: At most `MAX_SGES`.
            (*write).wr.num_sge = before as i32 + 1;
            (*write).wr.ex.imm_data = imm.to_be();
            (*write).remote_addr = to.addr;
            (*write).rkey = to.rkey;
        }
        // SAFETY: As above.
        let last = unsafe { &raw mut (*wrs).write.wr };
        let (mut first, mut n) = (last, 1);
        if let Some(access) = data.access {
            needs = needs.and_invalidated();
            // SAFETY: As above.
            unsafe {
                let reg = &raw mut (*wrs).reg;
                (*reg).key = flight.rkey.load(Relaxed);
                (*reg).access = access.as_raw();
                first = &raw mut (*reg).wr;
            }
            n = 2;
        }
        let cqe = match needs.has_sent() {
            true => &flight.sent,
            false => &flight.failed,
        };
        let mut room = match qp.reserve(n, needs.has_sent()) {
            Ok(room) => room,
            Err(e) => return Err((e, ManuallyDrop::into_inner(this))),
        };
        // With the queue locked: a peer may answer what it has not got yet, and the key must not be
        // invalidated before it was registered.
        flight.began.store(qp.received(), Relaxed);
        let flown = flight.word.fly(lane, needs);
        // SAFETY: The requests are linked, and stay. What they name is the domain's: message and
        // region for good, the data until the flight is over. Their completion entries are those of
        // endpoints with this handler, as `ep` is.
        match unsafe { room.post(first, last, core::ptr::from_ref(cqe).cast_mut()) } {
            Ok(()) => Ok(Posted::All),
            Err(e @ PostError::Partial(_)) => Ok(Posted::Broken(e)),
            // Still locked, see `take_back()`.
            Err(e) if flight.word.take_back(flown) => Err((e, ManuallyDrop::into_inner(this))),
            Err(e) => Ok(Posted::Broken(e)),
        }
    }

    /// Undoes what was done, and gives `loan` back, if it was [borrowed](Self::borrow).
    pub fn cancel(self, loan: &mut Loan) {
        let id = self.id();
        drop(self);
        loan.give_back(id);
    }

    #[inline(always)]
    fn id(&self) -> usize {
        self.flight.id()
    }
}

impl<H: Handler> Drop for Building<'_, H> {
    fn drop(&mut self) {
        // SAFETY: Ours, and nothing is posted.
        unsafe { self.flight.unmap() };
        self.flight.word.cancel();
    }
}

/// A flight that is over. Dropping it unmaps the data, and makes the place free for the next one.
#[must_use]
pub struct Landing<'f, H: Handler> {
    flight: &'f Flight<H>,
    result: i32,
}

impl<'f, H: Handler> Landing<'f, H> {
    /// The flight.
    #[inline(always)]
    pub fn flight(&self) -> &'f Flight<H> {
        self.flight
    }

    /// The result in the answer, 0 or a negative errno.
    #[inline(always)]
    pub fn result(&self) -> i32 {
        self.result
    }

    /// Unmaps the data, and gives `loan` back. The place is free for the next one.
    #[inline(always)]
    pub fn give_back(self, loan: &mut Loan) {
        let id = self.flight.id();
        drop(self);
        loan.give_back(id);
    }
}

impl<H: Handler> Drop for Landing<'_, H> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: Ours; all that the flight needed has happened, see the top of this file.
        unsafe { self.flight.unmap() };
        self.flight.word.land();
    }
}

impl<H: Handler> Flight<H> {
    /// What tells it from others, for [`Loan`].
    #[inline(always)]
    fn id(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// Undoes the mapping, if there is one.
    ///
    /// # Safety
    ///
    /// The flight must be the caller's, and no work request outstanding, or key good, that names
    /// the data.
    #[inline(always)]
    unsafe fn unmap(&self) {
        // SAFETY: The flight is the caller's.
        let data = unsafe { &mut *self.data.get() };
        if data.sgl.is_null() {
            return;
        }
        // SAFETY: Mapped with these arguments, in `borrow()`, from a loan that is not given back yet.
        // CAST: As there.
        unsafe {
            raw::rtrs_helper_ib_dma_unmap_sg(
                self.domain().device().as_raw(),
                data.sgl,
                data.nents as i32,
                data.dir.as_raw(),
            );
        }
        data.sgl = null_mut();
    }
}

/// Which work request has completed.
const SENT: bool = false;
const INVALIDATED: bool = true;

/// # Safety
///
/// `cq` is the CQ of a live [`Endpoint<H>`], `wc` one of its completions, of a work request of a
/// flight with this entry.
unsafe extern "C" fn done<H: Handler, const WHICH: bool>(cq: *mut raw::ib_cq, wc: *mut raw::ib_wc) {
    let (offset, own) = match WHICH {
        SENT => (offset_of!(Flight<H>, sent), Own::Sent),
        INVALIDATED => (offset_of!(Flight<H>, invalidated), Own::Invalidated),
    };
    // SAFETY: The context of the CQ is the endpoint, which outlives the CQ. ib_core passes a valid
    // completion, whose entry is that of a flight; those stay as long as a queue pair of the domain.
    let (ep, wc, flight) = unsafe {
        let cqe = (*wc).__bindgen_anon_1.wr_cqe;
        (
            &*(*cq).cq_context.cast::<Endpoint<H>>(),
            Wc::from_raw(wc),
            &*cqe.byte_sub(offset).cast::<Flight<H>>(),
        )
    };
    let Some(qp) = ep.qp() else { return };
    if !qp.sent(ep, wc) {
        return ep.handler().send_done(ep, qp, None, wc);
    }
    if let Some(result) = flight.word.completed(own) {
        ep.handler().landed(ep, Landing { flight, result });
    }
    ep.handler().send_retired(ep, qp);
}
