// SPDX-License-Identifier: GPL-2.0

//! A path that says nothing while others of its session do.
//!
//! Heartbeats are patient: a server may be asleep for seconds, and a session with one path gains
//! nothing from losing it early. With several paths the others tell the difference: if they are
//! answered, the server is well, and what waits on the silent path is better off elsewhere. A
//! device does not always tell: if the server had acknowledged all requests before its end of the
//! cable was pulled, there is nothing to repeat, and so nothing to give up.
//!
//! All paths of a session are looked at once per interval:
//!
//! * An interval is silent for a path if requests wait there and nothing was received.
//! * While some path is silent, all are asked, by heartbeats: a path without requests has nothing
//!   else to be heard by.
//! * [`LOST`] silent intervals in a row, and a path is lost, if another one was heard in each of
//!   the last [`STEADY`]. A server that was asleep answers on one path a moment before the other,
//!   and that moment may be between two looks; it is not two intervals long.
//!
//! The path is asked at the end of the first of these intervals, and has the others to answer.

/// Silent intervals in a row after which a path is lost.
pub const LOST: u32 = 4;

/// Intervals in a row in which a path has to be heard to be believed rather than a silent one.
pub const STEADY: u32 = 2;

/// What was seen of a path in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Something was received.
    pub heard: bool,
    /// Requests wait for answers that a server would not hold back together with its answers to
    /// heartbeats.
    pub waits: bool,
}

/// What is known of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Silence {
    silent: u32,
    heard: u32,
}

impl Silence {
    /// Of a path that was just established.
    pub const fn new() -> Self {
        Self {
            silent: 0,
            heard: 0,
        }
    }

    /// Takes in an interval that is over.
    pub fn interval(&mut self, seen: Seen) {
        *self = Self {
            silent: match seen {
                Seen {
                    heard: false,
                    waits: true,
                } => self.silent.saturating_add(1),
                _ => 0,
            },
            heard: if seen.heard {
                self.heard.saturating_add(1)
            } else {
                0
            },
        };
    }

    /// Whether the path, and all the others, have to be asked.
    pub const fn is_silent(&self) -> bool {
        self.silent > 0
    }

    /// Whether the path shows that the server is well.
    pub const fn is_heard(&self) -> bool {
        self.heard >= STEADY
    }

    /// Whether the path is lost, if another one [is heard](Self::is_heard).
    pub const fn is_lost(&self) -> bool {
        self.silent >= LOST
    }
}
