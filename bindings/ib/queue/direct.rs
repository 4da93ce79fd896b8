// SPDX-License-Identifier: GPL-2.0

//! Queues whose completions somebody comes for.
//!
//! # Locking
//!
//! `polling` belongs to whoever handles completions, one at a time; who finds it
//! taken goes away. Tearing the queue down takes it and keeps it.

use kernel::{
    sync::atomic::{
        Acquire,
        Release, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
};

use super::{
    PollContext,
    QueuePair, //
};
use crate::{
    atomic::{
        Atomic,
        Relaxed, //
    },
    raw, //
};

/// A last request: when it has completed, all before it have.
#[repr(C)]
struct Mark {
    // First: what ib_core knows of the mark is where this is.
    cqe: raw::ib_cqe,
    done: Atomic<bool>,
}

impl Mark {
    fn new() -> Self {
        Self {
            cqe: raw::ib_cqe {
                done: Some(mark_done),
            },
            done: Atomic::new(false),
        }
    }

    fn wr_cqe(&self) -> *mut raw::ib_cqe {
        core::ptr::from_ref(self).cast_mut().cast()
    }
}

/// Called by ib_core when a mark completes.
///
/// # Safety
///
/// `wc` must be a completion of a request with the slot of a live [`Mark`].
unsafe extern "C" fn mark_done(_cq: *mut raw::ib_cq, wc: *mut raw::ib_wc) {
    // SAFETY: By the function's requirement; the slot is the mark's first field.
    unsafe {
        let mark = (*wc).__bindgen_anon_1.wr_cqe.cast::<Mark>();
        (*mark).done.store(true, Relaxed);
    }
}

/// Completions handled in one go.
const BUDGET: u32 = 64;

/// How long to wait for others, or for completions, before looking again.
const LOOK_AGAIN: Delta = Delta::from_millis(1);

impl QueuePair {
    /// Handles up to `budget` completions of a [`PollContext::Direct`] queue; returns how
    /// many there were. 0 also if somebody else is at it, and for any other queue.
    ///
    /// Any context in which the handler may run; it is called from here.
    pub fn poll(&self, budget: u32) -> u32 {
        if self.context != PollContext::Direct
            || self.polling.cmpxchg(false, true, Acquire).is_err()
        {
            return 0;
        }
        let found = self.process(budget);
        self.polling.store(false, Release);
        found
    }

    /// Handles completions. The caller has `polling`.
    fn process(&self, budget: u32) -> u32 {
        let budget = i32::try_from(budget).unwrap_or(i32::MAX);
        // SAFETY: The CQ is valid, by the invariant, and handled by nobody else: it has
        // neither interrupt nor work item.
        let found = unsafe { raw::ib_process_cq_direct(self.cq.as_ptr(), budget) };
        u32::try_from(found).unwrap_or(0)
    }

    /// Lets everything that was posted complete, as `ib_drain_qp()` does, which on a queue
    /// without interrupts sleeps for a tenth of a second before each look. Sleeps.
    ///
    /// # Safety
    ///
    /// To be called once, with the gate closed; see [`QueuePair::drain`].
    pub(super) unsafe fn drain_direct(&self) {
        while self.polling.cmpxchg(false, true, Acquire).is_err() {
            fsleep(LOOK_AGAIN);
        }
        let (send, recv) = (Mark::new(), Mark::new());
        // CAST: A flag of a few bits.
        let mask = raw::ib_qp_attr_mask_IB_QP_STATE as i32;
        let mut attr = raw::ib_qp_attr {
            qp_state: raw::ib_qp_state_IB_QPS_ERR,
            ..Default::default()
        };
        let recv_wr = raw::ib_recv_wr {
            next: core::ptr::null_mut(),
            __bindgen_anon_1: raw::ib_recv_wr__bindgen_ty_1 {
                wr_cqe: recv.wr_cqe(),
            },
            sg_list: core::ptr::null_mut(),
            num_sge: 0,
        };
        let send_wr = raw::ib_rdma_wr {
            wr: raw::ib_send_wr {
                __bindgen_anon_1: raw::ib_send_wr__bindgen_ty_1 {
                    wr_cqe: send.wr_cqe(),
                },
                opcode: raw::ib_wr_opcode_IB_WR_RDMA_WRITE,
                send_flags: raw::ib_send_flags_IB_SEND_SIGNALED,
                ..Default::default()
            },
            ..Default::default()
        };
        let (mut bad_recv, mut bad_send) = (core::ptr::null(), core::ptr::null());
        // SAFETY: The QP is valid, and nobody else posts any more. `new()` added an entry to
        // each queue for this. The marks stay until both have completed, below: a QP in
        // error state completes everything. The requests are copied by the driver.
        let (posted_recv, posted_send) = unsafe {
            let qp = self.qp.as_ptr();
            if raw::ib_modify_qp(qp, &mut attr, mask) != 0
                || raw::rtrs_helper_ib_post_recv(qp, &recv_wr, &mut bad_recv) != 0
            {
                (false, false)
            } else {
                let sent = raw::rtrs_helper_ib_post_send(qp, &send_wr.wr, &mut bad_send);
                (true, sent == 0)
            }
        };
        while (posted_recv && !recv.done.load(Relaxed)) || (posted_send && !send.done.load(Relaxed))
        {
            if self.process(BUDGET) == 0 {
                fsleep(LOOK_AGAIN);
            }
        }
        if !posted_recv {
            // SAFETY: As above. It complains about what we ran into.
            unsafe { raw::ib_drain_qp(self.qp.as_ptr()) };
        } else if !posted_send {
            // SAFETY: As above.
            unsafe { raw::ib_drain_sq(self.qp.as_ptr()) };
        }
    }
}
