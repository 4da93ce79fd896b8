// SPDX-License-Identifier: GPL-2.0

//! A path either gives way or starts, and only a path that starts tells the user of its session.

use rtrs_server::logic::stage::Stage;

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

cases!(
    rtrs_server_stage:
    the_first_to_decide_wins,
    a_path_that_goes_does_not_tell,
    a_path_that_starts_may_tell,
);
