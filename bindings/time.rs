// SPDX-License-Identifier: GPL-2.0

//! Clocks and random numbers.
//!
//! C headers: [`include/linux/jiffies.h`](srctree/include/linux/jiffies.h),
//! [`include/linux/ktime.h`](srctree/include/linux/ktime.h)

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
