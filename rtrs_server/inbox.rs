// SPDX-License-Identifier: GPL-2.0

//! Requests of one connection on their way to the user.
//!
//! The user may sleep in [`Service::request()`](crate::api::Service::request) for as long as a disk
//! is full. So completion handlers do not call it: to drain a connection is to wait for those, and
//! the end of a path and the removal of a device wait for that. They leave requests here, and a
//! work item takes them out, one at a time. On the processor where a request arrived it is the next
//! thing the thread does that has handled the completion, if that is all there is to do.
//!
//! # Locking
//!
//! `waiting` (spinlock, interrupts off) is a leaf. If something is in it then the work item is
//! queued, or runs and is going to look.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use rtrs_bindings::{
    lock::{
        new_spinlock_irq,
        SpinLockIrq, //
    },
    workqueue::{
        impl_has_work,
        new_work,
        Queue,
        Work,
        WorkExt,
        WorkItem, //
    },
};

use crate::{
    logic::ring::Ring,
    op::{
        Lease,
        Op, //
    },
    path::Path, //
};

/// Requests handed to the user before others get the thread.
const BUDGET: usize = 64;

type Waiting = Ring<KVVec<Option<KBox<Op>>>>;

/// Requests of one connection that the user has not seen yet.
#[pin_data]
pub(crate) struct Inbox {
    path: Arc<Path>,
    queue: Queue,
    #[pin]
    waiting: SpinLockIrq<Waiting>,
    #[pin]
    work: Work<Inbox>,
    /// Dropped last. The end of the path is not announced while the user's function runs, even if
    /// it has answered.
    _lease: Arc<Lease>,
}

impl_has_work! {
    impl HasWork<Self> for Inbox { self.work }
}

impl WorkItem for Inbox {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        for _ in 0..BUDGET {
            let op = this.waiting.lock().pop();
            let Some(op) = op else { return };
            this.path.call_user(op);
        }
        this.work.enqueue(&this.queue, &this);
    }
}

impl Inbox {
    /// An inbox of a connection of `path` with room for `depth` requests, which `queue` hands to
    /// the user. May sleep.
    pub(crate) fn new(
        path: &Arc<Path>,
        queue: &Queue,
        depth: u16,
        lease: &Arc<Lease>,
    ) -> Result<Arc<Self>> {
        let mut room = KVVec::with_capacity(usize::from(depth), GFP_KERNEL)?;
        for _ in 0..depth {
            room.push(None, GFP_KERNEL)?;
        }

        Arc::pin_init(
            pin_init!(Self {
                path: path.clone(),
                queue: queue.clone(),
                waiting <- new_spinlock_irq!(Ring::new(room), "rtrs_srv_inbox"),
                work <- new_work!("rtrs_srv_inbox"),
                _lease: lease.clone(),
            }),
            GFP_KERNEL,
        )
    }

    /// Leaves `op`, which owns its chunk, for the user. Any context.
    pub(crate) fn put(self: &Arc<Self>, op: KBox<Op>) {
        let mut waiting = self.waiting.lock();
        let first = waiting.is_empty();
        let refused = waiting.push(op).err();

        drop(waiting);
        if first {
            self.work.enqueue(&self.queue, self);
        }
        // Nobody puts anything into a closed inbox: there is room for all operations there are.
        drop(refused);
    }

    /// What the user has not seen yet is gone. Nobody may put anything here any more. Any context.
    pub(crate) fn close(&self) {
        let left = core::mem::replace(&mut *self.waiting.lock(), Ring::new(KVVec::new()));

        drop(left);
    }
}
