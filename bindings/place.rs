// SPDX-License-Identifier: GPL-2.0

//! A value that is passed from one owner to the next and back.
//!
//! One word records the owner. The value is accessed through a [`Turn`], of which there is at most
//! one at a time. A holder occupies the place. The holder's turns alternate with those of the party
//! that the value is lent to. In the end the holder gives the place up:
//!
//! ```text
//!        occupy            begin
//!   Idle ------> Held ------------> (turn)
//!    ^            | ^                | |
//!    +------------+ +----------------+ +---> Lent ---resume--> (turn)
//!       give_up           finish       lend
//! ```
//!
//! No operation waits: a turn that belongs to another party is refused.

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

/// No holder.
const IDLE: u32 = 0;
/// There is a holder, and no turn.
const HELD: u32 = 1;
/// A [`Turn`] exists.
const TURN: u32 = 2;
/// Lent.
const LENT: u32 = 3;
/// With [`TURN`] and [`LENT`]: the holder has given the place up.
const GONE: u32 = 4;

/// A value that is accessed in turns. Any context.
///
/// # Invariants
///
/// `word` is [`TURN`], perhaps with [`GONE`], exactly while a [`Turn`] exists.
pub struct Place<T> {
    word: Atomic<u32>,
    value: UnsafeCell<T>,
}

// SAFETY: The value is accessed only through `&mut self` or the only `Turn`.
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

    /// Gives the place a holder, after `set` has changed the value.
    ///
    /// # Safety
    ///
    /// The place must be idle, and no other caller may call this until it is idle again.
    #[inline(always)]
    pub unsafe fn occupy(&self, set: impl FnOnce(&mut T)) {
        // SAFETY: The place is idle, so there is no turn and none can begin: this is the only
        // access to the value.
        set(unsafe { &mut *self.value.get() });
        // A store is enough: by the safety requirements no other thread changes the word of an idle
        // place.
        self.word.store(HELD, Release);
    }

    /// Begins a turn of the holder; `None` if the value is lent, or there is no holder.
    #[inline(always)]
    pub fn begin(&self) -> Option<Turn<'_, T>> {
        self.take(HELD)
    }

    /// Begins a turn of the party that the value was lent to; `None` if it is not lent.
    #[inline(always)]
    pub fn resume(&self) -> Option<Turn<'_, T>> {
        self.take(LENT).or_else(|| self.resume_abandoned())
    }

    /// As [`resume`](Self::resume), when the holder has given the place up.
    #[cold]
    #[inline(never)]
    fn resume_abandoned(&self) -> Option<Turn<'_, T>> {
        // INVARIANT: As in `take()`.
        let taken = self.word.cmpxchg(LENT | GONE, TURN | GONE, Acquire);
        taken.ok().map(|_| Turn {
            place: self,
            _value: PhantomData,
        })
    }

    /// The holder gives the place up, which makes it idle. If there is a turn, or the value is
    /// lent, the place becomes idle later, at the end of the turn in which the value comes back,
    /// see [`Turn::finish`].
    #[inline(always)]
    pub fn give_up(&self) -> Option<Left<'_, T>> {
        self.leave().or_else(|| self.abandon())
    }

    /// Ends the caller's turn, with the value back and the holder gone: the place becomes idle.
    #[cold]
    #[inline(never)]
    fn gone(&self) -> Left<'_, T> {
        // ORDERING: As in `leave()`. Only the holder changes the word while there is a turn.
        self.word.xchg(IDLE, Full);
        Left { place: self }
    }

    /// The holder gives the place up if there is no turn and the value is not lent; otherwise
    /// nothing changes, see [`give_up`](Self::give_up).
    #[inline(always)]
    pub fn leave(&self) -> Option<Left<'_, T>> {
        // ORDERING: Full, so that all that was done in earlier turns, on any CPU, is visible.
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
                // The value is back.
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
                // Idle, or given up before.
                _ => return None,
            }
        }
    }

    /// Whether the place has a holder, which has the value: there is no turn, and it is not lent.
    /// Only the holder can change that.
    pub fn is_held(&self) -> bool {
        self.word.load(Relaxed) == HELD
    }

    /// Whether the place has no holder. It may have got one since.
    pub fn is_idle(&self) -> bool {
        self.word.load(Relaxed) == IDLE
    }
}

/// A place that was given up, and is idle.
#[must_use = "the set of the place has to be told, so that the place can be used again"]
pub struct Left<'a, T> {
    place: &'a Place<T>,
}

impl<'a, T> Left<'a, T> {
    /// The place.
    pub fn place(&self) -> &'a Place<T> {
        self.place
    }
}

/// A turn: access to the value until it is lent or the turn is finished. Dropping the turn finishes
/// it.
#[must_use]
pub struct Turn<'a, T> {
    place: &'a Place<T>,
    // `Send` and `Sync` as for `&mut T`, not as for the place.
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
        const { assert!(LENT == TURN + 1 && LENT & GONE == 0) };
        let this = ManuallyDrop::new(self);
        // By the invariant the word is `TURN`, perhaps with `GONE`: the sum is `LENT`, likewise.
        // Release: accesses in this turn are visible in the next one.
        this.place.word.fetch_add(LENT - TURN, Release);
    }

    /// Ends the turn, with the value back. If the holder has given the place up meanwhile, it
    /// becomes idle.
    #[inline(always)]
    pub fn finish(self) -> Option<Left<'a, T>> {
        let place = ManuallyDrop::new(self).place;
        // Release: accesses in this turn are visible in the next one.
        match place.word.cmpxchg(TURN, HELD, Release) {
            Ok(_) => None,
            // Only `GONE` can have been added.
            Err(_) => Some(place.gone()),
        }
    }
}

impl<T> Drop for Turn<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Release: accesses in this turn are visible in the next one. Without a holder the place
        // stays unusable.
        self.place.word.xchg(HELD, Release);
    }
}

impl<T> Deref for Turn<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: By the invariant of the place this is the only `Turn`, so nothing else accesses
        // the value.
        unsafe { &*self.place.value.get() }
    }
}

impl<T> DerefMut for Turn<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: By the invariant of the place this is the only `Turn`, so nothing else accesses
        // the value.
        unsafe { &mut *self.place.value.get() }
    }
}
