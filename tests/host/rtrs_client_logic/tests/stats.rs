// SPDX-License-Identifier: GPL-2.0

//! Waiting times, averages and tables.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use proptest::prelude::*;
use rtrs_client_logic::logic::{
    backoff::{delay_ms, soon_ms},
    ewma::LatencyAvg,
    hist::*,
};

#[test]
fn waits_grow_to_the_limit() {
    let base: Vec<_> = (1..=10).map(|attempt| delay_ms(attempt, 30, 0)).collect();
    assert_eq!(
        base,
        [500, 500, 500, 500, 1000, 1000, 1000, 1000, 1500, 1500]
    );
    assert_eq!(delay_ms(1, 30, u32::MAX), 1499);
    assert_eq!(delay_ms(u32::MAX, 30, 0), 15_000);
    assert_eq!(delay_ms(0, 30, 0), 500);
    assert_eq!(delay_ms(100, 0, 0), 500, "never less than half a second");
    assert_eq!(delay_ms(u32::MAX, 30, u32::MAX), 44_999);
    // A thousand paths to one lost server come back spread over seconds.
    let spread: std::collections::HashSet<_> = (0..1000u32)
        .map(|i| delay_ms(200, 30, i.wrapping_mul(0x9e37_79b9)) / 1000)
        .collect();
    assert!(spread.len() >= 29, "{spread:?}");
    assert_eq!(
        (soon_ms(0), soon_ms(u32::MAX / 2), soon_ms(u32::MAX)),
        (0, 249, 499)
    );
}

/// The rows of a latency in both tables.
fn ms_row(ns: u64) -> usize {
    ms_row_of(latency_row(ns))
}

fn us_row(ns: u64) -> usize {
    us_row_of(latency_row(ns))
}

/// The row of `value` in a table of `rows`: `0` for less than 2^0, `i` for less than 2^i.
fn row(value: u64, rows: usize) -> usize {
    ((u64::BITS - value.leading_zeros()) as usize).min(rows - 1)
}

proptest! {
    #[test]
    fn any_wait(attempt: u32, delay: u32, random: u32) {
        let wait = delay_ms(attempt, delay, random);
        let longest = u64::from(delay.max(1)) * 1000;
        prop_assert!(wait >= 500);
        prop_assert!(wait < longest + longest / 2);
        prop_assert!(delay_ms(attempt, delay, 0) <= wait);
    }

    #[test]
    fn average_stays_in_range(
        samples in proptest::collection::vec((1u64..1 << 42, 0u64..1 << 63), 1..100),
    ) {
        let avg = LatencyAvg::new();
        prop_assert_eq!(avg.get(), 0);
        for &(sample, at) in &samples {
            avg.add(sample, at);
            prop_assert!(avg.get() != 0);
        }
        let (min, max) = samples.iter().fold((u64::MAX, 0), |(min, max), &(s, _)| (min.min(s), max.max(s)));
        prop_assert!(avg.get() + 1 >= min && avg.get() <= max + 1);
        avg.reset();
        prop_assert_eq!(avg.get(), 0);
    }

    #[test]
    fn average_converges(first in 1u64..1 << 42, then in 1000u64..1 << 40) {
        let avg = LatencyAvg::new();
        avg.add(first, 0);
        prop_assert_eq!(avg.get(), first);
        for at in 0..400 {
            avg.add(then, at);
        }
        prop_assert!(avg.get().abs_diff(then) <= then / 50 + 1);
    }

    #[test]
    fn one_counter_stands_for_both_tables(any: u64, shift in 0u32..64) {
        // Values of all sizes: most random numbers are very large.
        let ns = any >> shift;
        prop_assert!(latency_row(ns) < LATENCY_ROWS);
        prop_assert_eq!(ms_row(ns), row(ns / 1_000_000, MS_ROWS));
        prop_assert_eq!(us_row(ns), row(ns / 1000, US_ROWS));
    }

    #[test]
    fn rows_are_in_range(ns: u64) {
        prop_assert!(sg_bin(ns as u32) < SG_BINS);
    }
}

#[test]
fn a_row_begins_at_its_power_of_two() {
    for power in 0..64 {
        for unit in [1u64, 1000, 1_000_000] {
            let Some(limit) = unit.checked_mul(1 << power) else {
                continue;
            };
            for ns in [limit - 1, limit, limit + 1] {
                assert!(latency_row(ns) < LATENCY_ROWS, "{ns}");
                assert_eq!(us_row(ns), row(ns / 1000, US_ROWS), "{ns}");
                assert_eq!(ms_row(ns), row(ns / 1_000_000, MS_ROWS), "{ns}");
            }
        }
    }
    assert_eq!(latency_row(u64::MAX), LATENCY_ROWS - 1);
}

#[test]
fn averages_do_not_overflow() {
    let avg = LatencyAvg::new();
    for at in 0..1000 {
        avg.add(u64::MAX, at * u64::from(u32::MAX));
    }
    assert_eq!(avg.get(), 1 << 42);
    avg.reset();
    avg.add(0, 0);
    assert_eq!(avg.get(), 1);
}

/// A path that gets no requests, because it was slow, is measured by a heartbeat now and then.
#[test]
fn what_was_is_forgotten() {
    const MS: u64 = 1_000_000;
    let slow_then = |gap: u64| {
        let avg = LatencyAvg::new();
        for ms in 0..100 {
            avg.add(100 * MS, ms * MS);
        }
        let samples = (1..).take_while(|i| {
            avg.add(MS / 10, 100 * MS + i * gap);
            avg.get() > MS
        });
        samples.count() + 1
    };
    assert_eq!(slow_then(5000 * MS), 3, "heartbeats as by default");
    assert_eq!(slow_then(1000 * MS), 11);
    assert_eq!(slow_then(MS), 36, "requests, none of which says much");
}

#[test]
fn rows() {
    const MS: u64 = 1_000_000;
    for (ns, want) in [
        (0, 0),
        (MS - 1, 0),
        (MS, 1),
        (2 * MS - 1, 1),
        (2 * MS, 2),
        (3 * MS, 2),
        (4 * MS, 3),
        (65536 * MS - 1, 16),
        (65536 * MS, 17),
        (u64::MAX, 17),
    ] {
        assert_eq!(ms_row(ns), want, "{ns}");
    }
    assert_eq!((us_row(999), us_row(1000), us_row(2000)), (0, 1, 2));
    assert_eq!(us_row(8_388_607_999), 23);
    assert_eq!(us_row(8_388_608_000), 24);
}

#[test]
fn tables() {
    let row = |n| ReadWrite {
        read: n,
        write: 100 + n,
    };
    let rows = core::array::from_fn(|i| row(i as u64));
    let text = MsTable {
        rows: &rows,
        max_ns: ReadWrite {
            read: 1_999_999,
            write: 70_000_000_000,
        },
    }
    .to_string();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 19);
    assert_eq!(lines[0], "1 ms: 0 100");
    assert_eq!(lines[1], "2 ms: 1 101");
    assert_eq!(lines[16], "65536 ms: 16 116");
    assert_eq!(lines[17], ">= 65536 ms: 17 117");
    assert_eq!(lines[18], "maximum ms: 1 70000");
    assert!(text.ends_with('\n'));

    let rows = core::array::from_fn(|i| row(i as u64));
    let text = UsTable {
        rows: &rows,
        max_ns: row(123_456),
    }
    .to_string();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 26);
    assert_eq!(lines[0], "1 us: 0 100");
    assert_eq!(lines[23], "8388608 us: 23 123");
    assert_eq!(lines[24], ">= 8388608 us: 24 124");
    assert_eq!(lines[25], "maximum us: 123 123");
}

#[test]
fn scatter_lists() {
    for (entries, bin) in [
        (0, 0),
        (1, 1),
        (2, 2),
        (3, 3),
        (4, 3),
        (5, 4),
        (8, 4),
        (9, 5),
        (64, 7),
        (65, 8),
        (128, 8),
        (129, 9),
        (u32::MAX, 9),
    ] {
        assert_eq!(sg_bin(entries), bin, "{entries}");
    }
    let labels: Vec<_> = (0..=SG_BINS).map(|i| SgBinLabel(i).to_string()).collect();
    assert_eq!(
        labels,
        ["0", "1", "2", "3-4", "5-8", "9-16", "17-32", "33-64", "65-128", ">128", ""]
    );
}
