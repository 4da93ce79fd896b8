// SPDX-License-Identifier: GPL-2.0

//! Paths that are lost soon after they came up.

use rtrs_client::logic::trial::{Record, FIRST_SECS, FREE, GOOD_SECS, LONGEST_SECS};

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

fn some_are_free_and_then_trials_double() {
    let (mut record, mut now) = (Record::new(), 1);
    let trials: [u64; 16] = core::array::from_fn(|_| round(&mut record, &mut now, 1));
    let free = FREE as usize + 1;

    assert!(trials[..free].iter().all(|&secs| secs == 0));
    assert_eq!(trials[free..free + 4], [FIRST_SECS, 16, 32, 64]);
    assert_eq!(trials[15], LONGEST_SECS);
}

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

cases!(
    rtrs_client_trial:
    some_are_free_and_then_trials_double,
    a_good_time_ends_it,
    losses_during_a_trial_count,
);
