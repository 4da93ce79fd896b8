// SPDX-License-Identifier: GPL-2.0

//! The state word of a flight.
//!
//! A flight is over when all that it needs has happened: the peer's answer always, the completion
//! of its send if the device may still read its memory, the invalidation of its key if the peer was
//! given one. These come from different work requests and in any order, a hostile peer may answer
//! any number of times, and posting may fail half way. All of it is decided on one word:
//!
//! ```text
//!   Idle --build--> Building --fly--> InFlight --last event, collect--> Landing --land--> Idle
//!    ^                |    ^             |
//!    +----cancel------+    +--take_back--+
//! ```
//!
//! In [`Building`](Phase::Building) and [`Landing`](Phase::Landing) exactly one owns the flight:
//! whoever was told so by the transition that led there.

use crate::atomic::{
    Acquire,
    Atomic,
    Full,
    Relaxed,
    Release, //
};

/// What a flight needs to be over.
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

    /// And the completion of the send, which is signaled.
    #[inline]
    pub const fn and_sent(self) -> Self {
        Self(self.0 | Self::SENT)
    }

    /// And the invalidation of the key.
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

/// A completion of our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own {
    /// The send is done: the device does not read the memory any more.
    Sent,
    /// Our own invalidation of the key is done.
    Invalidated,
}

/// What an answer meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// The flight goes on, and needs this. The invalidation is the owner's to post.
    Needs(Needs),
    /// It is over with this result, 0 or a negative errno, and belongs to the caller.
    Over(i32),
}

/// What is wrong with an answer; the flight is as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Nothing is in flight.
    NotInFlight,
    /// It went out over another lane.
    WrongLane,
    /// It was answered before.
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

/// What was in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// The lane it went out over.
    pub lane: u16,
    /// What it still needs.
    pub needs: Needs,
    /// Result in the answer, 0 or a negative errno; 0 if there was none.
    pub result: i32,
}

/// The word that [`Word::fly`] stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flown(u64);

// The word: 0..=2 needs, 3..=4 phase, 8..=19 errno, 32..=47 lane.
const PHASE: u64 = 3 << 3;
const IDLE: u64 = 0 << 3;
const BUILDING: u64 = 1 << 3;
const IN_FLIGHT: u64 = 2 << 3;
const LANDING: u64 = 3 << 3;
const ERRNO_SHIFT: u32 = 8;
const ERRNO_MASK: u64 = 0xfff;
const LANE_SHIFT: u32 = 32;

const fn lane(word: u64) -> u16 {
    // CAST: Cut to the field.
    (word >> LANE_SHIFT) as u16
}

const fn result(word: u64) -> i32 {
    // CAST: 12 bits.
    -((word >> ERRNO_SHIFT & ERRNO_MASK) as i32)
}

#[inline]
fn with_result(word: u64, result: i32) -> u64 {
    let errno = match result.wrapping_neg() {
        // CAST: 12 bits.
        errno @ 0..=4095 => errno as u64,
        // EIO for what is no result at all.
        _ => 5,
    };
    word | errno << ERRNO_SHIFT
}

fn in_flight(word: u64) -> Option<InFlight> {
    (word & PHASE == IN_FLIGHT).then(|| InFlight {
        lane: lane(word),
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

    /// Idle to Building; `false` if it is not idle. The flight is the caller's.
    #[inline(always)]
    pub fn build(&self) -> bool {
        // Pairs with `land()`: what the one before did to the flight is done.
        self.0.cmpxchg(IDLE, BUILDING, Acquire).is_ok()
    }

    /// Building to Idle. By the one who builds.
    #[inline]
    pub fn cancel(&self) {
        self.0.store(IDLE, Release);
    }

    /// Building to InFlight. By the one who builds, before anything is posted.
    #[inline(always)]
    pub fn fly(&self, lane: u16, needs: Needs) -> Flown {
        let word = u64::from(lane) << LANE_SHIFT | IN_FLIGHT | needs.0;
        self.0.store(word, Release);
        Flown(word)
    }

    /// InFlight back to Building: nothing was posted. `false` if something has happened to it, which
    /// can only be an answer to what was not sent: the flight is not the caller's any more.
    ///
    /// With the queue locked that was locked for [`fly`](Self::fly), so that there is no later use
    /// that it could hit.
    pub fn take_back(&self, flown: Flown) -> bool {
        self.0.cmpxchg(flown.0, BUILDING, Full).is_ok()
    }

    /// The peer's answer came over `lane`, and is all that the flight needs: InFlight to Landing, and
    /// the flight is the caller's. `false` if that is not so: nothing has changed then.
    #[inline(always)]
    pub fn land_by_answer(&self, lane: u16) -> bool {
        let flown = u64::from(lane) << LANE_SHIFT | IN_FLIGHT | Needs::ANSWER;
        // ORDERING: Full, so that the one who lands the flight sees what all others did to it.
        self.0.cmpxchg(flown, LANDING, Full).is_ok()
    }

    /// The peer's answer came over `lane`, with `result` 0 or a negative errno. If the key is needed
    /// back then `returned` says whether there is proof that it is invalid; it is asked when
    /// the flight is known to be the one that the answer is about.
    ///
    /// # Errors
    ///
    /// [`Violation`].
    pub fn answered(
        &self,
        over: u16,
        result: i32,
        returned: impl Fn() -> bool,
    ) -> Result<Answered, Violation> {
        loop {
            let old = self.0.load(Acquire);
            if old & PHASE != IN_FLIGHT {
                return Err(Violation::NotInFlight);
            }
            if lane(old) != over {
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
            // ORDERING: As in `land_by_answer()`.
            if self.0.cmpxchg(old, new, Full).is_ok() {
                return Ok(match needs {
                    0 => Answered::Over(self::result(new)),
                    needs => Answered::Needs(Needs(needs)),
                });
            }
        }
    }

    /// A completion of our own came. If that was the last event, the result, and the flight is the
    /// caller's.
    #[inline(always)]
    pub fn completed(&self, own: Own) -> Option<i32> {
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
            // ORDERING: As in `land_by_answer()`.
            if self.0.cmpxchg(old, new, Full).is_ok() {
                return over.then(|| result(new));
            }
        }
    }

    /// InFlight to Landing, when no event can come any more. The flight is the caller's.
    pub fn collect(&self) -> Option<InFlight> {
        loop {
            let old = self.0.load(Relaxed);
            let found = in_flight(old)?;
            if self.0.cmpxchg(old, old | LANDING, Full).is_ok() {
                return Some(found);
            }
        }
    }

    /// Landing to Idle. By the one who lands it.
    #[inline(always)]
    pub fn land(&self) {
        self.0.store(IDLE, Release);
    }

    /// What is in flight, for display; it may be over when this returns.
    pub fn peek(&self) -> Option<InFlight> {
        // Pairs with `fly()`: what the user noted before is there.
        in_flight(self.0.load(Acquire))
    }
}

impl Default for Word {
    fn default() -> Self {
        Self::new()
    }
}
