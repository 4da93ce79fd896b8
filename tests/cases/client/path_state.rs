// SPDX-License-Identifier: GPL-2.0

//! The life of a path.

use rtrs_client::logic::path_state::*;

/// A path with an owner that follows its orders, and complains about those that make no sense.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    pub(crate) machine: PathMachine,
    max_attempts: i32,
    /// The link that exists now.
    pub(crate) link: Option<LinkId>,
    /// Whether the link is being torn down.
    pub(crate) tearing: bool,
    timer: Option<LinkId>,
    /// Whether the session takes the path for connected.
    up: bool,
    pub(crate) released: bool,
    pub(crate) actions: Log,
}

/// Actions that were taken.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    first: [Action; 5],
    last: Action,
    count: usize,
}

impl Log {
    pub(crate) const EMPTY: Self = Self {
        first: [Action::None; 5],
        last: Action::None,
        count: 0,
    };

    fn add(&mut self, action: Action) {
        if let Some(place) = self.first.get_mut(self.count) {
            *place = action;
        }
        self.last = action;
        self.count += 1;
    }
}

impl Owner {
    pub(crate) fn new(max_attempts: i32) -> Self {
        Self {
            machine: PathMachine::new(),
            max_attempts,
            link: None,
            tearing: false,
            timer: None,
            up: false,
            released: false,
            actions: Log::EMPTY,
        }
    }

    pub(crate) fn send(&mut self, event: Event) -> Reply {
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
            self.actions.add(action);
        }
        self.machine = machine;
        if tearing && self.tearing {
            assert_eq!(machine.state(), before, "nothing else while tearing down");
            assert_eq!(action, Action::None);
        }
        self.check();
        reply
    }

    /// A cause of failure has gone: an attempt follows at once.
    fn soon(&mut self, event: Event) {
        let link = self.machine.link();
        self.send(event);
        assert_eq!(self.machine.state(), State::Waiting);
        assert_eq!(self.actions.last, Action::ArmSoon(link));
        let armed = self.actions.count;
        for _ in 0..10 {
            self.send(event);
            assert_eq!(self.actions.count, armed, "nothing puts it off");
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
}

pub(crate) fn connected(max_attempts: i32) -> Owner {
    let mut owner = Owner::new(max_attempts);
    owner.send(Event::Start);
    owner.send(Event::Established(1));
    assert_eq!(owner.machine.state(), State::Connected);
    owner
}

/// A path whose first attempt has failed.
fn never_up(failure: Failure) -> Owner {
    let mut owner = Owner::new(-1);
    owner.send(Event::Start);
    owner.send(Event::ConnectFailed { link: 1, failure });
    owner.send(Event::TornDown(1));
    owner
}

fn first_connect_fails() {
    let mut owner = never_up(Failure::Again);
    assert_eq!(
        owner.machine.state(),
        State::Closed(CloseReason::NeverUp),
        "the creator decides"
    );
    owner.send(Event::Remove);
    assert_eq!(
        owner.actions.first,
        [
            Action::Connect(1),
            Action::TearDown(1),
            Action::Release,
            Action::None,
            Action::None
        ]
    );
}

fn giving_way_is_not_counted() {
    for mut owner in [Owner::new(1), connected(1)] {
        owner.send(Event::Start);
        if owner.machine.state() == State::Connected {
            owner.send(Event::LinkError(1));
            owner.send(Event::TornDown(1));
            owner.send(Event::TimerFired(1));
        }
        for failure in [Failure::GaveWay, Failure::WithSends, Failure::GaveWay] {
            let link = owner.machine.link();
            assert_eq!(owner.machine.state(), State::Connecting);
            owner.send(Event::ConnectFailed { link, failure });
            owner.send(Event::TornDown(link));
            assert_eq!(owner.machine.attempts(), 0);
        }
    }
}

fn attempts_run_out() {
    let mut owner = connected(3);
    owner.send(Event::LinkError(1));
    owner.send(Event::TornDown(1));
    for attempt in 1..=3 {
        let link = owner.machine.link();
        assert_eq!(owner.actions.last, Action::ArmTimer { attempt, link });
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

fn a_session_that_is_not_known_is_not_counted() {
    let mut owner = connected(2);
    owner.send(Event::LinkError(1));
    owner.send(Event::TornDown(1));
    // Attempts come later and later, but never end.
    for attempt in 1..=20 {
        let link = owner.machine.link();
        assert_eq!(owner.actions.last, Action::ArmTimer { attempt, link });
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
    assert_eq!(owner.actions.last, Action::ArmTimer { attempt, link });
}

fn no_attempts_allowed() {
    let mut owner = connected(0);
    owner.send(Event::LinkError(1));
    owner.send(Event::TornDown(1));
    assert_eq!(owner.machine.state(), State::Closed(CloseReason::Exhausted));
    owner.soon(Event::DeviceBack);
}

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
        owner.actions.first,
        [
            Action::Connect(1),
            Action::TearDown(1),
            timer,
            Action::Release,
            Action::None
        ]
    );
}

fn operator_decides() {
    let mut owner = connected(-1);
    owner.send(Event::UserReconnect);
    owner.send(Event::TornDown(1));
    assert_eq!(owner.actions.last, Action::Connect(2));
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
    assert_eq!(owner.actions.last, Action::ArmSoon(12));
    owner.send(Event::TimerFired(12));
    assert_eq!(owner.machine.state(), State::Connecting);
}

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
    assert!(owner.machine.is_incompatible());
}

fn another_server_says_nothing_about_the_first() {
    let owner = never_up(Failure::Final);
    assert_eq!(
        owner.machine.state(),
        State::Closed(CloseReason::Incompatible)
    );
    assert!(!owner.machine.is_incompatible());
}

cases!(
    rtrs_client_path_state:
    first_connect_fails,
    giving_way_is_not_counted,
    attempts_run_out,
    a_session_that_is_not_known_is_not_counted,
    no_attempts_allowed,
    success_clears_attempts,
    second_teardown_never_starts,
    operator_decides,
    device_comes_and_goes,
    attempts_that_addresses_cause_are_not_counted,
    changed_server_is_not_retried,
    another_server_says_nothing_about_the_first,
);
