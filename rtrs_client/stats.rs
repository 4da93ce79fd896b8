// SPDX-License-Identifier: GPL-2.0

//! Statistics of a path.
//!
//! # Cost
//!
//! A request costs a few per-CPU additions and two reads of the clock. No cache line is written by
//! several CPUs for each request: the shared average latency is updated at most once in ten milliseconds
//! per CPU.
//!
//! # Context
//!
//! Counting: any but NMI. Sums are exact while no CPU counts.

mod files;

use kernel::prelude::*;
use rtrs_bindings::percpu::{
    Counters,
    Here,
    PerCpu, //
};
use rtrs_core::{
    polls::PollStats,
    proto::DataDir, //
};

use crate::{
    atomic::{
        Atomic,
        Relaxed, //
    },
    logic::{
        ewma::LatencyAvg,
        hist, //
    },
    request::Io,
};

/// Counters of requests, bytes and latencies. Each is a pair of read and write.
const REQUESTS: usize = 0;
const BYTES: usize = REQUESTS + 2;
const LATENCY: usize = BYTES + 2;
/// Requests that another path had before.
const FAILOVER: usize = LATENCY + 2 * hist::LATENCY_ROWS;
/// Lengths of scatter lists.
const SG: usize = FAILOVER + 1;
/// Answers handled on a CPU that is not the connection's.
const MIGRATED_TO: usize = SG + hist::SG_BINS;
const COUNTERS: usize = MIGRATED_TO + 1;

/// Interval, in nanoseconds, at which a CPU adds its latencies to the path's average, which is in a
/// cache line that all CPUs share.
const FEED_INTERVAL_NS: u64 = 10_000_000;

/// Offset of the counter of a direction.
pub(crate) const fn dir_index(dir: DataDir) -> usize {
    match dir {
        DataDir::Read => 0,
        DataDir::Write => 1,
    }
}

/// State of a CPU besides counters. Changed by plain loads and stores, since only its own CPU
/// changes it. If a task is migrated, one sample may get lost.
struct Local {
    /// Longest latency, by direction.
    max_ns: [Atomic<u64>; 2],
    /// Latencies that are not in the path's average yet.
    sum_ns: Atomic<u64>,
    samples: Atomic<u64>,
    /// The time of the next update of the average.
    feed_at: Atomic<u64>,
}

impl Local {
    fn new() -> Self {
        Self {
            max_ns: [Atomic::new(0), Atomic::new(0)],
            sum_ns: Atomic::new(0),
            samples: Atomic::new(0),
            feed_at: Atomic::new(0),
        }
    }
}

/// A counter of one CPU that other CPUs change. It has a cache line of its own, so that their
/// writes do not move other data of that CPU.
#[repr(align(64))]
struct ForOthers(Atomic<u64>);

/// The time when a link took a request, and the direction of its data.
pub(crate) struct Stamp {
    at_ns: Atomic<u64>,
    is_write: Atomic<bool>,
}

impl Stamp {
    /// The stamp of no request.
    pub(crate) fn new() -> Self {
        Self {
            at_ns: Atomic::new(0),
            is_write: Atomic::new(false),
        }
    }

    /// Sets the time. Called by the task that has the flight, before the request is posted.
    #[inline(always)]
    pub(crate) fn set_time(&self, now_ns: u64) {
        self.at_ns.store(now_ns, Relaxed);
    }

    /// Sets the direction, likewise.
    #[inline(always)]
    pub(crate) fn set_dir(&self, dir: DataDir) {
        self.is_write.store(dir == DataDir::Write, Relaxed);
    }

    /// Returns the direction, and the nanoseconds since the link took the request, for one that
    /// another task has.
    pub(crate) fn get(&self, now_ns: u64) -> (DataDir, u64) {
        let dir = match self.is_write.load(Relaxed) {
            false => DataDir::Read,
            true => DataDir::Write,
        };
        // The link may take another one at this time.
        (dir, now_ns.saturating_sub(self.at_ns.load(Relaxed)))
    }

    /// Returns the nanoseconds since the link took the request, for the task that has it. The time
    /// does not go backwards.
    #[inline(always)]
    pub(crate) fn age(&self, now_ns: u64) -> u64 {
        now_ns.wrapping_sub(self.at_ns.load(Relaxed))
    }
}

/// The statistics.
pub(crate) struct Stats {
    counters: Counters<COUNTERS>,
    local: PerCpu<Local>,
    /// Answers that were expected on a CPU and handled on another one.
    migrated_from: PerCpu<ForOthers>,
    /// Latency of requests, and of heartbeats while there are no requests.
    latency: LatencyAvg,
    /// Round trip of the latest heartbeat in nanoseconds; 0 before the first.
    heartbeat_ns: Atomic<u64>,
    /// Completions per poll.
    pub(crate) polls: PollStats,
    /// Successful connects, from -1: the first is no reconnect.
    connects: Atomic<i32>,
    failures: Atomic<i32>,
}

impl Stats {
    /// All zero. May sleep.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            counters: Counters::new()?,
            local: PerCpu::new(|_| Local::new())?,
            migrated_from: PerCpu::new(|_| ForOthers(Atomic::new(0)))?,
            latency: LatencyAvg::new(),
            heartbeat_ns: Atomic::new(0),
            polls: PollStats::new()?,
            connects: Atomic::new(-1),
            failures: Atomic::new(0),
        })
    }

    /// A request is about to go out, with data and a user message of `bytes`. `dir` is the
    /// direction in its layout, and `entries` the number of its data's entries, which callers know.
    #[inline(always)]
    pub(crate) fn issued(&self, dir: DataDir, bytes: u32, entries: u32) {
        Self::count_issued(self.counters.here(), entries, dir, 1, bytes.into());
    }

    /// It did not.
    #[cold]
    pub(crate) fn not_issued(&self, io: &Io) {
        let counters = self.counters.here();
        let bytes = u64::from(io.layout.off());

        // Counters wrap.
        let dir = io.layout.dir();
        let entries = io.loan.entries();
        Self::count_issued(counters, entries, dir, u64::MAX, bytes.wrapping_neg());
    }

    /// A request went out that another path had before.
    pub(crate) fn failed_over(&self) {
        self.counters.add(FAILOVER, 1);
    }

    #[inline(always)]
    fn count_issued(counters: Here<'_, COUNTERS>, entries: u32, dir: DataDir, by: u64, bytes: u64) {
        let dir = dir_index(dir);
        counters.add(REQUESTS + dir, by);
        counters.add(BYTES + dir, bytes);
        counters.add(SG + hist::sg_bin(entries), by);
    }

    /// Writes that were answered since the path was made, whatever was reset. Any context.
    pub(crate) fn writes_answered(&self) -> u64 {
        let row = |row| LATENCY + dir_index(DataDir::Write) + 2 * row;

        self.counters.total_of((0..hist::LATENCY_ROWS).map(row))
    }

    /// A request is complete, `ns` after it went out.
    #[inline(always)]
    pub(crate) fn completed(&self, dir: DataDir, ns: u64, now_ns: u64) {
        let dir = dir_index(dir);
        let counters = self.counters.here();
        counters.add(LATENCY + dir + 2 * hist::latency_row(ns), 1);
        let local = self.local.this();
        if let Some(max) = local.max_ns.get(dir) {
            if ns > max.load(Relaxed) {
                max.store(ns, Relaxed);
            }
        }
        self.feed(local, ns, now_ns);
    }

    /// A completion was handled here that was expected on CPU `expected`.
    pub(crate) fn migrated(&self, expected: u32) {
        self.counters.add(MIGRATED_TO, 1);
        if let Some(from) = self.migrated_from.get(expected) {
            from.0.add(1, Relaxed);
        }
    }

    /// Adds a sample for the average latency.
    #[inline(always)]
    fn feed(&self, local: &Local, ns: u64, now_ns: u64) {
        // No overflow: there are not so many samples in an interval. As two statements: each is one
        // instruction then.
        local
            .sum_ns
            .store(local.sum_ns.load(Relaxed).wrapping_add(ns), Relaxed);
        local
            .samples
            .store(local.samples.load(Relaxed).wrapping_add(1), Relaxed);
        if now_ns >= local.feed_at.load(Relaxed) {
            self.tell(local, now_ns);
        }
    }

    /// Adds the collected samples to the path's average.
    #[inline(never)]
    fn tell(&self, local: &Local, now_ns: u64) {
        let (sum, samples) = (local.sum_ns.load(Relaxed), local.samples.load(Relaxed));
        local.sum_ns.store(0, Relaxed);
        local.samples.store(0, Relaxed);
        local
            .feed_at
            .store(now_ns.saturating_add(FEED_INTERVAL_NS), Relaxed);
        if let Some(average) = sum.checked_div(samples) {
            self.latency.add(average, now_ns);
        }
    }

    /// Notes a heartbeat of `ns` until `now_ns`. It is a sample of the latency if the path is
    /// `idle`.
    pub(crate) fn heartbeat_took(&self, ns: u64, now_ns: u64, idle: bool) {
        self.heartbeat_ns.store(ns, Relaxed);
        if idle {
            self.latency.add(ns, now_ns);
        }
    }

    /// Round trip of the latest heartbeat in nanoseconds, 0 if not known.
    pub(crate) fn heartbeat_ns(&self) -> u64 {
        self.heartbeat_ns.load(Relaxed)
    }

    /// Average latency in nanoseconds, 0 if not known.
    #[inline]
    pub(crate) fn latency(&self) -> u64 {
        self.latency.get()
    }

    /// The path is connected over a new link, which has no known latency.
    pub(crate) fn connected(&self) {
        self.connects.add(1, Relaxed);
        // Samples that were collected but not added yet are of the old link.
        for (_, local) in self.local.iter() {
            local.samples.store(0, Relaxed);
            local.sum_ns.store(0, Relaxed);
        }
        self.latency.reset();
        self.heartbeat_ns.store(0, Relaxed);
    }

    /// An attempt to reconnect failed.
    pub(crate) fn reconnect_failed(&self) {
        self.failures.add(1, Relaxed);
    }

    /// Reconnects that succeeded and that failed.
    pub(crate) fn reconnects(&self) -> (i32, i32) {
        (self.connects.load(Relaxed), self.failures.load(Relaxed))
    }

    fn reset_range(&self, counters: core::ops::Range<usize>) {
        for index in counters {
            self.counters.reset(index);
        }
    }

    /// Resets requests, bytes and failovers. The number of requests in flight is not counted here.
    pub(crate) fn reset_rdma(&self) {
        self.reset_range(REQUESTS..BYTES + 2);
        self.counters.reset(FAILOVER);
    }

    /// Resets the numbers of reconnects that succeeded and that failed.
    pub(crate) fn reset_reconnects(&self) {
        self.connects.store(0, Relaxed);
        self.failures.store(0, Relaxed);
    }

    /// Resets both counts of requests that were completed on another CPU than they were expected on.
    pub(crate) fn reset_migration(&self) {
        self.counters.reset(MIGRATED_TO);
        for (_, from) in self.migrated_from.iter() {
            from.0.store(0, Relaxed);
        }
    }

    /// Resets the distribution of lengths of scatter lists.
    pub(crate) fn reset_sg(&self) {
        self.reset_range(SG..SG + hist::SG_BINS);
    }

    /// Resets both tables: they show the same samples, and share the maxima.
    pub(crate) fn reset_latency(&self) {
        self.reset_range(LATENCY..LATENCY + 2 * hist::LATENCY_ROWS);
        for (_, local) in self.local.iter() {
            for max in &local.max_ns {
                max.store(0, Relaxed);
            }
        }
    }

    /// Resets all except current values: requests in flight, average latency.
    pub(crate) fn reset_all(&self) {
        self.reset_rdma();
        self.reset_reconnects();
        self.reset_migration();
        self.reset_sg();
        self.reset_latency();
        self.polls.reset();
    }
}
