// SPDX-License-Identifier: GPL-2.0

//! A request under all interleavings of who may end it.

#![cfg(loom)]
#![allow(clippy::unwrap_used)]

use loom::{
    cell::UnsafeCell,
    sync::Arc,
    thread::{spawn, JoinHandle},
};
use rtrs_client_logic::logic::request_state::*;

#[path = "../../shim/explore.rs"]
mod explore;
use explore::explore;

const CON: u16 = 4;

/// A slot with memory that only the owner of the request may touch: loom reports it if two may,
/// or if one may without having seen what the one before did.
struct Slot {
    state: RequestState,
    memory: UnsafeCell<u32>,
}

// `UnsafeCell` of loom checks every access; sharing it is the point.
struct Shared(Arc<Slot>);

impl Shared {
    fn new() -> Self {
        Self(Arc::new(Slot {
            state: RequestState::new(),
            memory: UnsafeCell::new(0),
        }))
    }

    fn clone(&self) -> Arc<Slot> {
        self.0.clone()
    }
}

impl Slot {
    /// Runs `event` and, if it ended the request, unmaps; the number of ends.
    fn run(&self, event: impl FnOnce(&RequestState) -> Outcome) -> u32 {
        match event(&self.state) {
            Outcome::Complete(_) => {
                self.memory.with_mut(|_| ());
                1
            }
            _ => 0,
        }
    }

    fn start(&self, needs: Needs) -> Gen {
        self.memory.with_mut(|_| ());
        self.state.start(CON, needs).unwrap()
    }
}

fn event(
    slot: Arc<Slot>,
    event: impl FnOnce(&RequestState) -> Outcome + 'static,
) -> JoinHandle<u32> {
    spawn(move || slot.run(event))
}

#[test]
fn answer_send_and_rogue_duplicates() {
    explore(|| {
        let slot = Shared::new();
        let gen = slot.0.start(Needs::response().and_sent());
        let threads = [
            event(slot.clone(), |r| r.response(CON, -5)),
            event(slot.clone(), |r| r.response(CON, 0)),
            event(slot.clone(), move |r| r.sent(gen)),
        ];
        let ends: u32 = threads.into_iter().map(|t| t.join().unwrap()).sum();
        assert_eq!(ends, 1);
        assert_eq!(slot.0.state.peek(), None);
    });
}

#[test]
fn failed_post_against_rogue_answer() {
    explore(|| {
        let slot = Shared::new();
        // The answer alone would do, and the server answers before anything was sent.
        let rogue = {
            let slot = slot.clone();
            spawn(move || slot.run(|r| r.response(CON, 0)))
        };
        let gen = slot.0.start(Needs::response());
        let aborted = slot.0.state.abort(gen).is_ok();
        if aborted {
            slot.0.memory.with_mut(|_| ());
        }
        let ends = rogue.join().unwrap();
        assert_eq!(ends + u32::from(aborted), 1);
    });
}

#[test]
fn claimed_invalidation_against_late_proof() {
    explore(|| {
        let slot = Shared::new();
        let gen = slot.0.start(Needs::response().and_invalidated());
        let answer = {
            let slot = slot.clone();
            spawn(move || {
                slot.run(|r| match r.response(CON, 0) {
                    // We have to do it ourselves.
                    Outcome::Pending(needs) if needs.needs_invalidated() => r.invalidated(gen),
                    outcome => outcome,
                })
            })
        };
        let proof = event(slot.clone(), |r| r.invalidated_by_peer(CON));
        assert_eq!(answer.join().unwrap() + proof.join().unwrap(), 1);
    });
}

#[test]
fn next_use_sees_the_end_of_the_one_before() {
    explore(|| {
        let slot = Shared::new();
        let gen = slot.0.start(Needs::response().and_sent());
        let threads = [
            event(slot.clone(), |r| r.response(CON, 0)),
            event(slot.clone(), move |r| r.sent(gen)),
        ];
        // A rogue answer hits whichever use is in flight, or none.
        let rogue = event(slot.clone(), |r| r.response(CON + 1, 0));
        let ends: u32 = threads.into_iter().map(|t| t.join().unwrap()).sum();
        assert_eq!(ends, 1);
        let gen = slot.0.start(Needs::response().and_sent());
        assert_eq!(rogue.join().unwrap(), 0);
        assert_eq!(slot.0.run(|r| r.sent(gen)), 0);
        assert_eq!(slot.0.run(|r| r.response(CON, 0)), 1);
    });
}

#[test]
fn taken_for_failover_once() {
    explore(|| {
        let slot = Shared::new();
        slot.0.start(Needs::response().and_sent());
        let late = event(slot.clone(), |r| r.response(CON, -5));
        let taken: Vec<_> = (0..2)
            .map(|_| {
                let slot = slot.clone();
                spawn(move || u32::from(slot.state.take_for_failover().is_some()))
            })
            .collect();
        let ends = late.join().unwrap() + taken.into_iter().map(|t| t.join().unwrap()).sum::<u32>();
        assert_eq!(ends, 1);
    });
}
