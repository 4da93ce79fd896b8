// SPDX-License-Identifier: GPL-2.0

//! Turns: a limited number of takers work at a time, the others stand in a line.
//!
//! ```text
//!   Idle --wanted, a turn is free--> Called --begun--> Working --ended--------------> Idle
//!    | ^                               ^                |    ^                          |
//!    | |                             called        wanted    |                          |
//!    | +--left---+                     |                v    |                          |
//!    +--wanted---> Waiting ------------+              Wanted |                          |
//!                     ^                                 |                               |
//!                     +---ended, or ended with more-----+
//! ```
//!
//! A taker that has more to do when its turn is over goes to the end of the line, and works on at
//! once if the line is empty.

/// The state of a taker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stand {
    /// Has nothing to do.
    Idle,
    /// In the line.
    Waiting,
    /// Has a turn, and is about to work.
    Called,
    /// Has a turn, and works.
    Working,
    /// Has a turn and works; something came that it may not have seen.
    Wanted,
}

/// An event of a taker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// There is something to do.
    Wanted {
        /// Whether a turn is free for it.
        free: bool,
    },
    /// It was the first in the line, and a turn is free.
    Called,
    /// It starts to work.
    Begun,
    /// Its turn is over.
    Ended {
        /// It knows of more to do.
        more: bool,
    },
    /// Its work is of no use any more.
    Left,
}

/// The action of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    None,
    /// It gets a turn.
    Call,
    /// It goes to the end of the line.
    Line,
    /// Its turn passes to the first in the line.
    Pass,
    /// It goes to the end of the line first, then its turn passes.
    LineAndPass,
    /// It leaves the line.
    Remove,
}

impl Stand {
    /// The transition function. Returns `None` for an event that cannot happen in this state.
    pub const fn next(self, event: Event) -> Option<(Self, Step)> {
        Some(match (self, event) {
            (Self::Idle, Event::Wanted { free: true }) => (Self::Called, Step::Call),
            (Self::Idle, Event::Wanted { free: false }) => (Self::Waiting, Step::Line),
            (Self::Waiting | Self::Called | Self::Wanted, Event::Wanted { .. }) => {
                (self, Step::None)
            }
            (Self::Working, Event::Wanted { .. }) => (Self::Wanted, Step::None),
            (Self::Waiting, Event::Called) => (Self::Called, Step::Call),
            (Self::Called, Event::Begun) => (Self::Working, Step::None),
            (Self::Working, Event::Ended { more: false }) => (Self::Idle, Step::Pass),
            (Self::Working, Event::Ended { more: true }) | (Self::Wanted, Event::Ended { .. }) => {
                (Self::Waiting, Step::LineAndPass)
            }
            (Self::Waiting, Event::Left) => (Self::Idle, Step::Remove),
            (_, Event::Left) => (self, Step::None),
            (_, Event::Called | Event::Begun | Event::Ended { .. }) => return None,
        })
    }
}
