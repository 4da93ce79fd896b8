// SPDX-License-Identifier: GPL-2.0

//! Events that users get about their sessions, and the path that has the server create a session.

use rtrs_client::logic::{creation::*, link_events::*};

/// A session with one path that its user has.
fn handed() -> LinkState {
    let mut state = LinkState::default();
    state.path_up();
    state.open();
    assert!(state.hand_over());
    state
}

fn nothing_is_told_of_what_is_well() {
    let mut state = handed();
    assert_eq!(state.tell(), None);
    // A path that comes back in time causes no event.
    state.path_down();
    assert_eq!(state.tell(), None);
    state.path_up();
    assert_eq!(state.tell(), None);
}

fn a_loss_is_told_and_its_end() {
    let mut state = handed();
    state.path_down();
    state.fail();
    assert_eq!(state.tell(), Some(LinkEvent::Disconnected));
    assert_eq!(state.tell(), None);
    state.path_up();
    assert_eq!(state.tell(), Some(LinkEvent::Reconnected));
    assert_eq!(state.tell(), None);
    // Both are reported, if nothing was reported in between.
    state.path_down();
    state.fail();
    state.path_up();
    assert_eq!(state.tell(), Some(LinkEvent::Disconnected));
    assert_eq!(state.tell(), Some(LinkEvent::Reconnected));
    assert_eq!(state.tell(), None);
}

fn nothing_is_told_before_the_user_has_the_session() {
    let mut state = LinkState::default();
    state.path_up();
    state.open();
    state.path_down();
    state.fail();
    state.path_up();
    assert_eq!(state.tell(), None, "the handle was not returned yet");
    assert!(state.hand_over());
    assert!(!state.hand_over());
    assert_eq!(
        state.tell(),
        Some(LinkEvent::Disconnected),
        "it is not forgotten"
    );
    assert_eq!(state.tell(), Some(LinkEvent::Reconnected));
    state.fail();
    state.close();
    assert_eq!(state.tell(), None);
}

fn one_path_asks_at_a_time() {
    let mut creator = Creator::default();
    assert_eq!(creator.ask(1, 0), Creation::Ask);
    assert_eq!(creator.ask(2, LEAST_NS - 1), Creation::GiveWay);
    assert_eq!(
        creator.ask(1, LEAST_NS - 1),
        Creation::Ask,
        "its next attempt"
    );
    creator.end(2, LEAST_NS, false);
    assert_eq!(creator.ask(2, LEAST_NS), Creation::GiveWay);
    creator.end(1, LEAST_NS, false);
    assert_eq!(creator.ask(2, LEAST_NS), Creation::Ask);
    // The other path does not wait for one without an answer.
    assert_eq!(creator.ask(1, 2 * LEAST_NS), Creation::Ask);
    assert_eq!(creator.ask(2, 2 * LEAST_NS), Creation::GiveWay);
}

fn a_slow_server_is_waited_for() {
    let mut creator = Creator::default();
    assert_eq!(creator.patience_ns(), LEAST_NS);
    for (took, patience) in [
        (1, LEAST_NS),
        (LEAST_NS, TIMES * LEAST_NS),
        (LEAST_NS / 2, TIMES * LEAST_NS),
        (MOST_NS, MOST_NS),
    ] {
        creator.ask(1, 0);
        creator.end(1, took, true);
        assert_eq!(creator.patience_ns(), patience);
    }
    let mut creator = Creator::default();
    creator.ask(1, 0);
    creator.end(1, MOST_NS, false);
    assert_eq!(creator.patience_ns(), LEAST_NS, "no answer says nothing");
}

cases!(
    rtrs_client_link_events:
    nothing_is_told_of_what_is_well,
    a_loss_is_told_and_its_end,
    nothing_is_told_before_the_user_has_the_session,
    one_path_asks_at_a_time,
    a_slow_server_is_waited_for,
);
