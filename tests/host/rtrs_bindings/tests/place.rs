// SPDX-License-Identifier: GPL-2.0

//! A value that is passed from one owner to the next, step by step.

#![cfg(not(loom))]

use std::sync::Arc;

use rtrs_bindings::place::Place;

/// Gives an idle place a holder.
fn occupy<T>(place: &Place<T>) {
    assert!(place.is_idle());
    // SAFETY: The place is idle, and there is one thread.
    unsafe { place.occupy(|_| ()) };
}

#[test]
fn from_hand_to_hand() {
    let place = Place::new(String::new());
    assert!(place.is_idle());
    assert!(place.begin().is_none(), "no task holds it");
    assert!(place.resume().is_none());
    assert!(place.give_up().is_none());

    // SAFETY: It is idle, and there is one thread.
    unsafe { place.occupy(|value| value.push('a')) };
    assert!(!place.is_idle(), "it has a holder");
    assert!(place.resume().is_none(), "it is not lent");
    let mut turn = place.begin().expect("held");
    assert!(place.begin().is_none(), "one turn at a time");
    turn.push('b');
    assert!(turn.finish().is_none());
    assert!(!place.is_idle(), "it has a holder");

    let mut turn = place.begin().expect("held");
    turn.push('c');
    turn.lend();
    assert!(place.begin().is_none(), "it is lent");
    let mut turn = place.resume().expect("lent");
    assert!(place.resume().is_none());
    turn.push('d');
    drop(turn);

    assert_eq!(*place.begin().expect("it is back"), "abcd");
    assert!(place.give_up().is_some());
    assert!(place.is_idle());
    assert!(place.give_up().is_none(), "it was given up");
}

#[test]
fn given_up_while_lent() {
    let place = Place::new(0);
    occupy(&place);
    place.begin().expect("held").lend();
    assert!(place.give_up().is_none());
    let mut turn = place.resume().expect("lent");
    assert!(place.give_up().is_none());
    *turn = 1;
    assert!(!place.is_idle());
    let left = turn.finish().expect("the holder has left");
    assert!(core::ptr::eq(left.place(), &place));
    assert!(place.is_idle());

    // The next holder is not affected.
    occupy(&place);
    let turn = place.begin().expect("held");
    assert_eq!(*turn, 1);
    turn.lend();
    assert!(place.resume().expect("lent").finish().is_none());
    assert!(!place.is_idle());
}

#[test]
fn given_up_in_a_turn_that_is_lent_then() {
    let place = Place::new(0);
    occupy(&place);
    let turn = place.begin().expect("held");
    assert!(place.give_up().is_none());
    turn.lend();
    assert!(place.begin().is_none());
    let turn = place.resume().expect("lent");
    assert!(turn.finish().is_some());
    assert!(place.is_idle());
}

#[test]
fn the_value_is_dropped_once() {
    let value = Arc::new(());
    let place = Place::new(Some(value.clone()));
    occupy(&place);
    drop(place.begin().expect("held").take());
    assert_eq!(Arc::strong_count(&value), 1);
    *place.begin().expect("held") = Some(value.clone());
    drop(place);
    assert_eq!(Arc::strong_count(&value), 1);
}
