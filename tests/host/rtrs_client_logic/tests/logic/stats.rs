// SPDX-License-Identifier: GPL-2.0

//! Waiting times, averages and tables.

use crate::cases::stats::{ms_row, row, us_row};
use proptest::prelude::*;
use rtrs_client_logic::logic::{backoff::delay_ms, ewma::LatencyAvg, hist::*};

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
fn bins_have_labels() {
    let labels: Vec<_> = (0..=SG_BINS).map(|i| SgBinLabel(i).to_string()).collect();
    assert_eq!(
        labels,
        ["0", "1", "2", "3-4", "5-8", "9-16", "17-32", "33-64", "65-128", ">128", ""]
    );
}
