// SPDX-License-Identifier: GPL-2.0

//! Makes room for newcomers when a total is exhausted. Also limits the rates at which a source may
//! start paths and cause log messages.

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
            choose_again,
            outnumbers,
            Need,
            Stake, //
        },
        source::Source, //
    },
    path::Path,
    session::Session, //
};

/// The part of all sessions that a source may have without being asked to give up one that is only
/// kept: a host with 64 sessions keeps them all by default, for as long as they were up.
const KEPT_SHARE: u64 = 16;

/// The part of all memory that may belong to paths that gave way and are not gone yet; and the part
/// of all sessions that may be given up and not released yet, before more are. Newcomers have got
/// their place already.
const LEAVING_SHARE: u64 = 4;

/// The part of all sessions that may be handshakes in time before these, too, have to give way, in
/// place of sessions that have waited longer than they were up.
const SPARED_SHARE: u64 = 4;

/// What may have to give way.
type Crowd<T> = KVVec<Stake<Arc<T>>>;

impl Registry {
    /// Makes room for a newcomer from `source`, which was refused by `over` and needs `amount`;
    /// `asking` is its path, if it has one. May sleep.
    ///
    /// # Errors
    ///
    /// `over` if nothing has to give way.
    pub(crate) fn make_room(
        &self,
        source: Source,
        over: OverQuota,
        amount: u64,
        asking: Option<&Path>,
    ) -> Result<(), Refusal> {
        if self.too_much_leaves(&self.sessions.lock()) {
            return Err(over.into());
        }
        let room = match over.resource {
            Resource::Handshakes => self.end_handshake(source, over.resource, None)?,
            Resource::Sessions => self.end_sessions(source)?,
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

    /// Whether there is so much that was given to newcomers before it is gone that no more may be.
    fn too_much_leaves(&self, sessions: &[Arc<Session>]) -> bool {
        let mut leaving = 0u64;

        for session in sessions {
            session.each(|path| leaving = leaving.saturating_add(path.leaving()));
        }
        leaving > self.limits.quota(Resource::Memory).max() / LEAVING_SHARE
    }

    /// Makes room for one more of `resource`: ends one handshake that has a place, or, for one of
    /// the sessions, all those of a session, which then ends. Returns whether there is room, or may
    /// be by now; it is not made if sessions that are `kept` have to give way instead.
    fn end_handshake(
        &self,
        source: Source,
        resource: Resource,
        kept: Option<&Crowd<Session>>,
    ) -> Result<bool> {
        let quota = self.limits.quota(resource);
        let whole = resource == Resource::Sessions;
        // A session does not end if its user has it, or may just be told of it.
        let may_end = |session: &Session| !whole || !session.is_known();
        let has = |path: &Path| {
            u64::from(if whole {
                path.is_in_handshake()
            } else {
                path.has_place()
            })
        };
        let mut crowd = self.crowd(may_end, has, None)?;
        let need = Need {
            source,
            own: 0,
            missing: 1,
            least: 0,
            own_late: true,
        };
        let spared = quota.max() / SPARED_SHARE;
        if !choose(&mut crowd, &need) || kept.is_some_and(|kept| outnumbers(kept, &crowd, spared)) {
            return Ok(false);
        }

        // With the lock held, sessions do not get paths.
        let sessions = self.sessions.lock();
        // Another newcomer may have made room.
        if quota.missing(1) == 0 {
            return Ok(true);
        }
        if self.too_much_leaves(&sessions) {
            return Ok(false);
        }
        // Its client may have gone on, its user may know the session by another path by now, or it
        // has given way to another newcomer.
        let still = |one: &Stake<Arc<Path>>| {
            let path = &one.member;
            let may = !path.session.is_kept() && may_end(&path.session);
            may && !path.is_closing() && has(path) != 0 && path.rank() == one.came
        };
        if !crowd.iter().filter(|one| one.goes).all(still) {
            choose_again(&mut crowd, &need, still);
            // The one that was chosen may have been the only one that takes too long.
            if kept.is_some_and(|kept| outnumbers(kept, &crowd, spared)) {
                return Ok(true);
            }
        }
        let Some(victim) = crowd.iter().find(|one| one.goes) else {
            // None is left. The next attempt tells whether that is still so.
            return Ok(true);
        };
        let session = &victim.member.session;
        crowd
            .iter()
            .map(|one| &one.member)
            .filter(|path| {
                Arc::ptr_eq(path, &victim.member) || whole && Arc::ptr_eq(&path.session, session)
            })
            .for_each(Path::give_way);
        Ok(true)
    }

    /// Ends sessions until there is room for one more: those that have no path and are kept for
    /// their clients, or one that has only handshakes. Returns whether there are enough; if not,
    /// none ends.
    fn end_sessions(&self, source: Source) -> Result<bool> {
        let quota = self.limits.quota(Resource::Sessions);
        let missing = || quota.missing(1);
        // More than one if the maximum was lowered.
        let count = missing();
        if count == 0 {
            return Ok(true);
        }
        let need = Need {
            source,
            own: 1,
            missing: count,
            least: quota.max() / KEPT_SHARE,
            own_late: count == 1,
        };
        let kept = self.kept_of_largest(&need)?;
        if count == 1 && self.end_handshake(source, Resource::Sessions, kept.as_ref())? {
            return Ok(true);
        }
        let Some(mut crowd) = kept else {
            return Ok(false);
        };

        // With the lock held, they do not get a path.
        let sessions = self.sessions.lock();
        // Another newcomer may have made room, before those here were chosen.
        if missing() < count {
            return Ok(true);
        }
        // The user may take long to give up a session that does not count any more.
        let leaving = sessions
            .iter()
            .filter(|session| session.is_deserted() && !session.is_counted());
        // CAST: `usize` has at most 64 bits.
        if leaving.count() as u64 > quota.max() / LEAVING_SHARE {
            return Ok(false);
        }
        // Its client may have found it, and left again, or another newcomer has its place. Takes
        // the lock of each session's paths in turn.
        let still = |one: &Stake<Arc<Session>>| {
            let session = &one.member;
            session.is_deserted() && session.is_counted() && session.deserted_since() == one.came
        };
        // What handshakes were compared with: late sessions, or those of a source.
        let kind = |crowd: &Crowd<Session>| {
            let first = crowd.iter().find(|one| one.goes)?;
            Some(first.late.is_none().then_some(first.source))
        };
        if !crowd.iter().filter(|one| one.goes).all(still) {
            let was = kind(&crowd);
            let chosen = choose_again(&mut crowd, &need, still);
            // One of another kind has to be compared with handshakes: by the next attempt, which
            // also tells if there is none.
            if !chosen || kind(&crowd) != was {
                return Ok(true);
            }
        }
        for one in crowd.iter().filter(|one| one.goes) {
            one.member.set_share(None);
            one.member.give_up();
        }
        Ok(true)
    }

    /// Chooses sessions without a path: those that have waited for their client for longer than
    /// they were up, and of them the one that was up for the shortest time, as it costs nothing to
    /// have many of those, from many sources. Then the first to have lost its last path, of the
    /// source that has most sessions. Returns all sessions; nothing if there are not enough.
    fn kept_of_largest(&self, need: &Need) -> Result<Option<Crowd<Session>>> {
        let all = self.sessions()?;
        let mut crowd = KVVec::with_capacity(all.len(), GFP_KERNEL)?;
        let now = now_ns();
        for session in all {
            // First: the time is that of a session that is deserted by then.
            let stays = !session.is_deserted();
            let since = session.deserted_since();
            let up = session.was_up_for();
            let stake = Stake {
                source: session.source,
                came: since,
                late: (now.saturating_sub(session.down_since()) > up).then_some(up),
                amount: u64::from(session.is_counted()),
                stays,
                goes: false,
                member: session,
            };
            crowd.push(stake, GFP_KERNEL)?;
        }
        Ok(choose(&mut crowd, need).then_some(crowd))
    }

    /// Ends as many handshakes as have what is missing for `amount` more of `resource`.
    fn end_handshakes(
        &self,
        source: Source,
        resource: Resource,
        amount: u64,
        asking: Option<&Path>,
    ) -> Result<bool> {
        let taken = |path: &Path| {
            let (cons, memory) = path.taken();
            match resource {
                Resource::Cons => cons,
                _ => memory,
            }
        };
        let has = |path: &Path| match taken(path) {
            amount if amount != 0 && path.is_in_handshake() => amount,
            _ => 0,
        };
        let mut crowd = self.crowd(|_| true, has, asking)?;
        let quota = self.limits.quota(resource);
        let need = Need {
            source,
            own: asking.map_or(0, taken).saturating_add(amount),
            missing: quota.missing(amount),
            least: 0,
            own_late: false,
        };
        if !choose(&mut crowd, &need) {
            return Ok(false);
        }

        let sessions = self.sessions.lock();
        if self.too_much_leaves(&sessions) {
            return Ok(false);
        }
        crowd
            .iter()
            .filter(|one| one.goes && !one.member.session.is_kept())
            .for_each(|one| one.member.give_way());
        Ok(true)
    }

    /// The paths, except `asking`, that have some of what `has` counts, of sessions that their user
    /// does not have and that are `of` the right kind. What `has` counts is that of a handshake. A
    /// client that adds a path, or comes back, does not give way. May sleep.
    fn crowd(
        &self,
        of: impl Fn(&Session) -> bool,
        has: impl Fn(&Path) -> u64,
        asking: Option<&Path>,
    ) -> Result<Crowd<Path>> {
        let each = |sessions: &[Arc<Session>], note: &mut dyn FnMut(&Arc<Path>, u64)| {
            for session in sessions.iter().filter(|s| !s.is_kept() && of(s)) {
                session.each(|path| {
                    let other = asking.is_none_or(|asking| !core::ptr::eq(asking, &**path));
                    if !path.is_closing() && other {
                        match has(path) {
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
        let deadline = now_ns().saturating_add(config::deadline_of_late_ns());
        each(&self.sessions.lock(), &mut |path, amount| {
            let (came, late) = path.ranks();
            let stake = Stake {
                source: path.source,
                came,
                late: (late < deadline).then_some(late),
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
