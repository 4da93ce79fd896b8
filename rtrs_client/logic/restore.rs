// SPDX-License-Identifier: GPL-2.0

//! Opens RNBD's devices again, with a server that has forgotten the session.
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
//!
//! # A device that is refused
//!
//! A server that has only forgotten the session may still have the device open, and a disk may come
//! later than the module that exports it: minutes later, if it is below LVM or multipath. The errno
//! tells such cases from others ([`may_come`]). For these the client waits as long as requests do
//! (`fast_io_fail_tmo`), as giving up is worse: all requests of the session fail, and RNBD, which
//! is told, tries once and leaves the device offline. It tries for [`DEVICE_MS`] in any case,
//! whatever the errno is, and however short that time.

use rtrs_core::proto::errno::{
    EBUSY,
    ENODEV,
    ENOENT,
    ENXIO,
    EPERM, //
};

use super::devices::Unlike;

/// Time, in milliseconds, for which a device is tried after its first refusal, whatever that was.
pub const DEVICE_MS: u64 = 10_000;

/// Whether a device that RNBD's server refuses to open with this (negative) errno may be opened
/// later: there is no such file (`ENOENT`) or no device behind it (`ENXIO`, `ENODEV`), another user
/// of the server has it (`EBUSY`), or another session, maybe the last incarnation of this one
/// (`EPERM`).
pub const fn may_come(errno: i32) -> bool {
    matches!(
        errno.wrapping_neg(),
        ENOENT | ENXIO | ENODEV | EBUSY | EPERM
    )
}

/// The progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Requests of links that have ended are being collected.
    Clearing,
    /// The message that begins a session was sent.
    Greeting,
    /// The device with the smallest user's number of at least this is being opened.
    Opening(u32),
    /// The server has refused that device, and will be asked again.
    Resting(u32),
    /// All devices are open as before.
    Done,
    /// The devices cannot be opened: RNBD must be told.
    GivenUp(Why),
    /// The link cannot be used any more.
    Abandoned,
}

/// The reason for giving up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The server speaks another version, or its answer is invalid.
    Version,
    /// The server does not open a device, with this errno.
    Refused(i32),
    /// The device that it opens differs from the one before.
    Unlike(Unlike),
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// No link but this one has requests.
    Clear,
    /// The server has answered the first message as before.
    Greeted,
    /// The answer differs from the one before, or is missing.
    OtherVersion,
    /// The device with this user's number was opened, and is the same.
    Opened(u32),
    /// No device is left to open.
    NoneLeft,
    /// The server refuses to open the device.
    Refused {
        /// The server's errno.
        errno: i32,
        /// Milliseconds since the first refusal.
        since_ms: u64,
        /// Requests do not wait any longer.
        late: bool,
    },
    /// The device differs from the one before.
    Unlike(Unlike),
    /// The pause is over.
    Rested,
    /// The link has failed, or there is a command to end it.
    LinkLost,
}

impl State {
    /// Returns the effect of `event`. Every event is valid in every state; one that does not fit
    /// has no effect.
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
            (
                Self::Opening(from),
                Event::Refused {
                    errno,
                    since_ms,
                    late,
                },
            ) => {
                if since_ms < DEVICE_MS || may_come(errno) && !late {
                    Self::Resting(from)
                } else {
                    Self::GivenUp(Why::Refused(errno))
                }
            }
            (Self::Resting(from), Event::Rested) => Self::Opening(from),
            _ => self,
        }
    }

    /// Whether it has ended.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::GivenUp(_) | Self::Abandoned)
    }
}
