// SPDX-License-Identifier: GPL-2.0

//! Turns: never more than allowed, no member is forgotten, the one that waits longest is next.

use rtrs_server::logic::turn::{Event, Stand, Step};

fn what_cannot_happen_is_refused() {
    use Stand::{Called, Idle, Waiting, Wanted, Working};

    let ended = Event::Ended { more: false };
    for stand in [Idle, Waiting, Called] {
        assert_eq!(stand.next(ended), None);
    }
    for stand in [Idle, Waiting, Working, Wanted] {
        assert_eq!(stand.next(Event::Begun), None);
    }
    for stand in [Idle, Called, Working, Wanted] {
        assert_eq!(stand.next(Event::Called), None);
        assert_eq!(stand.next(Event::Left), Some((stand, Step::None)));
    }
}

cases!(
    rtrs_server_turn:
    what_cannot_happen_is_refused,
);
