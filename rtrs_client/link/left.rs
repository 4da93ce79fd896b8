// SPDX-License-Identifier: GPL-2.0

//! Requests that were in flight when their link ended.
//!
//! # Context
//!
//! Owner task of the path, after the link's queue pairs are destroyed.

use kernel::prelude::*;
use rtrs_bindings::time;
use rtrs_core::proto::DataDir;

use super::LinkCore;
use crate::{
    request::Turn,
    trace, //
};

impl LinkCore {
    /// Calls `f` for all requests that were in flight when the link ended. Called after its queue
    /// pairs are destroyed.
    ///
    /// `f` gets the number of each request, its turn, and its result if the server had answered.
    pub(crate) fn for_each_left(&self, mut f: impl FnMut(u16, Turn<'_>, Option<i32>)) {
        let Some(ready) = self.ready.as_ref() else {
            return;
        };
        let collected = ready.flights.collect(|landing, left| {
            let flight = landing.flight();
            let (id, link_io) = (flight.index(), flight.cargo());
            let answered = !left.needs.has_answer();
            trace::failover(self, left.lane, id, answered);
            if answered {
                let now = time::now_ns();
                let (dir, ns) = link_io.stamp.get(now);
                self.path
                    .stats
                    .completed(counts_as(left.lane, dir), ns, now);
            }
            if let Some(mut turn) = link_io.place.resume() {
                landing.give_back(&mut turn.loan);
                f(id, turn, answered.then_some(left.result));
            }
        });
        if let Err(e) = collected {
            // Only a link that was not severed has queue pairs.
            pr_err!(
                "{}: requests are left in flight: {}\n",
                &*self.path,
                e.to_errno()
            );
        }
    }
}

/// The direction as which an answered request of connection `con` with direction `dir` counts.
/// Messages of the service connection write no data, and writes that were answered are counted to
/// know which devices are clean.
pub(super) fn counts_as(con: u16, dir: DataDir) -> DataDir {
    match con {
        0 => DataDir::Read,
        _ => dir,
    }
}
