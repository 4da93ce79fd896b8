// SPDX-License-Identifier: GPL-2.0

//! A flight that is being prepared, until it is posted.

use core::mem::ManuallyDrop;

use kernel::prelude::*;

use super::{
    Flight,
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
        mr,
        queue::PostError,
        wr::Remote, //
    },
    loan::Loan,
    raw, //
};

/// A flight that belongs to the caller, with nothing prepared: no more than its address. Dropping
/// it makes the flight idle.
#[must_use]
pub struct Claim<'f, H: Handler>(&'f Flight<H>);

impl<'f, H: Handler> Claim<'f, H> {
    /// Wraps a flight. The caller must have just made its word Building.
    #[inline(always)]
    pub(super) fn new(flight: &'f Flight<H>) -> Self {
        Self(flight)
    }

    /// Whether `len` bytes of data can be copied.
    #[inline(always)]
    pub fn can_copy(&self, len: usize) -> bool {
        self.0.can_copy(len)
    }

    /// Begins the preparation.
    #[inline(always)]
    pub fn prepare(self) -> Building<'f, H> {
        Building::new(ManuallyDrop::new(self).0)
    }
}

impl<H: Handler> Drop for Claim<'_, H> {
    #[cold]
    fn drop(&mut self) {
        self.0.word.cancel();
    }
}

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
    /// Length of the message in bytes: not 0, at most the room for it.
    message_len: u32,
    /// The direction of data that is mapped.
    dir: DmaDirection,
}

/// Where the message of a flight goes. Asked as late as possible, usually with the send queue locked,
/// so that nothing is kept over the call that locks it. Must not post, and must not sleep.
pub trait Target {
    /// The peer's memory. Not asked if data and message are sent.
    fn remote(&self) -> Remote;

    /// The immediate value.
    fn value(&self) -> u32;
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

/// Returns `e`. Keeps error paths out of the hot code.
#[cold]
#[inline(never)]
fn refused(e: Error) -> Error {
    e
}

impl<'f, H: Handler> Building<'f, H> {
    #[inline(always)]
    fn new(flight: &'f Flight<H>) -> Self {
        Self {
            flight,
            what: What::None,
            along: 0,
            // Not 0, even if the message is never ended: see `DmaPages::sge()`.
            message_len: 1,
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

    /// Makes an element for each segment of the data, from where they are sent without a
    /// registration. Returns the number of bytes.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there are more segments than elements, one of them is empty, or no data is mapped.
    #[inline(always)]
    pub fn gather(&mut self) -> Result<u64> {
        let flight = self.flight;
        // SAFETY: By the invariant of the flight, its owner may access the data.
        let data = unsafe { &*flight.data.get() };
        // CAST: `usize` has at least 32 bits.
        let n = data.mapped as usize;
        if self.what != What::Mapped || n == 0 || n > MESSAGE {
            return Err(refused(EINVAL));
        }
        // SAFETY: By the invariant of the flight, its owner may write the elements, of which `n`
        // precede that of the message. The list is mapped, with that many segments.
        let total = unsafe {
            let sges = (&raw mut (*flight.wrs.get()).sges).cast::<raw::ib_sge>();
            let first = sges.add(MESSAGE - n);
            raw::rtrs_helper_ib_sg_dma_list(data.sgl, data.mapped, first, flight.lkey)
        };
        if total == 0 {
            return Err(refused(EINVAL));
        }
        self.what = What::Gathered;
        Ok(total)
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

    /// Describes the data to the flight's memory region, in [pages](Handler::PAGE_SIZE), with a new
    /// key. Posting the flight registers the region: for the peer to write to if the data was
    /// [borrowed](Self::borrow) as [`FromDevice`](DmaDirection::FromDevice), otherwise for this side to
    /// read. Also returns the number of bytes.
    ///
    /// Does not sleep, but for the driver hns of Linux 7.2 and 7.3: that allocates memory with
    /// `GFP_KERNEL`, whatever the caller holds.
    ///
    /// # Errors
    ///
    /// `EINVAL` when the list does not fit or has gaps within pages, or there is no list.
    #[inline(always)]
    pub fn describe(&mut self) -> Result<(Remote, u64)> {
        if self.what != What::Mapped {
            return Err(EINVAL);
        }
        // SAFETY: This `Building` owns the flight, and has mapped the data.
        let described = unsafe { Self::register(self.flight, self.dir) }?;
        self.what = What::Described;
        Ok(described)
    }

    /// As [`describe`](Self::describe), for `flight`, the data of which move in `dir`.
    ///
    /// # Safety
    ///
    /// The caller must own the flight, and have mapped the data.
    #[inline(always)]
    unsafe fn register(flight: &Flight<H>, dir: DmaDirection) -> Result<(Remote, u64)> {
        // SAFETY: By the safety requirements of this function, the caller owns the flight.
        let data = unsafe { &mut *flight.data.get() };
        let mr = flight.mr;
        // Not hidden: the only peer that can use the address is told it anyway. Without one, only
        // this side uses it.
        let base = (dir == DmaDirection::FromDevice).then_some(u64::from(H::PAGE_SIZE));
        // SAFETY: The list is mapped for the device of the region, which has this page size, as
        // `Flights::new()` has checked. By the invariant of the flight, the region is neither
        // registered nor about to be, and the owner of the flight may change it.
        data.iova = unsafe { mr::map_list(mr, data.sgl, data.mapped, H::PAGE_SIZE, base) }?;
        // SAFETY: The region is valid.
        let len = unsafe { raw::rtrs_helper_ib_mr_length(mr.as_ptr()) };
        // CAST: A caller that compares it sees if it was cut; the region is not larger.
        data.len = len as u32;
        // Not the key that the device has: see `Drop`.
        data.key = data.key.wrapping_add(1);
        // SAFETY: As above.
        let rkey = unsafe {
            raw::rtrs_helper_ib_mr_set_key(mr.as_ptr(), data.key);
            raw::rtrs_helper_ib_mr_rkey(mr.as_ptr())
        };
        flight.rkey.store(rkey, Relaxed);
        let remote = Remote {
            addr: data.iova,
            rkey,
        };
        Ok((remote, len))
    }

    /// Writes `bytes` to offset `at` of the message, which ends there.
    ///
    /// # Errors
    ///
    /// `EINVAL` when there is no room for them.
    #[inline(always)]
    pub fn end_message<const N: usize>(&mut self, at: u32, bytes: [u8; N]) -> Result {
        const { assert!(N != 0) };
        let flight = self.flight;
        // CAST: `N` is a few bytes.
        let end = at.saturating_add(N as u32);
        if end > flight.message_room {
            return Err(refused(EINVAL));
        }
        self.message_len = end;
        // SAFETY: The message is inside the flight's part of `Pages`, as checked above. They are
        // copied to as in `Pages::write()`: there are no references to them, but they may be
        // shared.
        // CAST: `usize` has at least 32 bits.
        unsafe {
            let to = flight.message.as_ptr().add(at as usize);
            raw::rtrs_helper_copy(to.cast(), bytes.as_ptr().cast(), N);
        }
        Ok(())
    }

    /// Posts the flight on `ep`, the queue pair of which is its lane: first the registration, if
    /// the data was [described](Self::describe) to the region; then data that goes out, and the
    /// message, [to](Target) the peer's memory, with an immediate value. The flight may be over before
    /// this returns.
    ///
    /// # Errors
    ///
    /// [`Unposted`].
    #[inline(always)]
    pub fn post(self, ep: &Endpoint<H>, to: impl Target) -> Result<(), Unposted<'f, H>> {
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
        if self.what == What::Described {
            // The device has not got the new key. If such keys were used up, a later one might be
            // the one that the device still has, from the last registration. Then it would take a
            // peer's invalidation for one of the new key, before it has registered that.
            // SAFETY: This `Building` owns the flight and its data.
            unsafe {
                let data = &mut *self.flight.data.get();
                data.key = data.key.wrapping_sub(1);
            }
        }
        // SAFETY: This `Building` owns the flight, nothing is posted, and this is what was done
        // with the data.
        unsafe { self.flight.unmap(self.what) };
        self.flight.word.cancel();
    }
}
