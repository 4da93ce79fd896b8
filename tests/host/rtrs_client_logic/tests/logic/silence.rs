// SPDX-License-Identifier: GPL-2.0

//! Which of several paths is lost, and when.

use crate::cases::silence::{after, SILENT};
use proptest::prelude::*;
use rtrs_client_logic::logic::silence::*;

proptest! {
    // Only the last intervals decide, and no path is in both states.
    #[test]
    fn the_end_decides(seen in proptest::collection::vec(
        (any::<bool>(), any::<bool>(), any::<bool>())
            .prop_map(|(heard, waits, excused)| Seen { heard, waits, excused }), 0..20,
    )) {
        let path = after(&seen);
        let last = |n: u32, f: fn(&Seen) -> bool| {
            seen.len() >= n as usize && seen.iter().rev().take(n as usize).all(f)
        };
        prop_assert_eq!(path.is_lost(true), last(LOST, |s| *s == SILENT));
        prop_assert_eq!(path.is_silent(), last(1, |s| *s == SILENT));
        prop_assert_eq!(path.is_heard(), last(STEADY, |s| s.heard));
        prop_assert!(!(path.is_silent() && path.is_heard()));
    }
}
