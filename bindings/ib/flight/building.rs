// SPDX-License-Identifier: GPL-2.0

//! A flight until it is posted.

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
    Data,
    Flight,
    Needs,
    What,
    MESSAGE, //
};
use crate::{
    atomic::Relaxed,
    ib::{
        domain::Direction,
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

/// A flight that is being prepared. Dropping it undoes what was done; [`cancel`](Self::cancel) also
/// gives the loan back.
#[must_use]
pub struct Building<'f, H: Handler> {
    flight: &'f Flight<H>,
    /// Bytes of the message, inside the room for it.
    message_len: u32,
}

/// Why a flight was not posted as a whole.
pub struct Unposted<'f, H: Handler> {
    /// The reason.
    pub error: PostError,
    /// If nothing was posted: the flight, as it was. Otherwise a part was, or the peer has answered
    /// what it never got: the flight stays until it is [collected](super::Flights::collect), the
    /// connection has to end.
    pub building: Option<Building<'f, H>>,
}

/// An RDMA write with immediate, whose completion entry and flags are left to the post.
#[inline(always)]
fn write_of(sg_list: *mut raw::ib_sge, num_sge: i32, to: Remote, imm: u32) -> raw::ib_rdma_wr {
    raw::ib_rdma_wr {
        wr: raw::ib_send_wr {
            next: null_mut(),
            __bindgen_anon_1: raw::ib_send_wr__bindgen_ty_1 { wr_cqe: null_mut() },
            sg_list,
            num_sge,
            opcode: raw::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM,
            send_flags: 0,
            ex: raw::ib_send_wr__bindgen_ty_2 {
                imm_data: imm.to_be(),
            },
        },
        remote_addr: to.addr,
        rkey: to.rkey,
    }
}

/// `e`, away from what is executed for each request.
#[cold]
#[inline(never)]
fn refused(e: Error) -> Error {
    e
}

impl<'f, H: Handler> Building<'f, H> {
    /// Of a flight whose word has just become Building for the caller.
    #[inline(always)]
    pub(super) fn new(flight: &'f Flight<H>) -> Self {
        let mut this = Self {
            flight,
            message_len: 0,
        };
        this.data().what = What::None;
        this
    }

    #[inline(always)]
    fn data(&mut self) -> &mut Data {
        // SAFETY: By the invariant of the flight it is ours, and only reached from here.
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
        // SAFETY: The flight is ours.
        unsafe { Self::map(self.flight, loan, dir) }
    }

    /// [`borrow`](Self::borrow), for `flight`, not for a building, which is best in registers.
    ///
    /// # Safety
    ///
    /// The flight must be the caller's.
    #[inline(never)]
    unsafe fn map(flight: &Flight<H>, loan: &mut Loan, dir: Direction) -> Result<u32> {
        // SAFETY: By the function's requirement.
        let data = unsafe { &mut *flight.data.get() };
        let Some((sgl, nents)) = loan.list() else {
            return Ok(0);
        };
        if data.what != What::None || !loan.borrow_by(flight.id()) {
            return Err(EBUSY);
        }
        let dev = flight.device;
        // SAFETY: The device is valid, as long as the domain. By the invariant of the loan the list is
        // valid and nobody else's, until the loan is given back, before which it is unmapped.
        // CAST: `Loan` bounds it.
        let mapped =
            unsafe { raw::rtrs_helper_ib_dma_map_sg(dev, sgl, nents as i32, dir.as_raw()) };
        if mapped <= 0 {
            loan.give_back();
            return Err(ENOMEM);
        }
        data.what = What::Mapped;
        data.sgl = sgl;
        data.nents = nents;
        // CAST: Positive.
        data.mapped = mapped as u32;
        data.dir = dir;
        Ok(data.mapped)
    }

    /// Whether its data are mapped.
    #[inline(always)]
    pub fn is_mapped(&self) -> bool {
        // SAFETY: By the invariant of the flight its data are ours.
        unsafe { (*self.flight.data.get()).what }.is_mapped()
    }

    /// Whether `len` bytes of data can be copied.
    #[inline(always)]
    pub fn can_copy(&self, len: usize) -> bool {
        self.flight.can_copy(len)
    }

    /// Copies the data of `loan` to the bounce buffer, from where the post sends them. The loan is
    /// not borrowed.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the flight has data, `EINVAL` if it [cannot](Flight::can_copy) take so much, there is
    /// none, or the list is shorter than it says.
    #[inline(always)]
    pub fn copy_along(&mut self, loan: &Loan) -> Result {
        let flight = self.flight;
        let len = loan.len();
        let Some((sgl, nents)) = loan.list().filter(|_| flight.can_copy(len)) else {
            return Err(refused(EINVAL));
        };
        if self.data().what != What::None {
            return Err(refused(EBUSY));
        }
        // SAFETY: By the invariant of the loan the list is valid. The buffer has room for `len`
        // bytes, is no part of the list, and no reference to it exists.
        let copied = unsafe { raw::sg_copy_to_buffer(sgl, nents, flight.bounce.cast(), len) };
        if copied != len {
            return Err(refused(EINVAL));
        }
        // SAFETY: The device is valid, and the buffer mapped for it, as long as the domain.
        unsafe {
            raw::rtrs_helper_ib_dma_sync_for_device(
                flight.device,
                flight.bounce_dma,
                len,
                Direction::Bidirectional.as_raw(),
            );
        }
        let data = self.data();
        // The buffer stays: the answer is enough.
        data.what = What::Along;
        // CAST: `bounce_room` bounds it.
        data.len = len as u32;
        Ok(())
    }

    /// Borrows the data of `loan` until the flight is over: if its result is 0 then what the peer has
    /// written to the place that this returns is copied there.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the loan is borrowed, or the flight has data, `EINVAL` as for
    /// [`copy_along`](Self::copy_along).
    #[inline(always)]
    pub fn copy_back(&mut self, loan: &mut Loan) -> Result<Remote> {
        let flight = self.flight;
        let data = self.data();
        if loan.is_empty() || !flight.can_copy(loan.len()) {
            return Err(refused(EINVAL));
        }
        if data.what != What::None || !loan.borrow_by(flight.id()) {
            return Err(refused(EBUSY));
        }
        // The list is that of the loan, see `Landing::give_back()`.
        data.what = What::Back;
        // CAST: `bounce_room` bounds it.
        data.len = loan.len() as u32;
        Ok(flight.bounce_remote)
    }

    /// Describes the data, `len` bytes, to the flight's memory region, in pages of `page_size` bytes,
    /// under a new key: it is registered for `access` with the post.
    ///
    /// # Errors
    ///
    /// `EINVAL` when the list does not fit or has gaps within pages, or there is none.
    #[inline(always)]
    pub fn describe(&mut self, page_size: u32, len: u32, access: Access) -> Result<Remote> {
        // SAFETY: The flight is ours.
        unsafe { Self::register(self.flight, page_size, len, access) }
    }

    /// [`describe`](Self::describe), for `flight`.
    ///
    /// # Safety
    ///
    /// The flight must be the caller's.
    #[inline(never)]
    unsafe fn register(
        flight: &Flight<H>,
        page_size: u32,
        len: u32,
        access: Access,
    ) -> Result<Remote> {
        // SAFETY: By the function's requirement.
        let data = unsafe { &mut *flight.data.get() };
        if data.what != What::Mapped {
            return Err(EINVAL);
        }
        let mr = flight.mr;
        // The only peer that can use the address is told.
        let base = u64::from(page_size);
        // SAFETY: The list is mapped for the device of the region. That is not registered, nor about
        // to be, by the invariant of the flight, and ours to change.
        data.iova = unsafe { mr::map_list(mr, data.sgl, data.mapped, page_size, base) }?;
        data.len = len;
        data.key = data.key.wrapping_add(1);
        data.access = access;
        data.what = What::Described;
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
    /// `EINVAL` when there is no room for it.
    #[inline(always)]
    pub fn end_message<const N: usize>(&mut self, at: u32, bytes: [u8; N]) -> Result {
        let flight = self.flight;
        // CAST: A few bytes.
        let end = at.saturating_add(N as u32);
        if end > flight.message_room {
            return Err(refused(EINVAL));
        }
        self.message_len = end;
        // SAFETY: Inside the flight's part of pages that are mapped for the device, of which nobody
        // has a reference.
        // CAST: `usize` has at least 32 bits.
        unsafe {
            let to = flight.message.as_ptr().add(at as usize);
            to.cast::<[u8; N]>().write_unaligned(bytes);
            raw::rtrs_helper_ib_dma_sync_for_device(
                flight.device,
                flight.message_dma,
                end as usize,
                Direction::ToDevice.as_raw(),
            );
        }
        Ok(())
    }

    /// Posts it on `ep`, whose index is its lane: registration, if the data was
    /// [described](Self::describe) to the region; then data that goes out, and the message, to the
    /// peer's memory at `to`, with a word `imm`. The flight may be over before this returns.
    ///
    /// # Errors
    ///
    /// [`Unposted`].
    #[inline(always)]
    pub fn post(self, ep: &Endpoint<H>, to: Remote, imm: u32) -> Result<(), Unposted<'f, H>> {
        let (flight, message_len) = (self.flight, self.message_len);
        let this = ManuallyDrop::new(self);
        // SAFETY: The flight is ours, and if it is not posted ours again; the message is in it.
        match unsafe { Self::try_post(flight, message_len, ep, to, imm) } {
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

    /// [`post`](Self::post) of `flight`, with a message of `message_len` bytes.
    ///
    /// # Errors
    ///
    /// [`PostError`]; with [`PostError::Partial`] the flight is not the caller's any more.
    ///
    /// # Safety
    ///
    /// The flight must be the caller's, who loses it, and there must be room for such a message.
    #[inline(always)]
    unsafe fn try_post(
        flight: &Flight<H>,
        message_len: u32,
        ep: &Endpoint<H>,
        to: Remote,
        imm: u32,
    ) -> Result<(), PostError> {
        // SAFETY: By the function's requirement the data of the flight are ours.
        let (what, len) = unsafe {
            let data = flight.data.get();
            ((*data).what, (*data).len)
        };
        let Some(qp) = ep.qp().filter(|qp| qp.is_of(flight.domain())) else {
            return Err(PostError::Closed);
        };
        let lane = ep.index();
        if what.is_mapped() {
            // SAFETY: By the function's requirement.
            return unsafe { Self::post_mapped(flight, message_len, qp, lane, to, imm) };
        }
        let message = raw::ib_sge {
            addr: flight.message_dma,
            length: message_len,
            lkey: flight.lkey,
        };
        // The answer alone ends this flight, also one that the peer makes up before it has got
        // anything. The next request writes to the work requests of the flight then, while the
        // driver may still read: what it reads is on the stack.
        let mut sges = MaybeUninit::<[raw::ib_sge; 2]>::uninit();
        let sg_list = sges.as_mut_ptr().cast::<raw::ib_sge>();
        // SAFETY: There is room for two.
        let num_sge = unsafe {
            if what == What::Along {
                sg_list.write(raw::ib_sge {
                    addr: flight.bounce_dma,
                    length: len,
                    lkey: flight.lkey,
                });
                sg_list.add(1).write(message);
                2
            } else {
                sg_list.write(message);
                1
            }
        };
        let mut write = write_of(sg_list, num_sge, to, imm);
        let wr = &raw mut write.wr;
        Self::send(flight, qp, wr, wr, 1, &flight.failed, lane, Needs::answer())
    }

    /// The same for data that are mapped.
    ///
    /// # Safety
    ///
    /// As for `try_post()`; the queue pair must be of the domain of the flight.
    #[inline(never)]
    unsafe fn post_mapped(
        flight: &Flight<H>,
        message_len: u32,
        qp: &QueuePair,
        lane: u16,
        to: Remote,
        imm: u32,
    ) -> Result<(), PostError> {
        let wrs = flight.wrs.get();
        // SAFETY: By the invariant of the flight its data are ours.
        let data = unsafe { &*flight.data.get() };
        let rkey = flight.rkey.load(Relaxed);
        let described = data.what == What::Described;
        if data.dir == Direction::FromDevice {
            // SAFETY: By the function's requirement.
            return unsafe { Self::post_read(flight, message_len, qp, lane, to, imm, described) };
        }
        let needs = Needs::answer().and_sent();
        let before = match described {
            true => 1,
            // CAST: `usize` has at least 32 bits.
            false => data.mapped as usize,
        };
        if before > MESSAGE || before >= qp.max_sges() {
            return Err(PostError::Invalid);
        }
        // SAFETY: By the invariant of the flight the work requests are ours, and the elements, of which
        // so many are before that of the message; the list is mapped. One by one, as a driver may
        // still look at `next` of the last one.
        // CAST: A few.
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
                let n = before as u32;
                raw::rtrs_helper_ib_sg_dma_list(data.sgl, n as i32, first, n, flight.lkey);
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

    /// The same for data that the peer is to write. Only what it sends ends this flight, and it may
    /// do so, with a key that it has guessed, while the driver still reads the second work request:
    /// as in `try_post()`, they are on the stack.
    ///
    /// # Safety
    ///
    /// As for `post_mapped()`.
    #[inline(never)]
    unsafe fn post_read(
        flight: &Flight<H>,
        message_len: u32,
        qp: &QueuePair,
        lane: u16,
        to: Remote,
        imm: u32,
        described: bool,
    ) -> Result<(), PostError> {
        let mut message = raw::ib_sge {
            addr: flight.message_dma,
            length: message_len,
            lkey: flight.lkey,
        };
        let mut write = write_of(&raw mut message, 1, to, imm);
        let last = &raw mut write.wr;
        let needs = Needs::answer();
        if !described {
            return Self::send(flight, qp, last, last, 1, &flight.failed, lane, needs);
        }
        // SAFETY: By the invariant of the flight its data and work requests are ours.
        let (mut reg, access) = unsafe { ((*flight.wrs.get()).reg, (*flight.data.get()).access) };
        reg.wr.next = last;
        reg.key = flight.rkey.load(Relaxed);
        reg.access = access.as_raw();
        let first = &raw mut reg.wr;
        let needs = needs.and_invalidated();
        Self::send(flight, qp, first, last, 2, &flight.failed, lane, needs)
    }

    /// Posts the `n` requests of the flight from `first` to `last`, which completes at `cqe`. Unless
    /// nothing was posted the flight is not the caller's any more.
    // Each of them is something else, and known where this is inlined.
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
        // With the queue locked: a peer may answer what it has not got yet, and the key must not be
        // invalidated before it was registered.
        if needs.has_invalidated() {
            flight.began.store(qp.received(), Relaxed);
        }
        room.count_flight();
        let flown = flight.word.fly(lane, needs);
        // SAFETY: The requests are linked, and stay: they are the caller's, or those of a flight that
        // is not over before a completion of this queue, which is locked. What they name is the
        // domain's, which is that of the queue pair: message and region for good, the data until the
        // flight is over. Their completion entries are those of endpoints with this handler, as
        // `post()` got one.
        match unsafe { room.post(first, last, core::ptr::from_ref(cqe).cast_mut()) } {
            Ok(()) => Ok(()),
            Err(refused) => Err(Self::not_flown(flight, flown, refused)),
        }
    }

    /// The device has refused it, or a part of it; the queue is still locked.
    #[cold]
    #[inline(never)]
    fn not_flown(flight: &Flight<H>, flown: Flown, refused: Refused<'_>) -> PostError {
        let Refused { room, error } = refused;
        if let PostError::Refused(errno) = error {
            if !flight.word.take_back(flown) {
                // Nothing was posted, and yet it is not ours any more.
                return PostError::Partial(errno);
            }
            room.uncount_flight();
        }
        error
    }

    /// Undoes what was done, and gives `loan` back, if it was [borrowed](Self::borrow).
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
        // SAFETY: Ours, and nothing is posted.
        unsafe { self.flight.unmap() };
        self.flight.word.cancel();
    }
}
