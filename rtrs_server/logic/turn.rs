// SPDX-License-Identifier: GPL-2.0

//! Whose turn it is: of those who want to work, so many do at a time, and the others stand in a
//! line.
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
//! Who has more to do when its time is over goes to the end of the line, and works on if nobody is
//! there.

/// Where one of them stands.
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
    /// The same, and something came that it may not have seen.
    Wanted,
}

/// What happens to one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// There is something to do. `free`: there is a turn for it.
    Wanted {
        /// There is.
        free: bool,
    },
    /// It was the first in the line, and a turn is free.
    Called,
    /// It works.
    Begun,
    /// Its time is over.
    Ended {
        /// It knows of more to do.
        more: bool,
    },
    /// Nothing that it would do is of use any more.
    Left,
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    None,
    /// It gets a turn.
    Call,
    /// It goes to the end of the line.
    Line,
    /// Its turn is free for the first in the line.
    Pass,
    /// First it goes to the end of the line, then its turn is free.
    LineAndPass,
    /// It goes out of the line.
    Remove,
}

impl Stand {
    /// The transition function; `None` for what cannot happen.
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
