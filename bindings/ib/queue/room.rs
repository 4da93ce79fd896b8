// SPDX-License-Identifier: GPL-2.0

//! Reserved room on a send queue, which stays locked until requests are posted or refused.
//!
//! # Context
//!
//! Any; a [`Room`] holds the lock of the queue, with interrupts off.

use super::{
    PostError,
    QueuePair,
    SendQueue,
    LARGE, //
};
use crate::{
    ib::sendq::{
        SqError,
        Ticket, //
    },
    lock::SpinLockIrqGuard,
    raw, //
};

impl QueuePair {
    /// Locks the send queue, with room for `n` requests. The last one is signalled if necessary, or
    /// if `signal` is true.
    ///
    /// # Errors
    ///
    /// See [`PostError`].
    #[inline(always)]
    pub(in crate::ib) fn reserve(&self, n: u32, signal: bool) -> Result<Room<'_>, PostError> {
        let mut sq = self.sq.lock();
        let signaled = match sq.posted.take(n, signal) {
            Some(ticket) => ticket.signal().into(),
            None if signal && sq.posted.take_signaled(&self.ledger, n) => 1,
            None => self.look(&mut sq, n, signal)?,
        };
        Ok(Room::new(self, sq, n, signaled))
    }

    /// As [`reserve`](Self::reserve), for requests with `bytes` of the data of a reply.
    ///
    /// # Errors
    ///
    /// See [`PostError`].
    #[inline(always)]
    pub(in crate::ib) fn reserve_data(&self, n: u32, bytes: u32) -> Result<Room<'_>, PostError> {
        if bytes <= LARGE {
            return self.reserve(n, false);
        }
        let mut sq = self.sq.lock();
        let noted = self.look_for_data(&mut sq, n, bytes)?;
        Ok(Room::new(self, sq, n, noted))
    }

    /// Whether the last two [portions](super::QueueConfig::portion) of data are under way. Then
    /// [`send_retired()`](crate::ib::Handler::send_retired) will be called. What another task posts or
    /// completes meanwhile may be seen or not. Any context.
    #[inline(always)]
    pub fn is_ahead(&self) -> bool {
        self.ledger.is_ahead()
    }

    /// As [`reserve`](Self::reserve), when it must look at the ledger. Returns whether the last
    /// request has a note, as a number, so that the result fits in registers.
    #[inline(never)]
    pub(super) fn look(&self, sq: &mut SendQueue, n: u32, signal: bool) -> Result<u32, PostError> {
        if !sq.open {
            return Err(PostError::Closed);
        }
        let reserved = sq.posted.look(&self.ledger, n, signal);
        self.looked(reserved)
    }

    /// As [`look`](Self::look), for requests with `bytes` of data, which count.
    #[inline(never)]
    pub(super) fn look_for_data(
        &self,
        sq: &mut SendQueue,
        n: u32,
        bytes: u32,
    ) -> Result<u32, PostError> {
        if !sq.open {
            return Err(PostError::Closed);
        }
        let reserved = sq.posted.reserve_data(&self.ledger, n, bytes);
        self.looked(reserved)
    }

    /// The result of a look at the ledger.
    #[inline(always)]
    fn looked(&self, reserved: Result<Ticket, SqError>) -> Result<u32, PostError> {
        match reserved {
            Ok(ticket) => Ok(ticket.signal().into()),
            Err(SqError::TooLong) => Err(PostError::Invalid),
            Err(SqError::Full) => {
                // The completions that make room may be in the queue for sends. They are not handled
                // here: the caller may hold locks.
                if let Some(sent) = &self.sent {
                    sent.later();
                }
                Err(PostError::Full)
            }
        }
    }
}

/// Room on a send queue, which is locked until this is dropped: requests that other code posts as a
/// consequence of actions taken meanwhile come after those posted here.
pub(in crate::ib) struct Room<'q> {
    qp: &'q QueuePair,
    sq: SpinLockIrqGuard<'q, SendQueue>,
    /// Number of requests that were reserved.
    count: u32,
    /// 1 if the last one has a note in the ledger, for which it must be signaled, otherwise 0.
    noted: u32,
}

impl<'q> Room<'q> {
    /// Room on a locked queue with `count` reserved requests; the last one has a note if `noted` is
    /// 1, and not if it is 0.
    #[inline(always)]
    pub(super) fn new(
        qp: &'q QueuePair,
        sq: SpinLockIrqGuard<'q, SendQueue>,
        count: u32,
        noted: u32,
    ) -> Self {
        Self {
            qp,
            sq,
            count,
            noted,
        }
    }

    /// Counts a flight that is about to be posted.
    #[inline(always)]
    pub(in crate::ib) fn count_flight(&self) {
        self.qp.count_flown(1);
    }

    /// The same for a flight whose send is always signaled.
    #[inline(always)]
    pub(in crate::ib) fn count_signaled_flight(&self) {
        self.qp.count_flown(1);
        self.qp.count_signaled(1);
    }

    /// Takes back [`count_flight`](Self::count_flight), as the flight was not posted.
    pub(in crate::ib) fn uncount_flight(&self) {
        self.qp.count_flown(u32::MAX);
    }

    /// Takes back what [`count_signaled_flight`](Self::count_signaled_flight) does besides.
    pub(in crate::ib) fn uncount_signaled(&self) {
        self.qp.count_signaled(u32::MAX);
    }

    /// Posts the requests from `first` to `last`, exactly as many as were reserved. `last`
    /// completes at `cqe`.
    ///
    /// # Errors
    ///
    /// See [`PostError`].
    ///
    /// # Safety
    ///
    /// The requests must be initialised, but for entry and flags of `last`, linked in this order,
    /// and stay valid until the call returns. Their memory must be of the domain of the queue pair.
    /// Those with [`INLINE`](super::INLINE) must have no more bytes than the queue pair
    /// [takes](QueuePair::takes_inline), and addresses of the processor.
    /// Their completion entries, including `cqe`, must belong to the queue pair, or to flights with
    /// the handler of its endpoint.
    #[inline(always)]
    pub(in crate::ib) unsafe fn post(
        self,
        first: *mut raw::ib_send_wr,
        last: *mut raw::ib_send_wr,
        cqe: *mut raw::ib_cqe,
    ) -> Result<(), Refused<'q>> {
        // SAFETY: By the safety requirements of this function.
        unsafe { self.post_with(first, last, cqe, 0) }
    }

    /// As [`post`](Self::post), with further `flags` of the last request.
    ///
    /// # Safety
    ///
    /// As for [`post`](Self::post); `flags` must not have `IB_SEND_SIGNALED`.
    #[inline(always)]
    pub(in crate::ib) unsafe fn post_with(
        self,
        first: *mut raw::ib_send_wr,
        last: *mut raw::ib_send_wr,
        cqe: *mut raw::ib_cqe,
        flags: i32,
    ) -> Result<(), Refused<'q>> {
        // SAFETY: By the safety requirements of this function, `last` may be written. Its entry and
        // flags, which need not be initialised, are set here.
        unsafe {
            // Set in any case: a chain may have been tried with another token.
            (*last).__bindgen_anon_1.wr_cqe = cqe;
            // CAST: A flag. No overflow: it is multiplied by 0 or 1.
            let signaled = raw::ib_send_flags_IB_SEND_SIGNALED.wrapping_mul(self.noted as i32);
            (*last).send_flags = signaled | flags;
        }
        // SAFETY: By the safety requirements of this function, the requests are valid; the last one
        // was just signaled as reserved.
        unsafe { self.hand_over(first) }
    }

    /// As [`post`](Self::post), but `last` completes in any case: at the second of the entries if its
    /// completion retires the requests before it, at the first if not.
    ///
    /// # Errors
    ///
    /// See [`PostError`].
    ///
    /// # Safety
    ///
    /// As for [`post`](Self::post).
    #[inline(always)]
    pub(in crate::ib) unsafe fn post_completing(
        self,
        first: *mut raw::ib_send_wr,
        last: *mut raw::ib_send_wr,
        entries: &[raw::ib_cqe; 2],
    ) -> Result<(), Refused<'q>> {
        // CAST: 0 or 1. ib_core only reads it.
        let cqe = entries.as_ptr().wrapping_add(self.noted as usize);
        // SAFETY: By the safety requirements of this function, `last` may be written.
        unsafe {
            (*last).__bindgen_anon_1.wr_cqe = cqe.cast_mut();
            (*last).send_flags = raw::ib_send_flags_IB_SEND_SIGNALED;
        }
        // SAFETY: By the safety requirements of this function; the last request is signaled.
        unsafe { self.hand_over(first) }
    }

    /// Posts the one request that was reserved, with its entry and flags: it is signaled, whether
    /// that is needed or not. Its entry tells whether it has a note, so that `noted` is 0.
    ///
    /// # Errors
    ///
    /// See [`PostError`].
    ///
    /// # Safety
    ///
    /// As for [`post`](Self::post), and `wr` must be signaled. `is_noted` must tell of its entry whether
    /// it has a note.
    #[inline(always)]
    pub(super) unsafe fn post_signaled(
        self,
        wr: *mut raw::ib_send_wr,
        is_noted: impl FnOnce(*mut raw::ib_cqe) -> bool,
    ) -> Result<(), Refused<'q>> {
        // SAFETY: By the safety requirements of this function, `wr` is initialised.
        let noted = || unsafe { is_noted((*wr).__bindgen_anon_1.wr_cqe) };
        // SAFETY: By the safety requirements of this function.
        unsafe { self.try_post(wr, noted) }
    }

    /// # Safety
    ///
    /// As for [`post`](Self::post); the last request must have a note if `noted` says so, which is called
    /// if the driver refuses, and must then be signaled.
    #[inline(always)]
    unsafe fn try_post(
        mut self,
        first: *mut raw::ib_send_wr,
        noted: impl FnOnce() -> bool,
    ) -> Result<(), Refused<'q>> {
        let mut bad = core::ptr::null();
        // SAFETY: `qp` is valid by the invariant, and not destroyed before the gate was closed; its
        // lock is held. The requests are valid by the safety requirements of this function.
        let ret = unsafe { raw::rtrs_helper_ib_post_send(self.qp.qp.as_ptr(), first, &mut bad) };
        if ret == 0 {
            drop(self);
            return Ok(());
        }
        self.noted = noted().into();
        Err(self.refused(ret, core::ptr::eq(bad, first)))
    }

    /// # Safety
    ///
    /// As for [`post`](Self::post); the last request must be signaled if the reservation requires
    /// it.
    #[inline(always)]
    unsafe fn hand_over(self, first: *mut raw::ib_send_wr) -> Result<(), Refused<'q>> {
        let noted = self.noted != 0;
        // SAFETY: By the safety requirements of this function.
        unsafe { self.try_post(first, || noted) }
    }

    /// Posts the requests from `first` to `last`, exactly as many as were reserved. `last` has its
    /// entry already, and the flag if it has a note, so that this has not been told; see
    /// [`forms`](super::forms).
    ///
    /// # Errors
    ///
    /// See [`PostError`].
    ///
    /// # Safety
    ///
    /// As for [`post`](Self::post); `last` must have its completion entry, and be signaled if it has a
    /// note, and only then.
    #[inline(always)]
    pub(super) unsafe fn post_flagged(
        self,
        first: *mut raw::ib_send_wr,
        last: *mut raw::ib_send_wr,
    ) -> Result<(), Refused<'q>> {
        // SAFETY: By the safety requirements of this function, `last` is initialised.
        let noted = || unsafe { (*last).send_flags } & raw::ib_send_flags_IB_SEND_SIGNALED != 0;
        // SAFETY: By the safety requirements of this function.
        unsafe { self.try_post(first, noted) }
    }

    /// The driver returned the error `ret`. The request that it points to is the first one that it
    /// did not take. A driver that points to none may have taken all: siw does that if it cannot
    /// start to send what it has queued.
    #[cold]
    #[inline(never)]
    fn refused(mut self, ret: i32, nothing_posted: bool) -> Refused<'q> {
        let error = if nothing_posted {
            let ticket = Ticket::new(self.count, self.noted != 0);
            self.sq.posted.undo(&self.qp.ledger, ticket);
            PostError::Refused(ret)
        } else {
            self.sq.close();
            PostError::Partial(ret)
        };
        Refused { room: self, error }
    }
}

/// The room and the error after the driver has refused requests, with the queue still locked.
pub(in crate::ib) struct Refused<'q> {
    pub(in crate::ib) room: Room<'q>,
    pub(in crate::ib) error: PostError,
}

impl From<Refused<'_>> for PostError {
    fn from(refused: Refused<'_>) -> Self {
        refused.error
    }
}
