// SPDX-License-Identifier: GPL-2.0

//! Queues without interrupts, the completions of which a caller polls for.
//!
//! # Locking
//!
//! The caller that handles completions owns `polling`; a caller that finds it taken returns at
//! once. Teardown of the queue takes it for good.

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

/// The last request of a queue: when it has completed, all others have, too.
#[repr(C)]
struct Mark {
    // Must be first: ib_core passes the address of this field.
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
/// `wc` must be a completion of a request with the entry of a live [`Mark`].
unsafe extern "C" fn mark_done(_cq: *mut raw::ib_cq, wc: *mut raw::ib_wc) {
    // SAFETY: By the safety requirements of this function, the entry is that of a live mark, and
    // its first field.
    unsafe {
        let mark = (*wc).__bindgen_anon_1.wr_cqe.cast::<Mark>();
        (*mark).done.store(true, Relaxed);
    }
}

/// Number of completions handled at a time.
const BUDGET: u32 = 64;

/// Time to wait for other callers, or for completions, before the next look.
const LOOK_AGAIN: Delta = Delta::from_millis(1);

impl QueuePair {
    /// Handles up to `budget` completions of a [`PollContext::Direct`] queue; returns their number.
    /// Returns 0 also if another caller handles completions, and for any other queue.
    ///
    /// Context: any in which the handler may run; it is called from here.
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
        // SAFETY: The CQ is valid, by the invariant, and this is the only code that handles it, as
        // the caller has `polling`: the CQ has neither interrupt nor work item.
        let found = unsafe { raw::ib_process_cq_direct(self.cq.as_ptr(), budget) };
        u32::try_from(found).unwrap_or(0)
    }

    /// Lets all posted requests complete, as `ib_drain_qp()` does; on a queue without interrupts
    /// that function sleeps for a tenth of a second before each look. Sleeps.
    ///
    /// # Safety
    ///
    /// Must be called only once, with the gate closed; see [`QueuePair::drain`].
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
        // SAFETY: The QP is valid, and nothing else is posted any more. `new()` added an entry to
        // each queue for this. The marks stay until both have completed, below: a QP in error state
        // completes everything. The driver copies the requests.
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
            // SAFETY: As above. This function reports the error.
            unsafe { raw::ib_drain_qp(self.qp.as_ptr()) };
        } else if !posted_send {
            // SAFETY: As above.
            unsafe { raw::ib_drain_sq(self.qp.as_ptr()) };
        }
    }
}
