// SPDX-License-Identifier: GPL-2.0

//! Decides whether a path may still give way, and whether the user may still learn of the session
//! from it.
//!
//! The owner task starts a path, and the registry makes a path give way to a newcomer. The first of
//! the two decides. The user may be told of the session while the path starts. After that, and
//! after the path gave way, this path does not tell the user, although it exists until it is torn
//! down.

/// How far a path is. Every change is made with the same lock held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It is in its handshake.
    Open,
    /// It had to give way in its handshake, and is not gone yet.
    GaveWay,
    /// It is being started, and may be just about to tell the user.
    Starting,
    /// The user has the session, or does not get it by this path.
    Over,
}

impl Stage {
    /// It has to give way. Returns whether it does: nothing changes unless it is in its handshake.
    #[must_use]
    pub fn give_way(&mut self) -> bool {
        let gives = *self == Self::Open;

        if gives {
            *self = Self::GaveWay;
        }
        gives
    }

    /// The handshake is over, and the owner starts the path. Returns whether it may: a path that
    /// gave way is not started.
    #[must_use]
    pub fn start(&mut self) -> bool {
        let starts = *self == Self::Open;

        if starts {
            *self = Self::Starting;
        }
        starts
    }

    /// The start is over, successful or not, or the path is torn down.
    pub fn end(&mut self) {
        *self = Self::Over;
    }

    /// Whether it counts among the handshakes of its source. A path that gave way does so until it is
    /// torn down: its connections are still there.
    pub const fn is_in_handshake(self) -> bool {
        matches!(self, Self::Open | Self::GaveWay)
    }

    /// Whether it may be just about to tell the user.
    pub const fn is_starting(self) -> bool {
        matches!(self, Self::Starting)
    }

    /// Whether the user may still come to know the session by it. A path that is `closing` is not
    /// started any more.
    pub const fn may_tell(self, closing: bool) -> bool {
        self.is_starting() || matches!(self, Self::Open) && !closing
    }
}
