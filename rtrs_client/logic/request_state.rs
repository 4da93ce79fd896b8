// SPDX-License-Identifier: GPL-2.0

//! The life of one request slot.
//!
//! A request is over when all that it waits for has happened: the server's answer always, the
//! completion of its send if the device may still read its memory, the invalidation of its key if
//! the server was given one. These come from different completion queues and in any order, a
//! hostile server may send any number of answers, and posting may fail half way. All of it is
//! decided on one atomic word, so that exactly one caller is told to complete the request.
//!
//! The slot belongs to whoever holds the permit of the same number. [`RequestState::start`] lends
//! it to the completion handlers; the caller that is told [`Outcome::Complete`], or that succeeds
//! with [`RequestState::abort`] or [`RequestState::take_for_failover`], owns it again.

use crate::atomic::{
    Atomic,
    Full,
    Relaxed, //
};

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Needs(u64);

impl Needs {
    const RESPONSE: u64 = 1 << 0;
    const SENT: u64 = 1 << 1;
    const INVALIDATED: u64 = 1 << 2;
    const ALL: u64 = Self::RESPONSE | Self::SENT | Self::INVALIDATED;

    /// The answer alone: all memory of the request is registered for good.
    pub const fn response() -> Self {
        Self(Self::RESPONSE)
    }

    /// And the completion of the send, which must be signaled, before memory is unmapped.
    pub const fn and_sent(self) -> Self {
        Self(self.0 | Self::SENT)
    }

    /// And the invalidation of the key that the server was given.
    pub const fn and_invalidated(self) -> Self {
        Self(self.0 | Self::INVALIDATED)
    }

    /// Whether the answer is waited for.
    pub const fn needs_response(self) -> bool {
        self.0 & Self::RESPONSE != 0
    }

    /// Whether the invalidation is waited for.
    pub const fn needs_invalidated(self) -> bool {
        self.0 & Self::INVALIDATED != 0
    }
}

/// Distinguishes uses of one slot, so that a late completion cannot hit the next one.
///
/// It has 28 bits: 2^28 uses of one slot while one completion is on its way cannot happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gen(u32);

impl Gen {
    /// The number, for logs and for the context of a work request.
    pub const fn as_u32(self) -> u32 {
        self.0
    }

    /// The value that had this number; excess bits are cut off.
    pub const fn from_u32(gen: u32) -> Self {
        // CAST: the mask has 28 bits.
        Self(gen & GEN_MASK as u32)
    }
}

/// What an event meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The request goes on, and waits for this. If that is the invalidation and no more, after an
    /// answer that did not bring it, the caller has to invalidate the key itself.
    Pending(Needs),
    /// The request is over with this result, 0 or a negative errno, and belongs to the caller.
    Complete(i32),
    /// The event fits no request in flight.
    Violation(Violation),
}

/// What is wrong with an event. All but [`Violation::Stale`] are the peer's doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// The slot has no request in flight.
    NotInFlight,
    /// The request was sent over another connection.
    WrongCon,
    /// This was already received.
    Duplicate,
    /// Invalidated by the peer without being asked, or after the answer.
    NotAsked,
    /// A completion of our own of an earlier use of the slot; to be ignored.
    Stale,
}

impl Violation {
    /// A short description without a trailing newline.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotInFlight => "answer to a request not in flight",
            Self::WrongCon => "answer on another connection",
            Self::Duplicate => "second answer to a request",
            Self::NotAsked => "invalidation nobody asked for",
            Self::Stale => "completion of an earlier request",
        }
    }
}

/// The request was completed by another caller, and must not be completed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlreadyOver;

/// What a request in flight was, when it is taken for failover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// Connection it was sent over.
    pub con: u16,
    /// Use of the slot.
    pub gen: Gen,
    /// What it still waited for. Without the answer it has to be sent again; with it the server
    /// is done and [`InFlight::result`] is what it said.
    pub needs: Needs,
    /// Result in the answer, 0 or a negative errno; 0 if there was no answer.
    pub result: i32,
}

// The word: 0..=2 needs, 3 in flight, 4..=15 errno, 16..=31 connection, 32..=59 use of the slot.
const IN_FLIGHT: u64 = 1 << 3;
const ERRNO_SHIFT: u32 = 4;
const ERRNO_MASK: u64 = 0xfff;
const CON_SHIFT: u32 = 16;
const GEN_SHIFT: u32 = 32;
const GEN_MASK: u64 = (1 << 28) - 1;

/// The state as a value.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Word(u64);

impl Word {
    const fn needs(self) -> Needs {
        Needs(self.0 & Needs::ALL)
    }

    const fn in_flight(self) -> bool {
        self.0 & IN_FLIGHT != 0
    }

    const fn con(self) -> u16 {
        // CAST: cut to the field.
        (self.0 >> CON_SHIFT) as u16
    }

    const fn gen(self) -> Gen {
        // CAST: cut to the field.
        Gen((self.0 >> GEN_SHIFT & GEN_MASK) as u32)
    }

    /// 0 or a negative errno.
    const fn result(self) -> i32 {
        // CAST: 12 bits.
        -((self.0 >> ERRNO_SHIFT & ERRNO_MASK) as i32)
    }

    /// No request in flight; the use is remembered.
    const fn idle(self) -> Self {
        Self(self.0 & (GEN_MASK << GEN_SHIFT))
    }

    const fn without(self, needs: u64) -> Self {
        Self(self.0 & !needs)
    }

    fn with_result(self, result: i32) -> Self {
        let errno = match result.checked_neg() {
            Some(errno @ 0..=4095) => u64::from(errno.unsigned_abs()),
            // EIO for what is no result at all.
            _ => 5,
        };
        Self(self.0 & !(ERRNO_MASK << ERRNO_SHIFT) | errno << ERRNO_SHIFT)
    }

    const fn in_flight_info(self) -> InFlight {
        InFlight {
            con: self.con(),
            gen: self.gen(),
            needs: self.needs(),
            result: self.result(),
        }
    }
}

/// The state of one request slot. All methods may be called from any context.
pub struct RequestState {
    word: Atomic<u64>,
}

impl RequestState {
    /// A slot without a request.
    pub fn new() -> Self {
        Self {
            word: Atomic::<u64>::new(0),
        }
    }

    /// Puts the request in flight on connection `con`, before it is posted.
    ///
    /// # Errors
    ///
    /// The request that is in flight, if there is one: a mistake of the caller, who does not own
    /// the slot.
    pub fn start(&self, con: u16, needs: Needs) -> Result<Gen, InFlight> {
        let old = Word(self.word.load(Relaxed));
        if old.in_flight() {
            return Err(old.in_flight_info());
        }

        let gen = u64::from(old.gen().as_u32()).wrapping_add(1) & GEN_MASK;
        let new = gen << GEN_SHIFT | u64::from(con) << CON_SHIFT | IN_FLIGHT | needs.0;
        match self.word.cmpxchg(old.0, new, Full) {
            Ok(_) => Ok(Word(new).gen()),
            Err(now) => Err(Word(now).in_flight_info()),
        }
    }

    /// The server's answer came on connection `con`, with `result` 0 or a negative errno.
    pub fn response(&self, con: u16, result: i32) -> Outcome {
        self.update(|word| {
            if word.con() != con {
                Err(Violation::WrongCon)
            } else if !word.needs().needs_response() {
                Err(Violation::Duplicate)
            } else {
                Ok(word.without(Needs::RESPONSE).with_result(result))
            }
        })
    }

    /// The completion of a receive on connection `con` says that the key was invalidated.
    ///
    /// That is proof. It has to come before the answer: afterwards we invalidate the key
    /// ourselves, and nobody may complete the request before that is done.
    pub fn invalidated_by_peer(&self, con: u16) -> Outcome {
        self.update(|word| {
            if word.con() != con {
                Err(Violation::WrongCon)
            } else if !word.needs().needs_invalidated() || !word.needs().needs_response() {
                Err(Violation::NotAsked)
            } else {
                Ok(word.without(Needs::INVALIDATED))
            }
        })
    }

    /// Our own invalidation of the key is done.
    pub fn invalidated(&self, gen: Gen) -> Outcome {
        self.own_completion(gen, Needs::INVALIDATED)
    }

    /// The send is done: the device does not read the request's memory any more.
    pub fn sent(&self, gen: Gen) -> Outcome {
        self.own_completion(gen, Needs::SENT)
    }

    /// Takes the request back after it could not be posted.
    ///
    /// # Errors
    ///
    /// [`AlreadyOver`] if a hostile server answered what it never got.
    pub fn abort(&self, gen: Gen) -> Result<(), AlreadyOver> {
        loop {
            let old = Word(self.word.load(Relaxed));
            if !old.in_flight() || old.gen() != gen {
                return Err(AlreadyOver);
            }
            if self.word.cmpxchg(old.0, old.idle().0, Full).is_ok() {
                return Ok(());
            }
        }
    }

    /// Takes a request in flight out of a path that failed; `None` if there is none.
    ///
    /// Only after the connections were quiesced and drained: then no completion can come, and the
    /// device touches none of the request's memory.
    pub fn take_for_failover(&self) -> Option<InFlight> {
        loop {
            let old = Word(self.word.load(Relaxed));
            if !old.in_flight() {
                return None;
            }
            if self.word.cmpxchg(old.0, old.idle().0, Full).is_ok() {
                return Some(old.in_flight_info());
            }
        }
    }

    /// What is in flight now, for display; it may be over when this returns.
    pub fn peek(&self) -> Option<InFlight> {
        let word = Word(self.word.load(Relaxed));

        word.in_flight().then(|| word.in_flight_info())
    }

    fn own_completion(&self, gen: Gen, need: u64) -> Outcome {
        self.update(|word| {
            if word.gen() != gen || word.needs().0 & need == 0 {
                Err(Violation::Stale)
            } else {
                Ok(word.without(need))
            }
        })
    }

    /// Applies `change`, and completes the request if nothing is left to wait for.
    fn update(&self, change: impl Fn(Word) -> Result<Word, Violation>) -> Outcome {
        loop {
            let old = Word(self.word.load(Relaxed));
            if !old.in_flight() {
                return Outcome::Violation(Violation::NotInFlight);
            }

            let changed = match change(old) {
                Ok(changed) => changed,
                Err(violation) => return Outcome::Violation(violation),
            };
            let (new, outcome) = if changed.needs() == Needs(0) {
                (changed.idle(), Outcome::Complete(changed.result()))
            } else {
                (changed, Outcome::Pending(changed.needs()))
            };
            // ORDERING: full, so that whoever completes the request sees what all others did to it
            // before, and the next user of the slot sees what the completion did.
            if self.word.cmpxchg(old.0, new.0, Full).is_ok() {
                return outcome;
            }
        }
    }
}

impl Default for RequestState {
    fn default() -> Self {
        Self::new()
    }
}
