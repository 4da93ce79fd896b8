// SPDX-License-Identifier: GPL-2.0

//! Heartbeats: they detect a dead peer in bounded time, and measure the round trip to a live one.
//!
//! Both sides run the same rules, on the service connection, once per interval:
//!
//! * If no heartbeat is waiting for its answer, one is sent, regardless of other traffic: the
//!   service connection is probed even while IO flows on others.
//! * An interval in which nothing at all was received is a miss. After `limit` misses in a row the
//!   path is dead: that is `limit` intervals after an unanswered heartbeat, and at most `limit + 1`
//!   intervals after the last message received. A heartbeat for which the send queue has no room
//!   counts as one that is not answered. Otherwise a peer could fill the queue, and vanish. A peer
//!   that lives, and is late in taking what it was sent, sends heartbeats of its own.
//! * An interval in which something was received, but nothing on the service connection, counts as
//!   a miss of the service connection only, which may be silent [`SERVICE_FACTOR`] times as long.
//!   So IO cannot mask a dead service connection for ever. A server of the C implementation does
//!   not answer heartbeats while its user handles a slow administrative request; its IO is not
//!   interrupted.
//!
//! These rules do not detect a dead IO connection while the service connection lives; the age of
//! the requests on it does.
//!
//! # A heartbeat that is lost on the way
//!
//! The device repeats it after its ack time-out, which is usually half a second but may be minutes.
//! A caller that cannot wait for that asks again ([`HbProbe::begin_again`]): connections are
//! ordered, so the peer's device finds a gap before the second heartbeat and reports it, and the
//! local device repeats the first heartbeat at once. So one lost packet costs the time until the
//! second heartbeat, whatever the time-out. If the answer was lost, the second answer has the
//! same effect: up to [`ANSWERS`] of them may be on their way.

use crate::atomic::{
    Atomic,
    Full,
    Relaxed,
    Release, //
};

/// How many times longer the service connection may be silent than the whole path.
pub const SERVICE_FACTOR: u32 = 4;

/// Default interval in milliseconds.
pub const DEFAULT_INTERVAL_MS: u32 = 5000;

/// Default number of missed intervals after which a path is dead.
pub const DEFAULT_LIMIT: u32 = 5;

/// The most times that a heartbeat is repeated while none is answered.
pub const REPEATS: u32 = 3;

/// The most answers to heartbeats that may be on their way: as many as there may be heartbeats.
pub const ANSWERS: u32 = REPEATS + 1;

/// Send time of a heartbeat that was repeated: it is not known which of them an answer belongs to.
const ASKED_AGAIN: u64 = u64::MAX;

/// The action to take after a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HbAction {
    /// Wait for the next tick.
    Nothing,
    /// Send a heartbeat and tell [`HbProbe::begin`] before posting it.
    SendHb,
    /// The peer is dead.
    Dead,
}

/// Where something was received since the last tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HbRx {
    /// Anything on the service connection.
    pub service: bool,
    /// Anything on an IO connection.
    pub io: bool,
}

/// Numbers of messages that were received, which only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HbCounts {
    /// On the service connection.
    pub service: u64,
    /// On all other connections.
    pub io: u64,
}

impl HbCounts {
    /// All messages.
    pub const fn total(self) -> u64 {
        // No overflow: the number stays far below 2^64.
        self.service.wrapping_add(self.io)
    }

    /// Sums up the number of each connection, of which the first is the service connection.
    pub fn of(received: impl IntoIterator<Item = u64>) -> Self {
        let mut received = received.into_iter();

        Self {
            service: received.next().unwrap_or_default(),
            // No overflow: the number stays far below 2^64.
            io: received.fold(0, u64::wrapping_add),
        }
    }

    /// Takes new numbers. Returns where something was received since the last call.
    pub fn take(&mut self, now: Self) -> HbRx {
        let rx = HbRx {
            service: now.service > self.service,
            io: now.io > self.io,
        };
        *self = now;
        rx
    }
}

/// Whether a peer was heard since it was asked, by the [number](HbCounts::total) of messages that
/// were received. Any context.
pub struct HbAsked {
    /// That number when it was last asked.
    received: Atomic<u64>,
}

impl HbAsked {
    /// Not asked yet: all messages count.
    pub fn new() -> Self {
        Self {
            received: Atomic::<u64>::new(0),
        }
    }

    /// It is about to be asked, and `received` messages have come. Returns whether it was heard
    /// since it was last asked. If several callers ask at the same time, it is one of them that
    /// hears a message.
    pub fn ask(&self, received: u64) -> bool {
        // The later one of two callers may have counted first; its number must not replace the
        // other one: messages in between would count as an answer to the later question.
        loop {
            let old = self.received.load(Relaxed);
            if old >= received {
                return false;
            }
            if self.received.cmpxchg(old, received, Relaxed).is_ok() {
                return true;
            }
        }
    }

    /// Whether it was heard, as `received` messages have come.
    pub fn was_heard(&self, received: u64) -> bool {
        received > self.received.load(Relaxed)
    }
}

impl Default for HbAsked {
    fn default() -> Self {
        Self::new()
    }
}

/// What has become of the last heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// It was answered, or there was none.
    Answered,
    /// There was no room for it in the send queue.
    Unsent,
    /// It is on its way.
    Outstanding,
}

/// The counters on which the decision is based. Owned by the code that runs the ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heartbeat {
    silent: u32,
    service_silent: u32,
}

impl Heartbeat {
    /// The initial state, of a path that was just established.
    pub const fn new() -> Self {
        Self {
            silent: 0,
            service_silent: 0,
        }
    }

    /// Decides at the end of an interval.
    ///
    /// `probe` is [`HbProbe::state`]; `limit` may change between ticks, 0 counts as 1.
    pub fn tick(&mut self, rx: HbRx, probe: Probe, limit: u32) -> HbAction {
        let limit = limit.max(1);
        // If the peer was not asked, silence is not a miss.
        let asked = probe != Probe::Answered;

        if rx.service {
            self.service_silent = 0;
        } else if asked {
            self.service_silent = self.service_silent.saturating_add(1);
        }
        if rx.service || rx.io {
            self.silent = 0;
        } else if asked {
            self.silent = self.silent.saturating_add(1);
        }

        if self.silent >= limit || self.service_silent >= limit.saturating_mul(SERVICE_FACTOR) {
            HbAction::Dead
        } else if probe == Probe::Outstanding {
            HbAction::Nothing
        } else {
            HbAction::SendHb
        }
    }

    /// Intervals in a row in which nothing was received, for display.
    pub const fn missed(&self) -> u32 {
        self.silent
    }
}

/// The heartbeat on its way, shared by the code that sends it and the code that receives the
/// answer.
pub struct HbProbe {
    /// Send time in nanoseconds, 0 if none is on its way, or [`ASKED_AGAIN`].
    sent_ns: Atomic<u64>,
    /// Whether there was no room for the last one: 1, or 0.
    unsent: Atomic<u32>,
    /// How many times the heartbeat on its way was repeated.
    repeats: Atomic<u32>,
    /// Number of answers to repeats that may still come after the heartbeat on its way was
    /// answered. Written by the handler of answers.
    owed: Atomic<u32>,
}

/// The result of [`HbProbe::begin_again`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Nothing was begun: the heartbeat was repeated often enough.
    No,
    /// A heartbeat was begun, as none was on its way.
    First,
    /// A repeat of the heartbeat on its way was begun.
    Again,
}

impl HbProbe {
    /// No heartbeat on its way.
    pub fn new() -> Self {
        Self {
            sent_ns: Atomic::<u64>::new(0),
            unsent: Atomic::<u32>::new(0),
            repeats: Atomic::<u32>::new(0),
            owed: Atomic::<u32>::new(0),
        }
    }

    /// Records that a heartbeat is about to be posted, at `now_ns` of a monotonic clock. Returns
    /// whether it may be posted: not while one is on its way.
    #[must_use]
    pub fn begin(&self, now_ns: u64) -> bool {
        let begun = self.sent_ns.cmpxchg(0, now_ns.max(1), Full).is_ok();
        if begun {
            self.unsent.store(0, Relaxed);
            self.repeats.store(0, Relaxed);
        }
        begun
    }

    /// As [`begin`](Self::begin), for a caller that does not rely on the heartbeat on its way:
    /// another one may be posted nevertheless, [`REPEATS`] times; once more if two callers come at
    /// the same time.
    #[must_use]
    pub fn begin_again(&self, now_ns: u64) -> Asked {
        if self.begin(now_ns) {
            return Asked::First;
        }
        let repeats = self.repeats.load(Relaxed);
        if repeats >= REPEATS {
            return Asked::No;
        }
        let sent_ns = self.sent_ns.load(Relaxed);
        // The heartbeat was answered meanwhile: this begins a new one.
        if sent_ns == 0 || self.sent_ns.cmpxchg(sent_ns, ASKED_AGAIN, Full).is_err() {
            return match self.begin(now_ns) {
                true => Asked::First,
                false => Asked::No,
            };
        }
        self.repeats.store(repeats.saturating_add(1), Relaxed);
        Asked::Again
    }

    /// Takes back `asked` after posting failed. A heartbeat that was on its way before stays so.
    pub fn take_back(&self, asked: Asked) {
        match asked {
            Asked::No => (),
            Asked::First => {
                self.unsent.store(1, Relaxed);
                // ORDERING: The task that begins the next heartbeat clears `unsent` after this.
                self.sent_ns.store(0, Release);
            }
            Asked::Again => {
                let repeats = self.repeats.load(Relaxed);
                self.repeats.store(repeats.saturating_sub(1), Relaxed);
            }
        }
    }

    /// What has become of the last heartbeat.
    pub fn state(&self) -> Probe {
        if self.outstanding() {
            Probe::Outstanding
        } else if self.unsent.load(Relaxed) != 0 {
            Probe::Unsent
        } else {
            Probe::Answered
        }
    }

    /// Whether a heartbeat is waiting for its answer.
    pub fn outstanding(&self) -> bool {
        self.sent_ns.load(Relaxed) != 0
    }

    /// Matches a received answer: the round trip in nanoseconds, or `None` if no heartbeat was on
    /// its way, or it was repeated.
    ///
    /// An answer without a heartbeat is ignored: it must not lower the measured latency. The same
    /// holds for the answer to a repeat that arrives when the next heartbeat is on its way: it
    /// shows that the peer is alive, so it counts as the answer to that heartbeat, but it does not
    /// give a round trip.
    pub fn ack(&self, now_ns: u64) -> Option<u64> {
        let sent_ns = self.sent_ns.xchg(0, Full);
        if sent_ns == ASKED_AGAIN {
            self.owed.store(self.repeats.load(Relaxed), Relaxed);
            return None;
        }
        let owed = self.owed.load(Relaxed);
        if owed > 0 {
            self.owed.store(owed.saturating_sub(1), Relaxed);
            return None;
        }
        match sent_ns {
            0 => None,
            sent_ns => Some(now_ns.saturating_sub(sent_ns)),
        }
    }
}

impl Default for HbProbe {
    fn default() -> Self {
        Self::new()
    }
}

/// Heartbeats of a path and answers to those of the peer, on either side.
///
/// What was received is counted by the queue pairs ([`HbCounts`]): nothing is noted for a message.
/// Written by completion handlers on any CPU; read by the code that runs the ticks.
pub struct Liveness {
    probe: HbProbe,
    /// Number of answers on their way.
    acking: Atomic<u32>,
}

impl Liveness {
    /// Nothing on its way.
    pub fn new() -> Self {
        Self {
            probe: HbProbe::new(),
            acking: Atomic::<u32>::new(0),
        }
    }

    /// Decides at the end of an interval in which `rx` was received, see [`Heartbeat::tick`].
    pub fn tick(&self, heartbeat: &mut Heartbeat, rx: HbRx, limit: u32) -> HbAction {
        heartbeat.tick(rx, self.probe.state(), limit)
    }

    /// The heartbeat on its way.
    pub fn probe(&self) -> &HbProbe {
        &self.probe
    }

    /// Whether a heartbeat of the peer should be answered: not while [`ANSWERS`] answers are on
    /// their way. So a peer that sends too many heartbeats cannot fill the queue.
    pub fn begin_ack(&self) -> bool {
        let begun = self.acking.fetch_add(1, Full) < ANSWERS;
        if !begun {
            self.end_ack();
        }
        begun
    }

    /// Records that an answer was sent, or could not be sent.
    pub fn end_ack(&self) {
        self.acking.fetch_sub(1, Full);
    }
}

impl Default for Liveness {
    fn default() -> Self {
        Self::new()
    }
}
