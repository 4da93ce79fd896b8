// SPDX-License-Identifier: GPL-2.0

//! Heartbeats: notice a dead peer in bounded time, measure the round trip of a live one.
//!
//! Both sides run the same rules, on the service connection, once per interval:
//!
//! * If no heartbeat is waiting for its answer, one is sent, whatever else is going on: the
//!   service connection is probed even while IO flows elsewhere.
//! * An interval in which nothing at all was received is a miss. `limit` misses in a row, and the
//!   path is dead: that is `limit` intervals after an unanswered heartbeat, and at most
//!   `limit + 1` intervals after the last thing received.
//! * An interval in which something was received, but nothing on the service connection, counts
//!   for the service connection alone, which may be silent [`SERVICE_FACTOR`] times as long. So
//!   IO cannot mask a dead service connection for ever, and a server of the C implementation,
//!   which does not answer heartbeats while its user handles a slow administrative request, is
//!   not cut off from its IO.
//!
//! That an IO connection is dead while the service connection lives is not noticed here; it takes
//! the age of the requests on it.
//!
//! # A heartbeat that is lost on the way
//!
//! The device repeats it after its ack time-out, which is half a second as a rule, and may be
//! minutes. Who cannot wait for that asks again ([`HbProbe::begin_again`]): connections are in order,
//! so the peer's device finds a gap in front of the second heartbeat, says so, and ours repeats the
//! first at once. So one packet that is lost costs the time until the second question, whatever the
//! time-out is. If it was the answer, the second answer does the same for that: up to [`ANSWERS`] of
//! them may be on their way.

use crate::atomic::{
    Atomic,
    Full,
    Relaxed, //
};

/// How many times longer than a whole path its service connection may be silent.
pub const SERVICE_FACTOR: u32 = 4;

/// Default interval in milliseconds.
pub const DEFAULT_INTERVAL_MS: u32 = 5000;

/// Default number of missed intervals after which a path is dead.
pub const DEFAULT_LIMIT: u32 = 5;

/// Times that a heartbeat is asked again at most, while none is answered.
pub const REPEATS: u32 = 3;

/// Answers to heartbeats that may be on their way: as many as there may be questions.
pub const ANSWERS: u32 = REPEATS + 1;

/// Time sent of a heartbeat that was asked again: which of them an answer is for is not known.
const ASKED_AGAIN: u64 = u64::MAX;

/// What to do after a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HbAction {
    /// Wait for the next tick.
    Nothing,
    /// Send a heartbeat and tell [`HbProbe::begin`] before posting it.
    SendHb,
    /// The peer is dead.
    Dead,
}

/// What was received since the last tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HbRx {
    /// Anything on the service connection.
    pub service: bool,
    /// Anything on an IO connection.
    pub io: bool,
}

/// The counters behind the decision. Belongs to whoever runs the ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heartbeat {
    silent: u32,
    service_silent: u32,
}

impl Heartbeat {
    /// The state of a path that was just established.
    pub const fn new() -> Self {
        Self {
            silent: 0,
            service_silent: 0,
        }
    }

    /// Decides at the end of an interval.
    ///
    /// `outstanding` is [`HbProbe::outstanding`]; `limit` may change between ticks, 0 counts as 1.
    pub fn tick(&mut self, rx: HbRx, outstanding: bool, limit: u32) -> HbAction {
        let limit = limit.max(1);

        if rx.service {
            self.service_silent = 0;
        } else if outstanding {
            self.service_silent = self.service_silent.saturating_add(1);
        }
        if rx.service || rx.io {
            self.silent = 0;
        } else if outstanding {
            // Without a probe on the way, silence means nothing.
            self.silent = self.silent.saturating_add(1);
        }

        if self.silent >= limit || self.service_silent >= limit.saturating_mul(SERVICE_FACTOR) {
            HbAction::Dead
        } else if outstanding {
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

/// The heartbeat on its way, shared between who sends and who receives the answer.
pub struct HbProbe {
    /// Time sent in nanoseconds, 0 if none is on its way, or [`ASKED_AGAIN`].
    sent_ns: Atomic<u64>,
    /// Times that the one on its way was asked again.
    repeats: Atomic<u32>,
    /// Answers to repeats that may still come when the one that was on its way is answered. Written
    /// by the handler of answers.
    owed: Atomic<u32>,
}

/// What [`HbProbe::begin_again`] has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Nothing: it was asked often enough.
    No,
    /// A heartbeat, as none was on its way.
    First,
    /// A repeat of the one on its way.
    Again,
}

impl HbProbe {
    /// No heartbeat on its way.
    pub fn new() -> Self {
        Self {
            sent_ns: Atomic::<u64>::new(0),
            repeats: Atomic::<u32>::new(0),
            owed: Atomic::<u32>::new(0),
        }
    }

    /// Notes that a heartbeat is about to be posted, at `now_ns` of a monotonic clock. Returns
    /// whether it may be: not while one is on its way.
    #[must_use]
    pub fn begin(&self, now_ns: u64) -> bool {
        let begun = self.sent_ns.cmpxchg(0, now_ns.max(1), Full).is_ok();
        if begun {
            self.repeats.store(0, Relaxed);
        }
        begun
    }

    /// The same for one who does not rely on the heartbeat that is on its way: one may be posted
    /// nevertheless, [`REPEATS`] times; once more if two callers come at the same time.
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
        // Answered meanwhile: this is another one.
        if sent_ns == 0 || self.sent_ns.cmpxchg(sent_ns, ASKED_AGAIN, Full).is_err() {
            return match self.begin(now_ns) {
                true => Asked::First,
                false => Asked::No,
            };
        }
        self.repeats.store(repeats.saturating_add(1), Relaxed);
        Asked::Again
    }

    /// Takes back what was `asked` after posting failed. A heartbeat that was on its way before still
    /// is.
    pub fn take_back(&self, asked: Asked) {
        match asked {
            Asked::No => (),
            Asked::First => self.sent_ns.store(0, Relaxed),
            Asked::Again => {
                let repeats = self.repeats.load(Relaxed);
                self.repeats.store(repeats.saturating_sub(1), Relaxed);
            }
        }
    }

    /// Whether a heartbeat waits for its answer.
    pub fn outstanding(&self) -> bool {
        self.sent_ns.load(Relaxed) != 0
    }

    /// Matches a received answer: the round trip in nanoseconds, or `None` if nobody asked, or did
    /// so more than once.
    ///
    /// An answer without a question is ignored, it must not pull the latency down. Nor must the
    /// answer to a repeat that comes when the next heartbeat is on its way: it shows that the peer
    /// lives, so it counts as that one's answer, but not how long that took.
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

/// What the connections of a path, on either side, tell of the peer's life.
///
/// Written by completion handlers on any CPU; read by who runs the ticks.
pub struct Liveness {
    probe: HbProbe,
    /// What was received: [`SERVICE`], [`IO`], [`LATELY`].
    seen: Atomic<u32>,
    /// Answers on their way.
    acking: Atomic<u32>,
}

/// Something on the service connection, in this interval.
const SERVICE: u32 = 1 << 0;
/// Something on another one.
const IO: u32 = 1 << 1;
/// Anything, since that was asked last.
const LATELY: u32 = 1 << 2;

impl Liveness {
    /// Nothing received, nothing on its way.
    pub fn new() -> Self {
        Self {
            probe: HbProbe::new(),
            seen: Atomic::<u32>::new(0),
            acking: Atomic::<u32>::new(0),
        }
    }

    /// Something was received on connection `cid`; 0 is the service connection.
    #[inline(always)]
    pub fn received(&self, cid: u16) {
        let bits = LATELY | if cid == 0 { SERVICE } else { IO };

        // Only the first one in an interval writes: all CPUs share the word.
        if self.seen.load(Relaxed) & bits != bits {
            self.mark(bits);
        }
    }

    #[inline(never)]
    fn mark(&self, bits: u32) {
        self.change(|seen| seen | bits);
    }

    /// Changes what was received; returns what it was before.
    fn change(&self, new: impl Fn(u32) -> u32) -> u32 {
        loop {
            let old = self.seen.load(Relaxed);
            if self.seen.cmpxchg(old, new(old), Relaxed).is_ok() {
                return old;
            }
        }
    }

    /// Whether anything was received since this was asked last. Apart from what heartbeats count.
    pub fn heard(&self) -> bool {
        self.change(|seen| seen & !LATELY) & LATELY != 0
    }

    /// The same, for one who asks again.
    pub fn was_heard(&self) -> bool {
        self.seen.load(Relaxed) & LATELY != 0
    }

    /// What was received since this was asked last.
    pub fn take(&self) -> HbRx {
        let seen = self.change(|seen| seen & LATELY);

        HbRx {
            service: seen & SERVICE != 0,
            io: seen & IO != 0,
        }
    }

    /// Decides at the end of an interval in which `rx` was received, see [`Heartbeat::tick`].
    pub fn tick(&self, heartbeat: &mut Heartbeat, rx: HbRx, limit: u32) -> HbAction {
        heartbeat.tick(rx, self.probe.outstanding(), limit)
    }

    /// The heartbeat on its way.
    pub fn probe(&self) -> &HbProbe {
        &self.probe
    }

    /// Whether a heartbeat of the peer is to be answered: not while [`ANSWERS`] are on their way. A
    /// peer that sends more than it gets answers for is not served better, and fills no queue.
    pub fn begin_ack(&self) -> bool {
        let begun = self.acking.fetch_add(1, Full) < ANSWERS;
        if !begun {
            self.end_ack();
        }
        begun
    }

    /// An answer is sent, or could not be.
    pub fn end_ack(&self) {
        self.acking.fetch_sub(1, Full);
    }
}

impl Default for Liveness {
    fn default() -> Self {
        Self::new()
    }
}
