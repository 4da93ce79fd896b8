// SPDX-License-Identifier: GPL-2.0

//! Receives of a queue pair: their work requests are made with it, and posted again and again.
//!
//! # Locking
//!
//! `rq` of the queue pair serialises posting, in any context; the driver's own locks nest inside.

use kernel::prelude::*;

use super::{
    super::wr::Sge,
    completion::Slots,
    PostError,
    QueuePair, //
};
use crate::{
    atomic::Acquire,
    raw, //
};

/// The receive queue as its lock protects it.
pub(super) struct ReceiveQueue {
    pub(super) open: bool,
    /// Receives posted so far, modulo 2^32.
    pub(super) posted: u32,
    /// By token.
    pub(super) receives: KVVec<Receive>,
}

/// A receive as it is posted, and posted again.
///
/// # Invariants
///
/// `wr` names the completion slot of its token, and `sge`, or no element. If it names `sge` then
/// that is of the domain of the queue pair. Neither is moved.
pub(super) struct Receive {
    wr: raw::ib_recv_wr,
    sge: raw::ib_sge,
}

impl Receive {
    /// One for each slot, without elements. May sleep.
    pub(super) fn for_each_of(slots: &Slots, n: u32) -> Result<KVVec<Self>> {
        let mut receives = KVVec::with_capacity(n as usize, GFP_KERNEL)?;
        for token in 0..n {
            let wr_cqe = slots.get(token).ok_or(EINVAL)?;
            // INVARIANT: No element.
            let receive = Self {
                wr: raw::ib_recv_wr {
                    next: core::ptr::null_mut(),
                    __bindgen_anon_1: raw::ib_recv_wr__bindgen_ty_1 { wr_cqe },
                    sg_list: core::ptr::null_mut(),
                    num_sge: 0,
                },
                sge: raw::ib_sge::default(),
            };
            receives.push(receive, GFP_KERNEL)?;
        }
        Ok(receives)
    }
}

impl QueuePair {
    /// Posts a receive. Any context. Without `sge` only messages without data
    /// (or RDMA writes with immediate) can be received.
    ///
    /// # Errors
    ///
    /// See [`PostError`]; the queue is full with [`recv_room`](Self::recv_room) outstanding.
    pub fn post_recv(&self, token: u32, sge: Option<Sge<'_>>) -> Result<(), PostError> {
        if !sge.is_none_or(|sge| self.is_of(sge.domain())) {
            return Err(PostError::Invalid);
        }
        let mut rq = self.rq.lock();
        let receive = rq
            .receives
            .get_mut(token as usize)
            .ok_or(PostError::Invalid)?;
        // INVARIANT: The element is of our domain, see above; the vector does not grow.
        (receive.wr.sg_list, receive.wr.num_sge) = match sge {
            Some(sge) => {
                receive.sge = sge.as_raw();
                (&raw mut receive.sge, 1)
            }
            None => (core::ptr::null_mut(), 0),
        };
        self.post_receive(&mut rq, token)
    }

    /// Posts the receive of `token` once more, as it was last. Any context.
    ///
    /// # Errors
    ///
    /// As for [`post_recv`](Self::post_recv).
    #[inline]
    pub fn post_recv_again(&self, token: u32) -> Result<(), PostError> {
        self.post_receive(&mut self.rq.lock(), token)
    }

    #[inline(always)]
    fn post_receive(&self, rq: &mut ReceiveQueue, token: u32) -> Result<(), PostError> {
        let receive = rq.receives.get(token as usize).ok_or(PostError::Invalid)?;
        if !rq.open {
            return Err(PostError::Closed);
        }
        // The entry beyond is the drain's.
        if rq.posted.wrapping_sub(self.received.load(Acquire)) >= self.recv_room {
            return Err(PostError::Full);
        }
        let mut bad = core::ptr::null();
        // SAFETY: As for `post_linked()`, with the gate of the receive queue. By the invariant of
        // `Receive` its slot is ours, and its memory stays as long as the domain.
        let ret = unsafe { raw::rtrs_helper_ib_post_recv(self.qp.as_ptr(), &receive.wr, &mut bad) };
        if ret != 0 {
            return Err(PostError::Refused(ret));
        }
        rq.posted = rq.posted.wrapping_add(1);
        Ok(())
    }
}
