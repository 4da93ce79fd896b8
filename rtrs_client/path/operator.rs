// SPDX-License-Identifier: GPL-2.0

//! Commands of an operator, or of the session, to a path.
//!
//! # Context
//!
//! All functions sleep until the owner task has answered the command and, where stated, until the
//! command is done. `command` is a mutex: one command at a time.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use rtrs_bindings::{
    errno,
    workqueue::{
        DelayedWorkExt,
        WorkExt, //
    },
};

use super::Path;
use crate::logic::path_state::{
    Event,
    Reply,
    State, //
};

impl Path {
    /// Sends an event to the state machine, and returns its answer. May sleep.
    fn command(self: &Arc<Self>, event: Event) -> Reply {
        let _guard = self.command.lock();
        self.status.lock().reply = None;
        self.notify(|notes| notes.command = Some(event));
        let mut reply = Reply::Gone;
        self.changed
            .wait_until(|| match self.status.lock().reply.take() {
                Some(r) => {
                    reply = r;
                    true
                }
                None => false,
            });
        reply
    }

    /// Whether it is in a state that stays without a command.
    fn is_settled(&self) -> bool {
        matches!(
            self.state(),
            State::Connected | State::Waiting | State::Closed(_) | State::Dead
        )
    }

    /// Waits for such a state, unless the session is being closed. May sleep.
    ///
    /// # Errors
    ///
    /// `ERESTARTSYS` when the task is being killed.
    fn wait_settled(&self) -> Result<State> {
        let over = || self.is_settled() || self.session.is_closing();
        self.changed.wait_until_killable(over)?;
        Ok(self.state())
    }

    /// Makes tasks that wait look again whether the session is being closed. Any context.
    pub(crate) fn wake_waiters(&self) {
        self.changed.wake_all();
    }

    fn last_error(&self) -> Error {
        let errno = self.status(|s| s.last_error.map(|(errno, _)| errno));
        errno.and_then(errno::from_i32).unwrap_or(errno::ECONNRESET)
    }

    /// Begins to connect for the first time. May sleep.
    pub(crate) fn start(self: &Arc<Self>) {
        self.command(Event::Start);
    }

    /// Waits until the server knows the session, or the outcome of [`Path::start`] is known. May
    /// sleep.
    ///
    /// # Errors
    ///
    /// `ERESTARTSYS` when the task is being killed.
    pub(crate) fn wait_known(&self) -> Result {
        let known = || self.via().is_some() || self.is_settled() || self.session.is_closing();

        self.changed.wait_until_killable(known)
    }

    /// Waits for the outcome of [`Path::start`]. May sleep.
    ///
    /// # Errors
    ///
    /// The reason why the path is not connected; `ERESTARTSYS` when the task is being killed.
    pub(crate) fn wait_connected(&self) -> Result {
        match self.wait_settled()? {
            State::Connected => Ok(()),
            _ => Err(self.last_error()),
        }
    }

    /// Begins to remove the path; [`Path::remove`] has to follow. May sleep.
    pub(crate) fn begin_remove(self: &Arc<Self>) {
        self.command(Event::Remove);
    }

    /// Drops the link, if there is one, and connects again. Waits for the outcome. May sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` while the path is connecting, `ENODEV` when it was removed, `ENOTCONN` if it
    /// is not connected afterwards.
    pub(crate) fn reconnect(self: &Arc<Self>) -> Result {
        match self.command(Event::UserReconnect) {
            Reply::Busy => return Err(EBUSY),
            Reply::Gone => return Err(ENODEV),
            Reply::Accepted | Reply::Already => {}
        }
        match self.wait_settled()? {
            State::Connected => Ok(()),
            _ => Err(errno::ENOTCONN),
        }
    }

    /// Drops the link and stays without one. Sleeps until that is done.
    ///
    /// # Errors
    ///
    /// `ENODEV` when the path was removed, `ESHUTDOWN` when its session is being closed meanwhile;
    /// `ERESTARTSYS` when the task is being killed.
    pub(crate) fn disconnect(self: &Arc<Self>) -> Result {
        match self.command(Event::UserDisconnect) {
            Reply::Gone => return Err(ENODEV),
            Reply::Busy | Reply::Accepted | Reply::Already => {}
        }
        self.wait_settled()?;
        match self.is_settled() {
            true => Ok(()),
            false => Err(errno::ESHUTDOWN),
        }
    }

    /// Drops the link for good, and the files. Sleeps until no work item of the path is left.
    pub(crate) fn remove(self: &Arc<Self>) {
        self.command(Event::Remove);
        self.changed
            .wait_until(|| matches!(self.state(), State::Dead));
        self.timer.cancel_sync();
        self.deadline.cancel_sync();
        self.heartbeat_work.cancel_sync();
        // A late note finds a state machine in its last state.
        WorkExt::flush(&self.work);
        let files = self.files.lock().take();
        drop(files);
    }
}
