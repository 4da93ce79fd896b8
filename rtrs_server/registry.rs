// SPDX-License-Identifier: GPL-2.0

//! The sessions of all servers of this module: their shares and their names.
//!
//! There is one registry for all servers, since sessions share the machine's memory, and one
//! directory.
//!
//! # Locking
//!
//! `sessions` (mutex) makes a lookup and the addition of a missing object one step: sessions by
//! uuid, paths by uuid, names, resources that are counted in lists. It is held for walks over
//! lists: nothing is allocated, created, freed or waited for under it, and no user is called. The
//! spinlock of a session's paths nests inside.

mod listening;
mod room;
mod usage;

use core::num::NonZeroU32;
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};

use rtrs_bindings::{
    ib::{
        Consumer,
        SockAddr, //
    },
    rcu::RcuCell,
    time::{
        now_ns,
        random_u32, //
    },
    uuid::Uuid, //
};
use rtrs_core::{
    addr::AddrPair,
    proto::{
        errno,
        ConnReq,
        RejectErrno,
        SessionName, //
    },
};

use crate::{
    config,
    context::Context,
    limits::{
        Charge,
        Limits,
        Refusal, //
    },
    logic::{
        admission::{
            held,
            Claim,
            Held,
            Holder,
            Join,
            Verdict, //
        },
        path_state::CloseReason,
        quota::{
            sessions_that_count,
            OverQuota,
            Rate,
            Resource, //
        },
        source::Source, //
    },
    path::Path,
    session::Session, //
};

pub(crate) use self::listening::Listening;

/// Rates of starts that are kept apart. Two sources may share one.
const RATES: NonZeroU32 = NonZeroU32::MIN.saturating_add(255);

/// Number of attempts to add an object. An attempt fails if another object was added meanwhile, or
/// took the room that was made for this one. Many clients at once at a full table, or an attacker,
/// can reach the limit: the client is refused with `EAGAIN`.
const MAX_TRIES: u32 = 16;

/// The registry, while the module is loaded.
static REGISTRY: RcuCell<Arc<Registry>> = RcuCell::empty();

/// Removes the registry when dropped. May sleep.
pub(crate) struct RegistryGuard(());

impl Drop for RegistryGuard {
    fn drop(&mut self) {
        drop(REGISTRY.replace(None));
    }
}

/// Makes the registry. May sleep.
pub(crate) fn init(rdma: Consumer) -> Result<(Arc<Registry>, RegistryGuard)> {
    let room = *Resource::Sessions.range().end();
    let sessions = KVVec::with_capacity(usize::try_from(room)?, GFP_KERNEL)?;
    let mut starts = KVVec::with_capacity(RATES.get() as usize, GFP_KERNEL)?;
    for _ in 0..RATES.get() {
        starts.push(Rate::new(), GFP_KERNEL)?;
    }
    let registry = Arc::pin_init(
        try_pin_init!(Registry {
            rdma,
            limits: Limits::from_params()?,
            starts,
            seed: random_u32(),
            listening <- new_mutex!(KVec::new(), "rtrs_srv_listening"),
            sessions <- new_mutex!(sessions, "rtrs_srv_registry"),
        }),
        GFP_KERNEL,
    )?;

    // There was no registry before.
    drop(REGISTRY.replace(Some(registry.clone())));
    Ok((registry, RegistryGuard(())))
}

/// The registry. Any context.
pub(crate) fn get() -> Result<Arc<Registry>> {
    REGISTRY.get().ok_or(ENODEV)
}

/// Objects that were made without the lock, for use with the lock held.
#[derive(Default)]
struct Made {
    session: Option<Arc<Session>>,
    path: Option<Arc<Path>>,
}

/// The result of an attempt to admit a connection.
enum Step {
    /// It belongs to this path, which is new or not.
    Done(Arc<Path>),
    /// A session has to be made.
    NeedSession,
    /// A path of this session has to be made.
    NeedPath(Arc<Session>),
}

/// Resources of the paths of one source.
#[derive(Default)]
struct Taken {
    handshakes: usize,
    cons: usize,
    memory: u64,
}

impl Taken {
    /// Those of `source`, as of now.
    fn by(sessions: &[Arc<Session>], source: Source) -> Self {
        let mut taken = Self::default();

        for session in sessions {
            session.each(|p| {
                if p.source == source {
                    taken.add(p);
                }
            });
        }
        taken
    }

    fn add(&mut self, path: &Path) {
        let handshakes = usize::from(path.is_in_handshake());

        self.handshakes = self.handshakes.saturating_add(handshakes);
        self.cons = self.cons.saturating_add(usize::from(path.announced()));
        self.memory = self.memory.saturating_add(path.counted_memory());
    }
}

/// All sessions.
#[pin_data]
pub(crate) struct Registry {
    /// For the connections of all servers. It outlives each of them, as ids do that wait for their
    /// port.
    pub(crate) rdma: Consumer,
    /// The limits on the resources of clients.
    pub(crate) limits: Arc<Limits>,
    /// How often paths are started, by [`Source::place`].
    starts: KVVec<Rate>,
    /// Seed of the places of sources, which clients must not be able to predict.
    seed: u32,
    /// Addresses at which servers listen.
    #[pin]
    listening: Mutex<KVec<Arc<SockAddr>>>,
    /// With room for the maximum that there may ever be.
    #[pin]
    sessions: Mutex<KVVec<Arc<Session>>>,
}

impl Registry {
    /// Finds the path of a connection request for the server `ctx`, or makes it. Its chunks take `chunks`
    /// bytes, and the queues of all its connections `queues` bytes. May sleep.
    ///
    /// # Errors
    ///
    /// The reason to refuse the connection.
    pub(crate) fn admit(
        &self,
        ctx: &Arc<Context>,
        req: &ConnReq,
        addrs: &AddrPair,
        chunks: u64,
        queues: u64,
    ) -> Result<Arc<Path>, Refusal> {
        let mut made = Made::default();
        let memory = chunks.saturating_add(queues);
        let source = config::source_of(addrs.src);

        for _ in 0..MAX_TRIES {
            let step = match self.try_admit(ctx, req, addrs, memory, &made) {
                Err(Refusal::Quota(over)) if over.resource == Resource::Sessions => {
                    self.make_room(source, over, 1, None)?;
                    continue;
                }
                step => step?,
            };
            match step {
                Step::Done(path) => return Ok(path),
                Step::NeedSession => {
                    let uuid = Uuid::from_bytes(req.session_uuid);
                    made.session = Some(Session::new(ctx, uuid, source)?);
                }
                Step::NeedPath(session) => {
                    // Not taken yet, as a client that stops here must not hold it; but a client
                    // that would not get it is refused at once.
                    if let Err(over) = self.limits.quota(Resource::Memory).has_room(memory) {
                        self.make_room(source, over, memory, None)?;
                        continue;
                    }
                    // A few sources can exhaust the total. A client must still reach a session that
                    // its user has; the quotas of its paths and of its source still apply.
                    let share = if session.is_kept() {
                        None
                    } else {
                        match self.limits.take(Resource::Handshakes, 1) {
                            Ok(share) => Some(share),
                            Err(over) => {
                                self.make_room(source, over, 1, None)?;
                                continue;
                            }
                        }
                    };
                    made.path = Some(Path::new(&session, req, addrs, queues, share)?);
                }
            }
        }
        Err(EAGAIN.into())
    }

    /// Makes one attempt, with the lock, for a path of `memory` bytes.
    fn try_admit(
        &self,
        ctx: &Arc<Context>,
        req: &ConnReq,
        addrs: &AddrPair,
        memory: u64,
        made: &Made,
    ) -> Result<Step, Refusal> {
        let uuid = Uuid::from_bytes(req.session_uuid);
        // Declared before the lock, and so dropped after it: it may be the last reference by then.
        let old;
        let mut sessions = self.sessions.lock();

        if ctx.is_closing() {
            return Err(Refusal::RESET);
        }
        let known = sessions
            .iter()
            .find(|s| *s.uuid() == uuid && s.is_of(ctx))
            .cloned();
        // Taken further down, when the session is added: connections of several paths of a new
        // session may come at the same time, and only one of them makes it.
        if known.is_none() && req.first_conn {
            self.limits.quota(Resource::Sessions).has_room(1)?;
        }
        let session = match (&known, &made.session) {
            (Some(session), _) => session.clone(),
            (None, _) if !req.first_conn => {
                return Err(RejectErrno::from_kernel(-errno::ENXIO).into());
            }
            (None, Some(session)) => session.clone(),
            (None, None) => return Ok(Step::NeedSession),
        };
        old = session.find(|p| *p.uuid.as_bytes() == req.path_uuid);
        if let Some(old) = &old {
            match old.judge(req) {
                Join::Same => return Ok(Step::Done(old.clone())),
                // Closed even if the new path fails: the client has given the old one up, and the
                // resources of the old one may be those that are missing.
                Join::TakeOver => old.close(CloseReason::TakeOver),
                Join::Refuse => return Err(Refusal::RESET),
            }
        }

        self.allows_path(&sessions, known.is_none(), &session, req, addrs, memory)?;

        // Left in `made`, so that it is freed without the lock if it is refused from here on.
        let new = made.path.as_ref();
        let Some(path) = new.filter(|p| Arc::ptr_eq(&p.session, &session)) else {
            return Ok(Step::NeedPath(session));
        };
        if known.is_none() && sessions.len() >= sessions.capacity() {
            return Err(RejectErrno::from_kernel(-errno::EUSERS).into());
        }
        // Or the session is known, and all its paths had to give way.
        if !session.is_counted() {
            session.set_share(Some(self.limits.take(Resource::Sessions, 1)?));
        }
        session.add(path).map_err(|_| Refusal::RESET)?;
        // The user may have got the session since the path was made, and before it was added.
        if session.is_kept() {
            path.leave_place();
        }
        if known.is_none() {
            // Does not fail: there is room.
            let _ = sessions.push_within_capacity(session.clone());
            ctx.note_session();
        }
        path.start_deadline();
        Ok(Step::Done(path.clone()))
    }

    /// Whether `session`, and the source of the path, may have one path more, of `memory` bytes.
    /// The session is not in `sessions` yet if it `is_new`.
    fn allows_path(
        &self,
        sessions: &[Arc<Session>],
        is_new: bool,
        session: &Session,
        req: &ConnReq,
        addrs: &AddrPair,
        memory: u64,
    ) -> Result<(), Refusal> {
        let source = config::source_of(addrs.src);
        let others = session.count(|p| !p.is_closing());
        self.allows(Resource::PathsPerSession, others.saturating_add(1))?;
        self.allows(Resource::ConsPerPath, usize::from(req.cid_num))?;
        if session.count(|p| !p.is_closing() && &p.addrs == addrs) != 0 {
            return Err(RejectErrno::from_kernel(-errno::EEXIST).into());
        }
        if is_new {
            let of_source = || sessions.iter().filter(|s| s.source == source);
            // CAST: The counts are of objects in memory.
            let with_path = of_source().filter(|s| s.is_live()).count() as u64;
            let all = of_source().count() as u64;
            self.limits
                .quota(Resource::SessionsPerSource)
                .allows(sessions_that_count(
                    with_path.saturating_add(1),
                    all.saturating_add(1),
                ))?;
        }
        let taken = Taken::by(sessions, source);
        self.allows(
            Resource::HandshakesPerSource,
            taken.handshakes.saturating_add(1),
        )?;
        // Counts all announced connections, and not the existing ones: a client can have as many as
        // it has announced.
        self.allows(
            Resource::ConsPerSource,
            taken.cons.saturating_add(usize::from(req.cid_num)),
        )?;
        self.limits
            .quota(Resource::MemoryPerSource)
            .allows(taken.memory.saturating_add(memory))?;
        Ok(())
    }

    fn allows(&self, resource: Resource, count: usize) -> Result<(), OverQuota> {
        // CAST: The count is of objects in memory.
        self.limits.quota(resource).allows(count as u64)
    }

    /// Takes `bytes` bytes for the chunks of a path. May sleep.
    ///
    /// # Errors
    ///
    /// [`OverQuota`] if less is left, or if the path's source has too much.
    pub(crate) fn take_chunks(&self, path: &Path, bytes: u64) -> Result<Charge, OverQuota> {
        let mut tries = MAX_TRIES;

        loop {
            let over = match self.try_take_chunks(path, bytes) {
                Err(over) if over.resource == Resource::Memory => over,
                result => return result,
            };
            tries = tries.saturating_sub(1);
            let room = || self.make_room(path.source, over, bytes, Some(path));
            if tries == 0 || room().is_err() {
                return Err(over);
            }
        }
    }

    fn try_take_chunks(&self, path: &Path, bytes: u64) -> Result<Charge, OverQuota> {
        // Locked until the path is marked as having the bytes: its source may be asking for another
        // path.
        let sessions = self.sessions.lock();
        let taken = Taken::by(&sessions, path.source);

        self.limits
            .quota(Resource::MemoryPerSource)
            .allows(taken.memory.saturating_add(bytes))?;
        let share = self.limits.take(Resource::Memory, bytes)?;
        path.set_chunk_memory(bytes);
        Ok(share)
    }

    /// A path asks for a name for its session. It is `early` if it asked first less than
    /// [`SIBLINGS_NS`] ago. May sleep.
    ///
    /// [`SIBLINGS_NS`]: crate::logic::admission::SIBLINGS_NS
    pub(crate) fn claim(&self, path: &Path, name: &SessionName, early: bool) -> Claim {
        let sessions = self.sessions.lock();
        let mine = &path.session;
        let mut from = mine.comes_from();
        if let Some(addr) = path.addrs.src {
            from.note(addr);
        }
        let mut claim = Claim::Granted;
        let has_name =
            |other: &&Arc<Session>| !Arc::ptr_eq(other, mine) && other.name() == name.as_str();
        let others = || sessions.iter().filter(has_name);

        // Otherwise any host could have it in the moment in which the old holder is gone.
        if others().any(|other| other.is_reserved()) {
            mine.unreserve();
            return Claim::Wait;
        }
        for other in others() {
            let live = other.is_live();
            let holder = Holder {
                same_server: other.is_of(&mine.ctx),
                kept: other.is_kept(),
                ending: other.is_ending(),
                claimed: other.is_claimed(),
                live,
                same_source: other.was_from_any(&from) || other.has_path_from(&from),
                given_up: other.is_given_up(),
                early,
                silent: !live && (other.has_left() || other.is_given_up()),
            };
            let fate = match held(holder) {
                Held::Ask => match other.asked_for_life(now_ns()) {
                    Verdict::Ask | Verdict::AskAgain | Verdict::Wait => Held::Ask,
                    Verdict::Lives => Held::Refuse,
                    Verdict::Silent => held(Holder {
                        silent: true,
                        ..holder
                    }),
                },
                fate => fate,
            };
            claim = claim.max(match fate {
                Held::Free => Claim::Granted,
                Held::Wait => Claim::Wait,
                Held::Ask => Claim::WaitForAnswer,
                Held::WaitForSiblings => Claim::WaitForSiblings,
                Held::End => {
                    mine.reserve(name);
                    other.close_all(CloseReason::TakeOver);
                    other.give_up();
                    Claim::Wait
                }
                Held::Refuse => return Claim::Refused,
            });
        }
        match claim {
            Claim::Granted if !mine.claim(name) => Claim::Refused,
            claim => claim,
        }
    }

    /// Decides that the user is told of the end of `session`, unless it has a path, or has just had
    /// one and is kept for its client. The session's `announced` is locked. May sleep.
    pub(crate) fn commit_end(&self, session: &Session) -> bool {
        let _sessions = self.sessions.lock();
        if !session.is_deserted() || session.lingers(now_ns()) {
            return false;
        }
        session.unkeep();
        true
    }

    /// Removes a session without a path, unless it got one. It may have come up by that, and have
    /// lost it again: then the user has the session once more, or is being told of its end, and
    /// the end of that is followed by another call. May sleep.
    pub(crate) fn forget(&self, session: &Arc<Session>) {
        let forgotten = {
            let mut sessions = self.sessions.lock();
            if !session.is_deserted() || session.is_kept() || session.is_ending() {
                return;
            }
            let index = sessions.iter().position(|s| Arc::ptr_eq(s, session));
            index.and_then(|index| sessions.remove(index).ok())
        };
        if forgotten.is_some() {
            session.ctx.drop_session();
        }
    }

    /// Ends all sessions of a server that is closing. May sleep.
    pub(crate) fn end_all(&self, ctx: &Arc<Context>) {
        for session in self.sessions.lock().iter().filter(|s| s.is_of(ctx)) {
            session.close_all(CloseReason::Shutdown);
            session.expire_soon();
        }
    }

    /// All sessions, as of now. May sleep.
    pub(crate) fn sessions(&self) -> Result<KVVec<Arc<Session>>> {
        loop {
            let count = self.sessions.lock().len();
            let mut all = KVVec::with_capacity(count, GFP_KERNEL)?;
            let sessions = self.sessions.lock();
            // Sessions that came in between are counted too.
            if sessions.len() <= count {
                for session in sessions.iter() {
                    all.push(session.clone(), GFP_KERNEL)?;
                }
                return Ok(all);
            }
        }
    }
}
