// SPDX-License-Identifier: GPL-2.0

//! Rate-limited log messages, so that a peer or a failing device cannot flood the log.
//!
//! If many peers can cause the same message, a single peer must not suppress the messages of the
//! others: each place has a limit for each of a number of sources, and a larger limit for all of
//! them.
//!
//! C header: [`include/linux/ratelimit.h`](srctree/include/linux/ratelimit.h)

use core::num::NonZeroU32;
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

/// Number of messages in five seconds, as with the `_ratelimited` macros of C.
const BURST: u8 = 10;

/// Number of sources of messages that are distinguished.
pub const SOURCES: NonZeroU32 = NonZeroU32::MIN.saturating_add(31);

/// The limit for all sources, as a multiple of the limit for one.
const SOURCES_AT_A_TIME: u8 = 8;

/// The state of one place in the code that prints: ten messages in five
/// seconds.
///
/// # Invariants
///
/// `state` is initialised, and pinned, if `phase` is `READY`. It is written by
/// the one thread that moves `phase` from `UNUSED` to `STARTING`.
pub struct RateLimit {
    phase: Atomic<u32>,
    burst: u8,
    state: Opaque<raw::ratelimit_state>,
}

// SAFETY: `state` is initialised by one thread, and used only after that; from then on it is
// synchronised by a lock of its own.
unsafe impl Sync for RateLimit {}

impl RateLimit {
    /// Makes the value of a static variable.
    pub const fn new() -> Self {
        Self::with_burst(BURST)
    }

    const fn with_burst(burst: u8) -> Self {
        // INVARIANT: `phase` is not `READY`.
        Self {
            phase: Atomic::new(UNUSED),
            burst,
            state: Opaque::uninit(),
        }
    }

    /// Whether a message may be printed now. The note about suppressed messages contains `place`.
    ///
    /// Any context but NMI.
    pub fn allow(&'static self, place: &'static CStr) -> bool {
        let state = self.state.get();
        if self.phase.load(Acquire) != READY {
            if self.phase.cmpxchg(UNUSED, STARTING, Relaxed).is_err() {
                // Another thread is printing the first message, which is enough.
                return false;
            }
            // SAFETY: By the type invariant this thread is the only one that
            // uses `state` now; a static does not move.
            unsafe { raw::rtrs_helper_ratelimit_init(state, self.burst.into()) };
            // INVARIANT: `state` is initialised, which is visible to threads that see `READY`.
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

/// The state of one place in the code that prints messages of several sources: ten messages in five
/// seconds for each, eighty for all together.
pub struct RateLimits {
    sources: [RateLimit; SOURCES.get() as usize],
    all: RateLimit,
}

impl RateLimits {
    /// Makes the value of a static variable.
    pub const fn new() -> Self {
        Self {
            sources: [const { RateLimit::new() }; SOURCES.get() as usize],
            all: RateLimit::with_burst(BURST * SOURCES_AT_A_TIME),
        }
    }

    /// Whether a message caused by `source`, a number below [`SOURCES`], may be printed now. Any
    /// context but NMI.
    pub fn allow(&'static self, source: usize, place: &'static CStr) -> bool {
        // The common limit is charged only by sources that are below their own limit.
        self.sources.get(source).is_none_or(|own| own.allow(place)) && self.all.allow(place)
    }
}

impl Default for RateLimits {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether the place of this macro may print now: `true` at most ten times in five seconds. With
/// the number of a source, the limit applies to each source.
#[macro_export]
macro_rules! ratelimit {
    ($source:expr) => {{
        static LIMITS: $crate::ratelimit::RateLimits = $crate::ratelimit::RateLimits::new();
        LIMITS.allow($source, ::kernel::c_str!(::core::module_path!()))
    }};
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

/// [`pr_warn!`](kernel::pr_warn) for a message that a source has caused. The first argument is the
/// number of the source; see [`RateLimits`].
#[macro_export]
macro_rules! pr_warn_caused_by {
    ($source:expr, $($arg:tt)*) => {
        if $crate::ratelimit!($source) {
            ::kernel::pr_warn!($($arg)*);
        }
    };
}

/// As [`pr_warn_caused_by!`], with [`pr_info!`](kernel::pr_info).
#[macro_export]
macro_rules! pr_info_caused_by {
    ($source:expr, $($arg:tt)*) => {
        if $crate::ratelimit!($source) {
            ::kernel::pr_info!($($arg)*);
        }
    };
}

pub use {
    pr_err_ratelimited,
    pr_info_caused_by,
    pr_info_ratelimited,
    pr_warn_caused_by,
    pr_warn_ratelimited, //
};
