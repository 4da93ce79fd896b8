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
        let fence = Fence::new(begun, ms, 7);
        let over = fence.map(|f| f.is_over(begun + after));
        prop_assert_eq!(over, Some(after >= u64::from(ms) * MS));
    }

    /// Whatever fails, and whatever path tries to come up, at any time: none is up before all fences
    /// are over of requests that failed.
    #[test]
    fn no_path_is_up_before_the_last_fence(
        steps in proptest::collection::vec((0u8..5, 0..3000 * MS, 1u32..2000), 1..60),
    ) {
        let (mut now, mut ordered, mut last) = (0, 0, 0);
        let (mut fences, mut coming) = (FailedFences::default(), false);
        for (step, after, ms) in steps {
            now += after;
            let fence = Fence::new(now, ms, 1).unwrap();
            let until = now + u64::from(ms) * MS;
            match (step, coming) {
                (0, _) => {
                    prop_assert_eq!(fences.fail_behind(&fence), !coming);
                    if !coming {
                        last = last.max(until);
                    }
                }
                (1, _) => {
                    fences.note_ordered(&fence);
                    ordered = ordered.max(until);
                }
                (2, _) => {
                    prop_assert_eq!(fences.fail_ordered(), !coming);
                    if !coming {
                        last = last.max(ordered);
                    }
                }
                (3, false) => {
                    coming = fences.begin_coming_up(now);
                    prop_assert_eq!(coming, now >= last);
                }
                (4, true) => {
                    fences.end_coming_up();
                    coming = false;
                }
                _ => {}
            }
        }
    }
}
