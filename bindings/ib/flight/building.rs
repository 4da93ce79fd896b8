// SPDX-License-Identifier: GPL-2.0

//! A flight until it is posted.

use core::mem::ManuallyDrop;

use kernel::prelude::*;

use super::{
    Data,
    Flight,
    Needs,
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
        queue::PostError,
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

/// How a post ended that was not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// All is on its way.
    All,
    /// A part is, or the peer has answered what it never got: the flight stays until it is
    /// [collected](super::Flights::collect), the connection has to end.
    Broken(PostError),
}

impl<'f, H: Handler> Building<'f, H> {
    /// Of a flight whose word has just become Building for the caller.
    #[inline(always)]
    pub(super) fn new(flight: &'f Flight<H>) -> Self {
        let mut this = Self { flight };
        let data = this.data();
        data.access = None;
        data.copied = 0;
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
        if !data.is_none() || !loan.borrow_by(flight.id()) {
            return Err(EBUSY);
        }
        let dev = flight.domain().device().as_raw();
        // SAFETY: The device is valid. By the invariant of the loan the list is valid and nobody
        // else's, until the loan is given back, before which it is unmapped.
        // CAST: `Loan` bounds it.
        let mapped =
            unsafe { raw::rtrs_helper_ib_dma_map_sg(dev, sgl, nents as i32, dir.as_raw()) };
        if mapped <= 0 {
            loan.give_back(flight.id());
            return Err(ENOMEM);
        }
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
        let (sgl, nents) = loan.list().ok_or(EINVAL)?;
        let len = loan.len();
        if !flight.can_copy(len) {
            return Err(EINVAL);
        }
        if !self.data().is_none() {
            return Err(EBUSY);
        }
        // SAFETY: By the invariant of the loan the list is valid. The buffer has room for `len`
        // bytes, is no part of the list, and no reference to it exists.
        let copied = unsafe { raw::sg_copy_to_buffer(sgl, nents, flight.bounce.cast(), len) };
        if copied != len {
            return Err(EINVAL);
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
        // CAST: `bounce_room` bounds it.
        self.data().copied = len as u32;
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
        let (sgl, nents) = loan.list().ok_or(EINVAL)?;
        let len = loan.len();
        if !flight.can_copy(len) {
            return Err(EINVAL);
        }
        if !data.is_none() || !loan.borrow_by(flight.id()) {
            return Err(EBUSY);
        }
        data.sgl = sgl;
        data.nents = nents;
        data.dir = Direction::FromDevice;
        // CAST: `bounce_room` bounds it.
        data.copied = len as u32;
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
        if data.sgl.is_null() || data.copied != 0 {
            return Err(EINVAL);
        }
        let mr = flight.mr;
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
        let mut this = ManuallyDrop::new(self);
        let flight = this.flight;
        let data = this.data();
        let wrs = flight.wrs.get();
        let mut needs = Needs::answer();
        // What goes out before the message.
        let mut before = 0;
        // SAFETY: By the invariant of the flight the work requests are ours. One by one, as a driver
        // may still look at `next` of the last one.
        unsafe {
            let sges = &raw mut (*wrs).sges;
            let write = &raw mut (*wrs).write;
            if data.sgl.is_null() {
                if data.copied != 0 {
                    // The buffer stays: the answer is enough.
                    before = 1;
                    (*sges)[MESSAGE - 1] = raw::ib_sge {
                        addr: flight.bounce_dma,
                        length: data.copied,
                        lkey: flight.domain().lkey(),
                    };
                }
            } else if data.dir != Direction::FromDevice {
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
