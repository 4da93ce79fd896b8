// SPDX-License-Identifier: GPL-2.0

//! A value that goes from hand to hand.
//!
//! One word says whose turn it is. The value is reached through a [`Turn`], of which there is one
//! at a time. A place is occupied by a holder, the holder's turns alternate with those of whoever
//! the value is lent to, and at last the holder gives the place up:
//!
//! ```text
//!        occupy            begin
//!   Idle ------> Held ------------> (turn)
//!    ^            | ^                | |
//!    +------------+ +----------------+ +---> Lent ---resume--> (turn)
//!       give_up           finish       lend
//! ```
//!
//! Nobody waits: a turn that is another one's is refused.

use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    mem::ManuallyDrop,
    ops::{
        Deref,
        DerefMut, //
    },
};

use crate::atomic::{
    Acquire,
    Atomic,
    Full,
    Relaxed,
    Release, //
};

/// Nobody's.
const IDLE: u32 = 0;
/// The holder's, without a turn.
const HELD: u32 = 1;
/// In somebody's turn.
const TURN: u32 = 2;
/// Lent.
const LENT: u32 = 3;
/// With [`TURN`] and [`LENT`]: the holder has given the place up.
const GONE: u32 = 4;

/// A value that is reached in turns. Any context.
///
/// # Invariants
///
/// `word` is [`TURN`], perhaps with [`GONE`], exactly while a [`Turn`] exists.
pub struct Place<T> {
    word: Atomic<u32>,
    value: UnsafeCell<T>,
}

// SAFETY: The value is reached through `&mut self` or the only `Turn`.
unsafe impl<T: Send> Sync for Place<T> {}

impl<T> Place<T> {
    /// A place without a holder.
    pub fn new(value: T) -> Self {
        Self {
            word: Atomic::<u32>::new(IDLE),
            value: UnsafeCell::new(value),
        }
    }

    #[inline(always)]
    fn take(&self, from: u32) -> Option<Turn<'_, T>> {
        // INVARIANT: This call alone made it `TURN`.
        self.word.cmpxchg(from, TURN, Acquire).ok().map(|_| Turn {
            place: self,
            _value: PhantomData,
        })
    }

    /// The place gets a holder, with the value as `set` leaves it.
    ///
    /// # Safety
    ///
    /// The place must be idle, and nobody else call this until it is idle again.
    #[inline(always)]
    pub unsafe fn occupy(&self, set: impl FnOnce(&mut T)) {
        // SAFETY: In an idle place nobody has the value, and no turn can begin.
        set(unsafe { &mut *self.value.get() });
        // No more than a store: by the requirement nobody else changes the word of an idle place.
        self.word.store(HELD, Release);
    }

    /// A turn of the holder; `None` if the value is lent, or there is no holder.
    #[inline(always)]
    pub fn begin(&self) -> Option<Turn<'_, T>> {
        self.take(HELD)
    }

    /// A turn of the one that the value was lent to; `None` if it is not lent.
    #[inline(always)]
    pub fn resume(&self) -> Option<Turn<'_, T>> {
        self.take(LENT).or_else(|| self.resume_for_nobody())
    }

    /// The same, if the holder has left.
    #[cold]
    #[inline(never)]
    fn resume_for_nobody(&self) -> Option<Turn<'_, T>> {
        // INVARIANT: As in `take()`.
        let taken = self.word.cmpxchg(LENT | GONE, TURN | GONE, Acquire);
        taken.ok().map(|_| Turn {
            place: self,
            _value: PhantomData,
        })
    }

    /// The holder gives the place up, which is idle then. While there is a turn, or the value is
    /// lent, it is not yet: it becomes so with the end of the turn in which the value is back, see
    /// [`Turn::finish`].
    #[inline(always)]
    pub fn give_up(&self) -> Option<Left<'_, T>> {
        self.leave().or_else(|| self.abandon())
    }

    /// The value is back, of a holder that is gone. For the caller's turn, which ends.
    #[cold]
    #[inline(never)]
    fn gone(&self) -> Left<'_, T> {
        // ORDERING: As in `leave()`. Nobody but the holder changes the word of a turn.
        self.word.xchg(IDLE, Full);
        Left { place: self }
    }

    /// The holder gives the place up, if it has neither a turn nor lent the value; otherwise it does
    /// not, see [`give_up`](Self::give_up).
    #[inline(always)]
    pub fn leave(&self) -> Option<Left<'_, T>> {
        // ORDERING: Full: what was done in all turns, by whomever, is done.
        self.word
            .cmpxchg(HELD, IDLE, Full)
            .ok()
            .map(|_| Left { place: self })
    }

    #[cold]
    #[inline(never)]
    fn abandon(&self) -> Option<Left<'_, T>> {
        loop {
            match self.word.load(Relaxed) {
                // It is back.
                HELD => {
                    if let Some(left) = self.leave() {
                        return Some(left);
                    }
                }
                old @ (TURN | LENT) => {
                    if self.word.cmpxchg(old, old | GONE, Relaxed).is_ok() {
                        return None;
                    }
                }
                // Nobody's, or given up before.
                _ => return None,
            }
        }
    }

    /// Whether there is no holder; one may have come since.
    pub fn is_idle(&self) -> bool {
        self.word.load(Relaxed) == IDLE
    }
}

/// A place that was given up, and is idle.
#[must_use = "who knows what the place belongs to has to be told"]
pub struct Left<'a, T> {
    place: &'a Place<T>,
}

impl<'a, T> Left<'a, T> {
    /// The place.
    pub fn place(&self) -> &'a Place<T> {
        self.place
    }
}

/// A turn: the value, until it is lent, or the turn finished, which dropping it does.
#[must_use]
pub struct Turn<'a, T> {
    place: &'a Place<T>,
    // To be shared between threads as `T` is, not as the place.
    _value: PhantomData<&'a mut T>,
}

impl<'a, T> Turn<'a, T> {
    /// The place.
    #[inline(always)]
    pub fn place(&self) -> &'a Place<T> {
        self.place
    }

    /// Lends the value: [`Place::resume`] gets it.
    #[inline(always)]
    pub fn lend(self) {
        let this = ManuallyDrop::new(self);
        let word = &this.place.word;
        // What was done in this turn is seen in the next one.
        if word.cmpxchg(TURN, LENT, Release).is_err() {
            // Nothing but the mark can have changed it.
            word.store(LENT | GONE, Release);
        }
    }

    /// The value is back. If the holder has given the place up meanwhile then it is idle now.
    #[inline(always)]
    pub fn finish(self) -> Option<Left<'a, T>> {
        let place = ManuallyDrop::new(self).place;
        // What was done in this turn is seen in the next one.
        match place.word.cmpxchg(TURN, HELD, Release) {
            Ok(_) => None,
            // Nothing but the mark can have changed it.
            Err(_) => Some(place.gone()),
        }
    }
}

impl<T> Drop for Turn<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // What was done in this turn is seen in the next one. Without a holder nobody gets the place
        // any more.
        self.place.word.xchg(HELD, Release);
    }
}

impl<T> Deref for Turn<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: By the invariant of the place nobody else has the value.
        unsafe { &*self.place.value.get() }
    }
}

impl<T> DerefMut for Turn<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: By the invariant of the place nobody else has the value.
        unsafe { &mut *self.place.value.get() }
    }
}
