// SPDX-License-Identifier: GPL-2.0

//! Room for newcomers: what gives way when a total is exhausted. And rate limits of one source for
//! path starts and log messages.

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
        room::{
            choose,
            Need,
            Stake, //
        },
        source::{
            gives_way,
            Source, //
        },
    },
    path::Path,
    session::Session, //
};

/// The part of all sessions that a source may have without being asked to give up one that is only
/// kept: a host with 64 sessions keeps them all by default.
const KEPT_SHARE: u64 = 16;

/// The part of all memory that may belong to paths that gave way and are not gone yet. It is given
/// to newcomers already.
const LEAVING_SHARE: u64 = 4;

impl Registry {
    /// Makes room for a newcomer from `source`, which was refused by `over` and needs `amount`;
    /// `asking` is its path, if it has one. May sleep.
    ///
    /// # Errors
    ///
    /// `over` if nobody has to give way.
    pub(crate) fn make_room(
        &self,
        source: Source,
        over: OverQuota,
        amount: u64,
        asking: Option<&Path>,
    ) -> Result<(), Refusal> {
        let room = match over.resource {
            Resource::Handshakes => self.end_handshake(source, false)?,
            Resource::Sessions => self.end_session(source, over.max)?,
            Resource::Cons | Resource::Memory => {
                self.end_handshakes(source, over.resource, amount, asking)?
            }
            _ => false,
        };
        if room {
            Ok(())
        } else {
            Err(over.into())
        }
    }

    /// Ends one handshake, or all of its session if `whole`. Returns whether there was one that
    /// had to give way.
    fn end_handshake(&self, source: Source, whole: bool) -> Result<bool> {
        let mut crowd = self.crowd(|_, session| u64::from(!session.is_kept()), None)?;
        let late = now_ns().saturating_add(config::deadline_of_late_ns());
        let index = gives_way(&mut crowd, source, late, |one| (one.source, one.came));
        let Some(victim) = index.and_then(|index| crowd.get(index)) else {
            return Ok(false);
        };

        // With the lock held, its session does not get another path.
        let _sessions = self.sessions.lock();
        let session = &victim.member.session;
        // Its user may know the session by another path by now.
        if !session.is_kept() {
            crowd
                .iter()
                .map(|one| &one.member)
                .filter(|path| {
                    Arc::ptr_eq(path, &victim.member)
                        || whole && Arc::ptr_eq(&path.session, session)
                })
                .for_each(Path::give_way);
        }
        Ok(true)
    }

    /// Ends one session: one that has no path and is kept for its client, or one that has only
    /// handshakes. There may be `max` sessions.
    fn end_session(&self, source: Source, max: u64) -> Result<bool> {
        let kept = self.kept_of_largest(source, max)?;
        // The larger of the two groups keeps the newcomer out.
        let handshakes = self.limits.quota(Resource::Handshakes).current();
        if kept.as_ref().is_none_or(|(_, count)| *count <= handshakes)
            && self.end_handshake(source, true)?
        {
            return Ok(true);
        }
        let Some((session, _)) = kept else {
            return Ok(false);
        };

        // With the lock held, it does not get a path.
        let _sessions = self.sessions.lock();
        if session.is_deserted() && session.is_counted() {
            session.set_share(None);
            session.give_up();
        }
        Ok(true)
    }

    /// Returns the oldest session without a path of the source that has most sessions, and the
    /// number of such sessions of that source.
    fn kept_of_largest(&self, source: Source, max: u64) -> Result<Option<(Arc<Session>, u64)>> {
        let all = self.sessions()?;
        let mut crowd = KVVec::with_capacity(all.len(), GFP_KERNEL)?;
        // In the order in which they were made.
        for (came, session) in all.iter().enumerate() {
            let stake = Stake {
                source: session.source,
                // CAST: `usize` has at most 64 bits.
                came: came as u64,
                amount: u64::from(session.is_counted()),
                stays: !session.is_deserted(),
                goes: false,
                member: session,
            };
            crowd.push(stake, GFP_KERNEL)?;
        }
        let need = Need {
            source,
            missing: 1,
            late: 0,
            least: max / KEPT_SHARE,
        };
        if !choose(&mut crowd, &need) {
            return Ok(None);
        }
        let Some(first) = crowd.iter().find(|one| one.goes) else {
            return Ok(None);
        };
        let same = crowd.iter().filter(|one| one.source == first.source);
        // CAST: As above.
        let count = same.filter(|one| !one.stays).count() as u64;
        Ok(Some((first.member.clone(), count)))
    }

    /// Ends as many handshakes as have what is missing for `amount` more of `resource`.
    fn end_handshakes(
        &self,
        source: Source,
        resource: Resource,
        amount: u64,
        asking: Option<&Path>,
    ) -> Result<bool> {
        let has = |path: &Path| {
            let (cons, memory) = path.taken();
            match resource {
                Resource::Cons => cons,
                _ => memory,
            }
        };
        let mut crowd = self.crowd(|path, _| has(path), asking)?;
        let quota = self.limits.quota(resource);
        let missing = quota.current().saturating_add(amount);
        let need = Need {
            source,
            missing: missing.saturating_sub(quota.max()),
            late: now_ns().saturating_add(config::deadline_of_late_ns()),
            least: 0,
        };
        if !choose(&mut crowd, &need) {
            return Ok(false);
        }

        let sessions = self.sessions.lock();
        // What is given away exists for a moment longer: there must not be too much of that.
        if resource == Resource::Memory {
            let mut leaving = 0u64;
            for session in sessions.iter() {
                session.each(|path| leaving = leaving.saturating_add(path.leaving()));
            }
            if leaving > quota.max() / LEAVING_SHARE {
                return Ok(false);
            }
        }
        crowd
            .iter()
            .filter(|one| one.goes)
            .for_each(|one| one.member.give_way());
        Ok(true)
    }

    /// The paths in their handshake, except `asking`, that have some of what `has` counts. May
    /// sleep.
    fn crowd(
        &self,
        has: impl Fn(&Path, &Session) -> u64,
        asking: Option<&Path>,
    ) -> Result<KVVec<Stake<Arc<Path>>>> {
        let each = |sessions: &[Arc<Session>], note: &mut dyn FnMut(&Arc<Path>, u64)| {
            for session in sessions {
                session.each(|path| {
                    let other = asking.is_none_or(|asking| !core::ptr::eq(asking, &**path));
                    if path.is_in_handshake() && !path.is_closing() && other {
                        match has(path, session) {
                            0 => (),
                            amount => note(path, amount),
                        }
                    }
                });
            }
        };
        let mut count = 0usize;
        each(&self.sessions.lock(), &mut |_, _| {
            count = count.saturating_add(1);
        });
        // More may come while memory is allocated. Those need not give way.
        let mut crowd = KVVec::with_capacity(count, GFP_KERNEL)?;
        each(&self.sessions.lock(), &mut |path, amount| {
            let stake = Stake {
                source: path.source,
                came: path.came(),
                amount,
                stays: false,
                goes: false,
                member: path.clone(),
            };
            let _ = crowd.push_within_capacity(stake);
        });
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
