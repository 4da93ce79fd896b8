// SPDX-License-Identifier: GPL-2.0

//! Work that one task at a time does.

#![cfg(not(loom))]

use rtrs_bindings::solo::Solo;

#[test]
fn one_has_the_lead_and_is_asked_again() {
    let solo = Solo::new();
    let lead = solo.ask().expect("it is free");
    assert!(!solo.end(), "there is a round");
    assert!(solo.ask().is_none());
    assert!(solo.ask().is_none(), "twice is once");
    let lead = lead.leave().expect("it was asked for");
    assert!(lead.leave().is_none());
    assert!(solo.ask().is_some_and(|lead| lead.leave().is_none()));
}

#[test]
fn abandoned_although_it_was_asked_for() {
    let solo = Solo::default();
    let lead = solo.ask().expect("it is free");
    assert!(solo.ask().is_none());
    lead.abandon();
    assert!(solo.ask().is_some_and(|lead| lead.leave().is_none()));
}

#[test]
fn no_round_after_the_end() {
    let solo = Solo::new();
    assert!(solo.end());
    assert!(solo.ask().is_none());
    assert!(!solo.end(), "once");
}
