// SPDX-License-Identifier: GPL-2.0

//! Room on a send queue: reserved, posted to, or found to be refused, with the queue locked.
//!
//! # Context
//!
//! Any; a [`Room`] holds the lock of the queue, with interrupts off.

use super::{
    PostError,
    QueuePair,
    SendQueue, //
};
use crate::{
    ib::sendq::Ticket,
    lock::SpinLockIrqGuard,
    raw, //
};

/// Room on a send queue, which is locked until this is dropped: whatever is posted because of what
/// is done meanwhile comes after what is posted here.
pub(in crate::ib) struct Room<'q> {
    qp: &'q QueuePair,
    sq: SpinLockIrqGuard<'q, SendQueue>,
    /// So many requests were reserved.
    count: u32,
    /// 1 if the last one is to be signaled, otherwise 0.
    signaled: u32,
}

impl<'q> Room<'q> {
    /// Of a queue that is locked, where `count` requests were reserved, the last one to be signaled
    /// if `signaled` is 1, not if it is 0.
    #[inline(always)]
    pub(super) fn new(
        qp: &'q QueuePair,
        sq: SpinLockIrqGuard<'q, SendQueue>,
        count: u32,
        signaled: u32,
    ) -> Self {
        Self {
            qp,
            sq,
            count,
            signaled,
        }
    }

    /// Counts a flight that is about to be posted.
    #[inline(always)]
    pub(in crate::ib) fn count_flight(&self) {
        self.qp.count_flown(1);
    }

    /// It was not.
    pub(in crate::ib) fn uncount_flight(&self) {
        self.qp.count_flown(u32::MAX);
    }

    /// Posts the requests from `first` to `last`, as many as there is room for, of which that one
    /// completes at `cqe`. To be called once.
    ///
    /// # Errors
    ///
    /// See [`PostError`].
    ///
    /// # Safety
    ///
    /// They must be initialised, linked in this order, and stay until the call returns. What they
    /// name must be of the domain of the queue pair, and their completion entries, `cqe` as well,
    /// its own, or those of flights with the handler of its endpoint.
    #[inline(always)]
    pub(in crate::ib) unsafe fn post(
        self,
        first: *mut raw::ib_send_wr,
        last: *mut raw::ib_send_wr,
        cqe: *mut raw::ib_cqe,
    ) -> Result<(), Refused<'q>> {
        // SAFETY: By the function's requirement `last` is initialised, and the caller's to write.
        unsafe {
            // Always: a chain may have been tried with another token.
            (*last).__bindgen_anon_1.wr_cqe = cqe;
            // CAST: A flag. No overflow: 0 or 1 of it.
            (*last).send_flags =
                raw::ib_send_flags_IB_SEND_SIGNALED.wrapping_mul(self.signaled as i32);
        }
        // SAFETY: By the function's requirement.
        unsafe { self.hand_over(first) }
    }

    /// Posts one request, which has its completion entry and no flags.
    ///
    /// # Errors
    ///
    /// See [`PostError`].
    ///
    /// # Safety
    ///
    /// As for [`post`](Self::post).
    #[inline(always)]
    pub(in crate::ib) unsafe fn post_one(
        self,
        wr: *mut raw::ib_send_wr,
    ) -> Result<(), Refused<'q>> {
        if self.signaled != 0 {
            // SAFETY: By the function's requirement it is initialised, and the caller's to write.
            unsafe { (*wr).send_flags = raw::ib_send_flags_IB_SEND_SIGNALED };
        }
        // SAFETY: By the function's requirement.
        unsafe { self.hand_over(wr) }
    }

    /// # Safety
    ///
    /// As for [`post`](Self::post); the last request is signaled as the reservation says.
    #[inline(always)]
    unsafe fn hand_over(self, first: *mut raw::ib_send_wr) -> Result<(), Refused<'q>> {
        let mut bad = core::ptr::null();
        // SAFETY: `qp` is valid by the invariant, and not destroyed before the gate, which we hold
        // the lock of, was closed. The rest is the function's requirement.
        let ret = unsafe { raw::rtrs_helper_ib_post_send(self.qp.qp.as_ptr(), first, &mut bad) };
        if ret == 0 {
            drop(self);
            return Ok(());
        }
        Err(self.refused(ret, bad.is_null() || core::ptr::eq(bad, first)))
    }

    #[cold]
    #[inline(never)]
    fn refused(mut self, ret: i32, nothing_posted: bool) -> Refused<'q> {
        let error = if nothing_posted {
            let ticket = Ticket::new(self.count, self.signaled != 0);
            self.sq.posted.undo(&self.qp.ledger, ticket);
            PostError::Refused(ret)
        } else {
            self.sq.close();
            PostError::Partial(ret)
        };
        Refused { room: self, error }
    }
}

/// What the driver has refused, with the queue still locked.
pub(in crate::ib) struct Refused<'q> {
    pub(in crate::ib) room: Room<'q>,
    pub(in crate::ib) error: PostError,
}

impl From<Refused<'_>> for PostError {
    fn from(refused: Refused<'_>) -> Self {
        refused.error
    }
}
