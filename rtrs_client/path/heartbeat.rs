// SPDX-License-Identifier: GPL-2.0

//! The heartbeat of a path that is up. Each tick also checks for requests that are not answered, on
//! any connection or on one of them (see [`unanswered`]), and for the end of a trial (see
//! [`trial`]).
//!
//! # Context
//!
//! The tick, which does not run twice at a time for a path. A trial is begun and cancelled by the
//! owner task, while `tick` does not run. Any context may read whether there is one.
//!
//! [`trial`]: crate::logic::trial
//! [`unanswered`]: crate::logic::unanswered

use kernel::{
    prelude::*,
    sync::{
        rcu,
        Arc, //
    },
    time::msecs_to_jiffies, //
};
use rtrs_bindings::{
    errno,
    ratelimit::pr_warn_ratelimited,
    time,
    workqueue::DelayedWorkExt, //
};
use rtrs_core::proto::{
    heartbeat::{
        HbAction,
        HbCounts, //
    },
    Heartbeat, //
};

use super::Path;
use crate::{
    atomic::Relaxed,
    link::Link,
    logic::{
        trial::Record,
        unanswered::{
            Patience,
            Quiet,
            Unanswered,
            Verdict, //
        },
    },
};

const NS_PER_SEC: u64 = 1_000_000_000;

/// State of the link that is up.
pub(super) struct Watched {
    heartbeat: Heartbeat,
    /// At the last tick.
    received: HbCounts,
    unanswered: Unanswered,
    /// By connection.
    quiet: KVec<Quiet>,
}

impl Watched {
    /// Before there is a link.
    pub(super) fn nothing() -> Self {
        Self {
            heartbeat: Heartbeat::new(),
            received: HbCounts::default(),
            unanswered: Unanswered::new(0),
            quiet: KVec::new(),
        }
    }

    /// A link that is about to be published.
    pub(super) fn new(link: &Link) -> Result<Self> {
        let now = time::now_ns();
        Ok(Self {
            heartbeat: Heartbeat::new(),
            received: HbCounts::default(),
            unanswered: Unanswered::new(now),
            quiet: KVec::from_elem(Quiet::new(now), link.connections(), GFP_KERNEL)?,
        })
    }
}

/// One tick of the heartbeat. Not in the owner task, which may be busy. It only changes the
/// heartbeat's own state, and the ticks of a path do not overlap.
pub(super) fn tick(path: &Arc<Path>) {
    let guard = rcu::read_lock();
    let Some(link) = path.link(&guard) else {
        return;
    };
    link.reap_sends();
    let core = &link.core;
    let limit = path.session.settings.heartbeat_limit.get();
    let received = link.received();
    let (rx, action) = {
        let mut known = path.heartbeat.lock();
        let rx = known.received.take(received);
        (rx, core.liveness.tick(&mut known.heartbeat, rx, limit))
    };
    match action {
        HbAction::Nothing => {}
        HbAction::SendHb => link.send_heartbeat(),
        HbAction::Dead => core.fail("no heartbeat", errno::ETIMEDOUT.to_errno()),
    }
    let admin = path.look_at_connections(link, rx.io);
    path.look_at_requests(link, rx.io || admin);
    path.end_trial();
    drop(guard);
    path.arm_heartbeat();
}

impl Path {
    pub(super) fn arm_heartbeat(self: &Arc<Self>) {
        let ms = self.session.settings.heartbeat_interval_ms.get();
        self.heartbeat_work.mod_delayed(self, msecs_to_jiffies(ms));
    }

    /// Gives up the link, which is the one that is up, if nothing is answered on one of its
    /// connections while others answer; `answered` says whether one of those for IO did in the
    /// interval that is over, which may be longer than the time-out. Returns whether an
    /// administrative request was answered in it: a message on their connection may be a heartbeat.
    fn look_at_connections(&self, link: &Link, answered: bool) -> bool {
        let in_a_row = &self.session.unanswered;
        let timeout_ms = self.session.settings.request_timeout_ms.get();
        let patience = in_a_row.patience(timeout_ms);
        let now = time::now_ns();
        let (mut admin, mut is_quiet) = (false, false);
        let others = {
            let mut known = self.heartbeat.lock();
            let quiet = known.quiet.iter_mut().zip(link.progress());
            for (con, (quiet, (ended, waits))) in (0u16..).zip(quiet) {
                if quiet.interval(now, ended, waits) {
                    admin |= con == 0;
                    in_a_row.answered_on(con);
                }
                is_quiet |= patience.is_some_and(|p| quiet.ns(now) >= p.unsent);
            }
            // If none is answered, the link as a whole is judged.
            let lately = |p: Patience| known.unanswered.is_answered(now, p.unsent);
            answered || admin || patience.is_some_and(lately)
        };
        let stuck = match patience {
            Some(patience) if others && is_quiet && link.core.orders_copies() => {
                self.stuck_connection(link, now, &patience)
            }
            _ => None,
        };
        if let Some((con, quiet_ns)) = stuck.filter(|&(con, _)| in_a_row.may_give_up_for(con)) {
            pr_warn_ratelimited!(
                "{}: connection {}: requests wait, and none is answered for {} s\n",
                self,
                con,
                quiet_ns / NS_PER_SEC
            );
            let errno = errno::ETIMEDOUT.to_errno();
            link.core.fail("a connection is stuck", errno);
        }
        admin
    }

    /// Returns the number of a connection that is stuck, and for how long it has been quiet, in
    /// nanoseconds.
    fn stuck_connection(&self, link: &Link, now: u64, patience: &Patience) -> Option<(u16, u64)> {
        // The lock is not held for a look at the requests: there may be very many.
        let quiet_ns = |con: u16| Some(self.heartbeat.lock().quiet.get(usize::from(con))?.ns(now));

        (0u16..)
            .take(link.connections())
            .filter_map(|con| Some((con, quiet_ns(con)?)))
            .filter(|&(_, ns)| ns >= patience.unsent)
            .find(|&(con, ns)| patience.is_stuck(ns, link.oldest_unsent(con)))
    }

    /// Gives up the link, which is the one that is up, if requests wait there and none is answered.
    /// `answered` says whether one was answered in the interval that is over.
    fn look_at_requests(&self, link: &Link, answered: bool) {
        let in_a_row = &self.session.unanswered;
        if answered {
            in_a_row.answered();
        }
        let timeout = in_a_row.timeout_ns(self.session.settings.request_timeout_ms.get());
        let now = time::now_ns();
        let due = {
            let waits = link.inflight() > 0;
            let mut known = self.heartbeat.lock();
            known.unanswered.interval(now, answered, waits, timeout)
        };
        let Some(timeout) = timeout.filter(|_| due) else {
            return;
        };
        // Without the lock, as there may be very many requests.
        let (count, age) = link.oldest();
        let verdict = self.heartbeat.lock().unanswered.look(now, age, timeout);
        if verdict == Verdict::Fine {
            return;
        }
        pr_warn_ratelimited!(
            "{}: {} requests wait for an answer, the oldest for {} s\n",
            self,
            count,
            age / NS_PER_SEC
        );
        // A server that does not order copies may execute both at the same time, or the second one
        // first.
        if verdict == Verdict::Stalled && link.core.orders_copies() && in_a_row.may_give_up() {
            let errno = errno::ETIMEDOUT.to_errno();
            link.core.fail("requests are not answered", errno);
        }
    }

    /// Whether the path only takes requests that no other path takes.
    pub(crate) fn is_on_trial(&self) -> bool {
        self.trial_end_ns.load(Relaxed) != 0
    }

    /// Returns the seconds that are left of its trial, rounded up; 0 if it is not on trial. A trial
    /// ends with a heartbeat, so its last second may be longer.
    pub(crate) fn trial_secs(&self) -> u64 {
        match self.trial_end_ns.load(Relaxed) {
            0 => 0,
            end_ns => end_ns
                .saturating_sub(time::now_ns())
                .div_ceil(NS_PER_SEC)
                .max(1),
        }
    }

    /// The path comes up: begins a trial if its `record` is bad.
    pub(super) fn begin_trial(&self, record: &mut Record) {
        let end_ns = record.came_up(time::now_ns());

        self.trial_end_ns.store(end_ns, Relaxed);
    }

    /// Ends the trial if its time is over.
    fn end_trial(&self) {
        if self.is_on_trial() && self.trial_end_ns.load(Relaxed) <= time::now_ns() {
            self.no_trial();
        }
    }

    /// Ends or cancels the trial.
    pub(super) fn no_trial(&self) {
        self.trial_end_ns.store(0, Relaxed);
    }
}
