// SPDX-License-Identifier: GPL-2.0

//! Work that one task at a time does, under all interleavings.

#![cfg(loom)]

use loom::{
    cell::UnsafeCell,
    sync::{
        atomic::{
            AtomicU32,
            Ordering::Relaxed, //
        },
        Arc, //
    },
    thread, //
};
use rtrs_bindings::solo::Solo;

/// Work, which loom checks to be done by one task at a time, and what is asked for.
struct Shared {
    solo: Solo,
    done: UnsafeCell<u32>,
    wanted: AtomicU32,
}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            solo: Solo::new(),
            done: UnsafeCell::new(0),
            wanted: AtomicU32::new(0),
        })
    }

    /// Wants one more, and asks. A round does all that is wanted.
    fn want(&self) {
        self.wanted.fetch_add(1, Relaxed);
        let mut next = self.solo.ask();
        while let Some(lead) = next {
            // SAFETY: This task has the lead. Loom checks that it is the only one.
            self.done
                .with_mut(|done| unsafe { *done = self.wanted.load(Relaxed) });
            next = lead.leave();
        }
    }

    fn done(&self) -> u32 {
        // SAFETY: All tasks have ended. Loom checks that they are ordered before this.
        self.done.with(|done| unsafe { *done })
    }
}

#[test]
fn whatever_is_wanted_is_done() {
    loom::model(|| {
        let shared = Shared::new();
        let other = {
            let shared = shared.clone();
            thread::spawn(move || shared.want())
        };
        shared.want();
        shared.want();
        other.join().expect("no panic");
        assert_eq!(shared.done(), 3);
    });
}

#[test]
fn nothing_is_done_after_the_end() {
    loom::model(|| {
        let shared = Shared::new();
        let other = {
            let shared = shared.clone();
            thread::spawn(move || shared.want())
        };
        if shared.solo.end() {
            let done = shared.done();
            other.join().expect("no panic");
            assert_eq!(shared.done(), done);
        } else {
            other.join().expect("no panic");
            assert_eq!(shared.done(), 1);
        }
    });
}
