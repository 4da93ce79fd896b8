// SPDX-License-Identifier: GPL-2.0

//! The API for block drivers in Rust.
//!
//! ```ignore
//! let session = Session::open(Config::new("disks", 1234), &["ip:10.0.0.1"], None)?;
//! let permit = session.permit(Connection::Io, Wait::Yes).ok_or(EAGAIN)?;
//! session.submit(&permit, DataDir::Write, message, request)?;
//! ```
//!
//! | call | context |
//! |---|---|
//! | [`Session::open`], drop | process; may sleep, for as long as connecting takes |
//! | [`Session::permit`] | any with [`Wait::No`]; else process, may sleep |
//! | [`Session::submit`] | any |
//! | [`Request::complete`] | softirq, or process; must not sleep |
//! | [`Events::link_event`] | process; may sleep |

use kernel::{
    prelude::*,
    sync::Arc, //
};
use rtrs_bindings::loan::Loan;
pub use rtrs_bindings::{
    callback::{
        Message,
        Piece, //
    },
    ib::SgBuffer,
    loan::Request, //
};
pub use rtrs_core::proto::DataDir;
use rtrs_core::{
    proto::SessionName,
    sockaddr, //
};

use crate::{
    client,
    request::Permits,
    session::{
        Options,
        Ready, //
    },
};
pub use crate::{
    request::Connection,
    session::{
        Events,
        Limits,
        LinkEvent, //
    },
};

/// The properties of a session.
#[derive(Clone, Copy, Debug)]
pub struct Config<'a> {
    /// Its name: 1 to 254 printable ASCII characters without blank, `/` and `.`, unique on this
    /// host.
    pub name: &'a str,
    /// The server's port.
    pub port: u16,
    /// Longest regular wait between attempts to reconnect, in seconds.
    pub reconnect_delay_sec: u8,
    /// Attempts to reconnect in a row, -1 for no limit.
    pub max_reconnect_attempts: i32,
    /// Queues without completion interrupts: see [`Connection::Polled`] and [`Session::poll`].
    pub poll_queues: u16,
}

impl<'a> Config<'a> {
    /// A session that connects again for ever, and is not polled.
    pub fn new(name: &'a str, port: u16) -> Self {
        Self {
            name,
            port,
            reconnect_delay_sec: 30,
            max_reconnect_attempts: -1,
            poll_queues: 0,
        }
    }
}

/// Whether to wait for a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// No.
    No,
    /// Until there is one, or the session is closed.
    Yes,
}

/// A session. Dropping it closes it: the drop may sleep, waits for permits that are held, and fails
/// requests that are in flight.
pub struct Session(Ready);

/// The right to have one request of a session in flight. Dropping it gives it back; if its request
/// is not complete, the completion gives it back.
pub struct Permit {
    permits: Arc<Permits>,
    id: u16,
}

impl Permit {
    /// Its number, less than the session's queue depth, for example as an index of a table of the
    /// user.
    pub fn id(&self) -> u16 {
        self.id
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.permits.put(usize::from(self.id));
    }
}

impl Session {
    /// Opens a session over `paths`, each `[src{,|@}]dst` as in `add_path`; all of them have to
    /// connect. May sleep. `events` is told when the session is lost and when it is back: a user
    /// with state at the server that was made by requests needs that. `events` is dropped no later
    /// than the session.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a malformed name or address, `EEXIST` for a name in use, or the error of a path
    /// that did not connect: `ETIMEDOUT`, `EHOSTUNREACH`, `ECONNRESET` (no server listens, or the
    /// server refused without a reason), or the server's reason.
    pub fn open(
        config: Config<'_>,
        paths: &[&str],
        events: Option<Arc<dyn Events>>,
    ) -> Result<Self> {
        let name = SessionName::new(config.name.as_bytes()).map_err(|_| EINVAL)?;
        let mut addrs = KVec::with_capacity(paths.len(), GFP_KERNEL)?;
        for path in paths {
            addrs.push(
                sockaddr::parse_pair(path.as_bytes(), config.port)?,
                GFP_KERNEL,
            )?;
        }
        let options = Options {
            name,
            port: config.port,
            reconnect_delay_sec: config.reconnect_delay_sec,
            max_reconnect_attempts: config.max_reconnect_attempts,
            fail_after: crate::params::fail_after(),
            poll_cons: u32::from(config.poll_queues),
            events,
            may_be_rnbd: false,
        };
        let session = client::open(options, addrs.into_iter())?;
        let Some(ready) = session.ready() else {
            client::close(&session);
            return Err(EINVAL);
        };
        session.hand_over();
        Ok(Self(ready))
    }

    /// The session's limits.
    pub fn limits(&self) -> Option<Limits> {
        self.0.session.limits()
    }

    /// Whether at least one path is connected.
    pub fn is_connected(&self) -> bool {
        self.0.session.is_connected()
    }

    /// Whether requests fail at once, because there is no path or the session is being closed.
    /// False while there is no path but requests still wait for one.
    pub fn is_failing(&self) -> bool {
        self.0.session.is_failing()
    }

    /// Takes a permit. With [`Wait::Yes`] it may sleep.
    pub fn permit(&self, connection: Connection, wait: Wait) -> Option<Permit> {
        let id = self.0.get_permit(connection, wait == Wait::Yes)?;
        // CAST: Less than the queue depth.
        let id = id as u16;
        Some(Permit {
            permits: self.0.permits.clone(),
            id,
        })
    }

    /// Handles completed requests of polled queue `queue`, and returns the number of completions
    /// found. Any context in which [`Request::complete`] may run, since it is called from here.
    ///
    /// If no task polls a queue, it is checked once in a jiffy.
    pub fn poll(&self, queue: u16) -> u32 {
        self.0.session.poll(queue)
    }

    /// Sends a request with a user message and all of its data. [`Request::complete`] is called
    /// when it is complete, possibly before this returns.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` for a message or data beyond the limits, `EBUSY` while the permit's last request
    /// is not complete, or another one with the same [`SgBuffer`], `EINVAL` for a permit of another
    /// session, `ECONNABORTED` without a connected path, `ENOMEM` if it may work later.
    /// [`Request::complete`] is not called then.
    pub fn submit<R: Request>(
        &self,
        permit: &Permit,
        dir: DataDir,
        message: Message<'_>,
        request: Arc<R>,
    ) -> Result {
        if !self.0.has(&permit.permits) {
            return Err(EINVAL);
        }
        self.submit_loan(permit, dir, message, Loan::of_request(request)?)
    }

    /// The same for all types of requests: compiled once, in this module.
    #[inline(never)]
    fn submit_loan(
        &self,
        permit: &Permit,
        dir: DataDir,
        message: Message<'_>,
        mut loan: Loan,
    ) -> Result {
        match self.0.begin(usize::from(permit.id())) {
            Ok(mut turn) => {
                turn.loan = loan;
                self.0.submit(turn, dir, message)
            }
            Err(e) => {
                if let Some(callback) = loan.end() {
                    callback.cancel();
                }
                Err(e)
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        client::close(&self.0.session);
    }
}
