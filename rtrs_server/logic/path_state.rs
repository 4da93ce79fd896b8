// SPDX-License-Identifier: GPL-2.0

//! The life of a path on the server, as one function from state and event to state and action.
//!
//! One owner task per path feeds the events, one at a time, and carries out the actions. Connection
//! handlers, completion handlers and sysfs only send it events. So only one task closes a path,
//! closing begins once, and the path is freed once, after it.

use core::fmt;

/// Why a path is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// The client disconnected.
    Peer,
    /// The client broke the protocol.
    Violation,
    /// A connection failed.
    ConnError,
    /// The client does not answer.
    Heartbeat,
    /// The handshake took too long.
    Deadline,
    /// The client came back under the same identity.
    TakeOver,
    /// Another client needed the place, and this one had taken too long, or its source had most.
    GaveWay,
    /// The user of the server refused the session, or something could not be allocated.
    Refused,
    /// An administrator asked for it.
    Operator,
    /// The device goes away.
    DeviceGone,
    /// The server stops.
    Shutdown,
}

impl CloseReason {
    /// A short description without a trailing newline.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Peer => "disconnected by the client",
            Self::Violation => "protocol violation",
            Self::ConnError => "connection error",
            Self::Heartbeat => "heartbeat missed",
            Self::Deadline => "handshake timed out",
            Self::TakeOver => "client reconnected",
            Self::GaveWay => "gave way to another client",
            Self::Refused => "refused",
            Self::Operator => "disconnected by the operator",
            Self::DeviceGone => "device removed",
            Self::Shutdown => "server stopped",
        }
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// State of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServerPathState {
    /// Connections are being accepted.
    Handshaking,
    /// All connections are accepted, but the client's info request has not come.
    InfoPending,
    /// Memory is prepared and the user is told; no IO is admitted yet.
    Starting,
    /// IO is admitted.
    Connected,
    /// No new work is admitted. All is drained and freed, then the operations of the user are
    /// waited for.
    Closing(CloseReason),
    /// Closed.
    Closed(CloseReason),
}

impl ServerPathState {
    /// Whether a connection may be added.
    pub const fn accepts_cons(self) -> bool {
        matches!(self, Self::Handshaking)
    }

    /// Whether the handshake deadline applies.
    pub const fn in_handshake(self) -> bool {
        matches!(self, Self::Handshaking | Self::InfoPending)
    }

    /// The name for sysfs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Handshaking => "handshaking",
            Self::InfoPending => "info-pending",
            Self::Starting => "starting",
            Self::Connected => "connected",
            Self::Closing(_) => "closing",
            Self::Closed(_) => "closed",
        }
    }
}

impl fmt::Display for ServerPathState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An event of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The last connection was accepted.
    ///
    /// The acceptance counts, not the client's confirmation: the client's first message may
    /// overtake that.
    AllAccepted,
    /// A valid info request was received.
    InfoReceived,
    /// Memory is ready, and the user agreed to the session.
    Ready,
    /// The time for the handshake is over.
    Deadline,
    /// The path has to be closed.
    Close(CloseReason),
    /// Closing is done: connections are drained and freed, operations are over.
    CloseDone,
}

/// An action of the owner task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    None,
    /// Allocate and register the chunks and tell the user, then send [`Event::Ready`], or
    /// [`Event::Close`] if that fails.
    Prepare,
    /// Post the receives, send the info answer, start heartbeats.
    Serve,
    /// Stop admitting work, disconnect, drain, free. When the last operation is over, send
    /// [`Event::CloseDone`].
    Close,
    /// Take the path out of its session; no later event is looked at.
    Release,
}

/// The result of [`ServerPathState::next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the action has to be done"]
pub struct Transition {
    /// The new state.
    pub state: ServerPathState,
    /// The action to carry out.
    pub action: Action,
}

impl ServerPathState {
    /// Returns the effect of `event` on a path in this state.
    ///
    /// Every event is valid in every state. The first reason to close a path stays. An info request
    /// that comes twice, or before all connections are there, is a violation.
    pub const fn next(self, event: Event) -> Transition {
        match (self, event) {
            (Self::Closing(reason), Event::CloseDone) => Self::Closed(reason).with(Action::Release),
            (Self::Closing(_) | Self::Closed(_), _) | (_, Event::CloseDone) => {
                self.with(Action::None)
            }

            (_, Event::Close(reason)) => self.close(reason),

            (Self::Handshaking, Event::AllAccepted) => Self::InfoPending.with(Action::None),
            // The path's work item checks `accepts_cons` first, so this should not happen.
            (_, Event::AllAccepted) => self.close(CloseReason::Violation),

            (Self::InfoPending, Event::InfoReceived) => Self::Starting.with(Action::Prepare),
            (_, Event::InfoReceived) => self.close(CloseReason::Violation),

            (Self::Starting, Event::Ready) => Self::Connected.with(Action::Serve),
            (_, Event::Ready) => self.with(Action::None),

            (Self::Handshaking | Self::InfoPending, Event::Deadline) => {
                self.close(CloseReason::Deadline)
            }
            (_, Event::Deadline) => self.with(Action::None),
        }
    }

    const fn close(self, reason: CloseReason) -> Transition {
        Self::Closing(reason).with(Action::Close)
    }

    const fn with(self, action: Action) -> Transition {
        Transition {
            state: self,
            action,
        }
    }
}
