// SPDX-License-Identifier: GPL-2.0

//! Requests that are held back when a path ends.

use rtrs_client::logic::fence::*;

fn only_what_may_overtake_its_copy() {
    assert!(Fence::new(0, 1000, 1).is_some());
    assert_eq!(Fence::new(0, 1000, 0), None, "nothing is sent again");
    assert_eq!(Fence::new(0, 0, 1), None, "it is not wanted");
}

fn for_its_time() {
    let fence = Fence::new(0, 1000, 1);
    assert_eq!(fence.map(|f| f.is_over(999_999_999)), Some(false));
    assert_eq!(fence.map(|f| f.is_over(1_000_000_000)), Some(true));
}

fn an_end_there_is_always() {
    let fence = Fence::new(u64::MAX - 1, u32::MAX, 1);
    assert_eq!(fence.map(|f| f.is_over(u64::MAX)), Some(true));
}

/// A request that has failed frees its chunk, which the next one may use over another path.
fn no_path_comes_before_a_failed_request_is_over() {
    let fence = must!(Fence::new(0, 1000, 1));
    let mut fences = FailedFences::default();

    assert!(fences.fail_behind(&fence));
    assert!(!fences.begin_coming_up(999_999_999));
    assert!(fences.begin_coming_up(1_000_000_000));
}

/// A server that orders copies is not waited for, unless there is no second copy.
fn ordered_requests_count_if_they_fail() {
    let fence = must!(Fence::new(0, 1000, 1));
    let mut fences = FailedFences::default();

    fences.note_ordered(&fence);
    assert!(fences.begin_coming_up(0));
    assert!(!fences.fail_ordered(), "the path may be found at any time");
    fences.end_coming_up();
    assert!(fences.fail_ordered());
    assert!(!fences.begin_coming_up(999_999_999));
    assert!(fences.begin_coming_up(1_000_000_000));
}

fn no_request_fails_behind_a_path_that_is_about_to_come() {
    let fence = must!(Fence::new(0, 1000, 1));
    let mut fences = FailedFences::default();

    assert!(fences.begin_coming_up(0));
    assert!(
        !fences.fail_behind(&fence),
        "the path may be found at any time"
    );
    fences.end_coming_up();
    assert!(fences.fail_behind(&fence));
    // One that has to wait holds up nothing.
    assert!(!fences.begin_coming_up(1));
    let longer = must!(Fence::new(0, 2000, 1));
    assert!(fences.fail_behind(&longer));
    // A shorter fence ends no longer one.
    assert!(fences.fail_behind(&fence));
    assert!(!fences.begin_coming_up(1_999_999_999));
    assert!(fences.begin_coming_up(2_000_000_000));
}

cases!(
    rtrs_client_fence:
    only_what_may_overtake_its_copy,
    for_its_time,
    an_end_there_is_always,
    no_path_comes_before_a_failed_request_is_over,
    ordered_requests_count_if_they_fail,
    no_request_fails_behind_a_path_that_is_about_to_come,
);
