// SPDX-License-Identifier: GPL-2.0

//! Chunks that wait for a worker, under all interleavings.

#![cfg(loom)]
#![allow(clippy::unwrap_used)]

use loom::{
    sync::{
        atomic::{AtomicBool, AtomicU32, Ordering},
        Arc,
    },
    thread::spawn,
};
use rtrs_server_logic::logic::pile::*;

#[path = "../../shim/explore.rs"]
mod explore;
use explore::explore;

struct Waiting {
    pile: Pile,
    links: [PileLink; 4],
    /// Whether the worker is queued, or runs and will look again.
    queued: AtomicBool,
    seen: [AtomicU32; 4],
}

impl Waiting {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            pile: Pile::new(),
            links: core::array::from_fn(|_| PileLink::new()),
            queued: AtomicBool::new(false),
            seen: core::array::from_fn(|_| AtomicU32::new(0)),
        })
    }

    fn put(&self, number: u16) {
        if self.pile.push(number, &self.links[usize::from(number)]) {
            self.queued.store(true, Ordering::SeqCst);
        }
    }

    fn take(&self) -> Batch {
        self.pile.take(|n| self.links.get(n as usize))
    }

    fn pop(&self, batch: &mut Batch) -> Option<u16> {
        let link = batch.pop(|n| self.links.get(n as usize))?;
        let number = self.links.iter().position(|l| core::ptr::eq(l, link))?;
        u16::try_from(number).ok()
    }

    /// One run of the worker; returns the chunks it has found, in order.
    fn run(&self) -> Vec<u16> {
        let mut batch = self.take();
        let mut found = Vec::new();
        while let Some(number) = self.pop(&mut batch) {
            self.seen[usize::from(number)].fetch_add(1, Ordering::Relaxed);
            found.push(number);
        }
        found
    }
}

#[test]
fn nothing_is_lost() {
    explore(|| {
        let waiting = Waiting::new();
        let others: Vec<_> = (1..=2)
            .map(|n| {
                let waiting = waiting.clone();
                spawn(move || waiting.put(n))
            })
            .collect();
        // The worker that an earlier request has started.
        waiting.put(0);
        waiting.queued.store(false, Ordering::SeqCst);
        waiting.run();
        for other in others {
            other.join().unwrap();
        }
        // A request that was not seen has queued the worker once more.
        let missing = waiting
            .seen
            .iter()
            .take(3)
            .filter(|n| n.load(Ordering::Relaxed) == 0);
        if missing.count() != 0 {
            assert!(waiting.queued.load(Ordering::SeqCst));
        }
        waiting.run();
        for n in waiting.seen.iter().take(3) {
            assert_eq!(n.load(Ordering::Relaxed), 1);
        }
        assert!(waiting.take().is_empty());
    });
}

#[test]
fn same_number_again_after_it_was_popped() {
    explore(|| {
        let waiting = Waiting::new();
        waiting.put(0);
        waiting.put(1);
        let mut batch = waiting.take();
        assert_eq!(waiting.pop(&mut batch), Some(0));
        assert!(!batch.is_empty());
        let again = {
            let waiting = waiting.clone();
            spawn(move || waiting.put(0))
        };
        // The rest comes first.
        waiting.pile.leave(batch);
        let mut batch = waiting.pile.take_left();
        let mut found = Vec::from_iter(waiting.pop(&mut batch));
        assert!(batch.is_empty());
        assert!(waiting.pile.take_left().is_empty());
        found.extend(waiting.run());
        again.join().unwrap();
        found.extend(waiting.run());
        assert_eq!(found, [1, 0]);
    });
}
