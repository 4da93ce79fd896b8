// SPDX-License-Identifier: GPL-2.0

//! Log messages that a peer or a failing device cannot flood the log with.
//!
//! C header: [`include/linux/ratelimit.h`](srctree/include/linux/ratelimit.h)

use kernel::{
    prelude::*,
    sync::atomic::{
        Acquire,
        Atomic,
        Relaxed,
        Release, //
    },
    types::Opaque, //
};

use crate::raw;

const UNUSED: u32 = 0;
const STARTING: u32 = 1;
const READY: u32 = 2;

/// The state of one place in the code that prints: ten messages in five
/// seconds, like the `_ratelimited` macros of C.
///
/// # Invariants
///
/// `state` is initialised, and pinned, if `phase` is `READY`. It is written by
/// the one thread that moves `phase` from `UNUSED` to `STARTING`.
pub struct RateLimit {
    phase: Atomic<u32>,
    state: Opaque<raw::ratelimit_state>,
}

// SAFETY: `state` is initialised by one thread, and used when that is done;
// from then on it is synchronised by a lock of its own.
unsafe impl Sync for RateLimit {}

impl RateLimit {
    /// For a static.
    pub const fn new() -> Self {
        // INVARIANT: not ready.
        Self {
            phase: Atomic::new(UNUSED),
            state: Opaque::uninit(),
        }
    }

    /// Whether a message may be printed now. `place` says where, in the note
    /// about what was suppressed.
    ///
    /// Any context but NMI.
    pub fn allow(&'static self, place: &'static CStr) -> bool {
        let state = self.state.get();
        if self.phase.load(Acquire) != READY {
            if self.phase.cmpxchg(UNUSED, STARTING, Relaxed).is_err() {
                // Somebody prints the first message right now: that is enough.
                return false;
            }
            // SAFETY: by the type invariant this thread is the only one that
            // uses `state` now; a static does not move.
            unsafe { raw::rtrs_helper_ratelimit_init(state) };
            // INVARIANT: initialised, visible to who sees `READY`.
            self.phase.store(READY, Release);
        }
        // SAFETY: `phase` is `READY`, seen with acquire semantics or written by
        // this thread: `state` is initialised. `place` is a C string.
        unsafe { raw::___ratelimit(state, place.as_char_ptr()) != 0 }
    }
}

impl Default for RateLimit {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether the place where this is written may print now: `true` at most ten
/// times in five seconds.
#[macro_export]
macro_rules! ratelimit {
    () => {{
        static LIMIT: $crate::ratelimit::RateLimit = $crate::ratelimit::RateLimit::new();
        LIMIT.allow(::kernel::c_str!(::core::module_path!()))
    }};
}

/// [`pr_err!`](kernel::pr_err), at most ten times in five seconds.
#[macro_export]
macro_rules! pr_err_ratelimited {
    ($($arg:tt)*) => {
        if $crate::ratelimit!() {
            ::kernel::pr_err!($($arg)*);
        }
    };
}

/// [`pr_warn!`](kernel::pr_warn), at most ten times in five seconds.
#[macro_export]
macro_rules! pr_warn_ratelimited {
    ($($arg:tt)*) => {
        if $crate::ratelimit!() {
            ::kernel::pr_warn!($($arg)*);
        }
    };
}

/// [`pr_info!`](kernel::pr_info), at most ten times in five seconds.
#[macro_export]
macro_rules! pr_info_ratelimited {
    ($($arg:tt)*) => {
        if $crate::ratelimit!() {
            ::kernel::pr_info!($($arg)*);
        }
    };
}

pub use {
    pr_err_ratelimited,
    pr_info_ratelimited,
    pr_warn_ratelimited, //
};
