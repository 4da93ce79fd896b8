// SPDX-License-Identifier: GPL-2.0

//! Turns of inboxes that keep a task busy for long, so that one source's clients cannot use up all
//! the tasks that there are.
//!
//! A [`Turns`] has a number of turns, and a line of takers that wait for one. The states of a taker
//! are in [`logic::turn`](crate::logic::turn).
//!
//! # Locking
//!
//! `Turns::line` (spinlock, interrupts off) guards the line and the state of each taker. The
//! [`LineEntry`] of a taker is in a spinlock of its own. That one is only taken with the other
//! held, and is there to make the entry accessible through a shared reference. A reference that
//! leaves the line is dropped when nothing is locked. Any context.
//!
//! A waiting taker has a reference to the object it waits for, and is in its line. This ends when
//! its turn comes or when it leaves; one of the two always happens.

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

/// A user of turns.
pub(crate) trait Taker: Send + Sync + Sized + 'static {
    /// Returns its entry in the line.
    fn line_entry(&self) -> &SpinLockIrq<LineEntry<Self>>;

    /// The taker has a turn: makes it begin. Any context.
    fn call(self: &Arc<Self>);
}

/// The state of one taker, and the taker behind it in the line.
pub(crate) struct LineEntry<T> {
    stand: Stand,
    behind: Option<Arc<T>>,
}

impl<T> LineEntry<T> {
    /// The entry of a taker that has nothing to do.
    pub(crate) const fn new() -> Self {
        Self {
            stand: Stand::Idle,
            behind: None,
        }
    }
}

/// The takers that wait, and the number of turns in use.
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
    /// Allows at most `max` turns at a time. May sleep.
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

    /// There is something to do for `one`: it is called, at once or when its turn comes.
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

    /// The turn of `one` is over; `more` says whether it knows of more to do. Calls the first in
    /// the line.
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

    /// The work of `one` is of no use any more, so it stops waiting. The time this takes grows with
    /// the length of the line.
    pub(crate) fn left(&self, one: &Arc<T>) {
        let mut line = self.line.lock();

        if happens(one, Event::Left) == Step::Remove {
            line.remove(one);
        }
    }
}

/// Called with the line locked.
fn happens<T: Taker>(one: &Arc<T>, event: Event) -> Step {
    let mut entry = one.line_entry().lock();

    match entry.stand.next(event) {
        Some((stand, step)) => {
            entry.stand = stand;
            step
        }
        None => {
            pr_err_once!("turns: {:?} in state {:?}\n", event, entry.stand);
            Step::None
        }
    }
}

/// The line has a reference to each taker in it: no last reference is dropped here.
impl<T: Taker> Line<T> {
    fn append(&mut self, one: &Arc<T>) {
        match self.last.replace(one.clone()) {
            Some(last) => last.line_entry().lock().behind = Some(one.clone()),
            None => self.first = Some(one.clone()),
        }
    }

    /// Takes the first one out of the line.
    fn take_first(&mut self) -> Option<Arc<T>> {
        let first = self.first.take()?;

        self.first = first.line_entry().lock().behind.take();
        if self.first.is_none() {
            self.last = None;
        }
        Some(first)
    }

    /// Takes out `one`, to which the caller has a reference.
    fn remove(&mut self, one: &Arc<T>) {
        let behind = one.line_entry().lock().behind.take();
        let is_last = behind.is_none();
        let mut before: Option<Arc<T>> = None;
        let mut at = self.first.clone();

        while let Some(found) = at.filter(|found| !Arc::ptr_eq(found, one)) {
            at = found.line_entry().lock().behind.clone();
            before = Some(found);
        }
        if is_last {
            self.last = before.clone();
        }
        match &before {
            Some(before) => before.line_entry().lock().behind = behind,
            None => self.first = behind,
        }
    }
}
