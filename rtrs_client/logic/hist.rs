// SPDX-License-Identifier: GPL-2.0

//! Distributions in sysfs: latencies of requests, lengths of scatter lists.
//!
//! Counting is the caller's, per CPU: the functions here say which counter is meant, and show
//! the sums.

use core::fmt;

/// Rows of a latency table with powers of two up to 2^`top`: one for each of them and one for
/// what is longer.
const fn rows(top: u32) -> usize {
    // CAST: `top` is a small constant.
    top as usize + 2
}

/// Row of `value`: `0` for less than 2^0, `i` for less than 2^i, at most the last.
const fn row(value: u64, top: u32) -> usize {
    let bits = u64::BITS - value.leading_zeros();

    // CAST: at most `top + 1`.
    if bits > top {
        top as usize + 1
    } else {
        bits as usize
    }
}

/// Exponent of the last power of two in the millisecond table: 65536 ms.
const MS_TOP: u32 = 16;

/// Counters of the millisecond table, per direction.
pub const MS_ROWS: usize = rows(MS_TOP);

/// Counter of a latency of `ns` nanoseconds in the millisecond table; below [`MS_ROWS`].
pub const fn ms_row(ns: u64) -> usize {
    row(ns / 1_000_000, MS_TOP)
}

/// Exponent of the last power of two in the microsecond table: about 8.4 s.
const US_TOP: u32 = 23;

/// Counters of the microsecond table, per direction.
pub const US_ROWS: usize = rows(US_TOP);

/// Counter of a latency of `ns` nanoseconds in the microsecond table; below [`US_ROWS`].
pub const fn us_row(ns: u64) -> usize {
    row(ns / 1000, US_TOP)
}

/// Counts of one row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadWrite {
    /// Of reads.
    pub read: u64,
    /// Of writes.
    pub write: u64,
}

/// Writes a latency table: a row `<limit> <unit>: <reads> <writes>` for each power of two, which
/// counts what took less than that and not less than the row before; one for the rest; and the
/// maximum.
fn fmt_table(
    f: &mut fmt::Formatter<'_>,
    rows: &[ReadWrite],
    unit: &str,
    max: ReadWrite,
) -> fmt::Result {
    let mut rows = rows.iter();
    let rest = rows.next_back().copied().unwrap_or_default();
    let mut limit = 1u64;
    let mut top = limit;

    for ReadWrite { read, write } in rows {
        writeln!(f, "{limit} {unit}: {read} {write}")?;
        top = limit;
        limit = limit.saturating_mul(2);
    }
    writeln!(f, ">= {top} {unit}: {} {}", rest.read, rest.write)?;
    writeln!(f, "maximum {unit}: {} {}", max.read, max.write)
}

/// The content of `stats/rdma_lat`.
pub struct MsTable<'a> {
    /// Sums per row.
    pub rows: &'a [ReadWrite; MS_ROWS],
    /// Longest latency in nanoseconds.
    pub max_ns: ReadWrite,
}

impl fmt::Display for MsTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let max = ReadWrite {
            read: self.max_ns.read / 1_000_000,
            write: self.max_ns.write / 1_000_000,
        };
        fmt_table(f, self.rows, "ms", max)
    }
}

/// The content of the finer table.
pub struct UsTable<'a> {
    /// Sums per row.
    pub rows: &'a [ReadWrite; US_ROWS],
    /// Longest latency in nanoseconds.
    pub max_ns: ReadWrite,
}

impl fmt::Display for UsTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let max = ReadWrite {
            read: self.max_ns.read / 1000,
            write: self.max_ns.write / 1000,
        };
        fmt_table(f, self.rows, "us", max)
    }
}

/// Counters of the scatter list distribution: 0, 1, 2, 3-4, 5-8, up to 65-128, and more.
pub const SG_BINS: usize = 10;

/// The largest length of each bin but the last.
const SG_LIMITS: [u32; SG_BINS - 1] = [0, 1, 2, 4, 8, 16, 32, 64, 128];

/// Counter of a scatter list of `entries` entries; below [`SG_BINS`].
pub fn sg_bin(entries: u32) -> usize {
    match entries {
        0 => 0,
        // CAST: at most 32. Two limits stand before the powers of two.
        n => ((u32::BITS - (n - 1).leading_zeros()) as usize)
            .saturating_add(1)
            .min(SG_BINS - 1),
    }
}

/// The lengths a bin stands for: `0`, `2`, `5-8`, `>128`; nothing beyond the last bin.
pub struct SgBinLabel(
    /// Index of the bin.
    pub usize,
);

impl fmt::Display for SgBinLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let below = self
            .0
            .checked_sub(1)
            .and_then(|i| SG_LIMITS.get(i))
            .copied();

        match (below, SG_LIMITS.get(self.0)) {
            (_, Some(limit @ 0..=2)) => write!(f, "{limit}"),
            (Some(below), Some(limit)) => write!(f, "{}-{limit}", below.saturating_add(1)),
            (Some(below), None) => write!(f, ">{below}"),
            _ => Ok(()),
        }
    }
}
