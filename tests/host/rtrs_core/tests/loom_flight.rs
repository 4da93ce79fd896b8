// SPDX-License-Identifier: GPL-2.0

//! A flight under all interleavings of its possible ends.

#![cfg(loom)]
#![allow(clippy::unwrap_used)]

use loom::{
    cell::UnsafeCell,
    sync::Arc,
    thread::{spawn, JoinHandle},
};
use rtrs_core::flight::*;

#[path = "../../shim/explore.rs"]
mod explore;
use explore::explore;

const LANE: Lane = Lane::new(4, 1);
const OTHER: Lane = Lane::new(4, 2);

/// A flight with memory that only its owner may touch: loom reports a second owner, and an owner
/// that does not see the accesses of the one before.
struct Flight {
    word: Word,
    memory: UnsafeCell<u32>,
}

impl Flight {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            word: Word::new(),
            memory: UnsafeCell::new(0),
        })
    }

    fn fly(&self, needs: Needs) -> Flown {
        assert!(self.word.build());
        self.memory.with_mut(|_| ());
        self.word.fly(LANE, needs)
    }

    /// Lands the flight if `over` is set; returns the number of ends.
    fn land(&self, over: bool) -> u32 {
        if over {
            self.memory.with_mut(|_| ());
            self.word.land();
        }
        u32::from(over)
    }

    fn answered(&self, lane: Lane, returned: bool) -> u32 {
        // Like the handler of completions does it: what the answer claims says which way it goes.
        if returned {
            if self.word.land_returned(lane, || true) {
                return self.land(true);
            }
        } else {
            if self.word.land_answered(lane) {
                return self.land(true);
            }
            match self.word.succeeded(lane, || ()) {
                Succeeded::Over => return self.land(true),
                Succeeded::Sending | Succeeded::Keyed => return 0,
                Succeeded::Unclear => {}
            }
        }
        let answered = self.word.answered(lane, -5, || returned);
        self.land(matches!(answered, Ok(Answered::Over(_))))
    }

    fn completed(&self, own: Own) -> u32 {
        let over = self.word.completed(own).is_some();
        self.land(over)
    }
}

fn run(flight: &Arc<Flight>, event: impl FnOnce(&Flight) -> u32 + 'static) -> JoinHandle<u32> {
    let flight = flight.clone();
    spawn(move || event(&flight))
}

fn ends<const N: usize>(threads: [JoinHandle<u32>; N]) -> u32 {
    threads.into_iter().map(|t| t.join().unwrap()).sum()
}

#[test]
fn answer_send_and_rogue_duplicates() {
    explore(|| {
        let flight = Flight::new();
        flight.fly(Needs::answer().and_sent());
        let threads = [
            run(&flight, |f| f.answered(LANE, false)),
            run(&flight, |f| f.answered(LANE, false)),
            run(&flight, |f| f.completed(Own::Sent)),
        ];
        assert_eq!(ends(threads), 1);
        assert_eq!(flight.word.peek(), None);
    });
}

#[test]
fn answers_with_the_key() {
    explore(|| {
        let flight = Flight::new();
        flight.fly(Needs::answer().and_invalidated());
        let threads = [
            run(&flight, |f| f.answered(LANE, true)),
            run(&flight, |f| f.answered(LANE, true)),
        ];
        assert_eq!(ends(threads), 1);
        assert_eq!(flight.word.peek(), None);
        // The next flight sees the end of this one.
        flight.fly(Needs::answer());
    });
}

#[test]
fn refused_post_against_rogue_answer() {
    explore(|| {
        let flight = Flight::new();
        // The answer alone is enough, and the peer answers before anything was sent.
        let rogue = run(&flight, |f| f.answered(LANE, false));
        let flown = flight.fly(Needs::answer());
        let back = flight.word.take_back(flown);
        if back {
            flight.memory.with_mut(|_| ());
            flight.word.cancel();
        }
        assert_eq!(rogue.join().unwrap() + u32::from(back), 1);
    });
}

#[test]
fn all_three_events() {
    explore(|| {
        let flight = Flight::new();
        flight.fly(Needs::answer().and_sent().and_invalidated());
        let threads = [
            // The key did not come back, so the client invalidates it.
            run(&flight, |f| {
                f.answered(LANE, false) + f.completed(Own::Invalidated)
            }),
            run(&flight, |f| f.completed(Own::Sent)),
        ];
        assert_eq!(ends(threads), 1);
    });
}

#[test]
fn whatever_is_expected_comes() {
    explore(|| {
        let flight = Flight::new();
        flight.fly(Needs::answer().and_sent());
        let answer = run(&flight, |f| {
            assert_eq!(f.word.succeeded(OTHER, || ()), Succeeded::Unclear);
            let over = f.word.succeeded(LANE, || ()) == Succeeded::Over;
            // Nothing is expected of a flight that is over.
            let expected = f.word.expect(LANE);
            assert!(!(over && expected));
            u32::from(expected)
        });
        let completed = flight.word.completed(Own::Sent);
        let expected = answer.join().unwrap();
        match completed {
            Some(completed) => assert_eq!(u32::from(completed.expected), expected),
            // The answer was the last event.
            None => assert_eq!(expected, 0),
        }
    });
}

#[test]
fn next_flight_sees_the_end_of_the_one_before() {
    explore(|| {
        let flight = Flight::new();
        flight.fly(Needs::answer().and_sent());
        // A rogue answer hits the flight that is in the lane, or none: never one of another lane.
        let rogue = run(&flight, |f| f.answered(OTHER, false));
        let threads = [
            run(&flight, |f| f.answered(LANE, false)),
            run(&flight, |f| f.completed(Own::Sent)),
        ];
        assert_eq!(ends(threads), 1);
        flight.fly(Needs::answer().and_sent());
        assert_eq!(rogue.join().unwrap(), 0);
        assert_eq!(flight.completed(Own::Sent), 0);
        assert_eq!(flight.answered(LANE, false), 1);
    });
}

#[test]
fn built_by_one() {
    explore(|| {
        let flight = Flight::new();
        let build = |f: &Flight| {
            let built = f.word.build();
            if built {
                f.memory.with_mut(|_| ());
                f.word.cancel();
            }
            u32::from(built)
        };
        let threads = [run(&flight, build), run(&flight, build)];
        assert!(ends(threads) >= 1);
    });
}
