// SPDX-License-Identifier: GPL-2.0

//! Opening again what RNBD had open, with a server that has forgotten the session.
//!
//! ```text
//!   Clearing ---clear---> Greeting ---greeted---> Opening(0) --opened--> Opening(1) -- ... --> Done
//!                            |                     |     ^
//!                            |              refused|     |rested
//!                            |                     v     |
//!                            |                    Resting
//!                            +--- unlike, out of time ---+---> GivenUp      (the user is told)
//!   any ----- the link fails, the session is closed ---------> Abandoned    (the next path tries)
//! ```

use super::devices::Unlike;

/// For so long a server that has been restarted may say that it does not have a device, in
/// milliseconds: disks may come later than the module that exports them, and a server that has only
/// forgotten the session may have them open still.
pub const DEVICE_MS: u64 = 10_000;

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// What was in flight on links that have ended is being collected.
    Clearing,
    /// The message that begins a session is out.
    Greeting,
    /// The device with the smallest user's number of at least this is being opened.
    Opening(u32),
    /// The server has refused that, not for the last time.
    Resting(u32),
    /// Everything is as it was.
    Done,
    /// It is not going to be: RNBD has to know.
    GivenUp(Why),
    /// The link is no use any more.
    Abandoned,
}

/// Why it is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The server speaks another version, or nonsense.
    Version,
    /// The server does not open a device, with this errno.
    Refused(i32),
    /// What it opens is not what it was.
    Unlike(Unlike),
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// No link but this one has requests.
    Clear,
    /// The server has answered the beginning as before.
    Greeted,
    /// The answer is not what it was, or none.
    OtherVersion,
    /// The device with this user's number was opened, and is the same.
    Opened(u32),
    /// There is none left to be opened.
    NoneLeft,
    /// The server refuses to open it, this many milliseconds after the first time.
    Refused {
        /// The server's errno.
        errno: i32,
        /// Since when.
        since_ms: u64,
    },
    /// It is not what it was.
    Unlike(Unlike),
    /// The time to rest is over.
    Rested,
    /// The link has failed, or somebody wants it gone.
    LinkLost,
}

impl State {
    /// What `event` does. Every event is valid in every state; what does not fit has no effect.
    #[must_use]
    pub fn next(self, event: Event) -> Self {
        match (self, event) {
            (Self::Done | Self::GivenUp(_) | Self::Abandoned, _) => self,
            (_, Event::LinkLost) => Self::Abandoned,
            (Self::Clearing, Event::Clear) => Self::Greeting,
            (Self::Greeting, Event::Greeted) => Self::Opening(0),
            (Self::Greeting | Self::Opening(_), Event::OtherVersion) => Self::GivenUp(Why::Version),
            (Self::Opening(_), Event::Opened(id)) => Self::Opening(id.saturating_add(1)),
            (Self::Opening(_), Event::NoneLeft) => Self::Done,
            (Self::Opening(_), Event::Unlike(unlike)) => Self::GivenUp(Why::Unlike(unlike)),
            (Self::Opening(from), Event::Refused { errno, since_ms }) => {
                if since_ms < DEVICE_MS {
                    Self::Resting(from)
                } else {
                    Self::GivenUp(Why::Refused(errno))
                }
            }
            (Self::Resting(from), Event::Rested) => Self::Opening(from),
            _ => self,
        }
    }

    /// Whether it is over.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::GivenUp(_) | Self::Abandoned)
    }
}
