// SPDX-License-Identifier: GPL-2.0

//! The state word of a flight.
//!
//! A flight is over when all events that it needs have happened: always the peer's answer, the
//! completion of its send if the device may still read its memory, and the invalidation of its key
//! if the peer was given one. These events come from different work requests and in any order, a
//! hostile peer may answer any number of times, and posting may fail half way. One word decides all
//! of this:
//!
//! ```text
//!   Idle --build--> Building --fly--> InFlight --last event, collect--> Landing --land--> Idle
//!    ^                |    ^             |
//!    +----cancel------+    +--take_back--+
//! ```
//!
//! In `Building` and `Landing` the flight has exactly one owner: the caller of the transition that
//! led there.

use crate::atomic::{
    Acquire,
    Atomic,
    Full,
    Relaxed,
    Release, //
};

/// The events that a flight needs to be over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Needs(u64);

impl Needs {
    const ANSWER: u64 = 1 << 0;
    const SENT: u64 = 1 << 1;
    const INVALIDATED: u64 = 1 << 2;
    const ALL: u64 = Self::ANSWER | Self::SENT | Self::INVALIDATED;

    /// The answer alone.
    #[inline]
    pub const fn answer() -> Self {
        Self(Self::ANSWER)
    }

    /// Adds the completion of the send, which is signaled.
    #[inline]
    pub const fn and_sent(self) -> Self {
        Self(self.0 | Self::SENT)
    }

    /// Adds the invalidation of the key.
    #[inline]
    pub const fn and_invalidated(self) -> Self {
        Self(self.0 | Self::INVALIDATED)
    }

    /// Whether the answer is needed.
    #[inline]
    pub const fn has_answer(self) -> bool {
        self.0 & Self::ANSWER != 0
    }

    /// Whether the completion of the send is needed.
    #[inline]
    pub const fn has_sent(self) -> bool {
        self.0 & Self::SENT != 0
    }

    /// Whether the invalidation is needed.
    #[inline]
    pub const fn has_invalidated(self) -> bool {
        self.0 & Self::INVALIDATED != 0
    }
}

/// The way by which a flight goes: a number for its user, and one that no other lane has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane(u64);

impl Lane {
    /// A lane with number `index`. `serial` must be that of no other lane.
    #[inline]
    pub const fn new(index: u16, serial: u16) -> Self {
        // CAST: Widening.
        Self((index as u64) << INDEX_SHIFT | (serial as u64) << SERIAL_SHIFT)
    }

    /// The lane of a word.
    const fn of(word: u64) -> Self {
        Self(word >> INDEX_SHIFT << INDEX_SHIFT)
    }

    /// The number for the user.
    #[inline]
    pub const fn index(self) -> u16 {
        // CAST: Cut to the field.
        (self.0 >> INDEX_SHIFT) as u16
    }
}

/// A completion of the flight's own work requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own {
    /// The send is done: the device does not read the memory any more.
    Sent,
    /// The local invalidation of the key is done.
    Invalidated,
}

/// The effect of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// The flight goes on, and still needs these events. The caller must post the invalidation.
    Needs(Needs),
    /// The flight is over with this result, 0 or a negative errno, and the caller owns it.
    Over(i32),
}

/// The effect of an answer that says success, which was handled in the short way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Succeeded {
    /// The flight is over, and the caller owns it.
    Over,
    /// The flight only needs the completion of its send now.
    Sending,
    /// The flight goes on, and needs the invalidation of its key, which the caller must post.
    Keyed,
    /// Nothing has changed: [`Word::answered`] has to handle the answer.
    Unclear,
}

/// The end of a flight by a completion of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// The result of the answer, 0 or a negative errno.
    pub result: i32,
    /// The completion was [expected](Word::expect).
    pub expected: bool,
}

/// The reason why an answer is invalid; the flight is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Nothing is in flight.
    NotInFlight,
    /// The request was sent over another lane.
    WrongLane,
    /// The request was answered before.
    Duplicate,
}

impl Violation {
    /// A short description without a trailing newline.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotInFlight => "answer to a request not in flight",
            Self::WrongLane => "answer on another connection",
            Self::Duplicate => "second answer to a request",
        }
    }
}

/// The state of a flight that was in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// The number of the lane that it was sent over.
    pub lane: u16,
    /// The events that it still needs.
    pub needs: Needs,
    /// Result in the answer, 0 or a negative errno; 0 if there was no answer.
    pub result: i32,
}

/// The word that [`Word::fly`] stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flown(u64);

// The word: 0..=2 needs, 3..=4 phase, 5 expected, 8..=19 errno, 32..=63 lane: index and serial.
const PHASE: u64 = 3 << 3;
const IDLE: u64 = 0 << 3;
const BUILDING: u64 = 1 << 3;
const IN_FLIGHT: u64 = 2 << 3;
const LANDING: u64 = 3 << 3;
const EXPECTED: u64 = 1 << 5;
const ERRNO_SHIFT: u32 = 8;
const ERRNO_MASK: u64 = 0xfff;
const INDEX_SHIFT: u32 = 32;
const SERIAL_SHIFT: u32 = 48;

const fn result(word: u64) -> i32 {
    // CAST: The value has 12 bits.
    -((word >> ERRNO_SHIFT & ERRNO_MASK) as i32)
}

#[inline]
fn with_result(word: u64, result: i32) -> u64 {
    let errno = match result.wrapping_neg() {
        // CAST: The value has 12 bits.
        errno @ 0..=4095 => errno as u64,
        // EIO for an invalid result.
        _ => 5,
    };
    word | errno << ERRNO_SHIFT
}

fn in_flight(word: u64) -> Option<InFlight> {
    (word & PHASE == IN_FLIGHT).then(|| InFlight {
        lane: Lane::of(word).index(),
        needs: Needs(word & Needs::ALL),
        result: result(word),
    })
}

/// The state of one flight. All methods may be called from any context.
pub struct Word(Atomic<u64>);

impl Word {
    /// Idle.
    pub fn new() -> Self {
        Self(Atomic::<u64>::new(IDLE))
    }

    /// Idle to Building; `false` if the flight is not idle. The caller then owns the flight.
    #[inline(always)]
    pub fn build(&self) -> bool {
        // Acquire pairs with `land()`: all accesses of the previous owner are visible.
        self.0.cmpxchg(IDLE, BUILDING, Acquire).is_ok()
    }

    /// Building to Idle. Called by the owner.
    #[inline]
    pub fn cancel(&self) {
        self.0.store(IDLE, Release);
    }

    /// Building to InFlight. Called by the owner, before anything is posted.
    #[inline(always)]
    pub fn fly(&self, lane: Lane, needs: Needs) -> Flown {
        let word = lane.0 | IN_FLIGHT | needs.0;
        self.0.store(word, Release);
        Flown(word)
    }

    /// InFlight back to Building, as nothing was posted. `false` if an event has changed the
    /// flight, which can only be an answer to a request that was not sent: the caller does not own
    /// the flight any more.
    ///
    /// Must be called with the queue still locked since [`fly`](Self::fly), so that the flight
    /// cannot have been reused.
    pub fn take_back(&self, flown: Flown) -> bool {
        self.0.cmpxchg(flown.0, BUILDING, Full).is_ok()
    }

    /// Handles the peer's answer over `lane`, which says success and does not claim that a key was
    /// invalidated: lands a flight that needs nothing else. No load comes before: the value that the
    /// word must have follows from the lane. Otherwise nothing has changed, and
    /// [`succeeded`](Self::succeeded) has to follow.
    #[inline(always)]
    pub fn land_answered(&self, lane: Lane) -> bool {
        let flown = lane.0 | IN_FLIGHT | Needs::ANSWER;
        // ORDERING: Full, so that the owner that lands the flight sees all earlier accesses to it.
        self.0.cmpxchg(flown, LANDING, Full).is_ok()
    }

    /// Handles such an answer in any case.
    ///
    /// `counts` is called if the answer counts, before another event can end the flight. If the flight
    /// is taken back at the same moment, the result is [`Succeeded::Unclear`] nevertheless: the peer has
    /// answered a request that it never got.
    pub fn succeeded(&self, lane: Lane, counts: impl FnOnce()) -> Succeeded {
        let flown = lane.0 | IN_FLIGHT | Needs::ANSWER;
        let waits = |word: u64| word & !(Needs::SENT | Needs::INVALIDATED) == flown;
        let mut old = self.0.load(Relaxed);
        if !waits(old) {
            return Succeeded::Unclear;
        }
        counts();
        loop {
            let new = match old == flown {
                true => LANDING,
                false => old & !Needs::ANSWER,
            };
            // ORDERING: As in `land_answered()`, also for the event that lands it.
            match self.0.cmpxchg(old, new, Full) {
                Ok(_) if new == LANDING => return Succeeded::Over,
                Ok(_) if new & Needs::INVALIDATED != 0 => return Succeeded::Keyed,
                Ok(_) => return Succeeded::Sending,
                // Its send has completed meanwhile.
                Err(now) if waits(now) => old = now,
                Err(_) => return Succeeded::Unclear,
            }
        }
    }

    /// Handles the peer's answer over `lane`, which says success, if the flight only needs that and
    /// the invalidation of its key, of which `returned` tells whether there is proof: InFlight to
    /// Landing, and the caller owns the flight. Otherwise returns `false` without a change.
    /// `returned` is called only after the answer was matched to the flight.
    #[inline(always)]
    pub fn land_returned(&self, lane: Lane, returned: impl FnOnce() -> bool) -> bool {
        let needs = Needs::ANSWER | Needs::INVALIDATED;
        let flown = lane.0 | IN_FLIGHT | needs;
        // Acquire pairs with `fly()`: the proof is for this flight, not for an earlier one.
        if self.0.load(Acquire) != flown || !returned() {
            return false;
        }
        // ORDERING: As in `succeeded()`.
        self.0.cmpxchg(flown, LANDING, Full).is_ok()
    }

    /// Handles the peer's answer over lane `over`, with `result` 0 or a negative errno. If the
    /// flight needs the invalidation of its key, `returned` tells whether there is proof that the
    /// key is invalid; it is called only after the answer was matched to the flight.
    ///
    /// # Errors
    ///
    /// [`Violation`].
    pub fn answered(
        &self,
        over: Lane,
        result: i32,
        returned: impl Fn() -> bool,
    ) -> Result<Answered, Violation> {
        loop {
            let old = self.0.load(Acquire);
            if old & PHASE != IN_FLIGHT {
                return Err(Violation::NotInFlight);
            }
            if Lane::of(old) != over {
                return Err(Violation::WrongLane);
            }
            if old & Needs::ANSWER == 0 {
                return Err(Violation::Duplicate);
            }
            let mut new = with_result(old & !Needs::ANSWER, result);
            if new & Needs::INVALIDATED != 0 && returned() {
                new &= !Needs::INVALIDATED;
            }
            let needs = new & Needs::ALL;
            if needs == 0 {
                new |= LANDING;
            }
            // ORDERING: As in `succeeded()`.
            if self.0.cmpxchg(old, new, Full).is_ok() {
                return Ok(match needs {
                    0 => Answered::Over(self::result(new)),
                    needs => Answered::Needs(Needs(needs)),
                });
            }
        }
    }

    /// The caller has handled the answer over `lane`: notes that it expects the completions that the
    /// flight still needs, once. Returns `false`, without a change, if the flight is over.
    ///
    /// Must be called before another answer over `lane` is handled.
    pub fn expect(&self, lane: Lane) -> bool {
        loop {
            let old = self.0.load(Relaxed);
            let answered = old & (PHASE | Needs::ANSWER) == IN_FLIGHT;
            if !answered || Lane::of(old) != lane || old & EXPECTED != 0 {
                return false;
            }
            // ORDERING: None is needed; Full as for all other changes.
            if self.0.cmpxchg(old, old | EXPECTED, Full).is_ok() {
                return true;
            }
        }
    }

    /// Handles a completion of an own work request. If it is the last event, the flight is over, and
    /// the caller owns it.
    #[inline(always)]
    pub fn completed(&self, own: Own) -> Option<Completed> {
        let need = match own {
            Own::Sent => Needs::SENT,
            Own::Invalidated => Needs::INVALIDATED,
        };
        loop {
            let old = self.0.load(Relaxed);
            if old & PHASE != IN_FLIGHT || old & need == 0 {
                return None;
            }
            let mut new = old & !need;
            let over = new & Needs::ALL == 0;
            if over {
                new |= LANDING;
            }
            // ORDERING: As in `succeeded()`.
            if self.0.cmpxchg(old, new, Full).is_ok() {
                return over.then(|| Completed {
                    result: result(new),
                    expected: old & EXPECTED != 0,
                });
            }
        }
    }

    /// InFlight to Landing, when no event can come any more. The caller then owns the flight.
    pub fn collect(&self) -> Option<InFlight> {
        loop {
            let old = self.0.load(Relaxed);
            let found = in_flight(old)?;
            if self.0.cmpxchg(old, old | LANDING, Full).is_ok() {
                return Some(found);
            }
        }
    }

    /// Landing to Idle. Called by the owner.
    #[inline(always)]
    pub fn land(&self) {
        self.0.store(IDLE, Release);
    }

    /// The current state, for display; the flight may be over when this returns.
    pub fn peek(&self) -> Option<InFlight> {
        // Acquire pairs with `fly()`: everything that the user recorded before is visible.
        in_flight(self.0.load(Acquire))
    }
}

impl Default for Word {
    fn default() -> Self {
        Self::new()
    }
}
