// SPDX-License-Identifier: GPL-2.0

//! The steps of opening devices again.

use rtrs_client::logic::{
    devices,
    restore::{may_come, Event, State, Why, DEVICE_MS},
};

fn run(events: &[Event]) -> State {
    events
        .iter()
        .fold(State::Clearing, |state, &event| state.next(event))
}

/// Refused for a reason that does not pass.
pub(crate) fn refused(since_ms: u64) -> Event {
    Event::Refused {
        errno: -22,
        since_ms,
        late: false,
    }
}

/// Not there, or not yet.
pub(crate) fn missing(since_ms: u64, late: bool) -> Event {
    Event::Refused {
        errno: -2,
        since_ms,
        late,
    }
}

fn all_is_opened_one_after_the_other() {
    use Event::*;
    assert_eq!(run(&[Clear, Greeted]), State::Opening(0));
    assert_eq!(
        run(&[Clear, Greeted, Opened(0), Opened(2)]),
        State::Opening(3)
    );
    assert_eq!(
        run(&[Clear, Greeted, Opened(0), Opened(2), NoneLeft]),
        State::Done
    );
}

fn nothing_is_sent_before_the_last_server_is_out_of_the_way() {
    use Event::*;
    assert_eq!(run(&[Greeted, Opened(0), NoneLeft]), State::Clearing);
}

fn a_device_that_is_refused_gets_its_time_and_no_more() {
    use Event::*;
    let late = [
        Clear,
        Greeted,
        Opened(0),
        refused(0),
        Rested,
        refused(DEVICE_MS - 1),
    ];
    assert_eq!(run(&late), State::Resting(1));
    assert_eq!(run(&late).next(Rested), State::Opening(1));
    assert_eq!(run(&late).next(Rested).next(Opened(1)), State::Opening(2));
    let never = run(&late).next(Rested).next(refused(DEVICE_MS));
    assert_eq!(never, State::GivenUp(Why::Refused(-22)));
}

fn a_device_that_may_come_is_waited_for_as_long_as_requests_wait() {
    let opening = State::Opening(1);
    let hour = 3_600_000;
    assert_eq!(opening.next(missing(hour, false)), State::Resting(1));
    assert_eq!(
        opening.next(missing(DEVICE_MS, true)),
        State::GivenUp(Why::Refused(-2))
    );
    // However short that is, a server that has only forgotten the session gets its time.
    assert_eq!(
        opening.next(missing(DEVICE_MS - 1, true)),
        State::Resting(1)
    );
    // ENOENT, EPERM, EBUSY, ENODEV, ENXIO, and others.
    for (errno, may) in [
        (2, true),
        (1, true),
        (16, true),
        (19, true),
        (6, true),
        (22, false),
        (13, false),
        (5, false),
        (12, false),
        (0, false),
        (i32::MIN, false),
    ] {
        assert_eq!(may_come(0i32.wrapping_sub(errno)), may, "{errno}");
    }
}

fn what_is_not_the_same_is_not_tried_again() {
    use Event::*;
    let other = run(&[Clear, Greeted, Event::Unlike(devices::Unlike::Number)]);
    assert_eq!(other, State::GivenUp(Why::Unlike(devices::Unlike::Number)));
    assert_eq!(run(&[Clear, OtherVersion]), State::GivenUp(Why::Version));
}

fn whatever_a_server_says_leads_on() {
    use Event::*;
    let opening = [
        OtherVersion,
        Opened(3),
        NoneLeft,
        refused(0),
        refused(DEVICE_MS),
        Event::Unlike(devices::Unlike::Number),
    ];
    let answers: [(State, &[Event]); 4] = [
        (State::Clearing, &[Clear]),
        (State::Greeting, &[Greeted, OtherVersion]),
        (State::Opening(3), &opening),
        (State::Resting(3), &[Rested]),
    ];
    for (state, events) in answers {
        for event in events {
            assert_ne!(state.next(*event), state, "{event:?}");
        }
    }
}

cases!(
    rtrs_client_restore:
    all_is_opened_one_after_the_other,
    nothing_is_sent_before_the_last_server_is_out_of_the_way,
    a_device_that_is_refused_gets_its_time_and_no_more,
    a_device_that_may_come_is_waited_for_as_long_as_requests_wait,
    what_is_not_the_same_is_not_tried_again,
    whatever_a_server_says_leads_on,
);
