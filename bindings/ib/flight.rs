// SPDX-License-Identifier: GPL-2.0

//! Requests in flight: memory that is lent to the device, and to the peer, until the request is
//! over.
//!
//! A [`Flight`] is a place for one request: a message to the peer, by RDMA write with an immediate
//! value, and the data that goes out with it or that the peer writes. It keeps the resources that
//! each request needs, so that sending one takes only a few stores: a memory region, the memory of
//! the message, the work requests.
//!
//! # When memory is given back
//!
//! Only completions show that a device is done with memory, and a mistake about this is memory
//! corruption. So no caller decides it. The completions that end a flight come to entries of its
//! own, which nothing else is posted with; a key is known to be invalid when the queue pair has
//! received its invalidation, or when an invalidation that the flight has posted is complete. The
//! last event makes a [`Landing`], and the end of that unmaps the memory. The peer's answer is one
//! more event that the user of the memory waits for; it never replaces another event.
//!
//! # Lifetimes
//!
//! Flights belong to their [`Domain`] as its pages and memory regions do: they stay until it is
//! dropped, even if [`Flights`] is dropped before. One that is in flight then has to be collected
//! first: otherwise its data stays mapped, and the loan does not end.
//!
//! # What devices must keep
//!
//! That a device is done with memory when its key is invalid is what the InfiniBand specification
//! says. Two drivers that execute requests in software do not keep it: hfi1 looks at the key only
//! in the first packet of a message, and rxe does not make check and copy one step. There a peer
//! that is hostile can write to memory that was given back. Against such peers let the device write
//! to bounce buffers only, as these stay with the domain.
//!
//! # Context
//!
//! Any, unless documented otherwise. Dropping the last [`Flights`] may sleep. The driver hns
//! allocates memory in `ib_map_mr_sg()` and may sleep there, which is its defect: see
//! [`Building::describe`].

mod answer;
mod building;
mod data;
mod landing;
mod posting;
#[expect(
    unreachable_pub,
    reason = "also built for the host, as a crate's module"
)]
mod word;

pub use self::{
    answer::{
        AnswerError,
        Outcome, //
    },
    building::{
        Building,
        Claim,
        Target,
        Unposted, //
    },
    landing::Landing,
    word::{
        InFlight,
        Needs,
        Violation, //
    },
};

use core::{
    cell::UnsafeCell,
    ops::Deref,
    ptr::{
        null_mut,
        NonNull, //
    },
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};

pub(super) use self::word::Lane;
use self::word::Word;
use super::{
    bounce::Bounce,
    domain::{
        DmaDirection,
        DmaPages,
        Domain,
        Keep, //
    },
    endpoint::Handler,
    mr::{
        self,
        Access,
        Mr, //
    },
    wr::Remote, //
};
use crate::{
    atomic::Atomic,
    raw, //
};

/// Number of scatter/gather elements of a flight's send, including that of its message.
pub const MAX_SGES: usize = 8;

/// Index of the element of the message: the last one, as data that goes out precedes the message.
const MESSAGE: usize = MAX_SGES - 1;

/// The state of the data of a flight.
// The mapped states come last, so that testing for them is one comparison.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd)]
enum What {
    /// There is no data, or nothing was done with it yet.
    None,
    /// The data is in the bounce buffer, from where it is sent.
    Along,
    /// The peer writes the data to the bounce buffer, from where it is copied at the end.
    Back,
    /// The data is mapped.
    Mapped,
    /// The data is mapped, and there is an element for each segment.
    Gathered,
    /// The data is mapped, and described to the region for registration.
    Described,
}

impl What {
    #[inline(always)]
    fn is_mapped(self) -> bool {
        self >= Self::Mapped
    }
}

/// Data of a flight.
struct Data {
    /// Set when the flight is posted; a [`Building`] has it itself.
    what: What,
    /// The scatter list of the data.
    sgl: *mut raw::scatterlist,
    nents: u32,
    /// Number of DMA segments.
    mapped: u32,
    dir: DmaDirection,
    /// Number of bytes that come back through the bounce buffer, or are described to the region.
    len: u32,
    /// Address of the data in the region.
    iova: u64,
    /// The part of the region's key that consumers choose.
    key: u8,
}

/// Work requests of a flight for mapped data that go out, and its invalidation, which are posted
/// again and again. Fields that never change are set when the flight is made, above all `next`: a
/// driver reads that of the last work request when the request may be over already.
struct WorkRequests {
    reg: raw::ib_reg_wr,
    write: raw::ib_rdma_wr,
    inval: raw::ib_send_wr,
    sges: [raw::ib_sge; MAX_SGES],
}

/// A place for one request in flight, with the data that its user keeps with it.
///
/// # Invariants
///
/// Only the owner of the flight, see [`Word`], accesses `data` and `wrs`: a [`Building`] or a
/// [`Landing`], of which there is at most one at a time. `wrs.inval` is accessed only for
/// the answer that the word has accepted: each post accepts one.
///
/// While the word is neither InFlight nor Landing, no work request of the flight is outstanding,
/// its region is not registered, and its data is not mapped, except for data that a [`Building`]
/// has mapped.
#[repr(C, align(64))]
pub struct Flight<H: Handler> {
    word: Word,
    /// Number of receives that the queue pair had completed when the flight began.
    began: Atomic<u64>,
    /// The key of the registration.
    rkey: Atomic<u32>,
    index: u16,
    data: UnsafeCell<Data>,
    cargo: H::Cargo,
    // The following fields are set when the flight is made.
    message: NonNull<u8>,
    message_dma: u64,
    message_room: u32,
    /// Size of the bounce buffer in bytes, 0 for none.
    bounce_room: u32,
    bounce: *mut u8,
    bounce_dma: u64,
    bounce_remote: Remote,
    /// Device and processor must be told what the other one has written to message or buffer.
    needs_sync: bool,
    /// The key of messages and bounce buffers.
    lkey: u32,
    domain: NonNull<Domain>,
    /// The device of the domain.
    device: *mut raw::ib_device,
    mr: NonNull<raw::ib_mr>,
    wrs: UnsafeCell<WorkRequests>,
    /// Completion entries of its work requests that always complete: of the write of mapped data, by
    /// whether its completion retires the requests before it, and of the invalidation.
    sent: [raw::ib_cqe; 2],
    invalidated: raw::ib_cqe,
}

// SAFETY: A flight may be used from any thread: only its owner accesses the fields that are not
// atomic.
unsafe impl<H: Handler> Send for Flight<H> {}
// SAFETY: See above.
unsafe impl<H: Handler> Sync for Flight<H> {}

/// The memory that the domain keeps alive, as it does the pages of messages and bounce buffers.
struct Memory<H: Handler>(KVVec<Flight<H>>);

impl<H: Handler> Keep for Memory<H> {}

/// Flights of one domain, by number, or [none](Self::none). A clone has the same flights.
///
/// Messages and bounce buffers belong to the flights, so that no two flights have the same.
///
/// # Invariants
///
/// `flights` are those of the memory in `owner`, which do not move. Without an owner there are none.
pub struct Flights<H: Handler> {
    flights: NonNull<[Flight<H>]>,
    owner: Option<Owner<H>>,
}

/// What flights need.
struct Owner<H: Handler> {
    _memory: Arc<Memory<H>>,
    // Not in `Memory`: it holds references to the domain.
    bounce: Option<Arc<Bounce>>,
    domain: Arc<Domain>,
}

// SAFETY: It is a counted reference to the flights.
unsafe impl<H: Handler> Send for Flights<H> {}
// SAFETY: As above; it lends `&Flight<H>`.
unsafe impl<H: Handler> Sync for Flights<H> {}

impl<H: Handler> Clone for Flights<H> {
    fn clone(&self) -> Self {
        // INVARIANT: As for `self`.
        Self {
            flights: self.flights,
            owner: self.owner.as_ref().map(|owner| Owner {
                _memory: owner._memory.clone(),
                bounce: owner.bounce.clone(),
                domain: owner.domain.clone(),
            }),
        }
    }
}

impl<H: Handler> Deref for Flights<H> {
    type Target = [Flight<H>];

    #[inline(always)]
    fn deref(&self) -> &[Flight<H>] {
        // SAFETY: By the type invariant they are in the memory of the owner, if there are any.
        // `self` keeps that alive, and it is only shared.
        unsafe { self.flights.as_ref() }
    }
}

impl<H: Handler> Flights<H> {
    /// No flights: a search finds none.
    pub fn none() -> Self {
        // INVARIANT: There are none.
        Self {
            flights: NonNull::from(&[]),
            owner: None,
        }
    }

    /// Makes `n` flights, each with up to `pages` pages of data. The messages are in `messages`,
    /// `message_room` bytes each, as many in each of the pages as fit. Flights with a place in
    /// `bounce` can transfer data by copying. `cargo` makes the user's data of each flight. May
    /// sleep.
    ///
    /// The pages of the messages may be shared: with flights of other domains, or with a user
    /// that writes a part of the message. If two write to the same bytes at a time, a mixture is
    /// sent.
    ///
    /// # Errors
    ///
    /// `EINVAL` for too little room for messages, or memory of another domain or that is not mapped
    /// [to the device](DmaDirection::ToDevice); `EOPNOTSUPP` if the device does not support
    /// [`Handler::PAGE_SIZE`], or it is larger than the kernel's, as drivers may then allocate memory
    /// to describe data, and sleep; `ENOMEM`, or an error of the driver.
    pub fn new(
        domain: &Arc<Domain>,
        n: u16,
        pages: u32,
        messages: KVec<DmaPages>,
        message_room: u32,
        bounce: Option<Bounce>,
        cargo: impl Fn(u16) -> Result<H::Cargo>,
    ) -> Result<Self> {
        // CAST: `usize` has at least 32 bits.
        if !mr::has_page_size(domain, H::PAGE_SIZE) || H::PAGE_SIZE as usize > PAGE_SIZE {
            return Err(crate::errno::EOPNOTSUPP);
        }
        if bounce.as_ref().is_some_and(|bounce| !bounce.is_of(domain)) {
            return Err(EINVAL);
        }
        let mut flights = KVVec::with_capacity(usize::from(n), GFP_KERNEL)?;
        let room = message_room as usize;
        let mut places = messages.iter().flat_map(|dma_pages| {
            let per_mapped = dma_pages.len().checked_div(room).unwrap_or(0);
            (0..per_mapped).map(move |i| (dma_pages, i.saturating_mul(room)))
        });
        for index in 0..n {
            let (dma_pages, offset) = places.next().ok_or(EINVAL)?;
            let to_device = dma_pages.direction() == DmaDirection::ToDevice;
            if !to_device || !Arc::ptr_eq(dma_pages.domain(), domain) {
                return Err(EINVAL);
            }
            // The place is inside the pages.
            let message = NonNull::new(dma_pages.pages().as_ptr().wrapping_add(offset));
            let mut flight = Flight::new(
                domain,
                index,
                domain.alloc_mr(pages)?,
                message.ok_or(EINVAL)?,
                dma_pages.dma() + offset as u64,
                message_room,
                cargo(index)?,
            );
            flight.needs_sync = dma_pages.needs_sync();
            if let Some((bounce, place)) = bounce.as_ref().and_then(|b| Some((b, b.place(index)?)))
            {
                flight.bounce_room = bounce.room();
                flight.bounce = place.at.as_ptr();
                flight.bounce_dma = place.dma;
                flight.needs_sync |= place.needs_sync;
                flight.bounce_remote = place.remote;
            }
            flights.push(flight, GFP_KERNEL)?;
        }
        for flight in flights.iter_mut() {
            flight.link();
        }
        let bounce = bounce.map(|b| Arc::new(b, GFP_KERNEL)).transpose()?;
        let memory = Arc::new(Memory(flights), GFP_KERNEL)?;
        domain.keep(memory.clone())?;
        // INVARIANT: The flights are those of `memory`, which is not changed any more.
        Ok(Self {
            flights: NonNull::from(&*memory.0),
            owner: Some(Owner {
                _memory: memory,
                bounce,
                domain: domain.clone(),
            }),
        })
    }

    /// The memory regions of the bounce buffers, which must be registered, for the peer to write
    /// to, before the first use.
    pub fn mrs(&self) -> &[Mr] {
        let bounce = self
            .owner
            .as_ref()
            .and_then(|owner| owner.bounce.as_deref());

        bounce.map_or(&[], Bounce::mrs)
    }

    /// Takes the flights that are still in flight when no queue pair of the domain is left: no work
    /// request is outstanding any more, and no key is valid. `f` gets each of them, and its state,
    /// which tells whether it was answered.
    ///
    /// # Errors
    ///
    /// `EBUSY` while there is a queue pair.
    pub fn collect(&self, mut f: impl FnMut(Landing<'_, H>, InFlight)) -> Result {
        match &self.owner {
            Some(owner) if !owner.domain.has_ended() => return Err(EBUSY),
            _ => (),
        }
        for flight in self.iter() {
            if let Some(found) = flight.word.collect() {
                // The queue pairs are gone: the device is done with the memory, and a key cannot be
                // used without a queue pair. Without an answer there is no data.
                let result = match found.needs.has_answer() {
                    true => crate::errno::ECONNABORTED.to_errno(),
                    false => found.result,
                };
                f(Landing::new(flight, result), found);
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
        cargo: H::Cargo,
    ) -> Self {
        // INVARIANT: The word is Idle, and nothing is mapped.
        Self {
            word: Word::new(),
            began: Atomic::new(0),
            rkey: Atomic::new(0),
            index,
            data: UnsafeCell::new(Data {
                what: What::None,
                sgl: null_mut(),
                nents: 0,
                mapped: 0,
                dir: DmaDirection::ToDevice,
                len: 0,
                iova: 0,
                // SAFETY: The region is valid.
                // CAST: The low byte is the part that consumers choose.
                key: unsafe { raw::rtrs_helper_ib_mr_rkey(mr.as_ptr()) } as u8,
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
            cargo,
            message,
            message_dma,
            message_room,
            bounce_room: 0,
            bounce: null_mut(),
            bounce_dma: 0,
            bounce_remote: Remote { addr: 0, rkey: 0 },
            needs_sync: false,
            lkey: domain.lkey(),
            domain: NonNull::from(&**domain),
            device: domain.device().as_raw(),
            mr,
            sent: [
                raw::ib_cqe {
                    done: Some(landing::done::<H, { landing::SENT }>),
                },
                raw::ib_cqe {
                    done: Some(landing::done::<H, { landing::SENT_RETIRES }>),
                },
            ],
            invalidated: raw::ib_cqe {
                done: Some(landing::done::<H, { landing::INVALIDATED }>),
            },
        }
    }

    /// Sets the addresses in the work requests that depend on the place of the flight, which must
    /// not move afterwards.
    fn link(&mut self) {
        let invalidated = core::ptr::from_ref(&self.invalidated).cast_mut();
        let wrs = self.wrs.get_mut();
        wrs.reg.wr.next = &raw mut wrs.write.wr;
        wrs.reg.wr.opcode = raw::ib_wr_opcode_IB_WR_REG_MR;
        wrs.reg.mr = self.mr.as_ptr();
        wrs.reg.access = Access::LOCAL_READ.as_raw();
        wrs.write.wr.next = null_mut();
        wrs.write.wr.opcode = raw::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM;
        wrs.inval.next = null_mut();
        wrs.inval.opcode = raw::ib_wr_opcode_IB_WR_LOCAL_INV;
        wrs.inval.__bindgen_anon_1.wr_cqe = invalidated;
    }

    /// The number of the flight.
    #[inline(always)]
    pub fn index(&self) -> u16 {
        self.index
    }

    /// The data that the user keeps with the flight.
    #[inline(always)]
    pub fn cargo(&self) -> &H::Cargo {
        &self.cargo
    }

    /// Whether `len` bytes of data can be transferred by copying.
    #[inline(always)]
    pub fn can_copy(&self, len: usize) -> bool {
        // CAST: `usize` has at least 32 bits.
        len <= self.bounce_room as usize
    }

    /// The current state, for display; the flight may be over when this returns.
    pub fn peek(&self) -> Option<InFlight> {
        self.word.peek()
    }

    #[inline(always)]
    fn domain(&self) -> &Domain {
        // SAFETY: A flight is accessed through its `Flights`, or a queue pair of the domain: both
        // hold a reference to the domain.
        unsafe { self.domain.as_ref() }
    }

    /// Begins a request; `None` while there is one already.
    #[inline(always)]
    pub fn claim(&self) -> Option<Claim<'_, H>> {
        self.word.build().then(|| Claim::new(self))
    }
}
