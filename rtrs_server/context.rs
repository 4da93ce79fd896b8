// SPDX-License-Identifier: GPL-2.0

//! One listening server and its sessions.
//!
//! # Locking
//!
//! `registry` (mutex) makes looking something up and adding what is not there one step: sessions
//! by uuid, paths by uuid, names. It is held for list walks and small allocations, never while
//! something is created on a device or a user is called. The spinlock of a session's paths nests
//! inside.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        Arc,
        Mutex, //
    },
};

use rtrs_bindings::{
    ib::{
        Listener,
        SockAddr, //
    },
    uuid::Uuid,
    wait::{
        new_wait_queue,
        WaitQueue, //
    },
    workqueue::{
        Options,
        OwnedQueue,
        Queue, //
    },
};
use rtrs_core::{
    addr::AddrPair,
    proto::{
        errno,
        ConnReq,
        Geometry,
        RejectErrno,
        SessionName,
        LISTEN_BACKLOG,
        MAX_PATHS, //
    },
};

use crate::{
    api::Service,
    config::Config,
    handshake::Acceptor,
    logic::path_state::CloseReason,
    path::Path,
    session::Session,
    OWNER, //
};

/// Connection requests that may wait for their decision at a time.
const MAX_PENDING: u32 = 4096;

/// What clients of one server share.
#[pin_data]
pub(crate) struct Context {
    service: Arc<dyn Service>,
    config: Config,
    queue: Queue,
    /// For requests that may keep the user busy for long.
    slow_queue: Queue,
    closing: Atomic<bool>,
    /// Connection requests that were taken and not yet decided.
    pending: Atomic<u32>,
    /// Completion vectors handed out.
    vectors: Atomic<u32>,
    #[pin]
    registry: Mutex<KVec<Arc<Session>>>,
    /// Length of `registry`, for who cannot lock it.
    sessions: Atomic<usize>,
    /// Woken when `pending` gets zero, and when a session goes.
    #[pin]
    quiet: WaitQueue,
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

impl Context {
    pub(crate) fn service(&self) -> &dyn Service {
        &*self.service
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.config.geometry
    }

    pub(crate) fn queue(&self) -> &Queue {
        &self.queue
    }

    /// The queue for what may take long: nothing else waits behind it.
    pub(crate) fn slow_queue(&self) -> &Queue {
        &self.slow_queue
    }

    /// The next completion vector: connections are spread over all there are.
    pub(crate) fn next_vector(&self) -> u32 {
        self.vectors.fetch_add(1, Relaxed)
    }

    /// Whether the server is being closed.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Acquire)
    }

    /// Counts a connection request that waits for its decision; `false` if there are too many.
    pub(crate) fn take_pending(&self) -> bool {
        if self.pending.fetch_add(1, Full) < MAX_PENDING && !self.is_closing() {
            return true;
        }
        self.drop_pending();
        false
    }

    /// A connection request was decided.
    pub(crate) fn drop_pending(&self) {
        if self.pending.fetch_sub(1, Full) == 1 {
            self.quiet.wake_all();
        }
    }

    /// Finds the path a connection request belongs to, or makes it. May sleep.
    ///
    /// # Errors
    ///
    /// What to say in the reject.
    pub(crate) fn admit(
        self: &Arc<Self>,
        req: &ConnReq,
        addrs: &AddrPair,
    ) -> Result<Arc<Path>, RejectErrno> {
        let uuid = Uuid::from_bytes(req.session_uuid);
        let mut registry = self.registry.lock();
        if self.is_closing() {
            return Err(RejectErrno::CONNRESET);
        }

        let known = registry.iter().find(|s| *s.uuid() == uuid).cloned();
        if let Some(session) = known {
            return join(&session, req, addrs);
        }
        if !req.first_conn {
            return Err(RejectErrno::from_kernel(-errno::ENXIO));
        }
        let session = Session::new(self, uuid).map_err(no_memory)?;
        registry.reserve(1, GFP_KERNEL).map_err(no_memory)?;
        let path = join(&session, req, addrs)?;
        registry.push(session, GFP_KERNEL).map_err(no_memory)?;
        self.sessions.store(registry.len(), Release);
        Ok(path)
    }

    /// A path wants its session to have a name.
    pub(crate) fn claim(&self, path: &Path, name: &SessionName) -> Claim {
        let registry = self.registry.lock();
        // Who has no path does not keep a name from who has one. The user may: it is told first.
        let mut ending = false;
        for old in registry.iter().filter(|s| {
            s.is_lingering() && s.name() == name.as_str() && s.uuid() != path.session().uuid()
        }) {
            old.expire_soon();
            ending = true;
        }
        if ending {
            return Claim::Wait;
        }
        let other = registry.iter().find(|s| {
            s.is_claimed() && s.name() == name.as_str() && s.uuid() != path.session().uuid()
        });

        let Some(other) = other else {
            return if path.session().claim(name) {
                Claim::Granted
            } else {
                Claim::Refused
            };
        };
        // The same name from the same address is a client that has lost its memory. Otherwise who
        // has the name keeps it for as long as it has a path.
        let same = other.find(|p| !p.is_closing() && p.addrs().src == path.addrs().src);
        if same.is_some() {
            other.close_all(CloseReason::TakeOver);
            return Claim::Wait;
        }
        match other.find(|p| !p.is_closing()) {
            Some(_) => Claim::Refused,
            None => Claim::Wait,
        }
    }

    /// Decides that the user is told of the end of `session`, unless it has a path.
    pub(crate) fn give_up(&self, session: &Arc<Session>) -> bool {
        let _registry = self.registry.lock();
        if !session.is_deserted() {
            return false;
        }
        session.unkeep();
        true
    }

    /// Forgets a session that has no path, unless it got one.
    pub(crate) fn forget(&self, session: &Arc<Session>) {
        let forgotten = {
            let mut registry = self.registry.lock();
            if !session.is_deserted() {
                return;
            }
            let index = registry.iter().position(|s| Arc::ptr_eq(s, session));
            let forgotten = index.and_then(|index| registry.remove(index).ok());
            self.sessions.store(registry.len(), Release);
            forgotten
        };
        drop(forgotten);
        self.quiet.wake_all();
    }
}

fn no_memory<E>(_: E) -> RejectErrno {
    RejectErrno::from_kernel(-errno::ENOMEM)
}

/// Finds the path of `session` that a request belongs to, or makes it. The registry is locked.
fn join(session: &Arc<Session>, req: &ConnReq, addrs: &AddrPair) -> Result<Arc<Path>, RejectErrno> {
    let uuid = Uuid::from_bytes(req.path_uuid);
    let old = session.find(|p| *p.uuid() == uuid);

    if let Some(old) = &old {
        let same = req.recon_cnt == old.recon_cnt();
        let open = old.accepts_cons();
        if open && same && req.cid_num == old.cid_num() {
            return Ok(old.clone());
        }
        // CAST: a distance of counters that wrap.
        let newer = (req.recon_cnt.wrapping_sub(old.recon_cnt()) as i16) > 0;
        // Whoever is in the middle of a handshake is not disturbed by what is left of an earlier
        // one; who has one behind it has to give way to the next.
        if !newer && !old.is_closing() || same {
            return Err(RejectErrno::CONNRESET);
        }
        old.close(CloseReason::TakeOver);
    }

    if session.count(|p| !p.is_closing()) >= MAX_PATHS {
        return Err(RejectErrno::CONNRESET);
    }
    let taken = session.find(|p| !p.is_closing() && p.addrs() == addrs);
    if taken.is_some() {
        return Err(RejectErrno::from_kernel(-errno::EEXIST));
    }
    let path = Path::new(session, req, addrs).map_err(no_memory)?;
    session.add(&path).map_err(|_| RejectErrno::CONNRESET)?;
    path.start_deadline();
    Ok(path)
}

/// A server that listens. Dropping it closes it: the listening ends, all paths are closed, and it
/// sleeps until the last operation is answered and the user was told of the end of all sessions.
//
// Field order is teardown order, after `drop()`.
pub struct Server {
    listeners: KVec<Listener<Acceptor>>,
    ctx: Option<Arc<Context>>,
    /// Waits for everything that has a handle of it, all paths and sessions among them, and for
    /// what runs on it.
    _queue: OwnedQueue,
    _slow_queue: OwnedQueue,
}

impl Server {
    /// Listens on `port` of all addresses, with the module's parameters, on behalf of `service`.
    /// Sleeps.
    ///
    /// There may be several servers, on different ports.
    ///
    /// # Errors
    ///
    /// `EADDRNOTAVAIL` if something else has the port, which is how the connection manager puts
    /// it for an address of every device, or whatever else comes from there; `ENOMEM`.
    pub fn open(service: Arc<dyn Service>, port: u16) -> Result<Self> {
        let owned = OwnedQueue::new(
            c"rtrs_server",
            Options::UNBOUND.mem_reclaim().max_active(512),
        )?;
        let owned_slow = OwnedQueue::new(
            c"rtrs_server_slow",
            Options::UNBOUND.mem_reclaim().max_active(512),
        )?;
        let queue = owned.handle();
        let slow_queue = owned_slow.handle();
        let ctx = Arc::pin_init(
            try_pin_init!(Context {
                service,
                config: Config::from_params()?,
                queue,
                slow_queue,
                closing: Atomic::new(false),
                pending: Atomic::new(0),
                vectors: Atomic::new(0),
                registry <- new_mutex!(KVec::new(), "rtrs_srv_registry"),
                sessions: Atomic::new(0),
                quiet <- new_wait_queue!("rtrs_srv_quiet"),
            }),
            GFP_KERNEL,
        )?;
        let mut server = Self {
            listeners: KVec::with_capacity(2, GFP_KERNEL)?,
            ctx: Some(ctx),
            _queue: owned,
            _slow_queue: owned_slow,
        };
        server.listen(port)?;
        Ok(server)
    }

    /// Starts to listen. On failure nothing is left that refers to the context: who drops the
    /// server waits for that.
    fn listen(&mut self, port: u16) -> Result {
        let Some(ctx) = &self.ctx else {
            return Err(EINVAL);
        };
        let acceptor = Acceptor::new(ctx)?;
        // CAST: 64.
        let backlog = LISTEN_BACKLOG as i32;
        let ip = Listener::new(&SockAddr::any(port), backlog, acceptor.clone(), OWNER)?;
        self.listeners.push(ip, GFP_KERNEL)?;
        match Listener::new(&SockAddr::gid([0; 16], port), backlog, acceptor, OWNER) {
            Ok(ib) => self.listeners.push(ib, GFP_KERNEL)?,
            Err(e) => pr_info!("port {port}: not listening for GID addresses: {e:?}\n"),
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(ctx) = self.ctx.take() else { return };

        ctx.closing.store(true, Release);
        // No request comes any more after this.
        self.listeners.clear();
        ctx.quiet.wait_until(|| ctx.pending.load(Acquire) == 0);
        for session in ctx.registry.lock().iter() {
            session.close_all(CloseReason::Shutdown);
            session.expire_soon();
        }
        ctx.quiet.wait_until(|| ctx.sessions.load(Acquire) == 0);
    }
}
