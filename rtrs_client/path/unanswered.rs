// SPDX-License-Identifier: GPL-2.0

//! Handling of a server that does not answer requests; see [`unanswered`].
//!
//! # Context
//!
//! The tick of the heartbeat, which does not run twice at a time for a path.
//!
//! [`unanswered`]: crate::logic::unanswered

use rtrs_bindings::{
    errno,
    ratelimit::pr_warn_ratelimited,
    time, //
};

use super::Path;
use crate::{
    link::Link,
    logic::unanswered::Verdict, //
};

const NS_PER_SEC: u64 = 1_000_000_000;

impl Path {
    /// Gives up the link, which is the one that is up, if requests wait there and none is answered.
    /// `answered` says whether one was answered in the interval that is over.
    pub(super) fn look_at_requests(&self, link: &Link, answered: bool) {
        let in_a_row = self.session.unanswered();
        if answered {
            in_a_row.answered();
        }
        let timeout = in_a_row.timeout_ns(self.session.tuning().request_timeout_ms.get());
        let now = time::now_ns();
        let due = {
            let waits = link.waits_for_io();
            let mut known = self.heartbeat.lock();
            known.1.interval(now, answered, waits, timeout)
        };
        let Some(timeout) = timeout.filter(|_| due) else {
            return;
        };
        // Without the lock, as there may be very many requests.
        let (count, age) = link.oldest();
        let verdict = self.heartbeat.lock().1.look(now, age, timeout);
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
}
