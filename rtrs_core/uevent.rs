// SPDX-License-Identifier: GPL-2.0

//! Events for user space about paths, and sessions, that come and go.
//!
//! A udev rule can act on them:
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
    /// Number of paths that are connected.
    pub up: u32,
    /// Number of paths.
    pub paths: u32,
}

impl Health {
    /// The state in one word.
    pub fn as_str(&self) -> &'static str {
        match self.up {
            0 => "disconnected",
            up if up < self.paths => "degraded",
            _ => "connected",
        }
    }
}

/// Displays, for example, as `degraded 1/2`.
impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.as_str(), self.up, self.paths)
    }
}

/// A path has come or gone.
pub struct PathEvent<'a> {
    /// The path has come.
    pub up: bool,
    /// The path was the first one of its session to come, or the last one to go.
    pub session_too: bool,
    /// The name of the session.
    pub session: &'a str,
    /// The name of the path.
    pub path: &'a dyn kernel::fmt::Display,
    /// The session's state after that.
    pub health: Health,
    /// Number of the event in the session's life. A missing number means a lost event.
    pub number: u64,
}

impl PathEvent<'_> {
    /// Sends the event of the path, then that of the session if it has come or gone. `to` gets the
    /// variables of each. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or the error of `to`.
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
