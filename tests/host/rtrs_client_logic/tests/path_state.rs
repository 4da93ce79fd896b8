// SPDX-License-Identifier: GPL-2.0

//! The life of a path: named cases, and every possible sequence of events.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

use std::collections::HashSet;

use proptest::prelude::*;
use rtrs_client_logic::logic::path_state::*;

/// A path with an owner that follows its orders, and complains about those that make no sense.
#[derive(Clone, Debug)]
struct Owner {
    machine: PathMachine,
    max_attempts: i32,
    /// The link that exists now.
    link: Option<LinkId>,
    /// Whether the link is being torn down.
    tearing: bool,
    timer: Option<LinkId>,
    /// Whether the session takes the path for connected.
    up: bool,
    released: bool,
    actions: Vec<Action>,
}

impl Owner {
    fn new(max_attempts: i32) -> Self {
        Self {
            machine: PathMachine::new(),
            max_attempts,
            link: None,
            tearing: false,
            timer: None,
            up: false,
            released: false,
            actions: Vec::new(),
        }
    }

    fn send(&mut self, event: Event) -> Reply {
        let (before, tearing) = (self.machine.state(), self.tearing);
        let Transition {
            machine,
            action,
            reply,
            announce,
        } = self.machine.next(event, self.max_attempts);

        match event {
            Event::TornDown(link) if Some(link) == self.link => {
                assert!(self.tearing);
                self.link = None;
                self.tearing = false;
            }
            Event::TimerFired(link) if Some(link) == self.timer => self.timer = None,
            _ => (),
        }
        match action {
            Action::None => assert!(machine.state().has_link() == self.link.is_some()),
            Action::Connect(link) => {
                assert_eq!(self.link, None, "two links at a time");
                assert!(link > self.machine.link(), "a link of its own");
                self.link = Some(link);
                self.timer = None;
            }
            Action::TearDown(link) => {
                assert_eq!(self.link, Some(link), "tears down what exists");
                assert!(!self.tearing, "torn down twice");
                self.tearing = true;
            }
            Action::ArmTimer { attempt, link } => {
                assert_eq!(self.timer, None, "two timers");
                assert!(attempt >= 1);
                self.timer = Some(link);
            }
            Action::ArmSoon(link) => {
                assert_eq!(link, self.machine.link());
                self.timer = Some(link);
            }
            Action::CancelTimer => self.timer = None,
            Action::Release => {
                assert!(!self.released, "released twice");
                assert_eq!(self.link, None);
                self.timer = None;
                self.released = true;
            }
        }
        match announce {
            UpDown::None => (),
            UpDown::Up => {
                assert!(!self.up);
                self.up = true;
            }
            UpDown::Down => {
                assert!(self.up);
                self.up = false;
            }
        }
        if action != Action::None {
            self.actions.push(action);
        }
        self.machine = machine;
        if tearing && self.tearing {
            assert_eq!(machine.state(), before, "nothing else while tearing down");
            assert_eq!(action, Action::None);
        }
        self.check();
        reply
    }

    /// Ends the teardown, if there is one: the owner does nothing else before.
    fn end_teardown(&mut self) {
        if self.tearing {
            self.send(Event::TornDown(self.link.unwrap()));
        }
    }

    /// A cause of failure has gone: an attempt follows at once.
    fn soon(&mut self, event: Event) {
        let link = self.machine.link();
        self.send(event);
        assert_eq!(self.machine.state(), State::Waiting);
        assert_eq!(self.actions.last(), Some(&Action::ArmSoon(link)));
        let armed = self.actions.len();
        for _ in 0..10 {
            self.send(event);
            assert_eq!(self.actions.len(), armed, "nothing puts it off");
        }
        self.send(Event::TimerFired(link));
        assert_eq!(self.machine.state(), State::Connecting);
    }

    /// The conditions that hold at any time.
    fn check(&self) {
        let state = self.machine.state();
        assert_eq!(self.link.is_some(), state.has_link());
        assert_eq!(self.tearing, matches!(state, State::TearingDown(_)));
        assert_eq!(self.up, state == State::Connected);
        assert_eq!(self.released, state == State::Dead);
        assert_eq!(
            self.timer.is_some(),
            state == State::Waiting,
            "only a waiting path has a timer, and it always has one: {self:?}"
        );
        if let Some(link) = self.link {
            assert_eq!(link, self.machine.link());
        }
    }

    /// Events that can come, with the numbers of this, earlier and later links.
    fn events(&self) -> Vec<Event> {
        let mut events = vec![
            Event::Start,
            Event::DeviceBack,
            Event::AddressChange,
            Event::UserReconnect,
            Event::UserDisconnect,
            Event::Remove,
        ];
        for link in [
            self.machine.link(),
            self.machine.link().wrapping_sub(1),
            self.machine.link().wrapping_add(1),
        ] {
            events.push(Event::Established(link));
            events.push(Event::DeviceGone(link));
            for failure in [
                Failure::Again,
                Failure::GaveWay,
                Failure::Unknown,
                Failure::Final,
            ] {
                events.push(Event::ConnectFailed { link, failure });
            }
            events.push(Event::LinkError(link));
            // A cancelled timer may still fire. The end of a teardown may be reported late, but not
            // before it began.
            events.push(Event::TimerFired(link));
            if self.link != Some(link) || self.tearing {
                events.push(Event::TornDown(link));
            }
        }
        events
    }
}

fn connected(max_attempts: i32) -> Owner {
    let mut owner = Owner::new(max_attempts);
    owner.send(Event::Start);
    owner.send(Event::Established(1));
    assert_eq!(owner.machine.state(), State::Connected);
    owner
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
                for event in owner.events() {
                    let mut after = owner.clone();
                    after.send(event);
                    after.actions.clear();
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
fn first_connect_fails() {
    let mut owner = Owner::new(-1);
    owner.send(Event::Start);
    owner.send(Event::ConnectFailed {
        link: 1,
        failure: Failure::Again,
    });
    owner.send(Event::TornDown(1));
    assert_eq!(
        owner.machine.state(),
        State::Closed(CloseReason::NeverUp),
        "the creator decides"
    );
    owner.send(Event::Remove);
    assert_eq!(
        owner.actions,
        [Action::Connect(1), Action::TearDown(1), Action::Release]
    );
}

#[test]
fn giving_way_is_not_counted() {
    for mut owner in [Owner::new(1), connected(1)] {
        owner.send(Event::Start);
        if owner.machine.state() == State::Connected {
            owner.send(Event::LinkError(1));
            owner.send(Event::TornDown(1));
            owner.send(Event::TimerFired(1));
        }
        for _ in 0..3 {
            let link = owner.machine.link();
            assert_eq!(owner.machine.state(), State::Connecting);
            owner.send(Event::ConnectFailed {
                link,
                failure: Failure::GaveWay,
            });
            owner.send(Event::TornDown(link));
            assert_eq!(owner.machine.attempts(), 0);
        }
    }
}

#[test]
fn attempts_run_out() {
    let mut owner = connected(3);
    owner.send(Event::LinkError(1));
    owner.send(Event::TornDown(1));
    for attempt in 1..=3 {
        let link = owner.machine.link();
        assert_eq!(
            owner.actions.last(),
            Some(&Action::ArmTimer { attempt, link })
        );
        owner.send(Event::TimerFired(link));
        owner.send(Event::ConnectFailed {
            link: link + 1,
            failure: Failure::Again,
        });
        owner.send(Event::TornDown(link + 1));
    }
    assert_eq!(owner.machine.state(), State::Closed(CloseReason::Exhausted));
    assert_eq!(owner.send(Event::UserReconnect), Reply::Accepted);
    assert_eq!(owner.machine.attempts(), 0);
    assert_eq!(owner.machine.state(), State::Connecting);
}

#[test]
fn a_session_that_is_not_known_is_not_counted() {
    let mut owner = connected(2);
    owner.send(Event::LinkError(1));
    owner.send(Event::TornDown(1));
    // Attempts come later and later, but never end.
    for attempt in 1..=20 {
        let link = owner.machine.link();
        assert_eq!(
            owner.actions.last(),
            Some(&Action::ArmTimer { attempt, link })
        );
        owner.send(Event::TimerFired(link));
        owner.send(Event::ConnectFailed {
            link: link + 1,
            failure: Failure::Unknown,
        });
        owner.send(Event::TornDown(link + 1));
        assert_eq!(owner.machine.attempts(), 0);
    }
    let link = owner.machine.link();
    owner.send(Event::TimerFired(link));
    owner.send(Event::Established(link + 1));
    owner.send(Event::LinkError(link + 1));
    owner.send(Event::TornDown(link + 1));
    let (attempt, link) = (1, link + 1);
    assert_eq!(
        owner.actions.last(),
        Some(&Action::ArmTimer { attempt, link })
    );
}

#[test]
fn no_attempts_allowed() {
    let mut owner = connected(0);
    owner.send(Event::LinkError(1));
    owner.send(Event::TornDown(1));
    assert_eq!(owner.machine.state(), State::Closed(CloseReason::Exhausted));
    owner.soon(Event::DeviceBack);
}

#[test]
fn success_clears_attempts() {
    let mut owner = connected(2);
    for _ in 0..10 {
        let link = owner.machine.link();
        owner.send(Event::LinkError(link));
        owner.send(Event::TornDown(link));
        owner.send(Event::TimerFired(link));
        owner.send(Event::ConnectFailed {
            link: link + 1,
            failure: Failure::Again,
        });
        owner.send(Event::TornDown(link + 1));
        owner.send(Event::TimerFired(link + 1));
        owner.send(Event::Established(link + 2));
        assert_eq!(owner.machine.state(), State::Connected);
    }
}

#[test]
fn second_teardown_never_starts() {
    let mut owner = connected(-1);
    owner.send(Event::LinkError(1));
    owner.send(Event::LinkError(1));
    owner.send(Event::DeviceGone(1));
    owner.send(Event::DeviceBack);
    for wish in [Event::UserReconnect, Event::UserDisconnect, Event::Remove] {
        assert_eq!(owner.send(wish), Reply::Busy);
    }
    owner.send(Event::TornDown(1));
    assert_eq!(owner.machine.state(), State::Waiting);
    assert_eq!(owner.send(Event::Remove), Reply::Accepted);
    for wish in [Event::UserReconnect, Event::UserDisconnect, Event::Remove] {
        assert_eq!(owner.send(wish), Reply::Gone);
    }
    let timer = Action::ArmTimer {
        attempt: 1,
        link: 1,
    };
    assert_eq!(
        owner.actions,
        [
            Action::Connect(1),
            Action::TearDown(1),
            timer,
            Action::Release
        ]
    );
}

#[test]
fn operator_decides() {
    let mut owner = connected(-1);
    owner.send(Event::UserReconnect);
    owner.send(Event::TornDown(1));
    assert_eq!(owner.actions.last(), Some(&Action::Connect(2)));
    assert_eq!(owner.send(Event::UserReconnect), Reply::Busy);
    owner.send(Event::UserDisconnect);
    owner.send(Event::Established(2));
    owner.send(Event::TornDown(2));
    assert_eq!(owner.machine.state(), State::Closed(CloseReason::Operator));
    assert_eq!(owner.send(Event::UserDisconnect), Reply::Already);
    owner.send(Event::DeviceBack);
    assert_eq!(
        owner.machine.state(),
        State::Closed(CloseReason::Operator),
        "nothing but the operator undoes it"
    );
    owner.send(Event::UserReconnect);
    owner.send(Event::Established(3));
    assert_eq!(owner.machine.state(), State::Connected);
}

#[test]
fn device_comes_and_goes() {
    let mut owner = connected(1);
    owner.send(Event::DeviceGone(1));
    owner.send(Event::TornDown(1));
    // Attempts without a device do not count against the path.
    for link in 1..10 {
        owner.send(Event::TimerFired(link));
        owner.send(Event::ConnectFailed {
            link: link + 1,
            failure: Failure::Again,
        });
        owner.send(Event::TornDown(link + 1));
        assert_eq!(owner.machine.state(), State::Waiting);
    }
    owner.soon(Event::DeviceBack);
    owner.send(Event::Established(11));
    owner.send(Event::DeviceBack);
    assert_eq!(owner.machine.state(), State::Connected);
    owner.send(Event::DeviceGone(10));
    assert_eq!(
        owner.machine.state(),
        State::Connected,
        "that of an earlier link"
    );
    owner.send(Event::DeviceGone(11));
    owner.send(Event::TornDown(11));
    owner.soon(Event::DeviceBack);
    // A request to a port that was down is repeated, at once as well.
    owner.send(Event::DeviceBack);
    owner.send(Event::TornDown(12));
    assert_eq!(owner.actions.last(), Some(&Action::ArmSoon(12)));
    owner.send(Event::TimerFired(12));
    assert_eq!(owner.machine.state(), State::Connecting);
}

#[test]
fn attempts_that_addresses_cause_are_not_counted() {
    let mut owner = connected(3);
    owner.send(Event::LinkError(1));
    owner.send(Event::TornDown(1));
    let fail = |owner: &mut Owner, event, state| {
        match event {
            Event::TimerFired(_) => assert_eq!(owner.send(event), Reply::Accepted),
            _ => owner.soon(event),
        }
        assert_eq!(owner.machine.state(), State::Connecting);
        let link = owner.machine.link();
        owner.send(Event::ConnectFailed {
            link,
            failure: Failure::Again,
        });
        owner.send(Event::TornDown(link));
        assert_eq!(owner.machine.state(), state);
    };
    fail(&mut owner, Event::TimerFired(1), State::Waiting);
    for _ in 0..10 {
        fail(&mut owner, Event::AddressChange, State::Waiting);
    }
    fail(&mut owner, Event::TimerFired(12), State::Waiting);
    let exhausted = State::Closed(CloseReason::Exhausted);
    fail(&mut owner, Event::TimerFired(13), exhausted);
    // The event for the path's own address may come at last.
    fail(&mut owner, Event::AddressChange, exhausted);
    owner.soon(Event::AddressChange);
    owner.send(Event::Established(16));
    assert_eq!(owner.machine.state(), State::Connected);
    owner.send(Event::AddressChange);
    assert_eq!(owner.machine.state(), State::Connected);
}

#[test]
fn changed_server_is_not_retried() {
    let mut owner = connected(-1);
    owner.send(Event::LinkError(1));
    owner.send(Event::TornDown(1));
    owner.send(Event::TimerFired(1));
    owner.send(Event::ConnectFailed {
        link: 2,
        failure: Failure::Final,
    });
    owner.send(Event::TornDown(2));
    assert_eq!(
        owner.machine.state(),
        State::Closed(CloseReason::Incompatible)
    );
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
            let events = owner.events();
            owner.send(*choice.get(&events));
        }
        // In any state the path can be removed, and ends.
        owner.end_teardown();
        owner.send(Event::Remove);
        owner.end_teardown();
        prop_assert!(owner.released);
    }
}
