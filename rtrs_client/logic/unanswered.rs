// SPDX-License-Identifier: GPL-2.0

//! A server that is alive, but does not answer requests.
//!
//! Heartbeats show that the server is alive, but not that it executes requests: a connection may be
//! stuck, and a server may have lost requests. The age of requests shows that. But a disk may be
//! slow, and only the server can judge that. So a link is *stalled* if its oldest request has
//! waited for the time-out, and no other one was answered for as long. Then the link is given up,
//! and its requests are sent again.
//!
//! Administrative requests count like those for IO: a server that does not answer them leaves tasks
//! that open or close a device waiting for ever. Heartbeats do not count as answers.
//!
//! Requests may be slow again, over any path, and then giving up links gains nothing. So each link
//! given up in a row, without an answer on any path of the session in between, doubles the
//! time-out, and after [`MAX_IN_A_ROW`] of them no link is given up. The log still reports waiting
//! requests.
//!
//! If other requests are answered, an old request is only reported in the log.
//!
//! # One connection
//!
//! Answers on one connection do not show that another one works. Requests of one processor may be
//! large, and a network device on the way may drop large packets. Such a connection repeats the
//! first of them for ever, and all that is behind it waits. So each connection is judged as well,
//! while others are answered: it is [*stuck*](Patience::is_stuck) if nothing was answered there
//! although requests waited all the time. An answered request there shows that it works, and that
//! the others are slow.
//!
//! A disk that is slow for all requests of one connection looks the same, unless the local device
//! says that a request has not arrived: a disk cannot be the reason for that. So the time-out is
//! enough in that case, and [`FACTOR`] times as long is needed in any other. The client cannot
//! probe the connection: requests are the only messages that the server answers there.
//!
//! Links that are given up for this reason are counted like the others, but on their own, and only
//! an answer on the same connection, over any path, ends the row.

use crate::atomic::{
    Atomic,
    Relaxed, //
};

/// Links of a session that are given up in a row, without an answer in between.
pub const MAX_IN_A_ROW: u32 = 3;

/// How many times longer than the time-out a connection may answer nothing if its requests may have
/// arrived, and other connections answer.
pub const FACTOR: u64 = 4;

/// The action for a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Fine,
    /// Report it in the log.
    Slow,
    /// No request is answered: report it, and give the link up.
    Stalled,
}

/// State of a link. Times are nanoseconds of a monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// Latest time before which a request was answered, or the link was new.
    answered: u64,
    /// Time at which the oldest request of the last look was sent, or later.
    since: u64,
}

impl Unanswered {
    /// The state of a link that was just established.
    pub const fn new(now: u64) -> Self {
        Self {
            answered: now,
            since: now,
        }
    }

    /// Ends an interval, in which a request was answered or not; and requests wait or not. Returns
    /// whether the age of the oldest is needed for [`Unanswered::look`]: about once per time-out.
    pub fn interval(
        &mut self,
        now: u64,
        answered: bool,
        waits: bool,
        timeout: Option<u64>,
    ) -> bool {
        if answered {
            self.answered = now;
        }
        if !waits {
            self.since = now;
        }
        timeout.is_some_and(|timeout| waits && now.saturating_sub(self.since) >= timeout)
    }

    /// The oldest request was sent `age` ago.
    pub fn look(&mut self, now: u64, age: u64, timeout: u64) -> Verdict {
        if age < timeout {
            self.since = now.saturating_sub(age);
            return Verdict::Fine;
        }
        if now.saturating_sub(self.answered) < timeout {
            // The next look is when no request was answered for the time-out, or else one time-out
            // from now.
            self.since = self.answered;
            Verdict::Slow
        } else {
            self.since = now;
            Verdict::Stalled
        }
    }

    /// Whether a request was answered on the link within `timeout`.
    pub const fn is_answered(&self, now: u64, timeout: u64) -> bool {
        now.saturating_sub(self.answered) < timeout
    }
}

/// State of one connection of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quiet {
    /// Number of requests that had ended there.
    ended: u32,
    /// Latest time before which one ended, or none waited.
    since: u64,
}

impl Quiet {
    /// The state of a connection of a link that was just established.
    pub const fn new(now: u64) -> Self {
        Self {
            ended: 0,
            since: now,
        }
    }

    /// Ends an interval: `ended` requests have ended there, and others wait or not. Returns whether
    /// one has ended in the interval.
    pub fn interval(&mut self, now: u64, ended: u32, waits: bool) -> bool {
        let answered = ended != self.ended;

        if answered || !waits {
            self.since = now;
        }
        self.ended = ended;
        answered
    }

    /// For how long requests have waited and none has ended.
    pub const fn ns(&self, now: u64) -> u64 {
        now.saturating_sub(self.since)
    }
}

/// How long a connection may answer nothing while others answer, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// If a request has not arrived.
    pub unsent: u64,
    /// If all may have arrived.
    pub sent: u64,
}

impl Patience {
    /// Whether a connection is stuck. `quiet` is [how long](Quiet::ns) nothing was answered there;
    /// `unsent` is the age of its oldest request that has not arrived.
    pub fn is_stuck(&self, quiet: u64, unsent: Option<u64>) -> bool {
        let unsent = unsent.is_some_and(|age| age >= self.unsent);

        quiet >= self.sent || unsent && quiet >= self.unsent
    }
}

/// Numbers of links of a session that were given up in a row. Shared between its paths.
pub struct InARow {
    /// For no answer at all.
    links: Atomic<u32>,
    /// For a connection that was stuck.
    connections: Atomic<u32>,
    /// The number of the last of these.
    connection: Atomic<u32>,
}

/// `ms` in nanoseconds, doubled for each link of `count`; `None` if it is 0.
fn doubled(ms: u32, count: u32) -> Option<u64> {
    let times = 1u64 << count.min(MAX_IN_A_ROW);

    (ms != 0).then(|| {
        u64::from(ms)
            .saturating_mul(1_000_000)
            .saturating_mul(times)
    })
}

/// Counts one more, unless there are enough. Returns whether it did.
fn one_more(count: &Atomic<u32>) -> bool {
    if count.load(Relaxed) >= MAX_IN_A_ROW {
        return false;
    }
    count.fetch_add(1, Relaxed);
    true
}

impl InARow {
    /// No link was given up.
    pub fn new() -> Self {
        Self {
            links: Atomic::<u32>::new(0),
            connections: Atomic::<u32>::new(0),
            connection: Atomic::<u32>::new(0),
        }
    }

    /// A request was answered.
    pub fn answered(&self) {
        if self.links.load(Relaxed) != 0 {
            self.links.store(0, Relaxed);
        }
    }

    /// A request was answered on the connection with this number.
    pub fn answered_on(&self, connection: u16) {
        if self.connections.load(Relaxed) != 0
            && self.connection.load(Relaxed) == u32::from(connection)
        {
            self.connections.store(0, Relaxed);
        }
    }

    /// Returns the present time-out in nanoseconds; `None` if there is none.
    pub fn timeout_ns(&self, ms: u32) -> Option<u64> {
        doubled(ms, self.links.load(Relaxed))
    }

    /// Returns the present time-outs of one connection; `None` if there are none.
    pub fn patience(&self, ms: u32) -> Option<Patience> {
        let unsent = doubled(ms, self.connections.load(Relaxed))?;

        Some(Patience {
            unsent,
            sent: unsent.saturating_mul(FACTOR),
        })
    }

    /// A link is stalled. Returns whether it may be given up.
    pub fn may_give_up(&self) -> bool {
        one_more(&self.links)
    }

    /// The connection with this number is stuck. Returns whether its link may be given up.
    pub fn may_give_up_for(&self, connection: u16) -> bool {
        let may = one_more(&self.connections);
        if may {
            self.connection.store(connection.into(), Relaxed);
        }
        may
    }
}

impl Default for InARow {
    fn default() -> Self {
        Self::new()
    }
}
