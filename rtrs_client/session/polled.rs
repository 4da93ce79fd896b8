// SPDX-License-Identifier: GPL-2.0

//! Connections whose completions nobody is told of: somebody polls for them.
//!
//! They come after the others, on every path. Which requests go out on them is said
//! in [`crate::logic::polled`]. A poller handles what it finds on the connection of
//! its queue, on all paths. Whatever nobody polls for is found by the *guard*, a work
//! item that looks at all of them once in a jiffy while requests are in flight there,
//! so that a request never depends on its submitter staying.
//!
//! # Context
//!
//! Polling: any in which a request's completion may be told. The guard: the client's
//! queue, which memory reclaim can rely on.

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

/// Completions that one call handles on one path at most, so that the caller gets to
/// look at what it waits for.
const BUDGET: u32 = 16;

/// How often the guard calls while there is more.
const ROUNDS: u32 = 128;

/// How often the guard looks, in jiffies.
const GUARD_DELAY: Jiffies = 1;

/// What a session has for it.
pub(super) struct Polled {
    hints: PerCpu<PollHint>,
    /// The guard is queued, or about to look.
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
    /// Polled connections of each path; the last ones of all.
    pub(crate) fn poll_cons(&self) -> u16 {
        self.cons.polled()
    }

    /// The polled queue for a request that is submitted here and now.
    pub(super) fn hinted_queue(&self) -> Option<u16> {
        self.polled.hints.this().queue(time::now_ns())
    }

    /// Somebody is about to poll queue `queue` here.
    pub(crate) fn hint_queue(&self, queue: u16) {
        self.polled.hints.this().polled(queue, time::now_ns());
    }

    /// Handles what has completed on queue `queue`, of which there are
    /// [`Session::poll_cons`]; returns how many completions that were.
    pub(crate) fn poll(&self, queue: u16) -> u32 {
        let guard = rcu::read_lock();
        let Some(set) = self.paths.read(&guard) else {
            return 0;
        };
        let links = set.0.iter().filter_map(|path| path.link(&guard));
        links.fold(0, |n, link| n.saturating_add(link.poll(queue, BUDGET)))
    }

    /// A request went out on a polled connection: from now on the guard looks.
    pub(super) fn guard_polled(self: &Arc<Self>) {
        // The request is counted, then the guard is looked at. The guard does it the
        // other way round, so that one of us sees the other.
        smp_mb();
        if !self.polled.guarded.load(Relaxed) {
            self.polled.guarded.store(true, Relaxed);
            DelayedWorkExt::enqueue(&self.poll_guard, self, GUARD_DELAY);
        }
    }

    /// Looks at all polled connections. Work item.
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

    /// There are no paths any more, and so no requests on them. Sleeps.
    pub(super) fn stop_guard(&self) {
        self.poll_guard.cancel_sync();
    }

    fn polled_inflight(&self) -> u64 {
        let guard = rcu::read_lock();
        self.paths.read(&guard).map_or(0, |set| {
            let links = set.0.iter().filter_map(|path| path.link(&guard));
            links.map(|link| link.polled_inflight()).sum()
        })
    }
}
