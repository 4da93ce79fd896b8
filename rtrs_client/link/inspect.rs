// SPDX-License-Identifier: GPL-2.0

//! What is on a link now, for tables in debugfs.
//!
//! # Context
//!
//! Any; the caller is inside an RCU read-side section, which keeps the link.

use rtrs_bindings::{
    ib::{
        Endpoint,
        InterfaceName, //
    },
    time, //
};
use rtrs_core::proto::Dir;

use super::Link;
use crate::atomic::Relaxed;

/// A connection.
pub(crate) struct Connection {
    /// Its number on the link.
    pub(crate) cid: u16,
    /// The number of the queue pair.
    pub(crate) qp: u32,
    /// Requests in flight that went out on it.
    pub(crate) inflight: i32,
    /// Work requests on the send queue, and how many fit.
    pub(crate) send_used: u32,
    pub(crate) send_depth: u32,
    /// The network interface below, if there is one.
    pub(crate) interface: Option<InterfaceName>,
}

/// A request in flight.
pub(crate) struct Flying {
    /// The number of its permit.
    pub(crate) id: usize,
    /// The connection it went out on.
    pub(crate) cid: u16,
    pub(crate) dir: Dir,
    pub(crate) age_ns: u64,
    /// What it waits for.
    pub(crate) waits_for: &'static str,
}

impl Link {
    /// Calls `f` with each connection.
    pub(crate) fn for_each_connection(&self, mut f: impl FnMut(Connection)) {
        for (ep, con) in self.endpoints.iter().zip(self.core.cons.iter()) {
            let ep: &Endpoint<_> = ep;
            let Some(qp) = ep.qp() else { continue };
            f(Connection {
                cid: ep.index(),
                qp: qp.number(),
                inflight: con.inflight.load(Relaxed),
                send_used: qp.send_used(),
                send_depth: qp.send_depth(),
                interface: ep.interface(),
            });
        }
    }

    /// Calls `f` with each request in flight.
    pub(crate) fn for_each_flying(&self, mut f: impl FnMut(Flying)) {
        let Some(tables) = self.core.tables.as_ref() else {
            return;
        };
        let now = time::now_ns();
        for (id, request) in tables.requests.iter().enumerate() {
            let Some(info) = request.state.peek() else {
                continue;
            };
            let (dir, age_ns) = request.stamp.get(now);
            f(Flying {
                id,
                cid: info.con,
                dir,
                age_ns,
                waits_for: if info.needs.needs_response() {
                    "answer"
                } else if info.needs.needs_invalidated() {
                    "invalidation"
                } else {
                    "send"
                },
            });
        }
    }
}
