// SPDX-License-Identifier: GPL-2.0

//! The table of connections of a path.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use rtrs_bindings::ib::{
    Domain,
    Endpoint, //
};
use rtrs_core::qp_size::RECV_BATCH;

use super::Path;

/// The table of connections during the handshake.
pub(super) struct Setup {
    /// No connection is added any more.
    pub(super) closed: bool,
    pub(super) domain: Option<Arc<Domain>>,
    /// By connection id, as many as the client announced.
    pub(super) eps: KVVec<Option<Pin<KBox<Endpoint<Path>>>>>,
    /// Receives to post on the service connection, and on each other one.
    pub(super) recvs: (Receives, Receives),
}

/// Receives of a connection.
#[derive(Clone, Copy, Default)]
pub(super) struct Receives {
    /// All receives.
    pub(super) posted: u32,
    /// The receives that the client does not count on.
    pub(super) spare: u32,
}

impl Receives {
    /// As many as there is room for, with `counted_on` that the client counts on.
    pub(super) fn of(room: u32, counted_on: u32) -> Self {
        let posted = room.min(counted_on.saturating_add(RECV_BATCH));
        Self {
            posted,
            spare: posted.saturating_sub(counted_on),
        }
    }
}
