// SPDX-License-Identifier: GPL-2.0

//! What the user is told of a session: that it has lost its last path, or has one again.
//!
//! Nothing is told before the user has the session. That it was opened is not enough: what a user does
//! when it is told needs the handle, which the opening task has yet to return, and to store.

/// What a user is told, with the numbers of `enum rtrs_clt_link_ev`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum LinkEvent {
    /// A path is back. The server may have forgotten the session: what was made for it there has to
    /// be made anew.
    Reconnected = 0,
    /// Requests are failing, for want of a path or because the server has forgotten the session.
    Disconnected = 1,
}

/// What is known, by the session and by its user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkState {
    /// All paths were connected: requests may come.
    opened: bool,
    /// The user has the session.
    handed: bool,
    /// Nothing is told any more.
    closed: bool,
    /// Paths that are connected.
    up: u32,
    /// Requests are being failed, for want of a path or because the server has
    /// forgotten the session: the user has to know, even if it is over.
    failing: bool,
    /// What the user knows: that there is a path.
    told_up: bool,
}

impl LinkState {
    /// The session is going to be handed to its user, connected.
    pub fn open(&mut self) {
        self.opened = true;
        self.told_up = true;
        // What a path that is back was about is over: nobody has sent anything yet.
        self.failing &= self.up == 0;
    }

    /// The user has shown that it has the session. Whether that is new.
    pub fn hand_over(&mut self) -> bool {
        !core::mem::replace(&mut self.handed, true)
    }

    /// Nothing is told from now on.
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

    /// Requests are failed from now on.
    pub fn fail(&mut self) {
        self.failing = true;
    }

    /// Whether requests may have been made.
    pub const fn is_opened(&self) -> bool {
        self.opened
    }

    /// Whether nothing is told any more.
    pub const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether a path takes requests.
    pub const fn is_up(&self) -> bool {
        self.up > 0
    }

    /// Whether the user takes what it has made at the server to be there.
    pub const fn is_believed(&self) -> bool {
        self.told_up && !self.failing
    }

    /// What the user has to be told next: it is about to be.
    pub fn tell(&mut self) -> Option<LinkEvent> {
        if !self.opened || !self.handed || self.closed {
            None
        } else if self.told_up && self.failing {
            self.told_up = false;
            Some(LinkEvent::Disconnected)
        } else if !self.told_up && self.up > 0 {
            self.failing = false;
            self.told_up = true;
            Some(LinkEvent::Reconnected)
        } else {
            None
        }
    }
}
