// SPDX-License-Identifier: GPL-2.0

//! Rates.

use proptest::prelude::*;
use rtrs_server_logic::logic::quota::{Rate, BURST_SECS};

const SEC: u64 = 1_000_000_000;

proptest! {
    #[test]
    fn rates_hold(per_sec in 1u32..2000, gaps in proptest::collection::vec(0u64..SEC, 1..500)) {
        let rate = Rate::new();
        let mut now = 7 * SEC;
        let begin = now;
        let mut count = 0u64;
        for gap in gaps {
            now += gap;
            count += u64::from(rate.allows(per_sec, now));
            let most = (now - begin) / (SEC / u64::from(per_sec)) + BURST_SECS * u64::from(per_sec);
            // A step is rounded to whole nanoseconds.
            prop_assert!(count <= most + most / 1000 + 1, "{count} {most}");
        }
    }
}
