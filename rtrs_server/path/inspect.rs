// SPDX-License-Identifier: GPL-2.0

//! Connections and requests of a path, for tables in debugfs and files in sysfs.

use kernel::{
    prelude::*,
    sync::rcu, //
};
use rtrs_bindings::time::now_ns;
use rtrs_core::table::{
    Connection,
    Flying, //
};

use super::Path;

impl Path {
    /// Calls `f`, which must not sleep, with each connection. May sleep.
    pub(crate) fn for_each_connection(&self, mut f: impl FnMut(Connection)) -> Result {
        let mut inflight = KVVec::from_elem(0u64, usize::from(self.cid_num), GFP_KERNEL)?;

        self.for_each_request(|request| {
            if let Some(count) = inflight.get_mut(usize::from(request.cid)) {
                *count = count.saturating_add(1);
            }
        });
        // Connections of a handshake, which is over when there is an `Active`.
        for ep in self.conns.setup.lock().eps.iter().flatten() {
            if let Some(con) = Connection::accepted(ep, 0) {
                f(con);
            }
        }
        let guard = rcu::read_lock();
        if let Some(active) = self.active.read(&guard) {
            for (ep, inflight) in active.endpoints().iter().zip(inflight.iter()) {
                if let Some(con) = Connection::accepted(ep, *inflight) {
                    f(con);
                }
            }
        }
        Ok(())
    }

    /// Calls `f`, which must not sleep, with each request that is not answered. Any context.
    pub(crate) fn for_each_request(&self, mut f: impl FnMut(Flying)) {
        let guard = rcu::read_lock();
        let Some(active) = self.active.read(&guard) else {
            return;
        };
        let now = now_ns();

        for (id, chunk) in active.chunks().iter().enumerate() {
            let Some(waits_for) = chunk.waits_for(|cid| active.is_held(cid)) else {
                continue;
            };
            let (cid, dir) = chunk.stamp();
            f(Flying {
                id,
                cid,
                dir,
                age_ns: now.saturating_sub(chunk.since()),
                waits_for,
            });
        }
    }

    /// Nanoseconds since the last request for a chunk came; 0 if the path is being taken down. Any
    /// context.
    pub(crate) fn age_of_request(&self, buf_id: u16) -> u64 {
        let guard = rcu::read_lock();
        let chunks = self.active.read(&guard).map(|active| active.chunks());

        chunks
            .and_then(|chunks| chunks.get(usize::from(buf_id)))
            .map_or(0, |chunk| now_ns().saturating_sub(chunk.since()))
    }
}
