// SPDX-License-Identifier: GPL-2.0

//! Paths that are lost soon after they came up.

use proptest::prelude::*;
use rtrs_client_logic::logic::trial::{Record, LONGEST_SECS};

const SEC: u64 = 1_000_000_000;

proptest! {
    #[test]
    fn no_trial_is_longer(times in proptest::collection::vec((any::<u64>(), any::<u64>()), 0..2000)) {
        let mut record = Record::new();
        for (up, lost) in times {
            let end = record.came_up(up);
            prop_assert!(end == 0 || end >= up && end - up <= LONGEST_SECS * SEC);
            record.lost(lost);
        }
    }
}
