// SPDX-License-Identifier: GPL-2.0

//! The reference that all operations of a path share.
//!
//! # Context
//!
//! Any, except for making one: dropping only queues work.

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
        impl_work_item,
        new_work,
        Queue,
        Work,
        WorkExt, //
    },
};

use crate::{
    limits::Charge,
    path::Path, //
};

/// The reference of a path's operations: when it is dropped, they are all gone.
pub(crate) struct OpsRef {
    end: Arc<OpsReleased>,
    queue: Queue,
    /// The share of the chunks. The operations have the pages of these.
    _memory: Charge,
}

impl OpsRef {
    /// Makes a reference of `path`. `memory` counts its chunks. May sleep.
    pub(crate) fn new(path: &Arc<Path>, memory: Charge) -> Result<Arc<Self>> {
        let end = Arc::pin_init(
            pin_init!(OpsReleased {
                path <- new_spinlock_irq!(Some(path.clone()), "rtrs_srv_ops"),
                work <- new_work!("rtrs_srv_ops_end"),
            }),
            GFP_KERNEL,
        )?;
        let queue = path.session.ctx.queue.clone();
        let ops_ref = Self {
            end,
            queue,
            _memory: memory,
        };
        Ok(Arc::new(ops_ref, GFP_KERNEL)?)
    }
}

impl Drop for OpsRef {
    fn drop(&mut self) {
        self.end.work.enqueue(&self.queue, &self.end);
    }
}

/// Tells the path, from a task, that its operations are gone. It has its own reference to the path,
/// so that the last operation, which may be dropped in an interrupt, never frees the path.
#[pin_data]
struct OpsReleased {
    #[pin]
    path: SpinLockIrq<Option<Arc<Path>>>,
    #[pin]
    work: Work<OpsReleased>,
}

impl_has_work! {
    impl HasWork<Self> for OpsReleased { self.work }
}

impl_work_item! {
    impl WorkItem<0> for OpsReleased { Self::tell }
}

impl OpsReleased {
    /// Tells the path. Work item.
    fn tell(&self) {
        let path = self.path.lock().take();
        if let Some(path) = path {
            path.ops_ended();
        }
    }
}
