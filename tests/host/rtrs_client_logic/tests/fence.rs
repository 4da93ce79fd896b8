// SPDX-License-Identifier: GPL-2.0

//! Requests that are held back when a path ends.

#![cfg(not(loom))]

use proptest::prelude::*;
use rtrs_client_logic::logic::fence::*;

const MS: u64 = 1_000_000;

#[test]
fn only_what_may_overtake_its_copy() {
    assert!(Fence::new(0, 1000, false, 1).is_some());
    assert_eq!(
        Fence::new(0, 1000, true, 1),
        None,
        "the server orders copies"
    );
    assert_eq!(Fence::new(0, 1000, false, 0), None, "nothing is sent again");
    assert_eq!(Fence::new(0, 0, false, 1), None, "nobody wants it");
}

#[test]
fn nobody_waits_for_a_request_that_fails() {
    let fence = Fence::new(0, 1000, false, 1);
    assert_eq!(fence.map(|f| f.holds(0, false)), Some(true));
    assert_eq!(fence.map(|f| f.holds(0, true)), Some(false));
}

#[test]
fn an_end_there_is_always() {
    let fence = Fence::new(u64::MAX - 1, u32::MAX, false, 1);
    assert_eq!(fence.map(|f| f.holds(u64::MAX, false)), Some(false));
}

proptest! {
    #[test]
    fn for_its_time_and_no_longer(
        begun in 0..u64::MAX / 2, ms in 1u32..60_000, after in 0..120_000 * MS,
    ) {
        let fence = Fence::new(begun, ms, false, 7);
        let holds = fence.map(|f| f.holds(begun + after, false));
        prop_assert_eq!(holds, Some(after < u64::from(ms) * MS));
    }
}
