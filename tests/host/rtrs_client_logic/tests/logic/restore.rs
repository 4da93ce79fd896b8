// SPDX-License-Identifier: GPL-2.0

//! The steps of opening devices again, and the marks of requests.

use crate::cases::restore::{missing, refused};
use proptest::prelude::*;
use rtrs_client_logic::logic::{
    devices,
    epoch::Epoch,
    restore::{Event, State, DEVICE_MS},
};

fn any_event() -> impl Strategy<Value = Event> {
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
    fn an_end_is_an_end(events in proptest::collection::vec(any_event(), 0..50)) {
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
