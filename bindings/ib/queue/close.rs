// SPDX-License-Identifier: GPL-2.0

//! The end of a queue pair.
//!
//! # Context
//!
//! A task that may sleep, unless documented otherwise.

use super::{
    PollContext,
    QueuePair, //
};
use crate::{
    atomic::Full,
    raw,
    rcu::Past, //
};

impl QueuePair {
    /// Closes the gate: when this returns, nothing is being posted any more, and nothing will be.
    /// Any context.
    pub(in crate::ib) fn close_gate(&self) {
        self.sq.lock().close();
        self.rq.lock().open = false;
    }

    /// Closes the gate, and waits until every posted request has completed and its callback has
    /// returned; the QP does not access memory any more then. Does not wait if another caller does
    /// so already, or if the device refuses to change the state of the QP: so no memory may be
    /// freed because of this. Sleeps; must not be called from a callback.
    pub(in crate::ib) fn drain(&self) {
        self.close_gate();
        if self.drained.xchg(true, Full) {
            return;
        }
        // The drain waits for the last completion, so all are announced from now on.
        if let Some(sent) = &self.sent {
            sent.expect_all();
        }
        // SAFETY: The QP is valid, and nothing is posted any more. The drain's own requests use the
        // entries that `new()` added; this is the only drain.
        unsafe {
            match self.context {
                PollContext::Direct => self.drain_direct(),
                _ => raw::ib_drain_qp(self.qp.as_ptr()),
            }
        }
    }

    /// Drains, and destroys the QP, which does not access memory any more then. Completions that it
    /// has left may be handled until [`free_cq`](Self::free_cq): only if the drain failed. Sleeps.
    ///
    /// # Safety
    ///
    /// Must be called only once, not from a callback, by the owner of `self`. The gate stays
    /// closed, so that nothing uses the QP afterwards.
    pub(in crate::ib) unsafe fn destroy_qp(&self) {
        self.drain();
        // SAFETY: `id` is valid and owns the QP. Nothing is posted on it, as the gate is closed. If
        // the drain failed then there are outstanding requests, which end with the QP: the domain
        // has their memory, and `self` their entries. Their completions are handled before
        // `free_cq()` has returned, or never, and do not use the QP. A driver has to destroy a QP of
        // the kernel: like all of its users, this one does not learn of a failure, as
        // `rdma_destroy_qp()` has no result.
        unsafe { raw::rdma_destroy_qp(self.id.as_ptr()) };
        if let Some(sent) = &self.sent {
            // Flights are collected when the domain has no queue pair: no completion of one is being
            // handled then.
            sent.end();
        }
        self.domain.remove_queue_pair();
        // SAFETY: The CQ is valid. It gets no further completions, as its only QP is gone, and is
        // stopped only here, once.
        unsafe { raw::rtrs_helper_ib_cq_stop(self.cq.as_ptr()) };
        self.stopped.populate(Past::now());
    }

    /// Frees the CQ. Sleeps until a grace period of RCU has passed since [`destroy_qp`]. For several
    /// queue pairs that is one grace period, if all QPs are destroyed before the first CQ is freed.
    ///
    /// # Safety
    ///
    /// Must be called only once, after [`destroy_qp`], by the owner of `self`, which may only be
    /// dropped afterwards.
    ///
    /// [`destroy_qp`]: QueuePair::destroy_qp
    pub(in crate::ib) unsafe fn free_cq(&self) {
        // A handler in softirq uses the CQ until it returns, which `ib_free_cq()` does not wait for.
        if let Some(stopped) = self.stopped.copy() {
            stopped.wait();
        }
        // SAFETY: By the safety requirements, the only QP of the CQ is gone, and `destroy_qp()` stopped
        // the CQ, which is undone once. A handler in softirq has ended, as a grace period has passed
        // since then; `ib_free_cq()` waits for one in a work item. No other begins, as there are no
        // completions.
        unsafe {
            raw::rtrs_helper_ib_cq_restart(self.cq.as_ptr());
            raw::ib_free_cq(self.cq.as_ptr());
        }
        if let Some(sent) = &self.sent {
            // SAFETY: The QP is gone, `destroy_qp()` has called `end()`, and this is the only call.
            unsafe { sent.destroy() };
        }
    }
}
