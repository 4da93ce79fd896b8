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
//! The path is asked at the end of the first of these intervals, and has the others to answer. It is
//! asked again at the end of each of them ([`ASKED`]), since a question may be lost, or its answer.
//! The device would repeat that after its ack time-out, from half a second to minutes; but the next
//! question shows the peer's device that one is missing, and has it repeated at once
//! (`rtrs_core/proto/heartbeat.rs`). So a path that is well is kept if [`ASKED`] - 1 questions are
//! lost in a row, and that does not depend on the ack time-out: the time a path may be silent for can
//! be shorter.
//!
//! A path is *doubted* when the server refuses another one since it does not know the session: it
//! was restarted, or lost all paths before we did, so that this one is dead as well. That is worth a
//! question and no more, as it may have come from another server. A doubted path that is silent is
//! lost in the same time, whether requests wait there or not, and whether others are heard or not;
//! one that is heard is not doubted any more.

/// Silent intervals in a row after which a path is lost.
pub const LOST: u32 = 4;

/// How often a silent path is asked before it is lost.
pub const ASKED: u32 = LOST - 1;

/// Intervals in a row in which a path has to be heard to be believed rather than a silent one.
pub const STEADY: u32 = 2;

/// What was seen of a path in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Something was received.
    pub heard: bool,
    /// Requests wait.
    pub waits: bool,
    /// The server may have a reason to answer no heartbeats.
    pub excused: bool,
}

/// What is known of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Silence {
    silent: u32,
    heard: u32,
    doubted: bool,
}

impl Silence {
    /// Of a path that was just established.
    pub const fn new() -> Self {
        Self {
            silent: 0,
            heard: 0,
            doubted: false,
        }
    }

    /// The server does not know the session, as another path was told.
    pub fn doubt(&mut self) {
        *self = Self {
            doubted: true,
            ..Self::new()
        };
    }

    /// Takes in an interval that is over.
    pub fn interval(&mut self, seen: Seen) {
        let owes = (seen.waits || self.doubted) && !seen.excused;

        *self = Self {
            silent: if owes && !seen.heard {
                self.silent.saturating_add(1)
            } else {
                0
            },
            heard: if seen.heard {
                self.heard.saturating_add(1)
            } else {
                0
            },
            doubted: self.doubted && !seen.heard,
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

    /// Whether the server may not know the session that the path belongs to.
    pub const fn is_doubted(&self) -> bool {
        self.doubted
    }

    /// Whether the path is lost, when another one [is heard](Self::is_heard) or not.
    pub const fn is_lost(&self, other_heard: bool) -> bool {
        self.silent >= LOST && (other_heard || self.doubted)
    }
}
