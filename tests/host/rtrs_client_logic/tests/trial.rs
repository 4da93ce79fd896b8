// SPDX-License-Identifier: GPL-2.0

//! Paths that are lost soon after they came up.

use proptest::prelude::*;
use rtrs_client_logic::logic::trial::{Record, FIRST_SECS, FREE, GOOD_SECS, LONGEST_SECS};

const SEC: u64 = 1_000_000_000;

/// The path comes up at `now`, and is lost `after` seconds after the end of its trial, which
/// becomes the new `now`. Returns the length of the trial in seconds.
fn round(record: &mut Record, now: &mut u64, after: u64) -> u64 {
    let end = record.came_up(*now).max(*now);
    let trial = (end - *now) / SEC;
    *now = end + after * SEC;
    record.lost(*now);
    trial
}

#[test]
fn some_are_free_and_then_trials_double() {
    let (mut record, mut now) = (Record::new(), 1);
    let trials: Vec<u64> = (0..16).map(|_| round(&mut record, &mut now, 1)).collect();
    let free = FREE as usize + 1;

    assert!(trials[..free].iter().all(|&secs| secs == 0));
    assert_eq!(trials[free..free + 4], [FIRST_SECS, 16, 32, 64]);
    assert_eq!(trials[15], LONGEST_SECS);
}

#[test]
fn a_good_time_ends_it() {
    let (mut record, mut now) = (Record::new(), 1);
    for _ in 0..10 {
        round(&mut record, &mut now, GOOD_SECS - 1);
    }
    assert_eq!(record.losses(), 10);
    assert_ne!(round(&mut record, &mut now, GOOD_SECS), 0);
    assert_eq!(record.losses(), 1);
    assert_eq!(record.came_up(now), 0);
}

#[test]
fn losses_during_a_trial_count() {
    let mut record = Record::new();
    for i in 1..=FREE + 1 {
        record.came_up(1);
        record.lost(2);
        assert_eq!(record.losses(), i);
    }
    let end = record.came_up(10 * SEC);
    assert_eq!(end, (10 + FIRST_SECS) * SEC);
    record.lost(11 * SEC);
    assert_eq!(record.came_up(20 * SEC), (20 + 2 * FIRST_SECS) * SEC);
}

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
