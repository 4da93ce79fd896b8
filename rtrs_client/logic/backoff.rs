// SPDX-License-Identifier: GPL-2.0

//! The wait before an attempt to reconnect.
//!
//! The first attempts after a loss come quickly, since most losses are short: about a second apart.
//! Then the wait grows slowly, to about a quarter of the time that the path has been down, until
//! the session's reconnect delay is reached. Each wait is a random one of half to one and a half of
//! that, so that thousands of paths that lost one server do not all come back at the same time. For
//! the same reason a path waits a moment when a device or an address comes back.

/// Milliseconds of the first wait, on average.
const FIRST_MS: u32 = 1000;

/// Attempts after which the wait grows by [`FIRST_MS`].
const STEP: u32 = 4;

/// Longest wait, in milliseconds, after an event that makes an attempt worthwhile.
const SOON_MS: u64 = 500;

/// Returns the milliseconds to wait before attempt number `attempt`, which counts from 1.
///
/// `reconnect_delay_sec` is the longest wait on average, at least one second. `random` is a random
/// number, the only source of the random part.
pub fn delay_ms(attempt: u32, reconnect_delay_sec: u32, random: u32) -> u64 {
    let longest = u64::from(reconnect_delay_sec.max(1)).saturating_mul(1000);
    let steps = u64::from(attempt.saturating_sub(1) / STEP);
    let wait = u64::from(FIRST_MS)
        .saturating_mul(steps.saturating_add(1))
        .min(longest);

    (wait / 2).saturating_add(scale(wait, random))
}

/// Returns the milliseconds to wait after an event that all paths may have waited for.
pub fn soon_ms(random: u32) -> u64 {
    scale(SOON_MS, random)
}

/// Returns a number below `range`, in proportion to `random`.
fn scale(range: u64, random: u32) -> u64 {
    // No overflow: a wait is below 2^42 ms, and the result is below `range`.
    range
        .saturating_mul(u64::from(random) >> 12)
        .wrapping_shr(20)
}
