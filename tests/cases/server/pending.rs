// SPDX-License-Identifier: GPL-2.0

//! How many connection requests may wait.

use rtrs_server::logic::pending::{Pending, Room, TooMany};

fn full() -> Pending<4> {
    let pending = Pending::new(Room {
        all: 5,
        of_source: 2,
    });
    for place in [0, 0, 1, 1, 2] {
        assert_eq!(pending.take(place), Ok(()));
    }
    pending
}

fn one_source_leaves_room() {
    let pending = Pending::<4>::new(Room {
        all: 5,
        of_source: 2,
    });
    for _ in 0..2 {
        assert_eq!(pending.take(3), Ok(()));
    }
    for _ in 0..100 {
        assert_eq!(pending.take(3), Err(TooMany::OfSource(2)));
    }
    // What was refused is not counted.
    for place in [0, 1, 2] {
        assert_eq!(pending.take(place), Ok(()));
    }
    for _ in 0..100 {
        assert_eq!(pending.take(0), Err(TooMany::InAll(5)));
    }
    for place in [3, 3, 1] {
        assert!(!pending.give_back(place));
    }
    for place in [3, 3, 0] {
        assert_eq!(pending.take(place), Ok(()));
    }
}

fn a_place_given_back_is_free() {
    let pending = full();
    assert_eq!(pending.take(2), Err(TooMany::InAll(5)));
    assert_eq!(pending.take(0), Err(TooMany::OfSource(2)));
    assert!(!pending.give_back(1));
    assert_eq!(pending.take(0), Err(TooMany::OfSource(2)));
    assert_eq!(pending.take(2), Ok(()));
    assert_eq!(pending.take(1), Err(TooMany::InAll(5)));
}

fn the_last_one_is_told() {
    let pending = full();
    for place in [0, 0, 1, 1] {
        assert!(!pending.give_back(place));
        assert!(!pending.is_empty());
    }
    assert!(pending.give_back(2));
    assert!(pending.is_empty());
}

// A place that does not exist has no count of its own, but counts.
fn no_place() {
    let pending = Pending::<0>::new(Room {
        all: 1,
        of_source: 1,
    });
    assert_eq!(pending.take(7), Ok(()));
    assert_eq!(pending.take(7), Err(TooMany::InAll(1)));
    assert!(pending.give_back(7));
}

cases!(
    rtrs_server_pending:
    one_source_leaves_room,
    a_place_given_back_is_free,
    the_last_one_is_told,
    no_place,
);
