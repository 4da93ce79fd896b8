// SPDX-License-Identifier: GPL-2.0

//! A value with one owner at a time, under all interleavings.

#![cfg(loom)]

use loom::{
    cell::UnsafeCell,
    sync::Arc,
    thread, //
};
use rtrs_bindings::try_lock::TryLock;

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

#[test]
fn owners_are_ordered() {
    loom::model(|| {
        let cell = Arc::new(TryLock::new(Watched(UnsafeCell::new(0))));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let cell = cell.clone();
                thread::spawn(move || {
                    let mut done = 0;
                    for _ in 0..2 {
                        if let Some(mut held) = cell.try_take() {
                            held.increment();
                            done += 1;
                        }
                    }
                    done
                })
            })
            .collect();
        let done: u32 = threads
            .into_iter()
            .map(|t| t.join().expect("no panic"))
            .sum();
        assert!(done >= 2);
        assert_eq!(cell.try_take().expect("all gave it back").value(), done);
    });
}
