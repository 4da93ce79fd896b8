// SPDX-License-Identifier: GPL-2.0

//! Turns of those who keep a task busy for long: one source's clients are not to use up all tasks
//! that there are.
//!
//! A [`Turns`] has a number of turns, and a line of those who wait for one. See
//! [`logic::turn`](crate::logic::turn) for who stands where.
//!
//! # Locking
//!
//! `Turns::line` (spinlock, interrupts off) guards the line and where everybody stands; the
//! [`Place`] of each is in a spinlock of its own that is only taken inside, so that it can be
//! reached. What is taken out of the line is dropped when nothing is locked. Any context.
//!
//! Who waits has a reference to what they wait for, and is in its line, until their turn comes or
//! they leave: both do.

use kernel::{
    pr_err_once,
    prelude::*,
    sync::Arc, //
};

use rtrs_bindings::lock::{
    new_spinlock_irq,
    SpinLockIrq, //
};

use crate::logic::turn::{
    Event,
    Stand,
    Step, //
};

/// Who takes turns.
pub(crate) trait Taker: Send + Sync + Sized + 'static {
    /// Where it stands.
    fn place(&self) -> &SpinLockIrq<Place<Self>>;

    /// It has a turn: has it begin. Any context.
    fn call(self: &Arc<Self>);
}

/// Where one of them stands, and who stands behind it.
pub(crate) struct Place<T> {
    stand: Stand,
    behind: Option<Arc<T>>,
}

impl<T> Place<T> {
    /// Has nothing to do.
    pub(crate) const fn new() -> Self {
        Self {
            stand: Stand::Idle,
            behind: None,
        }
    }
}

/// Those who wait, and how many have a turn.
struct Line<T> {
    turns: u32,
    first: Option<Arc<T>>,
    last: Option<Arc<T>>,
}

/// A number of turns.
#[pin_data]
pub(crate) struct Turns<T: Taker> {
    max: u32,
    #[pin]
    line: SpinLockIrq<Line<T>>,
}

impl<T: Taker> Turns<T> {
    /// So many at a time. May sleep.
    pub(crate) fn new(max: u32) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                max,
                line <- new_spinlock_irq!(
                    Line {
                        turns: 0,
                        first: None,
                        last: None,
                    },
                    "rtrs_srv_turns"
                ),
            }),
            GFP_KERNEL,
        )
    }

    /// There is something to do for `one`: it is called, at once or in its turn.
    pub(crate) fn wanted(&self, one: &Arc<T>) {
        let called = {
            let mut line = self.line.lock();
            let free = line.turns < self.max;
            match happens(one, Event::Wanted { free }) {
                Step::Call => {
                    line.turns = line.turns.saturating_add(1);
                    true
                }
                Step::Line => {
                    line.append(one);
                    false
                }
                _ => false,
            }
        };

        if called {
            one.call();
        }
    }

    /// `one`, which was called, begins.
    pub(crate) fn begun(&self, one: &Arc<T>) {
        let _line = self.line.lock();

        happens(one, Event::Begun);
    }

    /// The turn of `one` is over; `more`, if it knows of more to do. The first in the line is called.
    pub(crate) fn ended(&self, one: &Arc<T>, more: bool) {
        let next = {
            let mut line = self.line.lock();
            match happens(one, Event::Ended { more }) {
                Step::Pass => (),
                Step::LineAndPass => line.append(one),
                _ => return,
            }
            let next = line.take_first();
            match &next {
                Some(next) => {
                    happens(next, Event::Called);
                }
                None => line.turns = line.turns.saturating_sub(1),
            }
            next
        };

        if let Some(next) = next {
            next.call();
        }
    }

    /// What `one` would do is of no use any more: it does not wait. The time that this takes goes
    /// with the length of the line.
    pub(crate) fn left(&self, one: &Arc<T>) {
        let mut line = self.line.lock();

        if happens(one, Event::Left) == Step::Remove {
            line.remove(one);
        }
    }
}

/// With the line locked.
fn happens<T: Taker>(one: &Arc<T>, event: Event) -> Step {
    let mut place = one.place().lock();

    match place.stand.next(event) {
        Some((stand, step)) => {
            place.stand = stand;
            step
        }
        None => {
            pr_err_once!("{:?} and {:?}: whose turn is it?\n", place.stand, event);
            Step::None
        }
    }
}

/// Whoever is in the line is referred to from there: no last reference is dropped here.
impl<T: Taker> Line<T> {
    fn append(&mut self, one: &Arc<T>) {
        match self.last.replace(one.clone()) {
            Some(last) => last.place().lock().behind = Some(one.clone()),
            None => self.first = Some(one.clone()),
        }
    }

    /// The first one, who is not in it any more.
    fn take_first(&mut self) -> Option<Arc<T>> {
        let first = self.first.take()?;

        self.first = first.place().lock().behind.take();
        if self.first.is_none() {
            self.last = None;
        }
        Some(first)
    }

    /// Takes out `one`, to whom the caller has a reference.
    fn remove(&mut self, one: &Arc<T>) {
        let behind = one.place().lock().behind.take();
        let is_last = behind.is_none();
        let mut before: Option<Arc<T>> = None;
        let mut at = self.first.clone();

        while let Some(found) = at.filter(|found| !Arc::ptr_eq(found, one)) {
            at = found.place().lock().behind.clone();
            before = Some(found);
        }
        if is_last {
            self.last = before.clone();
        }
        match &before {
            Some(before) => before.place().lock().behind = behind,
            None => self.first = behind,
        }
    }
}
