// SPDX-License-Identifier: GPL-2.0

//! What user space is told of paths that come and go, with them sessions.
//!
//! A udev rule can act on it:
//!
//! ```text
//! ACTION=="change", SUBSYSTEM=="rtrs-client", ENV{RTRS_EVENT}=="path_down", RUN+="..."
//! ```

use core::fmt;
use kernel::{
    prelude::*,
    str::CString, //
};

/// How many paths of a session are connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Paths that are connected.
    pub up: u32,
    /// Paths that there are.
    pub paths: u32,
}

impl Health {
    /// One word.
    pub fn as_str(&self) -> &'static str {
        match self.up {
            0 => "disconnected",
            up if up < self.paths => "degraded",
            _ => "connected",
        }
    }
}

/// `degraded 1/2`.
impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.as_str(), self.up, self.paths)
    }
}

/// A path has come, or gone.
pub struct PathEvent<'a> {
    /// It has come.
    pub up: bool,
    /// It was the first one to come, or the last one to go.
    pub session_too: bool,
    /// The name of the session.
    pub session: &'a str,
    /// The name of the path.
    pub path: &'a dyn kernel::fmt::Display,
    /// How it was after that.
    pub health: Health,
    /// Number of the event in the session's life; what is missing was forgotten.
    pub number: u64,
}

impl PathEvent<'_> {
    /// Sends it: the path's, then the session's if that has come or gone. `to` gets the variables
    /// of each. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or what `to` says.
    pub fn send(&self, to: impl Fn(&[&CStr]) -> Result) -> Result {
        let what = if self.up { "up" } else { "down" };
        let health = &self.health;
        let session = CString::try_from_fmt(fmt!("RTRS_SESSION={}", self.session))?;
        let path = CString::try_from_fmt(fmt!("RTRS_PATH={}", self.path))?;
        let state = CString::try_from_fmt(fmt!("RTRS_STATE={}", health.as_str()))?;
        let up = CString::try_from_fmt(fmt!("RTRS_PATHS_UP={}", health.up))?;
        let paths = CString::try_from_fmt(fmt!("RTRS_PATHS={}", health.paths))?;
        let number = CString::try_from_fmt(fmt!("RTRS_NUMBER={}", self.number))?;

        let event = CString::try_from_fmt(fmt!("RTRS_EVENT=path_{what}"))?;
        to(&[&event, &session, &path, &state, &up, &paths, &number])?;
        if self.session_too {
            let event = CString::try_from_fmt(fmt!("RTRS_EVENT=session_{what}"))?;
            to(&[&event, &session, &state, &up, &paths, &number])?;
        }
        Ok(())
    }
}
