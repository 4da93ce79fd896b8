// SPDX-License-Identifier: GPL-2.0

//! Distributions in sysfs: latencies of requests, lengths of scatter lists.
//!
//! The caller counts, per CPU. The functions here return the index of a counter, and show the sums.

use core::fmt;

/// Rows of a latency table with powers of two up to 2^`top`: one for each power, and one for longer
/// latencies.
const fn rows(top: u32) -> usize {
    // CAST: `top` is a small constant.
    top as usize + 2
}

/// Exponent of the last power of two in the millisecond table: 65536 ms.
const MS_TOP: u32 = 16;

/// Rows of the millisecond table.
pub const MS_ROWS: usize = rows(MS_TOP);

/// Exponent of the last power of two in the microsecond table: about 8.4 s.
const US_TOP: u32 = 23;

/// Rows of the microsecond table.
pub const US_ROWS: usize = rows(US_TOP);

/// Bits of the longest latency in nanoseconds that is in a table: 65536 ms.
const LATENCY_BITS: u32 = 36;

/// Bits of the latencies, in nanoseconds, that are in the first row: less than 1 us.
const FIRST_BITS: u32 = 9;

/// Counters of latencies, per direction: both tables are sums of them.
// CAST: The value is a small constant.
pub const LATENCY_ROWS: usize = 3 * (LATENCY_BITS - FIRST_BITS + 1) as usize;

/// Powers of two of nanoseconds.
const OCTAVES: usize = 64;

/// The counter of the shortest latencies of each power of two of nanoseconds.
const FIRST_ROWS: [u8; OCTAVES] = {
    let mut rows = [0; OCTAVES];
    let mut octave = FIRST_BITS as usize - 1;
    while octave < OCTAVES {
        let row = 3 * (octave + 1 - FIRST_BITS as usize);
        let row = if row < LATENCY_ROWS {
            row
        } else {
            LATENCY_ROWS - 1
        };
        // CAST: There are fewer rows than that.
        rows[octave] = row as u8;
        octave += 1;
    }
    rows
};

/// The longest latency before the next power of two of `unit` nanoseconds begins, in each power of
/// two of nanoseconds that has counters of its own; no latency is longer in the others.
const fn last_before(unit: u64) -> [u64; OCTAVES] {
    let mut last = [u64::MAX; OCTAVES];
    let mut octave = FIRST_BITS as usize - 1;
    while octave < LATENCY_BITS as usize {
        // The power of two of units in this power of two of nanoseconds, perhaps a fraction.
        let begin = (unit << unit.leading_zeros()) >> (OCTAVES - 1 - octave);
        let is_fraction = begin << (OCTAVES - 1 - octave) != unit << unit.leading_zeros();
        last[octave] = if is_fraction { begin } else { begin - 1 };
        octave += 1;
    }
    last
}

const LAST_BEFORE_MS: [u64; OCTAVES] = last_before(1_000_000);
const LAST_BEFORE_US: [u64; OCTAVES] = last_before(1000);

/// Counter of a latency of `ns` nanoseconds; below [`LATENCY_ROWS`].
///
/// There are three for each power of two of nanoseconds: in each a power of two of milliseconds
/// begins, and then one of microseconds. Where, is looked up: that takes half of the instructions
/// of computing it.
#[inline(always)]
pub fn latency_row(ns: u64) -> usize {
    static FIRST: [u8; OCTAVES] = FIRST_ROWS;
    static MS: [u64; OCTAVES] = LAST_BEFORE_MS;
    static US: [u64; OCTAVES] = LAST_BEFORE_US;

    // CAST: Less than 64.
    let octave = (ns | ((1 << FIRST_BITS) - 1)).ilog2() as usize;
    match (FIRST.get(octave), MS.get(octave), US.get(octave)) {
        (Some(first), Some(ms), Some(us)) => {
            // No overflow: a row. CAST: 0 or 1.
            usize::from(*first) + usize::from(ns > *ms) + usize::from(ns > *us)
        }
        _ => 0,
    }
}

/// The row of the microsecond table of a counter.
pub const fn us_row_of(latency_row: usize) -> usize {
    let row = (latency_row / 3 + (latency_row % 3 == 2) as usize).saturating_sub(US_SHIFT);
    if row < US_ROWS {
        row
    } else {
        US_ROWS - 1
    }
}

/// The row of the millisecond table of a counter.
pub const fn ms_row_of(latency_row: usize) -> usize {
    let row = (latency_row / 3 + (latency_row % 3 != 0) as usize).saturating_sub(MS_SHIFT);
    if row < MS_ROWS {
        row
    } else {
        MS_ROWS - 1
    }
}

/// The number of powers of two of nanoseconds, among those with counters, before the one in which
/// the first power of microseconds begins, and of milliseconds.
const US_SHIFT: usize = 1;
const MS_SHIFT: usize = 11;

/// Counts of one row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadWrite {
    /// Number of reads.
    pub read: u64,
    /// Number of writes.
    pub write: u64,
}

/// Writes a latency table. It has a row `<limit> <unit>: <reads> <writes>` for each power of two,
/// with the requests that took less than that and not less than the row before; a row for the rest;
/// and the maximum.
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
#[inline(always)]
pub const fn sg_bin(entries: u32) -> usize {
    // The usual case.
    if entries <= 1 {
        // CAST: 0 or 1.
        return entries as usize;
    }
    // CAST: The value is at most 32. Two limits come before the powers of two. Not 0, and said so
    // to the compiler.
    let bin = (u32::BITS - ((entries - 1) | 1).leading_zeros()) as usize + 1;
    if bin < SG_BINS {
        bin
    } else {
        SG_BINS - 1
    }
}

/// The lengths of a bin: `0`, `2`, `5-8`, `>128`; empty beyond the last bin.
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
