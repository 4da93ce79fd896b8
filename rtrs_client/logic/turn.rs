// SPDX-License-Identifier: GPL-2.0

//! Decides whether the server still has what the session's user has made there, when a path is
//! about to come up.
//!
//! ```text
//!   Begun ---others are up---> Settling ---a pause---> Asking ---one has answered---> Known
//!     |                           |                      |
//!     +---------------------------+----------------------+---no path is up----------> Forgotten
//!                                 +----------------------+---the link fails, a command
//!                                                            waits------------------> Abandoned
//! ```
//!
//! A server that says that it has kept the session is believed: `Begun` leads to `Known`.
//! Mainline's servers do not say so. They end their user's session with the last path that is up
//! there, and begin another one, without anything, with the next that comes up. If the server
//! noticed before this side that a path is gone, it may have been the last one, although it is
//! believed to be up here. The path that comes up is not refused in that case, if the server had
//! accepted it before: it then has the transport's part of the session.
//!
//! So other paths are not believed until one has shown that it is up at the server after this path
//! came up there, which was before the chunks came. A message shows that, unless it was sent
//! before. A path that the server has lost sends nothing any more; what was on its way may still
//! arrive, so there is a pause before the question.

/// The progress of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The chunks of the link have come.
    Begun,
    /// Messages that were on their way come in.
    Settling,
    /// The other paths were asked for a sign of life.
    Asking,
    /// The server has the session, or the user has not made anything there yet.
    Known,
    /// The server does not have it.
    Forgotten,
    /// The link must not be used.
    Abandoned,
}

/// What is known at a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// The user may have made something at the server, and it is not known that the server kept it.
    pub doubt: bool,
    /// A path takes requests.
    pub up: bool,
    /// A path has answered since it was asked.
    pub answered: bool,
    /// The link has not failed, and no task waits for its end.
    pub well: bool,
}

impl State {
    /// Returns the effect of a look, of which there is one at the beginning, and one after each
    /// pause.
    #[must_use]
    pub fn next(self, look: Look) -> Self {
        match self {
            Self::Begun if !look.doubt => Self::Known,
            Self::Begun if !look.up => Self::Forgotten,
            Self::Begun => Self::Settling,
            Self::Settling | Self::Asking if !look.well => Self::Abandoned,
            // Even if it is lost by now: the session went on with this path.
            Self::Asking if look.answered => Self::Known,
            Self::Settling | Self::Asking if !look.up => Self::Forgotten,
            Self::Settling => Self::Asking,
            Self::Asking | Self::Known | Self::Forgotten | Self::Abandoned => self,
        }
    }

    /// Whether it has ended.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Known | Self::Forgotten | Self::Abandoned)
    }
}
