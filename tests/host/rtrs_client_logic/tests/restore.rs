// SPDX-License-Identifier: GPL-2.0

//! The steps of opening devices again, and the marks of requests.

use proptest::prelude::*;
use rtrs_client_logic::logic::{
    devices,
    epoch::Epoch,
    restore::{may_come, Event, State, Why, DEVICE_MS},
};

fn run(events: &[Event]) -> State {
    events
        .iter()
        .fold(State::Clearing, |state, &event| state.next(event))
}

/// Refused for a reason that does not pass.
fn refused(since_ms: u64) -> Event {
    Event::Refused {
        errno: -22,
        since_ms,
        late: false,
    }
}

/// Not there, or not yet.
fn missing(since_ms: u64, late: bool) -> Event {
    Event::Refused {
        errno: -2,
        since_ms,
        late,
    }
}

#[test]
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

#[test]
fn nothing_is_sent_before_the_last_server_is_out_of_the_way() {
    use Event::*;
    assert_eq!(run(&[Greeted, Opened(0), NoneLeft]), State::Clearing);
}

#[test]
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

#[test]
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

#[test]
fn what_is_not_the_same_is_not_tried_again() {
    use Event::*;
    let other = run(&[Clear, Greeted, Event::Unlike(devices::Unlike::Number)]);
    assert_eq!(other, State::GivenUp(Why::Unlike(devices::Unlike::Number)));
    assert_eq!(run(&[Clear, OtherVersion]), State::GivenUp(Why::Version));
}

#[test]
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

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        Just(Event::Clear),
        Just(Event::Greeted),
        Just(Event::OtherVersion),
        (0u32..4).prop_map(Event::Opened),
        Just(Event::NoneLeft),
        (0..2 * DEVICE_MS).prop_map(refused),
        (0..2 * DEVICE_MS, any::<bool>()).prop_map(|(ms, late)| missing(ms, late)),
        Just(Event::Unlike(devices::Unlike::Number)),
        Just(Event::Rested),
        Just(Event::LinkLost),
    ]
}

proptest! {
    #[test]
    fn an_end_is_an_end(events in proptest::collection::vec(event(), 0..50)) {
        let mut state = State::Clearing;
        for event in events {
            let next = state.next(event);
            prop_assert!(!state.is_final() || next == state);
            prop_assert!(event != Event::LinkLost || next.is_final());
            // Only the event that none is left leads to `Done`.
            prop_assert!(next != State::Done || state == State::Done || event == Event::NoneLeft);
            state = next;
        }
    }

    /// A session over several lives of its server: the mark of a new request, and what it tells
    /// later.
    #[test]
    fn marks_tell_lives_and_numbers(lives in proptest::collection::vec(any::<bool>(), 1..50), start in any::<u32>()) {
        let mut present = Epoch::from_word(start & !(3 << 30));
        let first = present;
        let mut marks = vec![];
        for shifted in lives {
            present = present.following(shifted);
            let new = present.of_new();
            prop_assert_eq!(present.is_shifted(), shifted);
            // A new request goes out unchanged exactly if the numbers are the server's.
            prop_assert_eq!(new == present, !shifted);
            prop_assert!(new.has_user_id());
            // A translated request has the server's number.
            prop_assert_eq!(present.has_user_id(), !shifted);
            prop_assert_ne!(new, Epoch::OURS);
            marks.push((present, new));
        }
        for (i, (life, _)) in marks.iter().enumerate() {
            for (j, (sent, new)) in marks.iter().enumerate() {
                prop_assert_eq!(sent.is_since(*life, present), j >= i);
                prop_assert_eq!(new.is_since(*life, present), j >= i);
            }
            prop_assert!(!first.is_since(*life, present));
            prop_assert!(!Epoch::OURS.is_since(*life, present));
        }
    }
}
