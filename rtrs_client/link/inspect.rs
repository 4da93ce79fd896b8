// SPDX-License-Identifier: GPL-2.0

//! Connections and requests of a link, for tables in debugfs, and a check of its address.
//!
//! # Context
//!
//! Any; the caller is inside an RCU read-side section, which keeps the link.

use rtrs_bindings::time;
use rtrs_core::table::{
    Connection,
    Flying, //
};

use super::Link;

/// The text for a request that waits for the server's answer.
const ANSWER: &str = "answer";

impl Link {
    /// Whether the local address is still an address of the port.
    pub(crate) fn has_source(&self) -> bool {
        self.endpoints.first().is_none_or(|ep| ep.has_source())
    }

    /// Whether the port can send and receive. Process context.
    pub(crate) fn port_is_active(&self) -> bool {
        self.endpoints.first().is_none_or(|ep| ep.port_is_active())
    }

    /// Calls `f` with each connection.
    pub(crate) fn for_each_connection(&self, mut f: impl FnMut(Connection)) {
        for (ep, con) in self.endpoints.iter().zip(0..) {
            if let Some(con) = Connection::connected(ep, self.inflight_on(con)) {
                f(con);
            }
        }
    }

    /// Returns the number of requests that wait for an answer, and the age of the oldest in
    /// nanoseconds.
    pub(crate) fn oldest(&self) -> (u32, u64) {
        let (mut count, mut oldest) = (0u32, 0);

        self.for_each_flying(|request| {
            if request.waits_for == ANSWER {
                count = count.saturating_add(1);
                oldest = oldest.max(request.age_ns);
            }
        });
        (count, oldest)
    }

    /// Returns the age, in nanoseconds, of the oldest request on connection `con` that the device
    /// has not told to have arrived, of those that it does tell.
    pub(crate) fn oldest_unsent(&self, con: u16) -> Option<u64> {
        let flights = &self.core.ready.as_ref()?.flights;
        let now = time::now_ns();
        flights
            .iter()
            .filter_map(|flight| {
                let info = flight.peek()?;
                let waits = info.needs.has_answer() && info.needs.has_sent();
                let (_, age_ns) = flight.cargo().stamp.get(now);
                (waits && info.lane == con).then_some(age_ns)
            })
            .max()
    }

    /// Calls `f` with each request in flight.
    pub(crate) fn for_each_flying(&self, mut f: impl FnMut(Flying)) {
        let Some(ready) = self.core.ready.as_ref() else {
            return;
        };
        let now = time::now_ns();
        for flight in ready.flights.iter() {
            let Some(info) = flight.peek() else {
                continue;
            };
            let (dir, age_ns) = flight.cargo().stamp.get(now);
            f(Flying {
                id: usize::from(flight.index()),
                cid: info.lane,
                dir: Some(dir),
                age_ns,
                waits_for: if info.needs.has_answer() {
                    ANSWER
                } else if info.needs.has_invalidated() {
                    "invalidation"
                } else {
                    "send"
                },
            });
        }
    }
}
