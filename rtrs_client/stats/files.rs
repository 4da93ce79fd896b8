// SPDX-License-Identifier: GPL-2.0

//! The contents of the files in the directory `stats` of a path.

use core::fmt;
use kernel::prelude::*;
use rtrs_bindings::{
    attribute::Output,
    percpu, //
};

use super::{
    Stats,
    BYTES,
    FAILOVER,
    LATENCY,
    MIGRATED_TO,
    REQUESTS,
    SG, //
};
use crate::{
    atomic::Relaxed,
    logic::hist::{
        ms_row_of,
        us_row_of,
        MsTable,
        ReadWrite,
        SgBinLabel,
        UsTable,
        LATENCY_ROWS,
        MS_ROWS,
        SG_BINS,
        US_ROWS, //
    },
};

fn from(stats: &Stats, cpu: u32) -> u64 {
    stats
        .migrated_from
        .get(cpu)
        .map_or(0, |count| count.0.load(Relaxed))
}

fn to(stats: &Stats, cpu: u32) -> u64 {
    stats.counters.get(cpu, MIGRATED_TO)
}

/// A row of counts by length of the scatter list.
struct SgRow<F: Fn(usize) -> u64>(F);

impl<F: Fn(usize) -> u64> fmt::Display for SgRow<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for bin in 0..SG_BINS {
            write!(f, " {}", self.0(bin))?;
        }
        Ok(())
    }
}

/// Sums of the rows of a table; `row_of` returns the row of a counter.
fn rows<const N: usize>(stats: &Stats, row_of: impl Fn(usize) -> usize) -> [ReadWrite; N] {
    let mut rows = [ReadWrite::default(); N];
    for i in 0..LATENCY_ROWS {
        if let Some(row) = rows.get_mut(row_of(i)) {
            let count = |dir: usize| stats.counters.sum(LATENCY + 2 * i + dir);
            row.read = row.read.saturating_add(count(0));
            row.write = row.write.saturating_add(count(1));
        }
    }
    rows
}

fn max_ns(stats: &Stats) -> ReadWrite {
    let max = |dir: usize| {
        stats
            .local
            .iter()
            .filter_map(|(_, local)| local.max_ns.get(dir))
            .map(|max| max.load(Relaxed))
            .max()
            .unwrap_or(0)
    };
    ReadWrite {
        read: max(0),
        write: max(1),
    }
}

fn show_cpus(out: &mut Output<'_>, count: impl Fn(u32) -> u64) -> Result {
    for cpu in percpu::possible_cpus() {
        write!(out, "{} ", count(cpu))?;
    }
    Ok(writeln!(out)?)
}

/// Each shows one file.
impl Stats {
    /// For each CPU, the requests expected to complete there that were completed on another one.
    pub(crate) fn show_migration_from(&self, out: &mut Output<'_>) -> Result {
        show_cpus(out, |cpu| from(self, cpu))
    }

    /// For each CPU, the requests completed there that were expected on another one.
    pub(crate) fn show_migration_to(&self, out: &mut Output<'_>) -> Result {
        show_cpus(out, |cpu| to(self, cpu))
    }

    /// The fields of the C implementation: reads, their bytes, writes, their bytes, `inflight`, and
    /// requests that were sent again over another path.
    pub(crate) fn show_rdma(&self, inflight: u64, out: &mut Output<'_>) -> Result {
        let sum = |index| self.counters.sum(index);
        Ok(writeln!(
            out,
            "{} {} {} {} {} {}",
            sum(REQUESTS),
            sum(BYTES),
            sum(REQUESTS + 1),
            sum(BYTES + 1),
            inflight,
            sum(FAILOVER)
        )?)
    }

    /// Reconnects that succeeded, and that failed.
    pub(crate) fn show_reconnects(&self, out: &mut Output<'_>) -> Result {
        let (connects, failures) = self.reconnects();
        Ok(writeln!(out, "{connects} {failures}")?)
    }

    /// One column for each CPU, the rows labelled as documented.
    pub(crate) fn show_migration(&self, out: &mut Output<'_>) -> Result {
        write!(out, "     ")?;
        for cpu in percpu::possible_cpus() {
            write!(out, " CPU{cpu}")?;
        }
        write!(out, "\nfrom:")?;
        for cpu in percpu::possible_cpus() {
            write!(out, " {}", from(self, cpu))?;
        }
        write!(out, "\nto:")?;
        for cpu in percpu::possible_cpus() {
            write!(out, " {}", to(self, cpu))?;
        }
        Ok(writeln!(out)?)
    }

    /// One column for each range of lengths; one row for the sum and one for each CPU that has sent
    /// requests. What does not fit into a file is cut off.
    pub(crate) fn show_sg(&self, out: &mut Output<'_>) -> Result {
        let counters = &self.counters;
        write!(out, "entries:")?;
        for bin in 0..SG_BINS {
            write!(out, " {}", SgBinLabel(bin))?;
        }
        writeln!(out, "\nall:{}", SgRow(|bin| counters.sum(SG + bin)))?;
        for cpu in percpu::possible_cpus() {
            let count = |bin: usize| counters.get(cpu, SG + bin);
            if (0..SG_BINS).any(|bin| count(bin) != 0) {
                writeln!(out, "cpu{cpu}:{}", SgRow(count))?;
            }
        }
        Ok(())
    }

    /// Latencies, one row for each power of two of milliseconds.
    pub(crate) fn show_ms(&self, out: &mut Output<'_>) -> Result {
        let table = MsTable {
            rows: &rows::<MS_ROWS>(self, ms_row_of),
            max_ns: max_ns(self),
        };
        Ok(write!(out, "{table}")?)
    }

    /// The same latencies, one row for each power of two of microseconds.
    pub(crate) fn show_us(&self, out: &mut Output<'_>) -> Result {
        let table = UsTable {
            rows: &rows::<US_ROWS>(self, us_row_of),
            max_ns: max_ns(self),
        };
        Ok(write!(out, "{table}")?)
    }

    /// Maximum of completions found by one poll, and the average.
    pub(crate) fn show_completions(&self, out: &mut Output<'_>) -> Result {
        let polls = &self.polls;
        let average = polls.completions().checked_div(polls.polls()).unwrap_or(0);
        Ok(writeln!(out, "{} {average}", polls.most())?)
    }
}
