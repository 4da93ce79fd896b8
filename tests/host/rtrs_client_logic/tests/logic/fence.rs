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
        let holds = fence.map(|f| f.holds(begun + after, false));
        prop_assert_eq!(holds, Some(after < u64::from(ms) * MS));
    }
}
