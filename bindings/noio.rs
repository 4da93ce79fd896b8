// SPDX-License-Identifier: GPL-2.0

//! Allocating on the storage path. Allocations are `GFP_KERNEL` everywhere; a scope around them
//! says that they must not wait for IO.
//!
//! C header: [`include/linux/sched/mm.h`](srctree/include/linux/sched/mm.h)

use crate::raw;

/// Runs `f`, with block IO forbidden to memory allocations: code that a block device needs for
/// progress must not wait for that device.
///
/// This applies to all allocations of the calling task, with any flags and in any callee. May be
/// nested. Any context.
pub fn scope<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: The function works in any context. It changes a flag of the current task, which is
    // restored below: `f` does not unwind, as kernel panics abort. A failed assertion of KUnit ends
    // the thread, and its flags with it.
    let flags = unsafe { raw::rtrs_helper_noio_save() };
    let result = f();
    // SAFETY: `flags` was returned by the save in the same task, and nested scopes have ended
    // inside `f`.
    unsafe { raw::rtrs_helper_noio_restore(flags) };
    result
}
