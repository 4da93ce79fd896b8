// SPDX-License-Identifier: GPL-2.0

//! The use of one chunk, quotas, and requests that wait, under all interleavings.

#![cfg(loom)]
#![allow(clippy::unwrap_used)]

use loom::{
    cell::UnsafeCell,
    sync::{
        atomic::{AtomicU32, Ordering},
        Arc,
    },
    thread::spawn,
};
use rtrs_server_logic::logic::{chunk_state::*, pending::*, quota::*};

#[path = "../../shim/explore.rs"]
mod explore;
use explore::explore;

fn inc(n: u32) -> Incarnation {
    Incarnation::new(n).unwrap()
}

/// A chunk whose memory is touched by each operation: loom reports it if two overlap.
struct Chunk {
    state: ChunkState,
    memory: UnsafeCell<u32>,
    runs: [AtomicU32; 4],
}

impl Chunk {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            state: ChunkState::new(),
            memory: UnsafeCell::new(0),
            runs: core::array::from_fn(|_| AtomicU32::new(0)),
        })
    }

    fn run(&self, mut who: Incarnation) {
        loop {
            self.memory.with_mut(|_| ());
            if let Some(runs) = self.runs.get(who.get() as usize) {
                runs.fetch_add(1, Ordering::Relaxed);
            }
            match self.state.end(who) {
                End::Run(next) => who = next,
                End::Free => return,
                End::NotBusy => unreachable!(),
            }
        }
    }

    fn runs(&self, who: usize) -> u32 {
        self.runs.get(who).unwrap().load(Ordering::Relaxed)
    }

    /// Another request could use the chunk.
    fn is_free(&self) -> bool {
        self.state.try_begin(inc(9)) == Begin::Run
    }
}

#[test]
fn failed_over_request_runs_after_the_first() {
    explore(|| {
        let chunk = Chunk::new();
        let paths: Vec<_> = (1..=2)
            .map(|n| {
                let chunk = chunk.clone();
                spawn(move || match chunk.state.try_begin(inc(n)) {
                    Begin::Run => chunk.run(inc(n)),
                    Begin::Parked(_) => (),
                    other => unreachable!("{other:?}"),
                })
            })
            .collect();
        for path in paths {
            path.join().unwrap();
        }
        assert_eq!((chunk.runs(1), chunk.runs(2)), (1, 1));
        assert!(chunk.is_free());
    });
}

#[test]
fn parked_request_is_run_or_dropped() {
    explore(|| {
        let chunk = Chunk::new();
        assert_eq!(chunk.state.try_begin(inc(1)), Begin::Run);
        let first = {
            let chunk = chunk.clone();
            spawn(move || chunk.run(inc(1)))
        };
        let second = {
            let chunk = chunk.clone();
            spawn(move || match chunk.state.try_begin(inc(2)) {
                Begin::Run => {
                    chunk.run(inc(2));
                    0
                }
                // The path closes at once.
                Begin::Parked(_) => u32::from(chunk.state.cancel_parked(inc(2))),
                other => unreachable!("{other:?}"),
            })
        };
        first.join().unwrap();
        let dropped = second.join().unwrap();
        assert_eq!(chunk.runs(1), 1);
        assert_eq!(chunk.runs(2) + dropped, 1);
        assert!(chunk.is_free());
    });
}

#[test]
fn replaced_request_is_dropped_once() {
    explore(|| {
        let chunk = Chunk::new();
        assert_eq!(chunk.state.try_begin(inc(1)), Begin::Run);
        assert_eq!(chunk.state.try_begin(inc(2)), Begin::Parked(inc(1)));
        let first = {
            let chunk = chunk.clone();
            spawn(move || chunk.run(inc(1)))
        };
        let closing = {
            let chunk = chunk.clone();
            spawn(move || u32::from(chunk.state.cancel_parked(inc(2))))
        };
        let dropped = match chunk.state.try_begin(inc(3)) {
            Begin::Run => {
                chunk.run(inc(3));
                0
            }
            Begin::Parked(_) => 0,
            Begin::Replaced(old) => {
                assert_eq!(old, inc(2));
                1
            }
            Begin::Violation => unreachable!(),
        };
        first.join().unwrap();
        assert_eq!(chunk.runs(2) + dropped + closing.join().unwrap(), 1);
        assert_eq!(chunk.runs(3), 1);
        assert!(chunk.is_free());
    });
}

#[test]
fn quota_is_exact() {
    explore(|| {
        let quota = Arc::new(Quota::new(Resource::Sessions, 2));
        let takers: Vec<_> = (0..2)
            .map(|_| {
                let quota = quota.clone();
                spawn(move || {
                    let taken = quota.take(2).is_ok();
                    if taken {
                        assert_eq!(quota.current(), 2);
                        assert!(quota.uncharge(2));
                    }
                    taken
                })
            })
            .collect();
        let taken: Vec<_> = takers.into_iter().map(|t| t.join().unwrap()).collect();
        assert!(taken.contains(&true));
        assert_eq!(quota.current(), 0);
    });
}

/// Two requests come and are decided; `inside` counts those that were let in.
fn come_and_go(room: Room, places: [usize; 2]) {
    explore(move || {
        let pending = Arc::new(Pending::<2>::new(room));
        let inside = Arc::new(AtomicU32::new(0));
        let comers = places.map(|place| {
            let (pending, inside) = (pending.clone(), inside.clone());
            spawn(move || {
                let taken = pending.take(place).is_ok();
                if taken {
                    assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                    inside.fetch_sub(1, Ordering::Relaxed);
                    pending.give_back(place);
                }
                taken
            })
        });
        let taken = comers.map(|comer| comer.join().unwrap());
        assert!(taken.contains(&true));
        assert!(pending.is_empty());
        // Nothing is left of what was refused.
        for place in [0, 1] {
            assert_eq!(pending.take(place), Ok(()));
            pending.give_back(place);
        }
    });
}

#[test]
fn one_of_a_source_waits() {
    let room = Room {
        all: 2,
        of_source: 1,
    };
    come_and_go(room, [0, 0]);
}

#[test]
fn one_of_all_waits() {
    let room = Room {
        all: 1,
        of_source: 1,
    };
    come_and_go(room, [0, 1]);
}
