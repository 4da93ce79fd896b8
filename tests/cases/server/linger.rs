// SPDX-License-Identifier: GPL-2.0

//! How long the server keeps a session without a path.

use rtrs_core::proto::PathWait;
use rtrs_server::logic::linger::{is_early, Linger, GRACE_SECS};

const LINGER: Linger = Linger {
    secs: 30,
    max_secs: 3600,
};

fn as_long_as_the_client_waits() {
    assert_eq!(LINGER.of(PathWait::Unsaid), 30);
    assert_eq!(LINGER.of(PathWait::from_secs(0)), 30);
    assert_eq!(LINGER.of(PathWait::from_secs(1)), 1 + GRACE_SECS);
    assert_eq!(LINGER.of(PathWait::from_secs(600)), 600 + GRACE_SECS);
    assert_eq!(LINGER.of(PathWait::from_secs(86_400)), 3600);
    assert_eq!(LINGER.of(PathWait::Forever), 3600);
}

fn a_timer_of_an_earlier_outage_is_known() {
    const SEC: u64 = 1_000_000_000;
    assert!(is_early(30, 0));
    assert!(is_early(30, 29 * SEC - 1));
    // Its own timer, which may be a tick early.
    assert!(!is_early(30, 30 * SEC - 10_000_000));
    assert!(!is_early(30, u64::MAX));
    // No time, and next to none.
    assert!(!is_early(0, 0));
    assert!(!is_early(1, 0));
    assert!(is_early(u32::MAX, 86_400 * SEC));
}

cases!(
    rtrs_server_linger:
    as_long_as_the_client_waits,
    a_timer_of_an_earlier_outage_is_known,
);
