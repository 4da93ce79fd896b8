// SPDX-License-Identifier: GPL-2.0

//! How much of the resources of clients is in use.

use kernel::prelude::*;

use super::Registry;
use crate::{
    logic::{
        quota::{
            largest_sum,
            sessions_that_count,
            Resource, //
        },
        source::Source, //
    },
    path::Path,
    session::Session, //
};

impl Registry {
    /// Returns how much of `resource` is in use. For resources that are counted for each path,
    /// session or source, returns the maximum over these. May sleep.
    pub(crate) fn usage(&self, resource: Resource) -> Result<u64> {
        // CAST: The counts are of objects in memory.
        Ok(match resource {
            total if total.is_total() => self.limits.quota(total).current(),
            Resource::SessionsPerSource => sessions_that_count(
                self.of_a_source(|session, note| {
                    if session.is_live() {
                        note(session.source, 1);
                    }
                })?,
                self.of_a_source(|session, note| note(session.source, 1))?,
            ),
            Resource::HandshakesPerSource => {
                self.of_paths_of_a_source(|p| u64::from(p.is_in_handshake()))?
            }
            Resource::MemoryPerSource => self.of_paths_of_a_source(Path::counted_memory)?,
            Resource::ConsPerSource => self.of_paths_of_a_source(|p| u64::from(p.announced()))?,
            _ => {
                let mut most = 0;
                for session in self.sessions.lock().iter() {
                    if resource == Resource::PathsPerSession {
                        most = most.max(session.count(|p| !p.is_closing()) as u64);
                    } else {
                        session.each(|p| most = most.max(u64::from(p.cons())));
                    }
                }
                most
            }
        })
    }

    /// Returns the sum of `what` over the paths of one source, for the source with the largest sum.
    fn of_paths_of_a_source(&self, what: impl Fn(&Path) -> u64) -> Result<u64> {
        self.of_a_source(|session, note| {
            session.each(|p| match what(p) {
                0 => (),
                amount => note(p.source, amount),
            });
        })
    }

    /// Returns the sum of the amounts that `of` notes for one source, for the source with the
    /// largest sum.
    fn of_a_source(&self, of: impl Fn(&Session, &mut dyn FnMut(Source, u64))) -> Result<u64> {
        loop {
            let mut count = 0usize;
            for session in self.sessions.lock().iter() {
                of(session, &mut |_, _| count = count.saturating_add(1));
            }
            let mut sources = KVVec::with_capacity(count, GFP_KERNEL)?;
            let mut full = false;
            for session in self.sessions.lock().iter() {
                of(session, &mut |source, amount| {
                    full |= sources.push_within_capacity((source, amount)).is_err();
                });
            }
            // Items that came in between are counted too.
            if !full {
                return Ok(largest_sum(&mut sources));
            }
        }
    }
}
