// SPDX-License-Identifier: GPL-2.0

//! A path either gives way or starts, and only a path that starts tells the user of its session.

#![cfg(not(loom))]

use proptest::prelude::*;
use rtrs_server_logic::logic::stage::Stage;

#[test]
fn the_first_to_decide_wins() {
    let mut stage = Stage::Open;
    assert!(stage.give_way());
    assert!(!stage.give_way(), "once");
    assert!(!stage.start());
    assert_eq!(stage, Stage::GaveWay);

    let mut stage = Stage::Open;
    assert!(stage.start());
    assert!(!stage.give_way());
    stage.end();
    assert!(!stage.give_way());
}

/// A session ends when no path of it may tell: what is on its way out must not keep it.
#[test]
fn a_path_that_goes_does_not_tell() {
    // It gave way; its owner comes to start it, and takes it down.
    let mut gave_way = Stage::Open;
    assert!(gave_way.give_way());
    assert!(!gave_way.may_tell(true));
    assert!(!gave_way.start());
    assert!(!gave_way.may_tell(true));
    assert!(gave_way.is_in_handshake(), "it is not gone");
    gave_way.end();
    assert!(!gave_way.may_tell(true));
    assert!(!gave_way.is_in_handshake());

    // Its client has left in the handshake.
    let mut left = Stage::Open;
    assert!(!left.may_tell(true));
    left.end();
    assert!(!left.may_tell(true));

    // Its start has failed, and it is not taken down yet.
    let mut failed = Stage::Open;
    assert!(failed.start());
    failed.end();
    assert!(!failed.may_tell(false));
    assert!(!failed.may_tell(true));
}

/// A path that closes while it is started may be in the user's callback.
#[test]
fn a_path_that_starts_may_tell() {
    let mut stage = Stage::Open;
    assert!(stage.may_tell(false));
    assert!(!stage.is_starting());
    assert!(stage.start());
    assert!(!stage.is_in_handshake());
    for closing in [false, true] {
        assert!(stage.is_starting() && stage.may_tell(closing));
    }
}

proptest! {
    #[test]
    fn a_path_gives_way_or_starts(steps in proptest::collection::vec(0u8..3, 0..12)) {
        let mut stage = Stage::Open;
        let (mut gave_way, mut started, mut over) = (0, 0, false);
        for step in steps {
            match step {
                0 => gave_way += u32::from(stage.give_way()),
                1 => started += u32::from(stage.start()),
                _ => {
                    stage.end();
                    over = true;
                }
            }
            prop_assert!(gave_way + started <= 1);
            prop_assert_eq!(stage.is_starting(), started == 1 && !over);
            prop_assert_eq!(stage.may_tell(true), stage.is_starting());
            prop_assert_eq!(stage.is_in_handshake(), started == 0 && !over);
        }
    }
}
