// SPDX-License-Identifier: GPL-2.0

//! How long the server keeps a session without a path.

use proptest::prelude::*;
use rtrs_core::proto::PathWait;
use rtrs_server_logic::logic::linger::{Linger, GRACE_SECS};

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
