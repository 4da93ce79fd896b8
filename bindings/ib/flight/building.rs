// SPDX-License-Identifier: GPL-2.0

//! A flight that is being prepared, until it is posted.

use core::{
    mem::{
        ManuallyDrop,
        MaybeUninit, //
    },
    ptr::null_mut, //
};

use kernel::prelude::*;

use super::{
    word::Flown,
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
        mr::{
            self,
            Access, //
        },
        queue::{
            PostError,
            QueuePair,
            Refused, //
        },
        wr::Remote, //
    },
    loan::Loan,
    raw, //
};

/// A flight that is being prepared. Dropping it undoes the preparation; [`cancel`](Self::cancel)
/// also gives the loan back.
#[must_use]
pub struct Building<'f, H: Handler> {
    flight: &'f Flight<H>,
    /// What was done with the data. It is kept here until the post, so that it stays in a register,
    /// or is known where this is inlined.
    what: What,
    /// Number of bytes of data in the bounce buffer that go out, at most its size.
    along: u32,
    /// Length of the message in bytes, at most the room for it.
    message_len: u32,
    /// The direction of data that is mapped.
    dir: DmaDirection,
}

/// The reason why a flight was not, or not completely, posted.
pub struct Unposted<'f, H: Handler> {
    /// The reason.
    pub error: PostError,
    /// The unchanged flight, if nothing was posted. Otherwise a part was posted, or the peer has
    /// answered a request that it never got: the flight stays until it is
    /// [collected](super::Flights::collect), and the connection must be ended.
    pub building: Option<Building<'f, H>>,
}

/// Makes an RDMA write with immediate, but for the completion entry and the flags, which posting
/// sets.
#[inline(always)]
fn write_at(
    place: &mut MaybeUninit<raw::ib_rdma_wr>,
    sg_list: *mut raw::ib_sge,
    num_sge: i32,
    to: Remote,
    imm: u32,
) -> *mut raw::ib_send_wr {
    let at = place.as_mut_ptr();
    // SAFETY: The fields are written where there is room for them, as `at` is a reference's.
    unsafe {
        let wr = &raw mut (*at).wr;
        (*wr).next = null_mut();
        (*wr).sg_list = sg_list;
        (*wr).num_sge = num_sge;
        (*wr).opcode = raw::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM;
        (*wr).ex.imm_data = imm.to_be();
        (*at).remote_addr = to.addr;
        (*at).rkey = to.rkey;
        wr
    }
}

/// Returns `e`. Keeps error paths out of the hot code.
#[cold]
#[inline(never)]
fn refused(e: Error) -> Error {
    e
}

impl<'f, H: Handler> Building<'f, H> {
    /// Wraps a flight. The caller must have just made its word Building.
    #[inline(always)]
    pub(super) fn new(flight: &'f Flight<H>) -> Self {
        Self {
            flight,
            what: What::None,
            along: 0,
            message_len: 0,
            dir: DmaDirection::ToDevice,
        }
    }

    /// The flight.
    #[inline(always)]
    pub fn flight(&self) -> &'f Flight<H> {
        self.flight
    }

    /// Borrows the data of `loan` until the flight is over, and maps it for the device. Returns the
    /// number of DMA segments, 0 for a loan without data.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the loan is borrowed, or the flight has data, `EINVAL` for an invalid list,
    /// `ENOMEM` when it cannot be mapped.
    #[inline(always)]
    pub fn borrow(&mut self, loan: &mut Loan, dir: DmaDirection) -> Result<u32> {
        if self.what != What::None {
            return Err(EBUSY);
        }
        // SAFETY: This `Building` owns the flight, and has mapped nothing.
        let mapped = unsafe { Self::map(self.flight, loan, dir) }?;
        if mapped != 0 {
            self.what = What::Mapped;
            self.dir = dir;
        }
        Ok(mapped)
    }

    /// As [`borrow`](Self::borrow), but takes `flight`, so that a `Building` can stay in registers.
    ///
    /// # Safety
    ///
    /// The caller must own the flight, and have mapped nothing. Unless the result is 0 or an error,
    /// it must have the data unmapped.
    #[inline(always)]
    unsafe fn map(flight: &Flight<H>, loan: &mut Loan, dir: DmaDirection) -> Result<u32> {
        // SAFETY: By the safety requirements of this function, the caller owns the flight.
        let data = unsafe { &mut *flight.data.get() };
        let Some((sgl, nents)) = loan.list() else {
            return Ok(0);
        };
        if !loan.borrow_by(flight.id()) {
            return Err(refused(EBUSY));
        }
        let dev = flight.device;
        // SAFETY: The device is valid as long as the domain. By the invariant of the loan the list
        // is valid and used by this request only, until the loan is given back; the list is
        // unmapped before that.
        // CAST: `Loan` bounds `nents`.
        let mapped =
            unsafe { raw::rtrs_helper_ib_dma_map_sg(dev, sgl, nents as i32, dir.as_raw()) };
        if mapped <= 0 {
            loan.give_back();
            return Err(refused(ENOMEM));
        }
        data.sgl = sgl;
        data.nents = nents;
        // CAST: `mapped` is positive.
        data.mapped = mapped as u32;
        data.dir = dir;
        Ok(data.mapped)
    }

    /// Whether `len` bytes of data can be copied.
    #[inline(always)]
    pub fn can_copy(&self, len: usize) -> bool {
        self.flight.can_copy(len)
    }

    /// Copies the data of `loan` to the bounce buffer, from where it is sent. The loan is not
    /// borrowed.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the flight has data, `EINVAL` if the flight [cannot](Flight::can_copy) copy that
    /// much, there is no data, or the list is shorter than its length.
    #[inline(always)]
    pub fn copy_along(&mut self, loan: &Loan) -> Result {
        let flight = self.flight;
        let len = loan.len();
        let Some((sgl, nents)) = loan.list().filter(|_| flight.can_copy(len)) else {
            return Err(refused(EINVAL));
        };
        if self.what != What::None {
            return Err(refused(EBUSY));
        }
        // SAFETY: By the invariant of the loan the list is valid. The buffer has room for `len`
        // bytes, is not part of the list, and there are no references to it.
        let copied = unsafe { raw::sg_copy_to_buffer(sgl, nents, flight.bounce.cast(), len) };
        if copied != len {
            return Err(refused(EINVAL));
        }
        if flight.needs_sync {
            flight.give_to_device(true, len);
        }
        // The buffer is permanent, so that the flight waits for the answer only.
        self.what = What::Along;
        // CAST: `bounce_room` bounds the length.
        self.along = len as u32;
        Ok(())
    }

    /// Borrows the data of `loan` until the flight is over, and returns a place for the peer to
    /// write to. If the result is 0, the bytes that the peer has written are then copied to the
    /// loan.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the loan is borrowed, or the flight has data, `EINVAL` as for
    /// [`copy_along`](Self::copy_along).
    #[inline(always)]
    pub fn copy_back(&mut self, loan: &mut Loan) -> Result<Remote> {
        let flight = self.flight;
        if loan.is_empty() || !flight.can_copy(loan.len()) {
            return Err(refused(EINVAL));
        }
        if self.what != What::None || !loan.borrow_by(flight.id()) {
            return Err(refused(EBUSY));
        }
        // `Landing::give_back()` uses the list of the loan.
        self.what = What::Back;
        // SAFETY: By the invariant of the flight, its owner may write to the data.
        // CAST: `bounce_room` bounds the length.
        unsafe { (*flight.data.get()).len = loan.len() as u32 };
        Ok(flight.bounce_remote)
    }

    /// Describes the data, `len` bytes, to the flight's memory region, in pages of `page_size`
    /// bytes, with a new key. Posting the flight registers the region for `access`.
    ///
    /// # Errors
    ///
    /// `EINVAL` when the list does not fit or has gaps within pages, or there is no list.
    #[inline(always)]
    pub fn describe(&mut self, page_size: u32, len: u32, access: Access) -> Result<Remote> {
        if self.what != What::Mapped {
            return Err(EINVAL);
        }
        // SAFETY: This `Building` owns the flight, and has mapped the data.
        let remote = unsafe { Self::register(self.flight, page_size, len, access) }?;
        self.what = What::Described;
        Ok(remote)
    }

    /// As [`describe`](Self::describe), for `flight`.
    ///
    /// # Safety
    ///
    /// The caller must own the flight, and have mapped the data.
    #[inline(always)]
    unsafe fn register(
        flight: &Flight<H>,
        page_size: u32,
        len: u32,
        access: Access,
    ) -> Result<Remote> {
        // SAFETY: By the safety requirements of this function, the caller owns the flight.
        let data = unsafe { &mut *flight.data.get() };
        let mr = flight.mr;
        // Not hidden: the only peer that can use the address is told it anyway.
        let base = u64::from(page_size);
        // SAFETY: The list is mapped for the device of the region. By the invariant of the flight,
        // the region is neither registered nor about to be, and the owner of the flight may change
        // it.
        data.iova = unsafe { mr::map_list(mr, data.sgl, data.mapped, page_size, base) }?;
        data.len = len;
        data.key = data.key.wrapping_add(1);
        data.access = access;
        // SAFETY: As above.
        let rkey = unsafe {
            raw::rtrs_helper_ib_mr_set_key(mr.as_ptr(), data.key);
            raw::rtrs_helper_ib_mr_rkey(mr.as_ptr())
        };
        flight.rkey.store(rkey, Relaxed);
        Ok(Remote {
            addr: data.iova,
            rkey,
        })
    }

    /// Writes `bytes` to offset `at` of the message, which ends there.
    ///
    /// # Errors
    ///
    /// `EINVAL` when there is no room for them.
    #[inline(always)]
    pub fn end_message<const N: usize>(&mut self, at: u32, bytes: [u8; N]) -> Result {
        let flight = self.flight;
        // CAST: `N` is a few bytes.
        let end = at.saturating_add(N as u32);
        if end > flight.message_room {
            return Err(refused(EINVAL));
        }
        self.message_len = end;
        // SAFETY: The message is inside the flight's part of pages that are mapped for the device,
        // and to which there are no references.
        // CAST: `usize` has at least 32 bits.
        unsafe {
            let to = flight.message.as_ptr().add(at as usize);
            to.cast::<[u8; N]>().write_unaligned(bytes);
        }
        if flight.needs_sync {
            // CAST: `usize` has at least 32 bits.
            flight.give_to_device(false, end as usize);
        }
        Ok(())
    }

    /// Posts the flight on `ep`, with the index of `ep` as its lane: first the registration, if the
    /// data was [described](Self::describe) to the region; then data that goes out, and the
    /// message, to the peer's memory at `to`, with the immediate value `imm`. The flight may be
    /// over before this returns.
    ///
    /// # Errors
    ///
    /// [`Unposted`].
    #[inline(always)]
    pub fn post(self, ep: &Endpoint<H>, to: Remote, imm: u32) -> Result<(), Unposted<'f, H>> {
        let this = ManuallyDrop::new(self);
        // SAFETY: This `Building` owns the flight, and owns it again if it is not posted; `what` is
        // what was done with the data, `copy_along()` has checked the room for the data that go
        // along, and `end_message()` that for the message.
        match unsafe {
            Self::try_post(
                this.flight,
                this.what,
                this.along,
                this.message_len,
                this.dir,
                ep,
                to,
                imm,
            )
        } {
            Ok(()) => Ok(()),
            Err(error) => Err(Unposted {
                error,
                building: match error.is_partial() {
                    false => Some(ManuallyDrop::into_inner(this)),
                    true => None,
                },
            }),
        }
    }

    /// As [`post`](Self::post), for `flight`, with `along` bytes of data in the bounce buffer and a
    /// message of `message_len` bytes. `dir` is the direction of data that is mapped.
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
    unsafe fn try_post(
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
        let lane = ep.index();
        // SAFETY: By the safety requirements of this function, the caller owns the flight and its
        // data.
        unsafe { (*flight.data.get()).what = what };
        if what.is_mapped() {
            // SAFETY: By the safety requirements of this function; the queue pair is of the domain,
            // as checked above.
            return unsafe {
                let described = what == What::Described;
                match dir {
                    DmaDirection::FromDevice => {
                        Self::post_read(flight, message_len, qp, lane, to, imm, described)
                    }
                    _ => Self::post_mapped(flight, message_len, qp, lane, to, imm, described),
                }
            };
        }
        let message = Self::message_of(flight, message_len);
        // The answer alone ends this flight, also an answer that the peer sends before it has
        // received anything. The next request may then write to the work requests of the flight
        // while the driver still reads them: so this one is on the stack.
        let mut sges = MaybeUninit::<[raw::ib_sge; 2]>::uninit();
        let sg_list = sges.as_mut_ptr().cast::<raw::ib_sge>();
        // SAFETY: There is room for two elements.
        let num_sge = unsafe {
            if what == What::Along {
                sg_list.write(raw::ib_sge {
                    addr: flight.bounce_dma,
                    length: along,
                    lkey: flight.lkey,
                });
                sg_list.add(1).write(message);
                2
            } else {
                sg_list.write(message);
                1
            }
        };
        let mut write = MaybeUninit::uninit();
        let wr = write_at(&mut write, sg_list, num_sge, to, imm);
        Self::send(flight, qp, wr, wr, 1, &flight.failed, lane, Needs::answer())
    }

    /// As `try_post()`, for mapped data that goes out.
    ///
    /// # Safety
    ///
    /// As for `try_post()`; the queue pair must be of the domain of the flight, and `described`
    /// must tell whether the data was described to the region.
    #[inline(always)]
    unsafe fn post_mapped(
        flight: &Flight<H>,
        message_len: u32,
        qp: &QueuePair,
        lane: u16,
        to: Remote,
        imm: u32,
        described: bool,
    ) -> Result<(), PostError> {
        let wrs = flight.wrs.get();
        // SAFETY: By the invariant of the flight, its owner may access the data.
        let data = unsafe { &*flight.data.get() };
        let rkey = flight.rkey.load(Relaxed);
        let needs = Needs::answer().and_sent();
        let before = match described {
            true => 1,
            // CAST: `usize` has at least 32 bits.
            false => data.mapped as usize,
        };
        if before == 0 || before > MESSAGE || before >= qp.max_sges() {
            return Err(PostError::Invalid);
        }
        // SAFETY: By the invariant of the flight, its owner may write the work requests and the
        // elements, of which `before` precede that of the message; the list is mapped. Fields are
        // written one by one, as a driver may still read `next` of the last work request.
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
                    lkey: rkey,
                };
            } else {
                raw::rtrs_helper_ib_sg_dma_list(data.sgl, data.mapped, first, flight.lkey);
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
            return Self::send(flight, qp, last, last, 1, &flight.sent, lane, needs);
        }
        // SAFETY: As above.
        let first = unsafe {
            let reg = &raw mut (*wrs).reg;
            (*reg).key = rkey;
            (*reg).access = data.access.as_raw();
            &raw mut (*reg).wr
        };
        let needs = needs.and_invalidated();
        Self::send(flight, qp, first, last, 2, &flight.sent, lane, needs)
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
        lane: u16,
        to: Remote,
        imm: u32,
        described: bool,
    ) -> Result<(), PostError> {
        let mut message = Self::message_of(flight, message_len);
        let mut write = MaybeUninit::uninit();
        let last = write_at(&mut write, &raw mut message, 1, to, imm);
        let needs = Needs::answer();
        if !described {
            return Self::send(flight, qp, last, last, 1, &flight.failed, lane, needs);
        }
        let wr_cqe = core::ptr::from_ref(&flight.failed).cast_mut();
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
        Self::send(flight, qp, first, last, 2, &flight.failed, lane, needs)
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

    /// Posts the `n` requests of the flight from `first` to `last`, which completes at `cqe`.
    /// Unless nothing was posted, the caller does not own the flight any more.
    // All arguments are different, and known where this is inlined.
    #[expect(clippy::too_many_arguments)]
    #[inline(always)]
    fn send(
        flight: &Flight<H>,
        qp: &QueuePair,
        first: *mut raw::ib_send_wr,
        last: *mut raw::ib_send_wr,
        n: u32,
        cqe: &raw::ib_cqe,
        lane: u16,
        needs: Needs,
    ) -> Result<(), PostError> {
        let room = qp.reserve(n, needs.has_sent())?;
        // Done with the queue locked: a peer may answer a request that it has not got yet, and the
        // key must not be invalidated before it was registered.
        if needs.has_invalidated() {
            flight.began.store(qp.received(), Relaxed);
        }
        room.count_flight();
        let flown = flight.word.fly(lane, needs);
        // SAFETY: The requests are linked, and stay valid: they belong to the caller, or to a
        // flight that is not over before a completion of this queue, which is locked. Their memory
        // belongs to the domain, which is that of the queue pair: message and region permanently,
        // the data until the flight is over. Their completion entries are for endpoints with this
        // handler, as `post()` got one.
        match unsafe { room.post(first, last, core::ptr::from_ref(cqe).cast_mut()) } {
            Ok(()) => Ok(()),
            Err(refused) => Err(Self::not_flown(flight, flown, refused)),
        }
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

    /// Undoes the preparation, and gives `loan` back if it was [borrowed](Self::borrow).
    pub fn cancel(self, loan: &mut Loan) {
        let id = self.flight.id();
        drop(self);
        if loan.is_borrowed_by(id) {
            loan.give_back();
        }
    }
}

impl<H: Handler> Drop for Building<'_, H> {
    fn drop(&mut self) {
        // SAFETY: This `Building` owns the flight, nothing is posted, and this is what was done
        // with the data.
        unsafe { self.flight.unmap(self.what) };
        self.flight.word.cancel();
    }
}
