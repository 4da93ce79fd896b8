// SPDX-License-Identifier: GPL-2.0

//! Whether the server still has a session when a path is about to come up.

use rtrs_client::logic::turn::{Look, State};

/// Another path is believed to be up, and the server does not say that it kept the session.
pub(crate) const UP: Look = Look {
    doubt: true,
    up: true,
    answered: false,
    well: true,
};

const ANSWERED: Look = Look {
    answered: true,
    ..UP
};

const DOWN: Look = Look { up: false, ..UP };

const ILL: Look = Look { well: false, ..UP };

pub(crate) fn after(looks: &[Look]) -> State {
    looks
        .iter()
        .fold(State::Begun, |state, &look| state.next(look))
}

fn a_server_that_kept_the_session_is_believed() {
    for up in [false, true] {
        let kept = Look {
            doubt: false,
            up,
            ..UP
        };
        assert_eq!(after(&[kept]), State::Known);
    }
}

fn without_another_path_the_session_is_forgotten() {
    assert_eq!(after(&[DOWN]), State::Forgotten);
}

fn another_path_has_to_answer_first() {
    assert_eq!(after(&[UP]), State::Settling);
    assert_eq!(after(&[UP; 2]), State::Asking);
    assert_eq!(after(&[UP; 100]), State::Asking);
    assert_eq!(after(&[UP, UP, UP, ANSWERED]), State::Known);
    // It was not asked yet.
    assert_eq!(after(&[UP, ANSWERED]), State::Asking);
}

fn a_path_that_is_lost_before_it_answers_shows_the_opposite() {
    for n in 1..5 {
        let mut looks = [UP; 5];
        looks[n] = DOWN;
        assert_eq!(after(&looks), State::Forgotten);
    }
    // It had answered.
    let last = Look {
        up: false,
        ..ANSWERED
    };
    assert_eq!(after(&[UP, UP, last]), State::Known);
}

fn a_link_that_fails_or_is_not_wanted_is_given_up_at_the_next_look() {
    for n in 1..5 {
        let mut looks = [UP; 5];
        looks[n] = ILL;
        assert_eq!(after(&looks), State::Abandoned);
    }
    let both = Look {
        well: false,
        ..ANSWERED
    };
    assert_eq!(after(&[UP, UP, both]), State::Abandoned);
}

cases!(
    rtrs_client_turn:
    a_server_that_kept_the_session_is_believed,
    without_another_path_the_session_is_forgotten,
    another_path_has_to_answer_first,
    a_path_that_is_lost_before_it_answers_shows_the_opposite,
    a_link_that_fails_or_is_not_wanted_is_given_up_at_the_next_look,
);
