// SPDX-License-Identifier: GPL-2.0

//! Operations that wait for room in a send queue, under all interleavings.

#![cfg(loom)]
#![allow(clippy::unwrap_used)]

use loom::{
    sync::{
        atomic::{fence, AtomicU32, Ordering},
        Arc, Mutex,
    },
    thread::spawn,
};
use rtrs_server_logic::logic::lines::*;

#[path = "../../shim/explore.rs"]
mod explore;
use explore::explore;

/// A send queue with its line, and what `Active` does with them.
struct Queue {
    /// Work requests that the completion handler has retired: there is room for as many.
    retired: AtomicU32,
    /// Work requests posted; the lock of the queue.
    posted: Mutex<u32>,
    stalled_len: AtomicU32,
    stalled: Mutex<Lines<Vec<Line>, Vec<Option<u16>>>>,
}

impl Queue {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            retired: AtomicU32::new(0),
            posted: Mutex::new(0),
            stalled_len: AtomicU32::new(0),
            stalled: Mutex::new(Lines::new(vec![Line::EMPTY], vec![None; 2])),
        })
    }

    fn post(&self) -> bool {
        let mut posted = self.posted.lock().unwrap();
        let fits = *posted < self.retired.load(Ordering::Acquire);
        *posted += u32::from(fits);
        fits
    }

    fn answer(&self, item: u16) {
        if !self.post() {
            self.stalled_len.fetch_add(1, Ordering::Relaxed);
            // The kernel's `Full` orders what follows, too.
            fence(Ordering::SeqCst);
            assert!(self.stalled.lock().unwrap().push(0, item));
            self.make_room();
        }
    }

    fn retire(&self) {
        let retired = self.retired.load(Ordering::Relaxed);
        self.retired.store(retired + 1, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.stalled_len.load(Ordering::Relaxed) != 0 {
            self.make_room();
        }
    }

    fn make_room(&self) {
        let mut next = self.stalled.lock().unwrap().attend(0);
        while let Some(item) = next {
            next = if self.post() {
                self.stalled_len.fetch_sub(1, Ordering::Relaxed);
                self.stalled.lock().unwrap().succeeded(0)
            } else {
                let again = self.stalled.lock().unwrap().failed(0, item);
                again.then_some(item)
            };
        }
    }
}

#[test]
fn no_room_is_overlooked() {
    explore(|| {
        let queue = Queue::new();
        let users = [0, 1].map(|item| {
            let queue = queue.clone();
            spawn(move || queue.answer(item))
        });
        // The completion handler: nothing comes after the last completion.
        queue.retire();
        queue.retire();
        for user in users {
            user.join().unwrap();
        }
        assert_eq!(*queue.posted.lock().unwrap(), 2);
        assert_eq!(queue.stalled_len.load(Ordering::Relaxed), 0);
        assert_eq!(queue.stalled.lock().unwrap().attend(0), None);
    });
}
