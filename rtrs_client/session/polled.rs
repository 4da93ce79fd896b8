// SPDX-License-Identifier: GPL-2.0

//! Connections without completion interrupts: the user polls for completions.
//!
//! They come after the others, on every path. [`crate::logic::polled`] chooses the requests that go
//! out on them. A poller handles the completions on the connection of its queue, on all paths.
//! Completions that are not polled for are found by the *guard*, a work item that checks all of
//! these connections once in a jiffy while requests are in flight there. So a request never depends
//! on its submitter staying.
//!
//! # Context
//!
//! Polling: any in which a request's completion may be called. The guard: the client's queue, which
//! memory reclaim can rely on.

use kernel::{
    prelude::*,
    sync::{
        rcu,
        Arc, //
    },
    time::Jiffies, //
};
use rtrs_bindings::{
    compat::smp_mb,
    percpu::PerCpu,
    time,
    workqueue::DelayedWorkExt, //
};

use super::Session;
use crate::{
    atomic::{
        Atomic,
        Relaxed, //
    },
    logic::polled::PollHint,
};

/// Maximum of completions that one call handles on one path, so that the caller can soon check its
/// own request.
const BUDGET: u32 = 16;

/// Maximum of calls by the guard while there is more.
const ROUNDS: u32 = 128;

/// Interval of the guard, in jiffies.
const GUARD_DELAY: Jiffies = 1;

/// State of polled queues.
pub(super) struct Polled {
    hints: PerCpu<PollHint>,
    /// The guard is queued, or about to run.
    guarded: Atomic<bool>,
}

impl Polled {
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            hints: PerCpu::new(|_| PollHint::new())?,
            guarded: Atomic::new(false),
        })
    }
}

impl Session {
    /// Polled connections of each path; these are its last ones.
    pub(crate) fn poll_cons(&self) -> u16 {
        self.cons.polled()
    }

    /// Returns the polled queue for a request that is submitted now on this CPU.
    pub(super) fn hinted_queue(&self) -> Option<u16> {
        self.polled.hints.this().queue(time::now_ns())
    }

    /// A task is about to poll queue `queue` on this CPU.
    pub(crate) fn hint_queue(&self, queue: u16) {
        self.polled.hints.this().polled(queue, time::now_ns());
    }

    /// Handles completions on queue `queue`, of which there are [`Session::poll_cons`]. Returns the
    /// number of completions.
    pub(crate) fn poll(&self, queue: u16) -> u32 {
        let guard = rcu::read_lock();
        let Some(set) = self.paths.set.read(&guard) else {
            return 0;
        };
        let links = set.all.iter().filter_map(|path| path.link(&guard));
        links.fold(0, |n, link| n.saturating_add(link.poll(queue, BUDGET)))
    }

    /// A request was sent on a polled connection: makes sure that the guard runs.
    pub(super) fn guard_polled(self: &Arc<Self>) {
        // The request is counted before the guard is checked. The guard does this in the opposite
        // order, so that one of the two sees the other.
        smp_mb();
        if !self.polled.guarded.load(Relaxed) {
            self.polled.guarded.store(true, Relaxed);
            DelayedWorkExt::enqueue(&self.poll_guard, self, GUARD_DELAY);
        }
    }

    /// Polls all polled connections. Work item.
    pub(super) fn look_after_polled(self: &Arc<Self>) {
        self.polled.guarded.store(false, Relaxed);
        smp_mb();
        for queue in 0..self.poll_cons() {
            // Each in an RCU section of its own.
            for _ in 0..ROUNDS {
                if self.poll(queue) < BUDGET {
                    break;
                }
            }
        }
        if self.polled_inflight() > 0 {
            self.guard_polled();
        }
    }

    /// There are no paths any more, and so no requests on them. May sleep.
    pub(super) fn stop_guard(&self) {
        self.poll_guard.cancel_sync();
    }

    fn polled_inflight(&self) -> u64 {
        let guard = rcu::read_lock();
        self.paths.set.read(&guard).map_or(0, |set| {
            let links = set.all.iter().filter_map(|path| path.link(&guard));
            links.map(|link| link.polled_inflight()).sum()
        })
    }
}
