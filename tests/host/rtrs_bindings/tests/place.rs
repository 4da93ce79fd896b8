// SPDX-License-Identifier: GPL-2.0

//! A value that goes from hand to hand, step by step.

#![cfg(not(loom))]

use std::sync::Arc;

use rtrs_bindings::place::Place;

#[test]
fn from_hand_to_hand() {
    let place = Place::new(String::new());
    assert!(place.is_idle());
    assert!(place.begin().is_none(), "nobody holds it");
    assert!(place.resume().is_none());
    assert!(place.give_up().is_none());

    let mut turn = place.claim().expect("idle");
    assert!(place.claim().is_none());
    assert!(place.begin().is_none(), "one turn at a time");
    turn.push('a');
    assert!(turn.finish().is_none());
    assert!(place.claim().is_none(), "it has a holder");

    let mut turn = place.begin().expect("held");
    turn.push('b');
    turn.lend();
    assert!(place.begin().is_none(), "it is lent");
    let mut turn = place.resume().expect("lent");
    assert!(place.resume().is_none());
    turn.push('c');
    drop(turn);

    let last = place.give_up().expect("it is back");
    assert_eq!(*last, "abc");
    last.leave();
    assert!(place.is_idle());
}

#[test]
fn given_up_while_lent() {
    let place = Place::new(0);
    place.claim().expect("idle").lend();
    assert!(place.give_up().is_none());
    let mut turn = place.resume().expect("lent");
    assert!(place.give_up().is_none());
    *turn = 1;
    let last = turn.finish().expect("the holder has left");
    assert_eq!(*last, 1);
    last.leave();

    // The next holder has nothing to do with that.
    place.claim().expect("idle").lend();
    assert!(place.resume().expect("lent").finish().is_none());
    assert!(!place.is_idle());
}

#[test]
fn the_value_is_dropped_once() {
    let value = Arc::new(());
    let place = Place::new(Some(value.clone()));
    drop(place.claim().expect("idle").take());
    assert_eq!(Arc::strong_count(&value), 1);
    *place.begin().expect("held") = Some(value.clone());
    drop(place);
    assert_eq!(Arc::strong_count(&value), 1);
}
