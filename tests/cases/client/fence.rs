// SPDX-License-Identifier: GPL-2.0

//! Requests that are held back when a path ends.

use rtrs_client::logic::fence::*;

fn only_what_may_overtake_its_copy() {
    assert!(Fence::new(0, 1000, false, 1).is_some());
    assert_eq!(
        Fence::new(0, 1000, true, 1),
        None,
        "the server orders copies"
    );
    assert_eq!(Fence::new(0, 1000, false, 0), None, "nothing is sent again");
    assert_eq!(Fence::new(0, 0, false, 1), None, "it is not wanted");
}

fn a_request_that_fails_is_not_waited_for() {
    let fence = Fence::new(0, 1000, false, 1);
    assert_eq!(fence.map(|f| f.holds(0, false)), Some(true));
    assert_eq!(fence.map(|f| f.holds(0, true)), Some(false));
    // It is not sent again either.
    assert_eq!(fence.map(|f| f.is_over(999_999_999)), Some(false));
    assert_eq!(fence.map(|f| f.is_over(1_000_000_000)), Some(true));
}

fn an_end_there_is_always() {
    let fence = Fence::new(u64::MAX - 1, u32::MAX, false, 1);
    assert_eq!(fence.map(|f| f.holds(u64::MAX, false)), Some(false));
}

cases!(
    rtrs_client_fence:
    only_what_may_overtake_its_copy,
    a_request_that_fails_is_not_waited_for,
    an_end_there_is_always,
);
