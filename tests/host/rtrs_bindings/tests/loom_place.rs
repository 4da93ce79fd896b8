// SPDX-License-Identifier: GPL-2.0

//! A value that goes from hand to hand, under all interleavings.

#![cfg(loom)]

use loom::{
    cell::UnsafeCell,
    sync::Arc,
    thread, //
};
use rtrs_bindings::place::Place;

/// A value of which loom sees each access, and whether anything orders it against the others.
struct Watched(UnsafeCell<u32>);

impl Watched {
    fn increment(&mut self) {
        // SAFETY: There is a unique reference. That it really is unique is what loom checks.
        self.0.with_mut(|value| unsafe { *value += 1 });
    }

    fn value(&self) -> u32 {
        // SAFETY: As above, nobody writes while there is a shared reference.
        self.0.with(|value| unsafe { *value })
    }
}

fn place() -> Arc<Place<Watched>> {
    Arc::new(Place::new(Watched(UnsafeCell::new(0))))
}

#[test]
fn turns_are_ordered() {
    loom::model(|| {
        let place = place();
        let _ = place.claim().expect("idle").finish();
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let place = place.clone();
                thread::spawn(move || match place.begin() {
                    Some(mut turn) => {
                        turn.increment();
                        1
                    }
                    None => 0,
                })
            })
            .collect();
        let done: u32 = threads
            .into_iter()
            .map(|t| t.join().expect("no panic"))
            .sum();
        assert!(done >= 1);
        assert_eq!(place.begin().expect("all are back").value(), done);
    });
}

#[test]
fn one_of_two_has_what_was_lent() {
    loom::model(|| {
        let place = place();
        let mut turn = place.claim().expect("idle");
        turn.increment();
        turn.lend();
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let place = place.clone();
                thread::spawn(move || match place.resume() {
                    Some(mut turn) => {
                        turn.increment();
                        let _ = turn.finish();
                        1
                    }
                    None => 0,
                })
            })
            .collect();
        let done: u32 = threads
            .into_iter()
            .map(|t| t.join().expect("no panic"))
            .sum();
        assert_eq!(done, 1);
        assert_eq!(place.begin().expect("it is back").value(), 2);
    });
}

/// The holder leaves while the value comes back: exactly one of the two has the last turn.
#[test]
fn one_has_the_last_turn() {
    loom::model(|| {
        let place = place();
        place.claim().expect("idle").lend();
        let other = {
            let place = place.clone();
            thread::spawn(move || {
                let mut turn = place.resume().expect("nobody else resumes");
                turn.increment();
                turn.finish().map_or(0, |mut last| {
                    last.increment();
                    last.leave();
                    1
                })
            })
        };
        let here = place.give_up().map_or(0, |mut last| {
            last.increment();
            last.leave();
            1
        });
        assert_eq!(here + other.join().expect("no panic"), 1);
        assert_eq!(place.claim().expect("idle").value(), 2);
    });
}
