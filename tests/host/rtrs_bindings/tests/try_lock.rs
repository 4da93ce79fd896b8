// SPDX-License-Identifier: GPL-2.0

//! A value with one owner at a time.

#![cfg(not(loom))]

use std::sync::Arc;

use rtrs_bindings::try_lock::TryLock;

#[test]
fn one_holder_at_a_time() {
    let cell = TryLock::new(String::from("a"));
    let mut held = cell.try_take().expect("no task has it");
    assert!(cell.try_take().is_none());
    held.push('b');
    drop(held);
    assert_eq!(*cell.try_take().expect("given back"), "ab");
}

#[test]
fn the_value_is_dropped_once() {
    let value = Arc::new(());
    let cell = TryLock::new(Some(value.clone()));
    assert_eq!(Arc::strong_count(&value), 2);
    drop(cell.try_take().expect("no task has it").take());
    assert_eq!(Arc::strong_count(&value), 1);
    *cell.try_take().expect("given back") = Some(value.clone());
    drop(cell);
    assert_eq!(Arc::strong_count(&value), 1);
}

#[test]
fn threads_do_not_lose_updates() {
    let cell = Arc::new(TryLock::new(0usize));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let cell = cell.clone();
            std::thread::spawn(move || {
                let mut done = 0;
                for _ in 0..1000 {
                    if let Some(mut held) = cell.try_take() {
                        *held += 1;
                        done += 1;
                    }
                }
                done
            })
        })
        .collect();
    let done: usize = threads
        .into_iter()
        .map(|t| t.join().expect("no panic"))
        .sum();
    assert_eq!(*cell.try_take().expect("all gave it back"), done);
}
