// SPDX-License-Identifier: GPL-2.0

//! Statistics of a path, and totals of the module.
//!
//! # Cost
//!
//! A request costs a few per-CPU additions and one read of the clock. No cache line is written by
//! several CPUs for each request.
//!
//! # Context
//!
//! Counting: any but NMI. Sums are exact while no CPU counts.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
};
use rtrs_bindings::{
    attribute::{
        attributes,
        expect_reset,
        Output, //
    },
    compat::this_module,
    kobject::{
        KobjectDir,
        ModuleParent, //
    },
    percpu::Counters,
};
use rtrs_core::{
    polls::PollStats,
    proto::DataDir, //
};

/// Requests, and bytes of data and user messages. Each is a pair of read and write.
const REQUESTS: usize = 0;
const BYTES: usize = REQUESTS + 2;
/// Requests answered by the user.
const DONE: usize = BYTES + 2;
const COUNTERS: usize = DONE + 1;

/// Paths that were closed and connection requests that were refused because of a client's message,
/// since the module was loaded.
static VIOLATIONS: Atomic<u64> = Atomic::new(0);

/// `/sys/module/rtrs_server/stats`. Dropping it removes it.
//
// Field order is teardown order.
pub(crate) struct Totals {
    _dir: KobjectDir<()>,
    _module: ModuleParent,
}

impl Totals {
    /// Makes the directory. May sleep.
    pub(crate) fn new() -> Result<Self> {
        let module = ModuleParent::new(this_module!())?;
        let dir = KobjectDir::new(
            &module,
            c"stats",
            &[&TOTAL_FILES],
            Arc::new((), GFP_KERNEL)?,
        )?;

        Ok(Self {
            _dir: dir,
            _module: module,
        })
    }
}

/// Counts a malformed connection request, which has no path to count it for.
pub(crate) fn bad_request() {
    VIOLATIONS.add(1, Relaxed);
}

/// The statistics.
pub(crate) struct Stats {
    counters: Counters<COUNTERS>,
    /// Completions per poll.
    pub(crate) polls: PollStats,
    violations: Atomic<u64>,
}

impl Stats {
    /// All zero. May sleep.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            counters: Counters::new()?,
            polls: PollStats::new()?,
            violations: Atomic::new(0),
        })
    }

    /// Counts a request with `bytes` bytes of data and user message, which is handed to the user.
    #[inline]
    pub(crate) fn started(&self, dir: DataDir, bytes: u32) {
        // No branch: the directions are 0 and 1.
        let dir = dir as usize;

        let here = self.counters.here();
        here.add(REQUESTS + dir, 1);
        here.add(BYTES + dir, u64::from(bytes));
    }

    /// Counts an answer of the user.
    #[inline]
    pub(crate) fn done(&self) {
        self.counters.add(DONE, 1);
    }

    /// Requests that the user has.
    fn inflight(&self) -> u64 {
        // Read in this order: a request that is answered in between counts as not in flight, and
        // does not make the number too small.
        let done = self.counters.sum(DONE);
        let started = self.counters.total_of(REQUESTS..BYTES);
        started.saturating_sub(done)
    }

    /// The client broke the protocol.
    pub(crate) fn violation(&self) {
        self.violations.add(1, Relaxed);
        VIOLATIONS.add(1, Relaxed);
    }

    /// Number of times the client broke the protocol.
    pub(crate) fn violations(&self) -> u64 {
        self.violations.load(Relaxed)
    }

    /// Resets all counters but that of requests in flight.
    pub(crate) fn reset_rdma(&self) {
        for index in REQUESTS..BYTES + 2 {
            self.counters.reset(index);
        }
    }

    /// Resets all but the number of requests in flight, and violations.
    pub(crate) fn reset_all(&self) {
        self.reset_rdma();
        self.polls.reset();
    }

    /// The first four fields are those of the C implementation; the fifth is documented.
    pub(crate) fn show_rdma(&self, out: &mut Output<'_>) -> Result {
        let sum = |index| self.counters.sum(index);

        Ok(writeln!(
            out,
            "{} {} {} {} {}",
            sum(REQUESTS),
            sum(BYTES),
            sum(REQUESTS + 1),
            sum(BYTES + 1),
            self.inflight()
        )?)
    }

    /// Maximum of completions found by one poll, all completions, polls that found any.
    pub(crate) fn show_completions(&self, out: &mut Output<'_>) -> Result {
        let polls = &self.polls;

        Ok(writeln!(
            out,
            "{} {} {}",
            polls.most(),
            polls.completions(),
            polls.polls()
        )?)
    }
}

attributes! {
    static TOTAL_FILES: [()] = {
        "protocol_errors" => rw(
            |&(), out| Ok(writeln!(out, "{}", VIOLATIONS.load(Relaxed))?),
            |&(), input| {
                expect_reset(input)?;
                VIOLATIONS.store(0, Relaxed);
                Ok(())
            }
        ),
    };
}
