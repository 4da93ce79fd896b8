// SPDX-License-Identifier: GPL-2.0

//! A lock that tasks may wait for as long as a device or a server takes.
//!
//! The kernel reports a task as hung that sleeps uninterruptibly for two minutes, as tasks do that
//! wait for the kernel crate's mutex. A task that waits for this lock sleeps interruptibly. Only
//! tasks of work queues take it, and these never get a signal.

use kernel::{
    new_condvar, new_mutex,
    prelude::*,
    sync::{
        CondVar,
        Mutex, //
    },
};

/// Held by one task at a time.
#[pin_data]
pub(super) struct LongLock {
    /// A task holds it. The mutex itself is held for a few instructions only.
    #[pin]
    taken: Mutex<bool>,
    /// It is free.
    #[pin]
    free: CondVar,
}

impl LongLock {
    /// A lock that is free.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            taken <- new_mutex!(false, "rtrs_long_taken"),
            free <- new_condvar!("rtrs_long_free"),
        })
    }

    /// Waits until it is free, and takes it. Task of a work queue; sleeps.
    pub(super) fn lock(&self) -> LongGuard<'_> {
        let mut taken = self.taken.lock();

        while *taken {
            // Whatever has woken the task: it looks again.
            let _ = self.free.wait_interruptible(&mut taken);
        }
        *taken = true;
        LongGuard(self)
    }
}

/// The lock is held.
#[must_use = "the lock is free again as soon as this is dropped"]
pub(crate) struct LongGuard<'a>(&'a LongLock);

impl Drop for LongGuard<'_> {
    fn drop(&mut self) {
        *self.0.taken.lock() = false;
        // The task that waits longest. If another task is faster, that one wakes it later.
        self.0.free.notify_one();
    }
}
