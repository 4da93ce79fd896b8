// SPDX-License-Identifier: GPL-2.0

//! Room for newcomers: which handshake gives way when a total is exhausted, and rate limits of one
//! source for path starts and log messages.

use core::num::NonZeroU32;
use kernel::{
    prelude::*,
    sync::Arc, //
};

use rtrs_bindings::{
    ratelimit,
    time::now_ns, //
};

use super::{
    Registry,
    RATES, //
};
use crate::{
    config,
    limits::Refusal,
    logic::{
        quota::{
            OverQuota,
            Resource, //
        },
        source::{
            gives_way,
            Source, //
        },
    },
    path::Path, //
};

impl Registry {
    /// Ends one handshake in favour of a newcomer from `source` that was refused by `over`. If a
    /// session is needed, ends all handshakes of one session. May sleep.
    ///
    /// # Errors
    ///
    /// `over` if no handshake has to give way.
    pub(super) fn make_room(&self, source: Source, over: OverQuota) -> Result<(), Refusal> {
        let mut crowd = self.crowd()?;
        let key = |path: &Arc<Path>| (path.source(), path.deadline());
        let late = now_ns().saturating_add(config::deadline_of_late_ns());
        let victim = gives_way(&mut crowd, source, late, key).and_then(|index| crowd.get(index));
        let Some(victim) = victim else {
            return Err(over.into());
        };

        // With the lock held, its session does not get another path.
        let _sessions = self.sessions.lock();
        // Its user may know the session by another path by now.
        if !victim.session().is_kept() {
            let whole = over.resource == Resource::Sessions;
            crowd
                .iter()
                .filter(|path| {
                    Arc::ptr_eq(path, victim)
                        || whole && Arc::ptr_eq(path.session(), victim.session())
                })
                .for_each(Path::give_way);
        }
        Ok(())
    }

    /// The paths that count in the total of handshakes. May sleep.
    fn crowd(&self) -> Result<KVVec<Arc<Path>>> {
        // More may come while memory is allocated. Those need not give way.
        let count = self.limits.quota(Resource::Handshakes).current();
        let mut crowd = KVVec::with_capacity(usize::try_from(count)?, GFP_KERNEL)?;

        for session in self.sessions.lock().iter().filter(|s| !s.is_kept()) {
            session.each(|path| {
                if path.is_in_handshake() && !path.is_closing() {
                    let _ = crowd.push_within_capacity(path.clone());
                }
            });
        }
        Ok(crowd)
    }

    /// Whether a path from `source` may be started. Counts it if so. Any context.
    pub(crate) fn may_start(&self, source: Source) -> bool {
        let rate = self.starts.get(self.place(source, RATES));
        rate.is_some_and(|rate| rate.allows(config::starts_per_source(), now_ns()))
    }

    /// Returns the place of `source` in a table of `count` entries; two sources may share a place.
    /// Any context.
    pub(crate) fn place(&self, source: Source, count: NonZeroU32) -> usize {
        source.place(self.seed, count)
    }

    /// Returns the place of `source` in the log's limits. Any context.
    pub(crate) fn log_place(&self, source: Source) -> usize {
        self.place(source, ratelimit::SOURCES)
    }
}
