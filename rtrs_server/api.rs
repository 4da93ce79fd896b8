// SPDX-License-Identifier: GPL-2.0

//! The API for users of the server.
//!
//! ```ignore
//! struct Disk;
//!
//! impl Service for Disk {
//!     fn link_up(&self, session: &Session) -> Result {
//!         pr_info!("{} is here\n", session.name());
//!         Ok(())
//!     }
//!     fn link_down(&self, _session: &Session) {}
//!     fn request(&self, _session: &Session, op: Operation) {
//!         op.respond(Err(ENOTSUPP));
//!     }
//! }
//!
//! let server = Server::open(Arc::new(Disk, GFP_KERNEL)?, &ServerConfig::new(1234))?;
//! ```

use kernel::{
    prelude::*,
    sync::Arc, //
};

pub use crate::{
    config::ServerConfig,
    context::Server,
    op::Operation,
    session::Session, //
};
pub use rtrs_core::proto::DataDir;

/// A user of the server, which serves the requests of clients.
///
/// All functions are called from tasks of the server and may sleep. None of them may close the
/// server, because closing waits until they have returned.
pub trait Service: Send + Sync + 'static {
    /// A client came. Requests of this session are passed on only after this function has returned,
    /// and none if it returns an error: the client is turned away then.
    ///
    /// May take its time. This delays only the session, and the removal of a device: a path that
    /// comes up keeps its connections, and so its device, until this function has returned. Not
    /// called again before [`Service::link_down`], unless it has returned an error.
    fn link_up(&self, session: &Session) -> Result;

    /// The session has no path any more, and all its requests were answered or dropped. Nothing
    /// refers to it after this, except for another [`Service::link_up`] if the client comes back.
    ///
    /// May take its time. A path of a client that comes back meanwhile waits for it in its
    /// handshake, and is not started before.
    fn link_down(&self, session: &Session);

    /// A request. It may be answered now or later, from any context.
    ///
    /// Called in parallel for different requests, but one at a time for those of one connection. It
    /// may sleep for as long as it takes to start the operation, for example while a disk has no
    /// room. That delays the connection's other requests and nothing else, and the path may be gone
    /// when it returns. Administrative requests have the service connection for themselves.
    ///
    /// The request was written by the client: its lengths agree with each other, its contents may
    /// be anything.
    fn request(&self, session: &Session, op: Operation);
}

impl<S: Service> Service for Arc<S> {
    fn link_up(&self, session: &Session) -> Result {
        (**self).link_up(session)
    }

    fn link_down(&self, session: &Session) {
        (**self).link_down(session);
    }

    #[inline]
    fn request(&self, session: &Session, op: Operation) {
        (**self).request(session, op);
    }
}
