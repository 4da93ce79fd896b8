// SPDX-License-Identifier: GPL-2.0

//! The sessions of all servers of this module: what they may take, and whose names there are.
//!
//! Of all servers, since sessions share the machine's memory, and one directory.
//!
//! # Locking
//!
//! `sessions` (mutex) makes looking something up and adding what is not there one step: sessions
//! by uuid, paths by uuid, names, what is counted by looking. It is held for walks over lists:
//! nothing is allocated, created, freed or waited for under it, and no user is called. The
//! spinlock of a session's paths nests inside.

use core::{
    fmt,
    num::NonZeroU32, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};

use rtrs_bindings::{
    ib::SockAddr,
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
        Limits,
        Share, //
    },
    logic::{
        admission::{
            held,
            Held,
            Holder,
            Join,
            Verdict, //
        },
        path_state::CloseReason,
        quota::{
            largest_sum,
            OverQuota,
            Resource, //
        },
        rate::Rate,
        source::Source, //
    },
    path::Path,
    session::Session, //
};

mod listening;
mod room;

pub(crate) use self::listening::Listening;

/// Rates of starts that are kept apart: two sources may share one.
const RATES: NonZeroU32 = NonZeroU32::MIN.saturating_add(255);

/// How often an attempt to add something may find that something else was added meanwhile. Each
/// time something was, so this only ends what somebody does on purpose.
const MAX_TRIES: u32 = 16;

/// The registry, for as long as the module is loaded.
static REGISTRY: RcuCell<Arc<Registry>> = RcuCell::empty();

/// Takes the registry away when dropped. Sleeps.
pub(crate) struct RegistryGuard(());

impl Drop for RegistryGuard {
    fn drop(&mut self) {
        drop(REGISTRY.replace(None));
    }
}

/// Makes the registry. Sleeps.
pub(crate) fn init() -> Result<(Arc<Registry>, RegistryGuard)> {
    let room = *Resource::Sessions.range().end();
    let sessions = KVVec::with_capacity(usize::try_from(room)?, GFP_KERNEL)?;
    let mut starts = KVVec::with_capacity(RATES.get() as usize, GFP_KERNEL)?;
    for _ in 0..RATES.get() {
        starts.push(Rate::new(), GFP_KERNEL)?;
    }
    let registry = Arc::pin_init(
        try_pin_init!(Registry {
            limits: Limits::from_params()?,
            starts,
            seed: random_u32(),
            listening <- new_mutex!(KVec::new(), "rtrs_srv_listening"),
            sessions <- new_mutex!(sessions, "rtrs_srv_registry"),
        }),
        GFP_KERNEL,
    )?;

    // Nothing was there.
    drop(REGISTRY.replace(Some(registry.clone())));
    Ok((registry, RegistryGuard(())))
}

/// The registry. Any context.
pub(crate) fn get() -> Result<Arc<Registry>> {
    REGISTRY.get().ok_or(ENODEV)
}

/// Why a connection is refused.
pub(crate) enum Refusal {
    /// Something is used up.
    Quota(OverQuota),
    /// Something else.
    Errno(RejectErrno),
}

impl Refusal {
    /// A message that makes no sense here.
    pub(crate) const RESET: Self = Self::Errno(RejectErrno::CONNRESET);

    /// For the reject message.
    pub(crate) fn errno(&self) -> RejectErrno {
        match self {
            Self::Quota(OverQuota {
                resource: Resource::Memory | Resource::MemoryPerSource,
                ..
            }) => RejectErrno::from_kernel(-errno::ENOMEM),
            Self::Quota(_) => RejectErrno::from_kernel(-errno::EUSERS),
            Self::Errno(errno) => *errno,
        }
    }
}

rtrs_core::kernel_display!(OverQuota, Refusal);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quota(over) => over.fmt(f),
            Self::Errno(errno) => errno.to_kernel().fmt(f),
        }
    }
}

impl From<OverQuota> for Refusal {
    fn from(over: OverQuota) -> Self {
        Self::Quota(over)
    }
}

impl From<RejectErrno> for Refusal {
    fn from(errno: RejectErrno) -> Self {
        Self::Errno(errno)
    }
}

impl From<Error> for Refusal {
    fn from(e: Error) -> Self {
        Self::Errno(RejectErrno::from_kernel(e.to_errno()))
    }
}

/// The right to use a name, or not.
pub(crate) enum Claim {
    /// It is the session's.
    Granted,
    /// Its old owner is about to go.
    Wait,
    /// Somebody else has it, or the session has another one.
    Refused,
}

/// What was made without the lock, for when it is held.
#[derive(Default)]
struct Made {
    session: Option<Arc<Session>>,
    path: Option<Arc<Path>>,
}

/// What an attempt to admit a connection came to.
enum Step {
    /// It belongs to this path, which is new or not.
    Done(Arc<Path>),
    /// A session has to be made.
    NeedSession,
    /// A path of this session has to be made.
    NeedPath(Arc<Session>),
}

/// What the paths of one source have.
#[derive(Default)]
struct Taken {
    handshakes: usize,
    cons: usize,
    memory: u64,
}

impl Taken {
    /// Of `source`, as of now.
    fn by(sessions: &[Arc<Session>], source: Source) -> Self {
        let mut taken = Self::default();

        for session in sessions {
            session.each(|p| {
                if p.source() == source {
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
    limits: Arc<Limits>,
    /// How often paths are started, by [`Source::place`].
    starts: KVVec<Rate>,
    /// Which source has which place is not for clients to know.
    seed: u32,
    /// Where servers listen.
    #[pin]
    listening: Mutex<KVec<Arc<SockAddr>>>,
    /// With room for as many as there may ever be.
    #[pin]
    sessions: Mutex<KVVec<Arc<Session>>>,
}

impl Registry {
    /// What clients may take.
    pub(crate) fn limits(&self) -> &Arc<Limits> {
        &self.limits
    }

    /// Finds the path a connection request for the server `ctx` belongs to, or makes it. The queues
    /// of all its connections take `queues` bytes. May sleep.
    ///
    /// # Errors
    ///
    /// Why it is refused.
    pub(crate) fn admit(
        &self,
        ctx: &Arc<Context>,
        req: &ConnReq,
        addrs: &AddrPair,
        queues: u64,
    ) -> Result<Arc<Path>, Refusal> {
        let mut made = Made::default();
        let memory = ctx.config().chunk_memory().saturating_add(queues);
        let source = config::source_of(addrs.src);

        for _ in 0..MAX_TRIES {
            let step = match self.try_admit(ctx, req, addrs, memory, &made) {
                Err(Refusal::Quota(over)) if over.resource == Resource::Sessions => {
                    self.make_room(source, over)?;
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
                    // Not taken yet, as a client that stops here shall not have it; but who would
                    // not get it is told so at once.
                    self.limits.quota(Resource::Memory).has_room(memory)?;
                    // A few sources can hold the total. That is not to keep a client from a session
                    // that its user has; its paths, and its source, still have their quotas.
                    let share = if session.is_kept() {
                        None
                    } else {
                        match self.limits.take(Resource::Handshakes, 1) {
                            Ok(share) => Some(share),
                            Err(over) => {
                                self.make_room(source, over)?;
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

    /// One attempt, with the lock, for a path that is going to have `memory` bytes.
    fn try_admit(
        &self,
        ctx: &Arc<Context>,
        req: &ConnReq,
        addrs: &AddrPair,
        memory: u64,
        made: &Made,
    ) -> Result<Step, Refusal> {
        let uuid = Uuid::from_bytes(req.session_uuid);
        let source = config::source_of(addrs.src);
        // Before the lock, and so dropped after it: it may be the last reference by then.
        let old;
        let mut sessions = self.sessions.lock();

        if ctx.is_closing() {
            return Err(Refusal::RESET);
        }
        let known = sessions
            .iter()
            .find(|s| *s.uuid() == uuid && s.is_of(ctx))
            .cloned();
        // Taken further down, when it is added: connections of several paths of a new session may
        // come at the same time, and only one of them makes it.
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
        old = session.find(|p| *p.uuid().as_bytes() == req.path_uuid);
        if let Some(old) = &old {
            match old.judge(req) {
                Join::Same => return Ok(Step::Done(old.clone())),
                // Whatever becomes of the new one: its client has given this one up, and what it
                // has may be what is missing.
                Join::TakeOver => old.close(CloseReason::TakeOver),
                Join::Refuse => return Err(Refusal::RESET),
            }
        }

        let others = session.count(|p| !p.is_closing());
        self.allows(Resource::PathsPerSession, others.saturating_add(1))?;
        self.allows(Resource::ConsPerPath, usize::from(req.cid_num))?;
        if session.count(|p| !p.is_closing() && p.addrs() == addrs) != 0 {
            return Err(RejectErrno::from_kernel(-errno::EEXIST).into());
        }
        if known.is_none() {
            let count = sessions.iter().filter(|s| s.source() == source).count();
            self.allows(Resource::SessionsPerSource, count.saturating_add(1))?;
        }
        let taken = Taken::by(&sessions, source);
        self.allows(
            Resource::HandshakesPerSource,
            taken.handshakes.saturating_add(1),
        )?;
        // All that were announced, and not those that are there: who has announced them can have
        // them.
        self.allows(
            Resource::ConsPerSource,
            taken.cons.saturating_add(usize::from(req.cid_num)),
        )?;
        self.limits
            .quota(Resource::MemoryPerSource)
            .allows(taken.memory.saturating_add(memory))?;

        // Left where it is: what is refused from here on is freed without the lock.
        let new = made.path.as_ref();
        let Some(path) = new.filter(|p| Arc::ptr_eq(p.session(), &session)) else {
            return Ok(Step::NeedPath(session));
        };
        if known.is_none() && sessions.len() >= sessions.capacity() {
            return Err(RejectErrno::from_kernel(-errno::EUSERS).into());
        }
        // Or it is known, and all its paths had to give way.
        if !session.is_counted() {
            session.set_share(Some(self.limits.take(Resource::Sessions, 1)?));
        }
        session.add(path).map_err(|_| Refusal::RESET)?;
        if known.is_none() {
            // There is room.
            let _ = sessions.push_within_capacity(session.clone());
            ctx.note_session();
        }
        path.start_deadline();
        Ok(Step::Done(path.clone()))
    }

    fn allows(&self, resource: Resource, count: usize) -> Result<(), OverQuota> {
        // CAST: a count of what is in memory.
        self.limits.quota(resource).allows(count as u64)
    }

    /// Takes `bytes` bytes for the chunks of a path. May sleep.
    ///
    /// # Errors
    ///
    /// [`OverQuota`] if there are not so many left, or not for the path's source.
    pub(crate) fn take_chunks(&self, path: &Path, bytes: u64) -> Result<Share, OverQuota> {
        // Until the path says that it has them: its source may be asking for another one.
        let sessions = self.sessions.lock();
        let taken = Taken::by(&sessions, path.source());

        self.limits
            .quota(Resource::MemoryPerSource)
            .allows(taken.memory.saturating_add(bytes))?;
        let share = self.limits.take(Resource::Memory, bytes)?;
        path.set_chunk_memory(bytes);
        Ok(share)
    }

    /// A path wants its session to have a name. May sleep.
    pub(crate) fn claim(&self, path: &Path, name: &SessionName) -> Claim {
        let sessions = self.sessions.lock();
        let mine = path.session();
        let mut wait = false;

        for other in sessions.iter() {
            if Arc::ptr_eq(other, mine) || other.name() != name.as_str() {
                continue;
            }
            let source = path.addrs().src;
            let live = other.count(|p| !p.is_closing()) != 0;
            let holder = Holder {
                same_server: other.is_of(mine.context()),
                kept: other.is_kept(),
                ending: other.is_ending(),
                deserted: other.is_deserted(),
                claimed: other.is_claimed(),
                live,
                same_source: other.was_from(source)
                    || other.count(|p| !p.is_closing() && p.addrs().src == source) != 0,
                silent: !live && other.has_left(),
            };
            let fate = match held(holder) {
                Held::Ask => match other.asked_for_life(now_ns()) {
                    Verdict::Ask | Verdict::Wait => Held::Wait,
                    Verdict::Lives => Held::Refuse,
                    Verdict::Silent => held(Holder {
                        silent: true,
                        ..holder
                    }),
                },
                fate => fate,
            };
            match fate {
                Held::Free => (),
                Held::Wait | Held::Ask => wait = true,
                Held::End => {
                    other.close_all(CloseReason::TakeOver);
                    other.expire_soon();
                    wait = true;
                }
                Held::Refuse => return Claim::Refused,
            }
        }
        if wait {
            Claim::Wait
        } else if mine.claim(name) {
            Claim::Granted
        } else {
            Claim::Refused
        }
    }

    /// Decides that the user is told of the end of `session`, unless it has a path. Called with
    /// what its user was told locked. May sleep.
    pub(crate) fn give_up(&self, session: &Session) -> bool {
        let _sessions = self.sessions.lock();
        if !session.is_deserted() {
            return false;
        }
        session.unkeep();
        true
    }

    /// Forgets a session that has no path, unless it got one. May sleep.
    pub(crate) fn forget(&self, session: &Arc<Session>) {
        let forgotten = {
            let mut sessions = self.sessions.lock();
            if !session.is_deserted() {
                return;
            }
            let index = sessions.iter().position(|s| Arc::ptr_eq(s, session));
            index.and_then(|index| sessions.remove(index).ok())
        };
        if forgotten.is_some() {
            session.context().drop_session();
        }
    }

    /// Ends all sessions of a server that is closing. May sleep.
    pub(crate) fn end_all(&self, ctx: &Arc<Context>) {
        for session in self.sessions.lock().iter().filter(|s| s.is_of(ctx)) {
            session.close_all(CloseReason::Shutdown);
            session.expire_soon();
        }
    }

    /// How much of `resource` is in use: of what is counted for each path, session or source, the
    /// most that one has. May sleep.
    pub(crate) fn usage(&self, resource: Resource) -> Result<u64> {
        // CAST: counts of what is in memory.
        Ok(match resource {
            total if total.is_total() => self.limits.quota(total).current(),
            Resource::SessionsPerSource => {
                self.of_a_source(|session, note| note(session.source(), 1))?
            }
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

    /// All sessions, as of now. May sleep.
    pub(crate) fn sessions(&self) -> Result<KVVec<Arc<Session>>> {
        loop {
            let count = self.sessions.lock().len();
            let mut all = KVVec::with_capacity(count, GFP_KERNEL)?;
            let sessions = self.sessions.lock();
            // What came in between belongs to it.
            if sessions.len() <= count {
                for session in sessions.iter() {
                    all.push(session.clone(), GFP_KERNEL)?;
                }
                return Ok(all);
            }
        }
    }

    /// What the source has whose paths have most of `what`.
    fn of_paths_of_a_source(&self, what: impl Fn(&Path) -> u64) -> Result<u64> {
        self.of_a_source(|session, note| {
            session.each(|p| match what(p) {
                0 => (),
                amount => note(p.source(), amount),
            });
        })
    }

    /// What the source has that has most, of all that `of` notes of each session.
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
            // What came in between belongs to it.
            if !full {
                return Ok(largest_sum(&mut sources));
            }
        }
    }
}
