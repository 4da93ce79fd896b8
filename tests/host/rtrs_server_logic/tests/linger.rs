// SPDX-License-Identifier: GPL-2.0

//! How long the server keeps a session without a path.

#![cfg(not(loom))]

use proptest::prelude::*;
use rtrs_core::proto::PathWait;
use rtrs_server_logic::logic::linger::{Linger, GRACE_SECS};

const LINGER: Linger = Linger {
    secs: 30,
    max_secs: 3600,
};

#[test]
fn as_long_as_the_client_waits() {
    assert_eq!(LINGER.of(PathWait::Unsaid), 30);
    assert_eq!(LINGER.of(PathWait::from_secs(0)), 30);
    assert_eq!(LINGER.of(PathWait::from_secs(1)), 1 + GRACE_SECS);
    assert_eq!(LINGER.of(PathWait::from_secs(600)), 600 + GRACE_SECS);
    assert_eq!(LINGER.of(PathWait::from_secs(86_400)), 3600);
    assert_eq!(LINGER.of(PathWait::Forever), 3600);
}

proptest! {
    #[test]
    fn the_administrator_has_the_last_word(secs in 0u32..=3600, max_secs in 0u32..=86_400, wait: u32) {
        let kept = Linger { secs, max_secs }.of(PathWait::from_secs(wait));

        prop_assert_eq!(kept == 0, secs == 0);
        prop_assert!(kept >= secs && kept <= secs.max(max_secs));
        if secs > 0 && max_secs > 0 {
            let wish = wait.saturating_add(GRACE_SECS);
            prop_assert!(wait == 0 || kept >= wish.min(max_secs));
        }
    }
}
