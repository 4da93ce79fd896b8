// SPDX-License-Identifier: GPL-2.0

//! Waiting times, averages and rows of tables.

use rtrs_client::logic::{
    backoff::{delay_ms, soon_ms},
    ewma::LatencyAvg,
    hist::*,
};

fn waits_grow_to_the_limit() {
    let base = [500, 500, 500, 500, 1000, 1000, 1000, 1000, 1500, 1500];
    assert!((1..=10).map(|attempt| delay_ms(attempt, 30, 0)).eq(base));
    assert_eq!(delay_ms(1, 30, u32::MAX), 1499);
    assert_eq!(delay_ms(u32::MAX, 30, 0), 15_000);
    assert_eq!(delay_ms(0, 30, 0), 500);
    assert_eq!(delay_ms(100, 0, 0), 500, "never less than half a second");
    assert_eq!(delay_ms(u32::MAX, 30, u32::MAX), 44_999);
    // A thousand paths to one lost server come back spread over seconds.
    let spread = (0..1000u32).fold(0u64, |seen, i| {
        seen | 1 << (delay_ms(200, 30, i.wrapping_mul(0x9e37_79b9)) / 1000)
    });
    assert!(spread.count_ones() >= 29, "{spread:b}");
    assert_eq!(
        (soon_ms(0), soon_ms(u32::MAX / 2), soon_ms(u32::MAX)),
        (0, 249, 499)
    );
}

/// The rows of a latency in both tables.
pub(crate) fn ms_row(ns: u64) -> usize {
    ms_row_of(latency_row(ns))
}

pub(crate) fn us_row(ns: u64) -> usize {
    us_row_of(latency_row(ns))
}

/// The row of `value` in a table of `rows`: `0` for less than 2^0, `i` for less than 2^i.
pub(crate) fn row(value: u64, rows: usize) -> usize {
    ((u64::BITS - value.leading_zeros()) as usize).min(rows - 1)
}

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
}

cases!(
    rtrs_client_stats:
    waits_grow_to_the_limit,
    a_row_begins_at_its_power_of_two,
    averages_do_not_overflow,
    what_was_is_forgotten,
    rows,
    scatter_lists,
);
