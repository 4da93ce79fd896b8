// SPDX-License-Identifier: GPL-2.0

//! The life of a path on the server, as one function from state and event to state and action.
//!
//! One owner task per path feeds the events, one at a time, and does what the action says;
//! connection handlers, completion handlers and sysfs only send it events. So there is one who
//! closes a path, closing begins once, and the path is freed after it, once.

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
    /// All connections are there, the client's info request is not.
    InfoPending,
    /// Memory is prepared and the user is told; no IO is admitted yet.
    Starting,
    /// IO is admitted.
    Connected,
    /// No new work; running operations are waited for, then all is drained and freed.
    Closing(CloseReason),
    /// Over.
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

/// What happens to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A connection was accepted, and this many are still missing.
    ///
    /// Accepting counts, not the client's confirmation: its first message may overtake that.
    ConAccepted {
        /// Number of connections still missing.
        missing: u16,
    },
    /// A valid info request was received.
    InfoReceived,
    /// Memory is ready, and the user agreed to the session.
    Ready,
    /// The time for the handshake is over.
    Deadline,
    /// The path has to go.
    Close(CloseReason),
    /// Closing is done: operations over, connections drained and freed.
    CloseDone,
}

/// What the owner task has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    None,
    /// Allocate and register the chunks and tell the user, then send [`Event::Ready`], or
    /// [`Event::Close`] if that fails.
    Prepare,
    /// Cancel the deadline, post the receives, send the info answer, start heartbeats.
    Serve,
    /// Stop admitting work, disconnect, wait for operations, drain, free; then send
    /// [`Event::CloseDone`].
    Close {
        /// The user was told that the path is up, and has to be told that it is down.
        was_up: bool,
        /// Memory is being prepared, and the user perhaps told that the path is up: wait for that
        /// to return first, and undo what it did. The event it sends has no effect any more.
        was_starting: bool,
    },
    /// Drop the owner's reference, no event will be looked at any more.
    Release,
}

/// What [`ServerPathState::next`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the action has to be done"]
pub struct Transition {
    /// The state now.
    pub state: ServerPathState,
    /// What to do.
    pub action: Action,
}

impl ServerPathState {
    /// What `event` does to a path in this state.
    ///
    /// Every event is valid in every state. The first reason to close a path stays; an info
    /// request that comes twice, or before all connections are there, is a violation.
    pub const fn next(self, event: Event) -> Transition {
        match (self, event) {
            (Self::Closing(reason), Event::CloseDone) => Self::Closed(reason).with(Action::Release),
            (Self::Closing(_) | Self::Closed(_), _) | (_, Event::CloseDone) => {
                self.with(Action::None)
            }

            (_, Event::Close(reason)) => self.close(reason),

            (Self::Handshaking, Event::ConAccepted { missing: 0 }) => {
                Self::InfoPending.with(Action::None)
            }
            (Self::Handshaking, Event::ConAccepted { .. }) => self.with(Action::None),
            // The listener asks `accepts_cons` first; this is what it should have been told.
            (_, Event::ConAccepted { .. }) => self.close(CloseReason::Violation),

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
        Self::Closing(reason).with(Action::Close {
            was_up: matches!(self, Self::Connected),
            was_starting: matches!(self, Self::Starting),
        })
    }

    const fn with(self, action: Action) -> Transition {
        Transition {
            state: self,
            action,
        }
    }
}
