// SPDX-License-Identifier: GPL-2.0

//! The life of a path: every possible sequence of events.

use crate::cases::path_state::{Log, Owner};
use proptest::prelude::*;
use rtrs_client_logic::logic::path_state::*;
use std::collections::HashSet;

/// Events that can come, with the numbers of this, earlier and later links.
fn events(owner: &Owner) -> Vec<Event> {
    let mut events = vec![
        Event::Start,
        Event::DeviceBack,
        Event::AddressChange,
        Event::UserReconnect,
        Event::UserDisconnect,
        Event::Remove,
    ];
    for link in [
        owner.machine.link(),
        owner.machine.link().wrapping_sub(1),
        owner.machine.link().wrapping_add(1),
    ] {
        events.push(Event::Established(link));
        events.push(Event::DeviceGone(link));
        for failure in [
            Failure::Again,
            Failure::GaveWay,
            Failure::WithSends,
            Failure::Unknown,
            Failure::Final,
        ] {
            events.push(Event::ConnectFailed { link, failure });
        }
        events.push(Event::LinkError(link));
        // A cancelled timer may still fire. The end of a teardown may be reported late, but not
        // before it began.
        events.push(Event::TimerFired(link));
        if owner.link != Some(link) || owner.tearing {
            events.push(Event::TornDown(link));
        }
    }
    events
}

/// Ends the teardown, if there is one: the owner does nothing else before.
fn end_teardown(owner: &mut Owner) {
    if owner.tearing {
        owner.send(Event::TornDown(owner.link.unwrap()));
    }
}

#[test]
fn all_sequences() {
    // Breadth first over all reachable states of machine and owner.
    for max_attempts in [-1, 0, 2] {
        let mut seen = HashSet::new();
        let mut front = vec![Owner::new(max_attempts)];
        let mut states = HashSet::new();
        for _ in 0..9 {
            let mut next = Vec::new();
            for owner in front {
                for event in events(&owner) {
                    let mut after = owner.clone();
                    after.send(event);
                    after.actions = Log::EMPTY;
                    states.insert(after.machine.state());
                    if seen.insert(format!("{after:?}")) {
                        next.push(after);
                    }
                }
            }
            front = next;
        }
        assert!(states.len() >= 14, "{states:?}");
    }
}

#[test]
fn states_have_names() {
    assert_eq!(State::Connected.to_string(), "connected");
    assert_eq!(State::TearingDown(Then::Retry).to_string(), "reconnecting");
}

proptest! {
    #[test]
    fn long_random_lives(
        choices in proptest::collection::vec(any::<prop::sample::Index>(), 0..500),
        max_attempts in -1i32..5,
    ) {
        let mut owner = Owner::new(max_attempts);
        for choice in choices {
            let events = events(&owner);
            owner.send(*choice.get(&events));
        }
        // In any state the path can be removed, and ends.
        end_teardown(&mut owner);
        owner.send(Event::Remove);
        end_teardown(&mut owner);
        prop_assert!(owner.released);
    }
}
