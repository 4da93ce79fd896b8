// SPDX-License-Identifier: GPL-2.0

//! Clocks, short sleeps and random numbers.
//!
//! C headers: [`include/linux/jiffies.h`](srctree/include/linux/jiffies.h),
//! [`include/linux/ktime.h`](srctree/include/linux/ktime.h)

use kernel::{
    ffi,
    prelude::*,
    time::Msecs, //
};

use crate::raw;

pub use kernel::time::{
    msecs_to_jiffies,
    Jiffies, //
};

/// Nanoseconds of the monotonic clock, which stands still during suspend.
///
/// Any context but NMI.
#[inline]
pub fn now_ns() -> u64 {
    // SAFETY: The function may be called in any context but NMI, as this one.
    let ns = unsafe { raw::ktime_get() };
    // CAST: The monotonic clock starts at zero and is never negative.
    ns as u64
}

/// Sleeps for at least `ms` milliseconds, or until the task is being killed:
/// [`ERESTARTSYS`].
pub fn sleep_ms_killable(ms: Msecs) -> Result {
    // One tick more, as the current one is already running.
    let mut left = ffi::c_long::try_from(msecs_to_jiffies(ms).saturating_add(1))
        .unwrap_or(ffi::c_long::MAX - 1);
    while left > 0 {
        // SAFETY: The only requirement is that the caller may sleep.
        left = unsafe { raw::schedule_timeout_killable(left) };
        if left > 0 && fatal_signal_pending() {
            return Err(ERESTARTSYS);
        }
    }
    Ok(())
}

/// Whether the current task is being killed.
fn fatal_signal_pending() -> bool {
    // SAFETY: The function only reads the state of the current task.
    unsafe { raw::rtrs_helper_fatal_signal_pending() }
}

/// A random number, good enough for keys. Any context but NMI.
pub fn random_u32() -> u32 {
    // SAFETY: The function may be called in any context but NMI, as this one.
    unsafe { raw::get_random_u32() }
}

/// As [`random_u32`], with 64 bits.
pub fn random_u64() -> u64 {
    // SAFETY: The function may be called in any context but NMI, as this one.
    unsafe { raw::get_random_u64() }
}
