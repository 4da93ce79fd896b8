// SPDX-License-Identifier: GPL-2.0

//! A value that is passed from one owner to the next, under all interleavings.

#![cfg(loom)]

use loom::{
    cell::UnsafeCell,
    sync::Arc,
    thread, //
};
use rtrs_bindings::place::Place;

/// A value whose accesses loom sees, and checks for an order between them.
struct Watched(UnsafeCell<u32>);

impl Watched {
    fn increment(&mut self) {
        // SAFETY: There is a unique reference. Loom checks that it is unique.
        self.0.with_mut(|value| unsafe { *value += 1 });
    }

    fn value(&self) -> u32 {
        // SAFETY: As above; no thread writes while there is a shared reference.
        self.0.with(|value| unsafe { *value })
    }
}

/// A place with a holder.
fn place() -> Arc<Place<Watched>> {
    let place = Arc::new(Place::new(Watched(UnsafeCell::new(0))));
    occupy(&place);
    place
}

fn occupy(place: &Place<Watched>) {
    assert!(place.is_idle());
    // SAFETY: The place is idle, and no other thread can occupy it.
    unsafe { place.occupy(|_| ()) };
}

#[test]
fn turns_are_ordered() {
    loom::model(|| {
        let place = place();
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
        let mut turn = place.begin().expect("held");
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

/// The holder leaves while the value comes back: exactly one of the two finds the place idle, and
/// sees all changes of earlier turns.
#[test]
fn one_finds_it_idle() {
    loom::model(|| {
        let place = place();
        place.begin().expect("held").lend();
        let other = {
            let place = place.clone();
            thread::spawn(move || {
                let mut turn = place.resume().expect("no other task resumes");
                turn.increment();
                let left = turn.finish().is_some();
                if left {
                    occupy(&place);
                    place.begin().expect("held").increment();
                }
                left
            })
        };
        let here = place.give_up().is_some();
        if here {
            occupy(&place);
            place.begin().expect("held").increment();
        }
        assert_ne!(here, other.join().expect("no panic"));
        assert_eq!(place.begin().expect("held").value(), 2);
    });
}

/// The place is wrongly given up twice while the value comes back: its end is reported once.
#[test]
fn given_up_once() {
    loom::model(|| {
        let place = place();
        place.begin().expect("held").lend();
        let other = {
            let place = place.clone();
            thread::spawn(move || u32::from(place.give_up().is_some()))
        };
        let mut turn = place.resume().expect("no other task resumes");
        turn.increment();
        let here = u32::from(turn.finish().is_some());
        let again = u32::from(place.give_up().is_some());
        assert_eq!(here + again + other.join().expect("no panic"), 1);
        assert!(place.is_idle());
    });
}
