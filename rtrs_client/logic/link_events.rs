// SPDX-License-Identifier: GPL-2.0

//! The events that tell a user that its session has lost its last path, or has one again.
//!
//! No event is sent before the user has the session. It is not enough that the session was opened:
//! the user handles events with the handle, which the opening task has yet to return and to store.

/// An event for a user, with the numbers of `enum rtrs_clt_link_ev`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum LinkEvent {
    /// A path is back. The server may have forgotten the session: the user has to make its state
    /// there again.
    Reconnected = 0,
    /// Requests fail, because no path is up or the server has forgotten the session.
    Disconnected = 1,
}

/// The state of a session, and the state that its user knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkState {
    /// All paths were connected: requests may come.
    opened: bool,
    /// The user has the session.
    handed: bool,
    /// No event is sent any more.
    closed: bool,
    /// Paths that are connected.
    up: u32,
    /// Requests failed, because no path was up or the server had forgotten the session. The user
    /// must be told, even if that is over by now.
    failed: bool,
    /// The user knows that there is a path.
    told_up: bool,
}

impl LinkState {
    /// The session is connected and will be handed to its user.
    pub fn open(&mut self) {
        self.opened = true;
        self.told_up = true;
        // The return of a path needs no event: no request was sent yet.
        self.failed &= self.up == 0;
    }

    /// The user has shown that it has the session. Returns whether that is new.
    pub fn hand_over(&mut self) -> bool {
        !core::mem::replace(&mut self.handed, true)
    }

    /// No event is sent from now on.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// A path takes requests.
    pub fn path_up(&mut self) {
        self.up = self.up.saturating_add(1);
    }

    /// A path takes no requests any more.
    pub fn path_down(&mut self) {
        self.up = self.up.saturating_sub(1);
    }

    /// Requests fail from now on.
    pub fn fail(&mut self) {
        self.failed = true;
    }

    /// Whether requests may have been made.
    pub const fn is_opened(&self) -> bool {
        self.opened
    }

    /// Whether no event is sent any more.
    pub const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether a path takes requests.
    pub const fn is_up(&self) -> bool {
        self.up > 0
    }

    /// Whether the user expects the state that it has made at the server to exist.
    pub const fn is_believed(&self) -> bool {
        self.told_up && !self.failed
    }

    /// Returns the next event for the user, which counts as sent.
    pub fn tell(&mut self) -> Option<LinkEvent> {
        if !self.opened || !self.handed || self.closed {
            None
        } else if self.told_up && self.failed {
            self.told_up = false;
            Some(LinkEvent::Disconnected)
        } else if !self.told_up && self.up > 0 {
            self.failed = false;
            self.told_up = true;
            Some(LinkEvent::Reconnected)
        } else {
            None
        }
    }
}
