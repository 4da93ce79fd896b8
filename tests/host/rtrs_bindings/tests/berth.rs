// SPDX-License-Identifier: GPL-2.0

//! A box that is present or away.

#![cfg(not(loom))]

use std::sync::{
    atomic::{AtomicU32, Ordering},
    Arc, //
};

use rtrs_bindings::berth::Berth;

/// Counts how often it is dropped.
#[repr(align(8))]
struct Counted(Arc<AtomicU32>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn counted() -> (Box<Counted>, Arc<AtomicU32>) {
    let count = Arc::new(AtomicU32::new(0));
    (Box::new(Counted(count.clone())), count)
}

#[test]
fn box_is_there_for_one_thing() {
    let (value, dropped) = counted();
    let berth = Berth::new::<3>(value);
    assert_eq!(berth.tag(), Some(3));
    assert!(berth.take::<2>().is_none());
    let value = berth.take::<3>().expect("there");
    assert!(berth.take::<3>().is_none());
    assert_eq!(berth.tag(), None);
    assert!(berth.take_unless::<1>().is_none());
    berth.put::<1>(value);
    assert!(berth.take_unless::<1>().is_none());
    assert!(berth.take_unless::<2>().is_some());
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
}

#[test]
fn box_is_there_for_another_thing() {
    let (value, dropped) = counted();
    let berth = Berth::new::<3>(value);
    assert!(!berth.retag::<2, 5>());
    assert_eq!(berth.tag(), Some(3));
    assert!(berth.retag::<3, 5>());
    assert_eq!(berth.tag(), Some(5));
    assert!(!berth.retag::<3, 5>());
    let value = berth.take::<5>().expect("there");
    assert!(!berth.retag::<5, 3>());
    assert!(berth.call());
    assert!(!berth.retag::<5, 3>());
    berth.put::<1>(value);
    assert!(berth.retag::<1, 7>());
    drop(berth);
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
}

#[test]
fn box_goes_with_its_place() {
    let (value, dropped) = counted();
    let berth = Berth::new::<7>(value);
    drop(berth);
    assert_eq!(dropped.load(Ordering::Relaxed), 1);

    let (value, dropped) = counted();
    let berth = Berth::new::<7>(value);
    let away = berth.take::<7>();
    drop(berth);
    assert_eq!(dropped.load(Ordering::Relaxed), 0);
    drop(away);
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
}

#[test]
fn call_is_answered_once() {
    let (value, _) = counted();
    let berth = Berth::new::<1>(value);
    assert!(!berth.call());
    let value = berth.take::<1>().expect("there");
    assert!(berth.call());
    assert!(!berth.call());
    assert_eq!(berth.tag(), None);
    assert!(berth.take_unless::<1>().is_none());
    let value = berth.park::<2>(value).expect_err("called");
    assert!(berth.park::<2>(value).is_ok());
    assert_eq!(berth.tag(), Some(2));
}
