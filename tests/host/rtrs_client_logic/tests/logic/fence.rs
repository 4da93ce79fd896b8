// SPDX-License-Identifier: GPL-2.0

//! Requests that are held back when a path ends.

use proptest::prelude::*;
use rtrs_client_logic::logic::fence::*;

const MS: u64 = 1_000_000;

proptest! {
    #[test]
    fn for_its_time_and_no_longer(
        begun in 0..u64::MAX / 2, ms in 1u32..60_000, after in 0..120_000 * MS,
    ) {
        let fence = Fence::new(begun, ms, false, 7);
        let over = fence.map(|f| f.is_over(begun + after));
        prop_assert_eq!(over, Some(after >= u64::from(ms) * MS));
    }

    /// Whatever fails, and whatever path tries to come up, at any time: none to a server that does
    /// not order copies is up before all fences are over of requests that failed.
    #[test]
    fn no_path_is_up_before_the_last_fence(
        steps in proptest::collection::vec((0u8..4, 0..3000 * MS, 1u32..2000), 1..60),
    ) {
        let (mut now, mut last) = (0, 0);
        let (mut fences, mut coming) = (FailedFences::default(), None);
        for (step, after, ms) in steps {
            now += after;
            match (step, coming) {
                (0, _) => {
                    let fence = Fence::new(now, ms, false, 1).unwrap();
                    if fences.fail_behind(&fence) {
                        last = last.max(now + u64::from(ms) * MS);
                        prop_assert_ne!(coming, Some(false));
                        prop_assert_ne!(coming, Some(true));
                    }
                }
                (1 | 2, None) => {
                    let orders = step == 1;
                    if fences.begin_coming_up(now, orders) {
                        coming = Some(orders);
                        prop_assert!(orders || now >= last);
                    }
                }
                (3, Some(_)) => {
                    fences.end_coming_up();
                    coming = None;
                }
                _ => {}
            }
        }
    }
}
