// SPDX-License-Identifier: GPL-2.0

//! The life of a path, as one function from state and event to state and action.
//!
//! A path object outlives its connections. The object that is torn down and built again is a
//! *link*: the set of connections of one attempt. There is at most one link at any time, and it is
//! torn down exactly once, because both follow from the state alone: a link exists in
//! [`State::Connecting`], [`State::Connected`] and [`State::TearingDown`], and the only way out of
//! these is [`Event::TornDown`].
//!
//! One owner task per path feeds the events to [`PathMachine::next`], one at a time, and carries
//! out the actions. Completion handlers and sysfs only send it events. Events of a link carry its
//! number, so a late event of an earlier link has no effect. While a link is torn down, the owner
//! does nothing else: only [`Event::TornDown`] comes, and no other event has an effect.

use core::fmt;

/// Number of a link, or of the timer that was armed after it. Counts from 1.
pub type LinkId = u32;

/// The reason why a path has no link and does not try to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// The operator disconnected it.
    Operator,
    /// It was never established, and only its creator may retry.
    NeverUp,
    /// All reconnect attempts failed.
    Exhausted,
    /// The server's answer does not fit the session any more.
    Incompatible,
}

/// The step that follows a teardown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Then {
    /// Try again later, if attempts are left.
    Retry,
    /// Try again now.
    Connect,
    /// Try again in a moment.
    Soon,
    /// Stay without a link.
    Close(CloseReason),
    /// Remove the path.
    Die,
}

/// State of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Not started yet.
    New,
    /// A link is being established.
    Connecting,
    /// The link carries IO.
    Connected,
    /// The link is being quiesced, drained and freed.
    TearingDown(Then),
    /// No link; a timer will start the next attempt.
    Waiting,
    /// No link, and none will be made without a command.
    Closed(CloseReason),
    /// The path was removed.
    Dead,
}

impl State {
    /// Whether there is a link.
    pub const fn has_link(self) -> bool {
        matches!(
            self,
            Self::Connecting | Self::Connected | Self::TearingDown(_)
        )
    }

    /// The name for sysfs files that show the full state.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Connecting => "connecting",
            Self::Connected => "connected",
            Self::TearingDown(Then::Retry | Then::Connect | Then::Soon) => "reconnecting",
            Self::TearingDown(Then::Close(_)) => "closing",
            Self::TearingDown(Then::Die) => "removing",
            Self::Waiting => "waiting",
            Self::Closed(CloseReason::Operator | CloseReason::NeverUp) => "disconnected",
            Self::Closed(CloseReason::Exhausted) => "given-up",
            Self::Closed(CloseReason::Incompatible) => "incompatible",
            Self::Dead => "removed",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The meaning of a failed attempt to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Another attempt may succeed; each is counted.
    Again,
    /// No meaning: another path of the session had to come first, or a task waited.
    GaveWay,
    /// The server refused a connection for writes that are sent, or ended all of them: an attempt
    /// without those may succeed, and is the next one. Not counted.
    WithSends,
    /// The server does not know the session while other paths of it are up, which concerns those
    /// paths. Attempts are repeated at growing intervals, and not counted.
    Unknown,
    /// The server has changed and does not fit any more.
    Final,
}

/// An event of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The path was created and must connect.
    Start,
    /// The link is up: all connections established, info exchanged.
    Established(LinkId),
    /// The link could not be established.
    ConnectFailed {
        /// The link.
        link: LinkId,
        /// The meaning of the failure.
        failure: Failure,
    },
    /// The link, which was up, failed: error completion, disconnect, heartbeat, violation by the
    /// peer.
    LinkError(LinkId),
    /// Tearing down the link is done.
    TornDown(LinkId),
    /// The timer armed after this link fired.
    TimerFired(LinkId),
    /// The device of this link is going away.
    DeviceGone(LinkId),
    /// A device that may carry the path has come, or its port came up.
    DeviceBack,
    /// Addresses have come or gone, maybe the path's.
    AddressChange,
    /// The operator asks to reconnect it.
    UserReconnect,
    /// The operator asks to disconnect it.
    UserDisconnect,
    /// The path must be removed.
    Remove,
}

/// An action of the owner task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    None,
    /// Begin to establish this link, and cancel the timer if it is armed.
    Connect(LinkId),
    /// Quiesce, drain and free this link, then send [`Event::TornDown`]. A link that is still
    /// connecting is torn down the same way, its late success or failure has no effect.
    TearDown(LinkId),
    /// Arm the timer for attempt number `attempt` (from 1) and send [`Event::TimerFired`].
    ArmTimer {
        /// Number of the next attempt since the path was up last.
        attempt: u32,
        /// The link for the event.
        link: LinkId,
    },
    /// Arm the timer, or change it if it is armed, for an attempt in a moment, and send
    /// [`Event::TimerFired`] with this link.
    ArmSoon(LinkId),
    /// Cancel the timer.
    CancelTimer,
    /// Cancel the timer and drop the owner's reference. No later event is looked at.
    Release,
}

/// The answer to the operator that caused the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The command was accepted. Its outcome is the next stable state.
    Accepted,
    /// The path is in that state already.
    Already,
    /// The command is not possible now, `-EBUSY`.
    Busy,
    /// The path is removed, or about to be, `-ENODEV`.
    Gone,
}

/// Change of the path's usefulness, for the link events of the session and for uevents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpDown {
    /// No change.
    None,
    /// It takes IO from now on.
    Up,
    /// It does not take IO any more. Requests in flight are failed over by the teardown.
    Down,
}

/// The outcome of [`PathMachine::next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the action has to be done"]
pub struct Transition {
    /// The new state of the path.
    pub machine: PathMachine,
    /// The action to carry out.
    pub action: Action,
    /// The answer to the command; [`Reply::Accepted`] if the event was no command.
    pub reply: Reply,
    /// The change for the session.
    pub announce: UpDown,
}

/// A path: its state and related values. A plain value, so that a copy can be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathMachine {
    state: State,
    /// Latest link, 0 before the first.
    link: LinkId,
    /// Attempts that failed since the path was last up, since the operator last started it, or since
    /// its device came back.
    attempts: u32,
    /// Number of latest attempts in a row that were refused as [`Failure::Unknown`].
    unknown: u32,
    /// The path was up at least once.
    was_up: bool,
    /// The device is gone: attempts must fail, and do not count.
    device_gone: bool,
    /// While it waits: the next attempt comes in a moment, and no event delays it.
    soon: bool,
}

impl Default for PathMachine {
    fn default() -> Self {
        Self::new()
    }
}

impl PathMachine {
    /// A path that was just created.
    pub const fn new() -> Self {
        Self {
            state: State::New,
            link: 0,
            attempts: 0,
            unknown: 0,
            was_up: false,
            device_gone: false,
            soon: false,
        }
    }

    /// Returns the state of the path.
    pub const fn state(&self) -> State {
        self.state
    }

    /// Whether the server has become another one since the path was up, so that it does not try to
    /// connect any more. One that was never up says nothing about the server of the others.
    pub const fn is_incompatible(&self) -> bool {
        self.was_up && matches!(self.state, State::Closed(CloseReason::Incompatible))
    }

    /// The latest link, 0 before the first; it exists if [`State::has_link`].
    pub const fn link(&self) -> LinkId {
        self.link
    }

    /// Attempts that failed since the path was last up, since the operator last started it, or since
    /// its device came back.
    pub const fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Returns the effect of `event` on the path.
    ///
    /// `max_attempts` is the number of attempts to reconnect in a row, negative for no limit. Every
    /// event is valid in every state; an event that does not fit has no effect.
    pub fn next(self, event: Event, max_attempts: i32) -> Transition {
        match event {
            Event::Start => match self.state {
                State::New => self.connect(),
                State::Dead => self.stay(Reply::Gone),
                _ => self.stay(Reply::Already),
            },
            Event::Established(link) => match self.state {
                State::Connecting if link == self.link => Self {
                    attempts: 0,
                    unknown: 0,
                    was_up: true,
                    device_gone: false,
                    ..self
                }
                .to(State::Connected, Action::None)
                .announcing(UpDown::Up),
                _ => self.stay(Reply::Accepted),
            },
            Event::ConnectFailed { link, failure } => match self.state {
                State::Connecting if link == self.link => self.failed(failure),
                _ => self.stay(Reply::Accepted),
            },
            Event::LinkError(link) => match self.state {
                State::Connected if link == self.link => self.tear_down(Then::Retry),
                _ => self.stay(Reply::Accepted),
            },
            Event::TornDown(link) => match self.state {
                State::TearingDown(then) if link == self.link => self.torn_down(then, max_attempts),
                _ => self.stay(Reply::Accepted),
            },
            Event::TimerFired(link) => match self.state {
                State::Waiting if link == self.link => self.connect(),
                _ => self.stay(Reply::Accepted),
            },
            Event::DeviceGone(link) if link == self.link => self.device_gone(),
            Event::DeviceGone(_) => self.stay(Reply::Accepted),
            Event::DeviceBack => self.device_back(),
            Event::AddressChange => self.address_change(),
            Event::UserReconnect => self.user_reconnect(),
            Event::UserDisconnect => self.user_disconnect(),
            Event::Remove => self.remove(),
        }
    }

    fn failed(self, failure: Failure) -> Transition {
        if matches!(failure, Failure::GaveWay | Failure::WithSends) {
            return self.tear_down(Then::Connect);
        }
        let counted = if failure == Failure::Unknown {
            Self {
                unknown: self.unknown.saturating_add(1),
                ..self
            }
        } else {
            Self {
                // Without a device, a failure says nothing about the server.
                attempts: if self.device_gone {
                    self.attempts
                } else {
                    self.attempts.saturating_add(1)
                },
                unknown: 0,
                ..self
            }
        };

        counted.tear_down(if failure == Failure::Final {
            Then::Close(CloseReason::Incompatible)
        } else if !self.was_up {
            Then::Close(CloseReason::NeverUp)
        } else {
            Then::Retry
        })
    }

    fn torn_down(self, then: Then, max_attempts: i32) -> Transition {
        match then {
            Then::Retry => {
                let exhausted = match u32::try_from(max_attempts) {
                    Ok(max) => self.attempts >= max && !self.device_gone,
                    // Negative: no limit.
                    Err(_) => false,
                };
                if exhausted {
                    return self.to(State::Closed(CloseReason::Exhausted), Action::None);
                }
                self.to(
                    State::Waiting,
                    Action::ArmTimer {
                        attempt: self.attempts.saturating_add(self.unknown).saturating_add(1),
                        link: self.link,
                    },
                )
            }
            Then::Connect => self.connect(),
            Then::Soon => self.soon(),
            Then::Close(reason) => self.to(State::Closed(reason), Action::None),
            Then::Die => self.to(State::Dead, Action::Release),
        }
    }

    fn device_gone(self) -> Transition {
        let gone = Self {
            device_gone: true,
            ..self
        };
        match self.state {
            State::Connected => gone.tear_down(Then::Retry),
            State::Connecting if self.was_up => gone.tear_down(Then::Retry),
            State::Connecting => gone.tear_down(Then::Close(CloseReason::NeverUp)),
            _ => gone.stay(Reply::Accepted),
        }
    }

    fn device_back(self) -> Transition {
        let back = Self {
            attempts: 0,
            unknown: 0,
            device_gone: false,
            ..self
        };
        match self.state {
            State::Waiting | State::Closed(CloseReason::Exhausted) => back.soon(),
            // A request that was sent while the port was down may never be answered.
            State::Connecting if self.was_up => back.tear_down(Then::Soon),
            // The path lost nothing: a link that is up stays, and a path that an operator closed
            // stays closed.
            _ => Self {
                device_gone: false,
                ..self
            }
            .stay(Reply::Accepted),
        }
    }

    fn address_change(self) -> Transition {
        match self.state {
            // Addresses of others come and go as well: a failed attempt does not count then.
            State::Waiting | State::Closed(CloseReason::Exhausted) => Self {
                attempts: if self.soon {
                    self.attempts
                } else {
                    self.attempts.saturating_sub(1)
                },
                ..self
            }
            .soon(),
            _ => self.stay(Reply::Accepted),
        }
    }

    fn user_reconnect(self) -> Transition {
        let fresh = Self {
            attempts: 0,
            unknown: 0,
            ..self
        };
        match self.state {
            State::Connected => fresh.tear_down(Then::Connect),
            State::Waiting | State::Closed(_) => fresh.connect(),
            State::New | State::Connecting | State::TearingDown(_) => self.stay(Reply::Busy),
            State::Dead => self.stay(Reply::Gone),
        }
    }

    fn user_disconnect(self) -> Transition {
        let closed = State::Closed(CloseReason::Operator);
        let then = Then::Close(CloseReason::Operator);
        match self.state {
            State::Connecting | State::Connected => self.tear_down(then),
            State::TearingDown(_) => self.stay(Reply::Busy),
            State::Dead => self.stay(Reply::Gone),
            State::Waiting => self.to(closed, Action::CancelTimer),
            State::New => self.to(closed, Action::None),
            State::Closed(CloseReason::Operator) => self.stay(Reply::Already),
            // Whatever closed it, from now on it stays closed by the operator's command.
            State::Closed(_) => {
                let mut transition = self.to(closed, Action::None);
                transition.reply = Reply::Already;
                transition
            }
        }
    }

    fn remove(self) -> Transition {
        match self.state {
            State::Connecting | State::Connected => self.tear_down(Then::Die),
            State::TearingDown(_) => self.stay(Reply::Busy),
            State::Dead => self.stay(Reply::Gone),
            State::New | State::Waiting | State::Closed(_) => self.to(State::Dead, Action::Release),
        }
    }

    /// Waits for a moment, and then tries again. Only from states without a link.
    fn soon(self) -> Transition {
        if self.state == State::Waiting && self.soon {
            return self.stay(Reply::Accepted);
        }
        Self { soon: true, ..self }.to(State::Waiting, Action::ArmSoon(self.link))
    }

    /// Begins a new link. Only from states without one.
    fn connect(self) -> Transition {
        // 0 means none; after 2^32 - 1 links the count starts over.
        let link = self.link.checked_add(1).unwrap_or(1);

        Self {
            link,
            soon: false,
            ..self
        }
        .to(State::Connecting, Action::Connect(link))
    }

    /// Begins to tear the link down. Only from states with a link that is not being torn down yet.
    fn tear_down(self, then: Then) -> Transition {
        let announce = match self.state {
            State::Connected => UpDown::Down,
            _ => UpDown::None,
        };
        self.to(State::TearingDown(then), Action::TearDown(self.link))
            .announcing(announce)
    }

    const fn to(self, state: State, action: Action) -> Transition {
        Transition {
            machine: Self { state, ..self },
            action,
            reply: Reply::Accepted,
            announce: UpDown::None,
        }
    }

    const fn stay(self, reply: Reply) -> Transition {
        Transition {
            machine: self,
            action: Action::None,
            reply,
            announce: UpDown::None,
        }
    }
}

impl Transition {
    const fn announcing(mut self, announce: UpDown) -> Self {
        self.announce = announce;
        self
    }
}
