// SPDX-License-Identifier: GPL-2.0

//! Statistics in sysfs: the directory `stats` of a path.
//!
//! Writing `0`, as documented, or `1`, as the C modules want it, resets the contents of a file.

use core::fmt;
use kernel::prelude::*;
use rtrs_bindings::{
    attribute::{
        attributes,
        expect_reset,
        Output, //
    },
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
    path::Path,
};

attributes! {
    /// Files of a path's statistics.
    pub(crate) static STATS_FILES: [Path] in "stats" = {
        "rdma" => rw(show_rdma, |path, buf| reset(path, buf, Stats::reset_rdma)),
        "reconnects" => rw(show_reconnects, |path, buf| reset(path, buf, Stats::reset_reconnects)),
        "cpu_migration" => rw(show_migration, |path, buf| reset(path, buf, Stats::reset_migration)),
        "cpu_migration_from" => rw(
            |path, out| show_cpus(out, |cpu| from(path.stats(), cpu)),
            |path, buf| reset(path, buf, Stats::reset_migration)
        ),
        "cpu_migration_to" => rw(
            |path, out| show_cpus(out, |cpu| to(path.stats(), cpu)),
            |path, buf| reset(path, buf, Stats::reset_migration)
        ),
        "sg_entries" => rw(show_sg, |path, buf| reset(path, buf, Stats::reset_sg)),
        "rdma_lat" => rw(show_ms, |path, buf| reset(path, buf, Stats::reset_latency)),
        "rdma_lat_us" => rw(show_us, |path, buf| reset(path, buf, Stats::reset_latency)),
        "wc_completion" => rw(show_completions, |path, buf| {
            reset(path, buf, |stats| stats.polls.reset())
        }),
        "reset_all" => rw(
            |_, out| Ok(writeln!(out, "echo 1 to reset all statistics")?),
            |path, buf| reset(path, buf, Stats::reset_all)
        ),
    };
}

fn reset(path: &Path, buf: &[u8], what: fn(&Stats)) -> Result {
    expect_reset(buf)?;
    what(path.stats());
    Ok(())
}

fn show_rdma(path: &Path, out: &mut Output<'_>) -> Result {
    let sum = |index| path.stats().counters.sum(index);
    Ok(writeln!(
        out,
        "{} {} {} {} {} {}",
        sum(REQUESTS),
        sum(BYTES),
        sum(REQUESTS + 1),
        sum(BYTES + 1),
        path.inflight(),
        sum(FAILOVER)
    )?)
}

fn show_reconnects(path: &Path, out: &mut Output<'_>) -> Result {
    let (connects, failures) = path.stats().reconnects();
    Ok(writeln!(out, "{connects} {failures}")?)
}

fn from(stats: &Stats, cpu: u32) -> u64 {
    stats
        .migrated_from
        .get(cpu)
        .map_or(0, |count| count.load(Relaxed))
}

fn to(stats: &Stats, cpu: u32) -> u64 {
    stats.counters.get(cpu, MIGRATED_TO)
}

fn show_cpus(out: &mut Output<'_>, count: impl Fn(u32) -> u64) -> Result {
    for cpu in percpu::possible_cpus() {
        write!(out, "{} ", count(cpu))?;
    }
    Ok(writeln!(out)?)
}

/// One column for each CPU, the rows labelled as documented.
fn show_migration(path: &Path, out: &mut Output<'_>) -> Result {
    let stats = path.stats();
    write!(out, "     ")?;
    for cpu in percpu::possible_cpus() {
        write!(out, " CPU{cpu}")?;
    }
    write!(out, "\nfrom:")?;
    for cpu in percpu::possible_cpus() {
        write!(out, " {}", from(stats, cpu))?;
    }
    write!(out, "\nto:")?;
    for cpu in percpu::possible_cpus() {
        write!(out, " {}", to(stats, cpu))?;
    }
    Ok(writeln!(out)?)
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

/// One column for each range of lengths; one row for the sum and one for each CPU that has sent
/// requests. Rows that do not fit into a file are left out.
fn show_sg(path: &Path, out: &mut Output<'_>) -> Result {
    let counters = &path.stats().counters;
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

fn show_ms(path: &Path, out: &mut Output<'_>) -> Result {
    let stats = path.stats();
    let table = MsTable {
        rows: &rows::<MS_ROWS>(stats, ms_row_of),
        max_ns: max_ns(stats),
    };
    Ok(write!(out, "{table}")?)
}

fn show_us(path: &Path, out: &mut Output<'_>) -> Result {
    let stats = path.stats();
    let table = UsTable {
        rows: &rows::<US_ROWS>(stats, us_row_of),
        max_ns: max_ns(stats),
    };
    Ok(write!(out, "{table}")?)
}

/// Maximum of completions found by one poll, and the average.
fn show_completions(path: &Path, out: &mut Output<'_>) -> Result {
    let polls = &path.stats().polls;
    let average = polls.completions().checked_div(polls.polls()).unwrap_or(0);
    Ok(writeln!(out, "{} {average}", polls.most())?)
}
