// SPDX-License-Identifier: GPL-2.0

//! Posting of a flight.

use super::{
    building::Target,
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
            Filled,
            PostError,
            QueuePair,
            Refused,
            INLINE, //
        },
    },
    raw, //
};

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
    #[inline(always)]
    pub(super) unsafe fn try_post(
        flight: &Flight<H>,
        what: What,
        along: u32,
        message_len: u32,
        dir: DmaDirection,
        ep: &Endpoint<H>,
        to: impl Target,
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
                    DmaDirection::FromDevice => Self::post_read(flight, message_len, qp, to, what),
                    _ => Self::post_mapped(flight, message_len, qp, to, what),
                }
            };
        }
        // The answer alone ends this flight, also an answer that the peer sends before it has
        // received anything. The next request may then write to the work requests of the flight
        // while the driver still reads them: so this one is a form of the queue pair.
        let filling = qp.forms();
        let imm = to.value().to_be();
        // SAFETY: Message and bounce buffer are of the domain, and have as many bytes, not none, by the
        // safety requirements of this function. There is no other write; `message_alone()` has
        // compared what is inline with the room for it, and the domain keeps it.
        let filled = unsafe {
            if what == What::Along {
                let data = (flight.bounce_dma, along);
                let message = (flight.message_dma, message_len);
                match qp.sends(message_len) {
                    true => filling.message_of_both(imm, data, message),
                    false => filling.value_with_both(imm, data, message, to.remote()),
                }
            } else {
                let message = Self::message_alone(flight, qp, message_len);
                filling.value_with_data(imm, message, to.remote())
            }
        };
        // SAFETY: The caller owns the flight. The queue pair is that of `ep`, and of the domain, as
        // checked above. The form names the flight's memory.
        unsafe { Self::send(flight, qp, filled, Needs::answer()) }
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
        to: impl Target,
        what: What,
    ) -> Result<(), PostError> {
        let described = what == What::Described;
        let wrs = flight.wrs.get();
        // SAFETY: By the invariant of the flight, its owner may access the data.
        let data = unsafe { &*flight.data.get() };
        let rkey = || flight.rkey.load(Relaxed);
        let needs = Needs::answer();
        let (to, imm) = (to.remote(), to.value());
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
    /// reads the second work request. So the work requests are forms, as in `try_post()`.
    ///
    /// # Safety
    ///
    /// As for `post_mapped()`.
    #[inline(always)]
    unsafe fn post_read(
        flight: &Flight<H>,
        message_len: u32,
        qp: &QueuePair,
        to: impl Target,
        what: What,
    ) -> Result<(), PostError> {
        let mut filling = qp.forms();
        let mut needs = Needs::answer();
        if what == What::Described {
            // SAFETY: The region is of the domain. The data are mapped until the flight is over, which
            // needs the invalidation of the key. This is the only registration.
            unsafe { filling.register(flight.mr.as_ptr(), flight.rkey.load(Relaxed)) };
            needs = needs.and_invalidated();
        }
        let (to, imm) = (to.remote(), to.value());
        let message = Self::message_alone(flight, qp, message_len);
        // SAFETY: As in `try_post()`.
        let filled = unsafe { filling.value_with_data(imm.to_be(), message, to) };
        // SAFETY: By the safety requirements of this function, the caller owns the flight, and the
        // queue pair is such a one. The forms name the flight's memory and region.
        unsafe { Self::send(flight, qp, filled, needs) }
    }

    /// Address and length of the message, for a request on `qp` that has nothing else, and its flags.
    #[inline(always)]
    fn message_alone(flight: &Flight<H>, qp: &QueuePair, len: u32) -> (u64, u32, i32) {
        if !qp.takes_inline(len) {
            return (flight.message_dma, len, 0);
        }
        // The driver reads it while it is posted: the domain keeps the message, see `Flight`.
        // CAST: `usize` has at most 64 bits.
        let addr = flight.message.as_ptr().expose_provenance() as u64;
        (addr, len, INLINE)
    }

    /// Posts the filled forms, which complete only if they fail, or if the ledger needs it. Unless
    /// nothing was posted, the caller does not own the flight any more.
    ///
    /// # Safety
    ///
    /// The caller must own the flight. `qp` must have the flight's domain, be of an endpoint with
    /// this handler, and have the forms. They must name memory of the flight only, or data that is
    /// mapped for it.
    #[inline(always)]
    unsafe fn send(
        flight: &Flight<H>,
        qp: &QueuePair,
        filled: Filled<'_>,
        needs: Needs,
    ) -> Result<(), PostError> {
        let granted = filled.reserve()?;
        granted.count_flight();
        let flown = Self::fly(flight, qp, needs);
        granted
            .post()
            .map_err(|refused| Self::not_flown(flight, flown, refused))
    }

    /// As `send()`, for the `n` requests of the flight from `first` to `last`, of which the last one
    /// completes in any case, at one of the entries for that.
    ///
    /// # Safety
    ///
    /// The caller must own the flight. `qp` must have the flight's domain, and be of an endpoint
    /// with this handler. There must be `n` requests of the flight, initialised and linked, but for
    /// entry and flags of `last`, and no reference to them. They must name memory of the flight only,
    /// or data that is mapped for it. The entries of the others must be that of the queue pair for
    /// requests without a token.
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
        room.count_signaled_flight();
        let flown = Self::fly(flight, qp, needs.and_sent());
        // SAFETY: By the safety requirements of this function, the requests are initialised and
        // linked, and their memory belongs to the domain, which is that of the queue pair: message
        // and region permanently, the data until the flight is over. They stay valid: they may be
        // used again before this returns, but only after the last one has completed, when the driver
        // has read all of them, except for `next`, which never changes.
        unsafe { room.post_completing(first, last, &flight.sent) }.map_err(|refused| {
            // A part that was posted ends with the connection.
            refused.room.uncount_signaled();
            Self::not_flown(flight, flown, refused)
        })
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
