// SPDX-License-Identifier: GPL-2.0

//! Sections in which no softirq runs on the processor.
//!
//! C header: [`include/linux/bottom_half.h`](srctree/include/linux/bottom_half.h)

use core::marker::PhantomData;

use crate::raw;

/// While it exists, no softirq runs on this processor, and the task stays on it. Tasks and softirqs
/// only, with interrupts on; must not be held by a task that sleeps.
pub(crate) struct Disabled {
    // Neither `Send` nor `Sync`.
    _here: PhantomData<*const ()>,
}

impl Disabled {
    /// Disables softirqs. Sections may be nested.
    pub(crate) fn new() -> Self {
        // SAFETY: They are enabled again when the result is dropped, by the same task.
        unsafe { raw::rtrs_helper_local_bh_disable() };
        Self { _here: PhantomData }
    }
}

impl Drop for Disabled {
    fn drop(&mut self) {
        // SAFETY: `new()` has disabled them, on this task.
        unsafe { raw::rtrs_helper_local_bh_enable() };
    }
}
