// SPDX-License-Identifier: GPL-2.0

//! Detects a path that is silent while others of its session are not.
//!
//! Heartbeats are patient: a server may be asleep for seconds, and a session with one path gains
//! nothing from losing it early. With several paths, the others show the difference: if they are
//! answered, the server is well, and requests on the silent path should be sent elsewhere. The
//! device of a silent path may report no error. If the server had acknowledged all requests before
//! the cable at its end was pulled, the device has no packet left to send again, and reports none
//! as lost.
//!
//! All paths of a session are checked once per interval:
//!
//! * An interval is silent for a path if requests wait there and nothing was received.
//! * While some path is silent, all paths are asked, by heartbeats: a path without requests is not
//!   heard otherwise.
//! * A path is lost after [`LOST`] silent intervals in a row, if another one was heard in each of
//!   the last [`STEADY`]. A server that was asleep answers on one path a moment before the other.
//!   That moment may be between two checks, but it is not two intervals long.
//!
//! The path is asked at the end of the first of these intervals, and has the others to answer. It
//! is asked again at the end of each of them ([`ASKED`]), since a question or its answer may be
//! lost. The device would repeat that after its ack time-out, from half a second to minutes. But
//! the next question shows the peer's device that one is missing, so that it is repeated at once
//! (`rtrs_core/proto/heartbeat.rs`). So a healthy path is kept if [`ASKED`] - 1 questions in a row
//! are lost. That does not depend on the ack time-out, so the time a path may be silent for can be
//! shorter.
//!
//! A path is *doubted* when the server refuses another one since it does not know the session. The
//! server was restarted, or lost all paths before the client did, so this path may be dead as well.
//! That only justifies a question, as the refusal may have come from another server. A doubted path
//! that is silent is lost in the same time, whether or not requests wait there, and whether or not
//! others are heard. A doubted path that is heard is not doubted any more.
//!
//! A path is *questioned* when another one connects and the server does not say that it had kept
//! the session (see [`turn`](super::turn)): only a message that comes after the question is an
//! answer. A questioned path is lost like one on which requests wait. The path that connects is not
//! up yet, but is asked as well, and counts as another one that is heard. So a server that is
//! asleep costs no path.

/// Silent intervals in a row after which a path is lost.
pub const LOST: u32 = 4;

/// Number of questions to a silent path before it is lost.
pub const ASKED: u32 = LOST - 1;

/// Intervals in a row in which a path has to be heard to count as evidence against a silent one.
pub const STEADY: u32 = 2;

/// Observations of a path in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Something was received.
    pub heard: bool,
    /// Requests are waiting.
    pub waits: bool,
    /// The server may have a reason not to answer heartbeats.
    pub excused: bool,
}

/// State of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Silence {
    silent: u32,
    heard: u32,
    /// It was heard in the present interval, and that was noted before the end of the interval.
    lately: bool,
    doubted: bool,
    questioned: bool,
}

impl Silence {
    /// The state of a path that was just established.
    pub const fn new() -> Self {
        Self {
            silent: 0,
            heard: 0,
            lately: false,
            doubted: false,
            questioned: false,
        }
    }

    /// The server does not know the session, according to another path. Returns whether that is
    /// new: paths that are refused again and again must not begin the count again.
    pub fn doubt(&mut self) -> bool {
        if self.doubted {
            return false;
        }
        *self = Self {
            doubted: true,
            questioned: self.questioned,
            ..Self::new()
        };
        true
    }

    /// It is asked now, and `heard` says whether it was before, in the present interval.
    pub fn question(&mut self, heard: bool) {
        self.lately |= heard;
        self.questioned = true;
    }

    /// It was heard, in the present interval.
    pub fn hear(&mut self) {
        self.lately = true;
        self.questioned = false;
    }

    /// Evaluates an interval that is over.
    pub fn interval(&mut self, seen: Seen) {
        let owes = (seen.waits || self.is_asked()) && !seen.excused;
        let heard = seen.heard || self.lately;

        *self = Self {
            silent: if owes && !heard {
                self.silent.saturating_add(1)
            } else {
                0
            },
            heard: if heard {
                self.heard.saturating_add(1)
            } else {
                0
            },
            lately: false,
            doubted: self.doubted && !heard,
            // What was noted before may have come before the question.
            questioned: self.questioned && !seen.heard,
        };
    }

    /// Whether this path and all others have to be asked.
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

    /// Whether it has to answer, though no request may wait there.
    pub const fn is_asked(&self) -> bool {
        self.doubted || self.questioned
    }

    /// Whether it was heard since the last [`question`](Self::question).
    pub const fn has_answered(&self) -> bool {
        !self.questioned
    }

    /// Whether it was noted as heard in the present interval.
    pub const fn is_heard_lately(&self) -> bool {
        self.lately
    }

    /// Whether the path is lost, given whether another one [is heard](Self::is_heard).
    pub const fn is_lost(&self, other_heard: bool) -> bool {
        self.silent >= LOST && (other_heard || self.doubted)
    }
}
