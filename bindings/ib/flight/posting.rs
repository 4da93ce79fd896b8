// SPDX-License-Identifier: GPL-2.0

//! Posting of a flight.

use core::{
    mem::MaybeUninit,
    ptr::null_mut, //
};

use super::{
    word::Flown,
    Building,
    Flight,
    Needs,
    What,
    MESSAGE, //
};
use crate::{
    atomic::Relaxed,
    ib::{
        domain::DmaDirection,
        endpoint::{
            Endpoint,
            Handler, //
        },
        queue::{
            PostError,
            QueuePair,
            Refused,
            INLINE, //
        },
        wr::Remote, //
    },
    raw, //
};

/// Makes an RDMA write with immediate, which completes at `cqe` if it fails, with the flags of its
/// elements.
#[inline(always)]
fn write_at(
    place: &mut MaybeUninit<raw::ib_rdma_wr>,
    cqe: *mut raw::ib_cqe,
    (sg_list, num_sge, flags): (*mut raw::ib_sge, i32, i32),
    to: Remote,
    imm: u32,
) -> *mut raw::ib_send_wr {
    let at = place.as_mut_ptr();
    // SAFETY: The fields are written where there is room for them, as `at` is a reference's.
    unsafe {
        let wr = &raw mut (*at).wr;
        (*wr).next = null_mut();
        (*wr).__bindgen_anon_1.wr_cqe = cqe;
        (*wr).sg_list = sg_list;
        (*wr).num_sge = num_sge;
        (*wr).opcode = raw::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM;
        (*wr).send_flags = flags;
        (*wr).ex.imm_data = imm.to_be();
        (*at).remote_addr = to.addr;
        (*at).rkey = to.rkey;
        wr
    }
}

impl<H: Handler> Building<'_, H> {
    /// As [`post`](Building::post), for `flight`, with `along` bytes of data in the bounce buffer
    /// and a message of `message_len` bytes. `dir` is the direction of data that is mapped.
    ///
    /// # Errors
    ///
    /// [`PostError`]; with [`PostError::Partial`] the caller does not own the flight any more.
    ///
    /// # Safety
    ///
    /// The caller must own the flight, and loses it; `what` must be true of its data, and the
    /// flight must have room for such data and such a message.
    // All arguments are different, and known where this is inlined.
    #[expect(clippy::too_many_arguments)]
    #[inline(always)]
    pub(super) unsafe fn try_post(
        flight: &Flight<H>,
        what: What,
        along: u32,
        message_len: u32,
        dir: DmaDirection,
        ep: &Endpoint<H>,
        to: Remote,
        imm: u32,
    ) -> Result<(), PostError> {
        let Some(qp) = ep.qp_in(flight.domain) else {
            return Err(PostError::Closed);
        };
        if flight.needs_sync {
            flight.give_to_device(along, message_len);
        }
        // SAFETY: By the safety requirements of this function, the caller owns the flight and its
        // data.
        unsafe { (*flight.data.get()).what = what };
        if what.is_mapped() {
            // SAFETY: By the safety requirements of this function; the queue pair is that of `ep`,
            // and of the domain, as checked above.
            return unsafe {
                match dir {
                    DmaDirection::FromDevice => {
                        Self::post_read(flight, message_len, qp, to, imm, what)
                    }
                    _ => Self::post_mapped(flight, message_len, qp, to, imm, what),
                }
            };
        }
        // The answer alone ends this flight, also an answer that the peer sends before it has
        // received anything. The next request may then write to the work requests of the flight
        // while the driver still reads them: so this one is on the stack.
        let mut sges = MaybeUninit::<[raw::ib_sge; 2]>::uninit();
        let sg_list = sges.as_mut_ptr().cast::<raw::ib_sge>();
        // SAFETY: There is room for two elements.
        let (num_sge, flags) = unsafe {
            if what == What::Along {
                sg_list.write(raw::ib_sge {
                    addr: flight.bounce_dma,
                    length: along,
                    lkey: flight.lkey,
                });
                sg_list.add(1).write(Self::message_of(flight, message_len));
                (2, 0)
            } else {
                let (message, flags) = Self::message_alone(flight, qp, message_len);
                sg_list.write(message);
                (1, flags)
            }
        };
        let mut write = MaybeUninit::uninit();
        let wr = write_at(&mut write, qp.silent(), (sg_list, num_sge, flags), to, imm);
        let needs = Needs::answer();
        // SAFETY: The caller owns the flight. The queue pair is that of `ep`, and of the domain, as
        // checked above. The one request is set by `write_at()`, and is on the stack, as are its
        // elements; they name the flight's memory.
        unsafe { Self::send(flight, qp, wr, wr, 1, needs) }
    }

    /// As `try_post()`, for mapped data that goes out.
    ///
    /// # Safety
    ///
    /// As for `try_post()`; the queue pair must be of the domain of the flight, and of an endpoint
    /// with this handler.
    #[inline(always)]
    unsafe fn post_mapped(
        flight: &Flight<H>,
        message_len: u32,
        qp: &QueuePair,
        to: Remote,
        imm: u32,
        what: What,
    ) -> Result<(), PostError> {
        let described = what == What::Described;
        let wrs = flight.wrs.get();
        // SAFETY: By the invariant of the flight, its owner may access the data.
        let data = unsafe { &*flight.data.get() };
        let rkey = || flight.rkey.load(Relaxed);
        let needs = Needs::answer();
        let before = match what {
            What::Described => 1,
            // CAST: `usize` has at least 32 bits.
            What::Gathered => data.mapped as usize,
            _ => return Err(PostError::Invalid),
        };
        if before > MESSAGE || before >= qp.max_sges() {
            return Err(PostError::Invalid);
        }
        // SAFETY: By the invariant of the flight, its owner may write the work requests and the
        // elements, of which `before` precede that of the message. Fields are written one by one,
        // as a driver may still read `next` of the last work request.
        // CAST: The number is small.
        let last = unsafe {
            let write = &raw mut (*wrs).write;
            let sges = (&raw mut (*wrs).sges).cast::<raw::ib_sge>();
            let first = sges.add(MESSAGE - before);

            if described {
                *first = raw::ib_sge {
                    addr: data.iova,
                    length: data.len,
                    // The local key of a fast registration is its remote key.
                    lkey: rkey(),
                };
            }
            (*sges.add(MESSAGE)).length = message_len;
            (*write).wr.sg_list = first;
            (*write).wr.num_sge = before as i32 + 1;
            (*write).wr.ex.imm_data = imm.to_be();
            (*write).remote_addr = to.addr;
            (*write).rkey = to.rkey;
            &raw mut (*write).wr
        };
        if !described {
            // SAFETY: By the safety requirements of this function, the caller owns the flight, and
            // the queue pair is such a one. The one request is the flight's, which needs its
            // completion: `link()` has set `next` and opcode, the rest is set above. Its elements
            // are the flight's, too: `gather()` has filled those of the mapped data, the message's
            // is set above.
            return unsafe { Self::send_signaled(flight, qp, last, last, 1, needs) };
        }
        // SAFETY: By the invariant of the flight, its owner may write the work requests.
        let first = unsafe {
            let reg = &raw mut (*wrs).reg;
            (*reg).wr.__bindgen_anon_1.wr_cqe = qp.silent();
            (*reg).key = rkey();
            (*reg).access = data.access.as_raw();
            &raw mut (*reg).wr
        };
        let needs = needs.and_invalidated();
        // SAFETY: As above for the write; its first element names the region of the flight.
        // `link()` has linked the registration to it, with opcode and region; its entry is the queue
        // pair's.
        unsafe { Self::send_signaled(flight, qp, first, last, 2, needs) }
    }

    /// As `post_mapped()`, for data that the peer writes. Only messages of the peer end this
    /// flight, and the peer may send them, with a key that it has guessed, while the driver still
    /// reads the second work request. So the work requests are on the stack, as in `try_post()`.
    ///
    /// # Safety
    ///
    /// As for `post_mapped()`.
    #[inline(always)]
    unsafe fn post_read(
        flight: &Flight<H>,
        message_len: u32,
        qp: &QueuePair,
        to: Remote,
        imm: u32,
        what: What,
    ) -> Result<(), PostError> {
        let (mut message, flags) = Self::message_alone(flight, qp, message_len);
        let mut write = MaybeUninit::uninit();
        let data = (&raw mut message, 1, flags);
        let last = write_at(&mut write, qp.silent(), data, to, imm);
        let needs = Needs::answer();
        if what != What::Described {
            // SAFETY: By the safety requirements of this function, the caller owns the flight, and
            // the queue pair is such a one. The one request is set by `write_at()`, and is on the
            // stack, as is its element, which names the flight's message.
            return unsafe { Self::send(flight, qp, last, last, 1, needs) };
        }
        let wr_cqe = qp.silent();
        let mut reg = raw::ib_reg_wr {
            wr: raw::ib_send_wr {
                next: last,
                __bindgen_anon_1: raw::ib_send_wr__bindgen_ty_1 { wr_cqe },
                sg_list: null_mut(),
                num_sge: 0,
                opcode: raw::ib_wr_opcode_IB_WR_REG_MR,
                send_flags: 0,
                ex: raw::ib_send_wr__bindgen_ty_2 { imm_data: 0 },
            },
            mr: flight.mr.as_ptr(),
            key: flight.rkey.load(Relaxed),
            // SAFETY: By the invariant of the flight, its owner may access the data.
            access: unsafe { (*flight.data.get()).access }.as_raw(),
        };
        let first = &raw mut reg.wr;
        let needs = needs.and_invalidated();
        // SAFETY: As above for the write. The registration is on the stack, too, initialised,
        // linked to the write, of the flight's region, and with the queue pair's entry.
        unsafe { Self::send(flight, qp, first, last, 2, needs) }
    }

    /// The first `len` bytes of the room for the message.
    #[inline(always)]
    fn message_of(flight: &Flight<H>, len: u32) -> raw::ib_sge {
        raw::ib_sge {
            addr: flight.message_dma,
            length: len,
            lkey: flight.lkey,
        }
    }

    /// The same for a request on `qp` that has nothing else, and its flags.
    #[inline(always)]
    fn message_alone(flight: &Flight<H>, qp: &QueuePair, len: u32) -> (raw::ib_sge, i32) {
        let message = Self::message_of(flight, len);
        if !qp.takes_inline(len) {
            return (message, 0);
        }
        // The driver reads it while it is posted: the domain keeps the message, see `Flight`.
        // CAST: `usize` has at most 64 bits.
        let addr = flight.message.as_ptr().expose_provenance() as u64;
        (raw::ib_sge { addr, ..message }, INLINE)
    }

    /// Posts the `n` requests of the flight from `first` to `last`, which complete only if they
    /// fail, or if the ledger needs it. Unless nothing was posted, the caller does not own the flight
    /// any more.
    ///
    /// # Safety
    ///
    /// The caller must own the flight. `qp` must have the flight's domain, and be of an endpoint
    /// with this handler. There must be `n` requests, initialised and linked, on the stack of the
    /// caller, as their elements; there must be no reference to them, and `last` must not be
    /// signaled. They must name memory of the flight only, or data that is mapped for it; inline
    /// ones as [`message_alone`](Self::message_alone) does. Their entries must be that of the queue
    /// pair for requests without a token.
    #[inline(always)]
    unsafe fn send(
        flight: &Flight<H>,
        qp: &QueuePair,
        first: *mut raw::ib_send_wr,
        last: *mut raw::ib_send_wr,
        n: u32,
        needs: Needs,
    ) -> Result<(), PostError> {
        // SAFETY: By the safety requirements of this function, it is initialised, and there is no
        // other reference to it.
        let room = qp.reserve_for(n, unsafe { &mut *last })?;
        room.count_flight();
        let flown = Self::fly(flight, qp, needs);
        // SAFETY: By the safety requirements of this function, the requests are initialised and
        // linked, and stay valid until this returns. Their memory belongs to the domain, which is
        // that of the queue pair: message and region permanently, the data until the flight is
        // over. Their entries are the queue pair's.
        unsafe { room.post(first, last) }.map_err(|refused| Self::not_flown(flight, flown, refused))
    }

    /// As `send()`, for requests that belong to the flight, and of which the last one completes in
    /// any case, at one of the entries for that.
    ///
    /// # Safety
    ///
    /// As for `send()`, but for the place of the requests and elements, and for entry and flags of
    /// `last`, which need not be initialised.
    #[inline(always)]
    unsafe fn send_signaled(
        flight: &Flight<H>,
        qp: &QueuePair,
        first: *mut raw::ib_send_wr,
        last: *mut raw::ib_send_wr,
        n: u32,
        needs: Needs,
    ) -> Result<(), PostError> {
        let room = qp.reserve(n, false)?;
        room.count_flight();
        let flown = Self::fly(flight, qp, needs.and_sent());
        // SAFETY: As in `send()`. The requests stay valid: they may be used again before this
        // returns, but only after the last one has completed, when the driver has read all of them,
        // except for `next`, which never changes.
        unsafe { room.post_completing(first, last, &flight.sent) }
            .map_err(|refused| Self::not_flown(flight, flown, refused))
    }

    /// The flight is about to be posted on `qp`, the send queue of which is locked: a peer may
    /// answer a request that it has not got yet, and the key must not be invalidated before it was
    /// registered.
    #[inline(always)]
    fn fly(flight: &Flight<H>, qp: &QueuePair, needs: Needs) -> Flown {
        if needs.has_invalidated() {
            flight.began.store(qp.received(), Relaxed);
        }
        flight.word.fly(qp.lane(), needs)
    }

    /// Handles a device that has refused the flight, or a part of it; the queue is still locked.
    #[cold]
    #[inline(never)]
    fn not_flown(flight: &Flight<H>, flown: Flown, refused: Refused<'_>) -> PostError {
        let Refused { room, error } = refused;
        if let PostError::Refused(errno) = error {
            if !flight.word.take_back(flown) {
                // Nothing was posted, and yet the caller does not own the flight any more.
                return PostError::Partial(errno);
            }
            room.uncount_flight();
        }
        error
    }
}
