// SPDX-License-Identifier: GPL-2.0

//! A flight until it is posted.

use core::{
    mem::ManuallyDrop,
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
}

/// Why a flight was not posted as a whole.
pub enum Unposted<'f, H: Handler> {
    /// Nothing was, and the flight is as it was.
    Not(PostError, Building<'f, H>),
    /// A part was, or the peer has answered what it never got: the flight stays until it is
    /// [collected](super::Flights::collect), the connection has to end.
    Broken(PostError),
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
        let mut this = Self { flight };
        this.data().what = What::None;
        this.take_along(0);
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
        let flight = self.flight;
        let data = self.data();
        let Some((sgl, nents)) = loan.list() else {
            return Ok(0);
        };
        if data.what != What::None || !loan.borrow_by(flight.id()) {
            return Err(refused(EBUSY));
        }
        let dev = flight.domain().device().as_raw();
        // SAFETY: The device is valid. By the invariant of the loan the list is valid and nobody
        // else's, until the loan is given back, before which it is unmapped.
        // CAST: `Loan` bounds it.
        let mapped =
            unsafe { raw::rtrs_helper_ib_dma_map_sg(dev, sgl, nents as i32, dir.as_raw()) };
        if mapped <= 0 {
            loan.give_back(flight.id());
            return Err(refused(ENOMEM));
        }
        data.what = What::Mapped;
        data.sgl = sgl;
        data.nents = nents;
        // CAST: Positive.
        data.mapped = mapped as u32;
        data.dir = dir;
        Ok(data.mapped)
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
                flight.domain().device().as_raw(),
                flight.bounce_dma,
                len,
                Direction::Bidirectional.as_raw(),
            );
        }
        self.data().what = What::Along;
        // The buffer stays: the answer is enough.
        // CAST: `bounce_room` bounds it.
        self.put_before(flight.bounce_dma, len as u32, flight.domain().lkey());
        self.take_along(1);
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
        let len = loan.len();
        let Some((sgl, nents)) = loan.list().filter(|_| flight.can_copy(len)) else {
            return Err(refused(EINVAL));
        };
        if data.what != What::None || !loan.borrow_by(flight.id()) {
            return Err(refused(EBUSY));
        }
        data.what = What::Back;
        data.sgl = sgl;
        data.nents = nents;
        // CAST: `bounce_room` bounds it.
        data.len = len as u32;
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
        let flight = self.flight;
        let data = self.data();
        if data.what != What::Mapped {
            return Err(EINVAL);
        }
        let mr = flight.mr;
        // SAFETY: The list is mapped for the device of the region. That is not registered, nor about
        // to be, by the invariant of the flight, and ours to change.
        data.iova = unsafe { mr::map_list(mr, data.sgl, data.mapped, page_size) }?;
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
    /// [`Unposted`].
    #[inline(always)]
    pub fn post(
        mut self,
        ep: &Endpoint<H>,
        lane: u16,
        to: Remote,
        imm: u32,
    ) -> Result<(), Unposted<'f, H>> {
        let flight = self.flight;
        let Some(qp) = ep.qp().filter(|qp| qp.is_of(flight.domain())) else {
            return Err(self.not_posted(PostError::Closed));
        };
        let Data {
            what, message_len, ..
        } = *self.data();
        let wrs = flight.wrs.get();
        if matches!(what, What::Mapped | What::Described) {
            // SAFETY: By the invariant of the flight the work requests are ours. One by one, as a
            // driver may still look at `next` of the last one.
            unsafe {
                let write = &raw mut (*wrs).write;
                (*wrs).sges[MESSAGE].length = message_len;
                (*write).wr.ex.imm_data = imm.to_be();
                (*write).remote_addr = to.addr;
                (*write).rkey = to.rkey;
            }
            return self.post_mapped(qp, lane);
        }
        // The answer alone ends this flight, also one that the peer makes up before it has got
        // anything. The next request writes to the work requests of the flight then, while the
        // driver may still read: what it reads is on the stack.
        // SAFETY: By the invariant of the flight the elements are ours.
        let (mut sges, num_sge) = unsafe {
            (
                [(*wrs).sges[MESSAGE - 1], (*wrs).sges[MESSAGE]],
                (*wrs).write.wr.num_sge,
            )
        };
        let [_, message] = &mut sges;
        message.length = message_len;
        // One element or two, see `take_along()`.
        let first = usize::from(num_sge < 2);
        let mut write = raw::ib_rdma_wr {
            wr: raw::ib_send_wr {
                next: null_mut(),
                __bindgen_anon_1: raw::ib_send_wr__bindgen_ty_1 { wr_cqe: null_mut() },
                sg_list: (&raw mut sges).cast::<raw::ib_sge>().wrapping_add(first),
                num_sge,
                opcode: raw::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM,
                send_flags: 0,
                ex: raw::ib_send_wr__bindgen_ty_2 {
                    imm_data: imm.to_be(),
                },
            },
            remote_addr: to.addr,
            rkey: to.rkey,
        };
        let wr = &raw mut write.wr;
        self.send(qp, wr, wr, 1, &flight.failed, lane, Needs::answer())
    }

    /// The same for data that are mapped, when the write is filled in but for them.
    #[inline(never)]
    fn post_mapped(mut self, qp: &QueuePair, lane: u16) -> Result<(), Unposted<'f, H>> {
        let flight = self.flight;
        let wrs = flight.wrs.get();
        let mut needs = Needs::answer();
        let data = self.data();
        let (what, dir, iova, len) = (data.what, data.dir, data.iova, data.len);
        let (sgl, mapped, access) = (data.sgl, data.mapped, data.access);
        let rkey = flight.rkey.load(Relaxed);
        let mut before = 0;
        if dir != Direction::FromDevice {
            needs = needs.and_sent();
            if what == What::Described {
                // The local key of a fast registration is its remote key.
                self.put_before(iova, len, rkey);
                before = 1;
            } else {
                before = mapped as usize;
                if before > MESSAGE || before >= qp.max_sges() {
                    return Err(self.not_posted(PostError::Invalid));
                }
                // SAFETY: By the invariant of the flight the elements are ours, of which so many are
                // before that of the message; the list is mapped.
                // CAST: A few.
                unsafe {
                    raw::rtrs_helper_ib_sg_dma_list(
                        sgl,
                        mapped as i32,
                        (&raw mut (*wrs).sges)
                            .cast::<raw::ib_sge>()
                            .add(MESSAGE - before),
                        mapped,
                        flight.domain().lkey(),
                    );
                }
            }
        }
        self.take_along(before);
        let cqe = match needs.has_sent() {
            true => &flight.sent,
            false => &flight.failed,
        };
        // SAFETY: By the invariant of the flight the work requests are ours.
        let last = unsafe { &raw mut (*wrs).write.wr };
        if what != What::Described {
            return self.send(qp, last, last, 1, cqe, lane, needs);
        }
        needs = needs.and_invalidated();
        // SAFETY: As above.
        let first = unsafe {
            let reg = &raw mut (*wrs).reg;
            (*reg).key = rkey;
            (*reg).access = access.as_raw();
            &raw mut (*reg).wr
        };
        self.send(qp, first, last, 2, cqe, lane, needs)
    }

    /// The element right before that of the message.
    #[inline(always)]
    fn put_before(&mut self, addr: u64, length: u32, lkey: u32) {
        // SAFETY: By the invariant of the flight the elements are ours.
        unsafe {
            (*self.flight.wrs.get()).sges[MESSAGE - 1] = raw::ib_sge { addr, length, lkey };
        }
    }

    /// The write takes `before` elements along with the message, [`MESSAGE`] at most.
    #[inline(always)]
    fn take_along(&mut self, before: usize) {
        let wrs = self.flight.wrs.get();
        // SAFETY: By the invariant of the flight the write and the elements are ours.
        unsafe {
            let sges = (&raw mut (*wrs).sges).cast::<raw::ib_sge>();
            (*wrs).write.wr.sg_list = sges.add(MESSAGE - before);
            // CAST: At most `MAX_SGES`.
            (*wrs).write.wr.num_sge = before as i32 + 1;
        }
    }

    /// Posts the `n` requests of the flight from `first` to `last`, which completes at `cqe`.
    // Each of them is something else, and known where this is inlined.
    #[expect(clippy::too_many_arguments)]
    #[inline(always)]
    fn send(
        self,
        qp: &QueuePair,
        first: *mut raw::ib_send_wr,
        last: *mut raw::ib_send_wr,
        n: u32,
        cqe: &raw::ib_cqe,
        lane: u16,
        needs: Needs,
    ) -> Result<(), Unposted<'f, H>> {
        let flight = self.flight;
        let room = match qp.reserve(n, needs.has_sent()) {
            Ok(room) => room,
            Err(e) => return Err(self.not_posted(e)),
        };
        // With the queue locked: a peer may answer what it has not got yet, and the key must not be
        // invalidated before it was registered.
        if needs.has_invalidated() {
            flight.began.store(qp.received(), Relaxed);
        }
        room.count_flight();
        let this = ManuallyDrop::new(self);
        let flown = flight.word.fly(lane, needs);
        // SAFETY: The requests are linked, and stay: they are the caller's, or those of a flight that
        // is not over before a completion of this queue, which is locked. What they name is the
        // domain's, which is that of the queue pair: message and region for good, the data until the
        // flight is over. Their completion entries are those of endpoints with this handler, as
        // `post()` got one.
        match unsafe { room.post(first, last, core::ptr::from_ref(cqe).cast_mut()) } {
            Ok(()) => Ok(()),
            Err(refused) => Err(ManuallyDrop::into_inner(this).not_flown(flown, refused)),
        }
    }

    #[cold]
    #[inline(never)]
    fn not_posted(self, e: PostError) -> Unposted<'f, H> {
        Unposted::Not(e, self)
    }

    /// The device has refused it, or a part of it; the queue is still locked.
    #[cold]
    #[inline(never)]
    fn not_flown(self, flown: Flown, refused: Refused<'_>) -> Unposted<'f, H> {
        let Refused { room, error } = refused;
        if !error.is_partial() && self.flight.word.take_back(flown) {
            room.uncount_flight();
            return Unposted::Not(error, self);
        }
        // It is not ours any more.
        core::mem::forget(self);
        Unposted::Broken(error)
    }

    /// Undoes what was done, and gives `loan` back, if it was [borrowed](Self::borrow).
    pub fn cancel(self, loan: &mut Loan) {
        let id = self.flight.id();
        drop(self);
        loan.give_back(id);
    }
}

impl<H: Handler> Drop for Building<'_, H> {
    fn drop(&mut self) {
        // SAFETY: Ours, and nothing is posted.
        unsafe { self.flight.unmap(false) };
        self.flight.word.cancel();
    }
}
