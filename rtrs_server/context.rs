// SPDX-License-Identifier: GPL-2.0

//! One listening server.

use core::num::NonZeroU32;
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        Arc, //
    },
};

use rtrs_bindings::{
    ib::{
        Listener,
        SockAddr, //
    },
    wait::{
        new_wait_queue,
        WaitQueue, //
    },
    workqueue::{
        self,
        Options,
        OwnedQueue,
        Queue, //
    },
};
use rtrs_core::proto::{
    Geometry,
    LISTEN_BACKLOG, //
};

use crate::{
    api::Service,
    capi::CUser,
    chunk::Parts,
    config::{
        Config,
        ServerConfig, //
    },
    handshake::Acceptor,
    inbox::Inbox,
    limits::Refusal,
    logic::{
        pending::{
            Pending,
            Room,
            TooMany, //
        },
        quota::Resource,
        source::Source, //
    },
    op::Operation,
    path::Path,
    registry::{
        self,
        Listening,
        Registry, //
    },
    session::Session,
    turns::Turns, //
};

/// Connection requests that may wait for their decision at a time; of one source as many as 63
/// sessions of a host with 64 CPUs have, which come back at once.
const MAX_PENDING: Room = Room {
    all: 4 * 4096,
    of_source: 4096,
};

/// Owner tasks that run at a time. Some may wait for a user that sleeps in `link_up()` or
/// `link_down()`, so this is the most a queue can have.
const OWNERS_AT_A_TIME: u16 = workqueue::MAX_ACTIVE;

/// Service connections on which users may sleep at a time, and of those of one source.
const SLOW_AT_A_TIME: u16 = workqueue::MAX_ACTIVE;
const SLOW_PER_SOURCE: u32 = 32;

/// Sources with separate counts of connection requests, and of service connections. Two sources may
/// share one count.
const PLACES: NonZeroU32 = NonZeroU32::MIN.saturating_add(255);

/// Connections of one processor on which users may sleep at a time (`WQ_MAX_ACTIVE`).
const IO_AT_A_TIME: u16 = 2048;

/// Connection requests, of different paths, that are handled at a time.
const HANDSHAKES_AT_A_TIME: u16 = 32;

/// The user of a server.
pub(crate) enum User {
    /// Its functions are called without a detour.
    C(CUser),
    // Not an `Arc`: where the contents of an `Arc` are depends on their type.
    Rust(KBox<dyn Service>),
}

impl User {
    /// See [`Service::link_up`].
    pub(crate) fn link_up(&self, session: &Session) -> Result {
        match self {
            Self::C(user) => user.link_up(session),
            Self::Rust(user) => user.link_up(session),
        }
    }

    /// See [`Service::link_down`].
    pub(crate) fn link_down(&self, session: &Session) {
        match self {
            Self::C(user) => user.link_down(session),
            Self::Rust(user) => user.link_down(session),
        }
    }

    /// Hands the request of `parts` to the user, see [`Service::request`].
    #[inline(always)]
    pub(crate) fn call(&self, session: &Session, parts: Parts<Path>) {
        match self {
            Self::C(user) => user.call(session, parts),
            Self::Rust(user) => user.request(session, Operation::new(parts.into_op())),
        }
    }

    /// See [`Service::request`].
    #[inline(always)]
    pub(crate) fn request(&self, session: &Session, op: Operation) {
        match self {
            Self::C(user) => user.request(session, op),
            Self::Rust(user) => user.request(session, op),
        }
    }
}

/// State that the clients of one server share.
#[pin_data]
pub(crate) struct Context {
    pub(crate) user: User,
    pub(crate) config: Config,
    pub(crate) queue: Queue,
    /// The queue for connection requests. It is separate so that connecting clients do not keep
    /// busy a queue that paths need.
    pub(crate) handshake_queue: Queue,
    /// For requests that may keep the user busy for long.
    pub(crate) slow_queue: Queue,
    /// Turns for it, by place.
    turns: KVVec<Arc<Turns<Inbox>>>,
    /// The queue for IO, on the processor where it arrived. The user may sleep there for as long as
    /// a disk is full, so it is neither the owner tasks' queue nor the one for work that takes
    /// longer.
    pub(crate) io_queue: Queue,
    closing: Atomic<bool>,
    /// Connection requests that were taken and not yet decided.
    pending: Pending<{ PLACES.get() as usize }>,
    /// Completion vectors handed out.
    vectors: Atomic<u32>,
    pub(crate) registry: Arc<Registry>,
    /// The server's sessions in the registry.
    sessions: Atomic<usize>,
    /// Woken when `pending` becomes zero, and when a session goes.
    #[pin]
    quiet: WaitQueue,
}

impl Context {
    /// Returns queue depth, chunk and header sizes, which are the same for all its clients. Any
    /// context.
    pub(crate) fn geometry(&self) -> &Geometry {
        &self.config.geometry
    }

    /// The turns at the [slow queue](Self::slow_queue) of clients from `source`. Any context.
    pub(crate) fn turns(&self, source: Source) -> Option<Arc<Turns<Inbox>>> {
        self.turns.get(self.place(source)).cloned()
    }

    fn place(&self, source: Source) -> usize {
        self.registry.place(source, PLACES)
    }

    /// Returns the next completion vector: connections are spread over all of them.
    pub(crate) fn next_vector(&self) -> u32 {
        self.vectors.fetch_add(1, Relaxed)
    }

    /// Whether the server is being closed.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Acquire)
    }

    /// Counts a connection request of `source` that waits for its decision. Any context.
    ///
    /// # Errors
    ///
    /// If the server is being closed, or too many wait: that counts as one handshake too many.
    pub(crate) fn take_pending(&self, source: Source) -> Result<(), Refusal> {
        match self.pending.take(self.place(source)) {
            Ok(()) if self.is_closing() => {
                self.drop_pending(source);
                Err(Refusal::RESET)
            }
            Ok(()) => Ok(()),
            Err(too_many) => Err(self.refuse_pending(too_many)),
        }
    }

    #[cold]
    fn refuse_pending(&self, too_many: TooMany) -> Refusal {
        let (resource, max) = match too_many {
            TooMany::OfSource(max) => (Resource::HandshakesPerSource, max),
            TooMany::InAll(max) => {
                // The server may be waiting for the last request, which this was.
                self.quiet.wake_all();
                (Resource::Handshakes, max)
            }
        };
        let quota = self.registry.limits.quota(resource);
        quota.refuse(max.into()).into()
    }

    /// A connection request of `source` was decided.
    pub(crate) fn drop_pending(&self, source: Source) {
        if self.pending.give_back(self.place(source)) {
            self.quiet.wake_all();
        }
    }

    /// A session was added to the registry.
    pub(crate) fn note_session(&self) {
        self.sessions.fetch_add(1, Full);
    }

    /// A session was removed from the registry.
    pub(crate) fn drop_session(&self) {
        self.sessions.fetch_sub(1, Full);
        self.quiet.wake_all();
    }
}

/// A server that listens. Dropping it closes it: it stops listening, all paths are closed, and the
/// drop sleeps until the last operation is answered and the user was told of the end of all
/// sessions.
//
// Field order is teardown order, after `drop()`. The context has a handle of each queue, so the
// first queue to go waits for the last user of the context, which may be an item of a later queue.
pub struct Server {
    listeners: KVec<(Listener<Acceptor>, Listening)>,
    ctx: Option<Arc<Context>>,
    /// Empty when the last request is decided, which `drop()` waits for.
    _handshake_queue: OwnedQueue,
    /// Waits for everything that has a handle of it, including all paths and sessions, and for the
    /// work that runs on it.
    _queue: OwnedQueue,
    _slow_queue: OwnedQueue,
    _io_queue: OwnedQueue,
}

impl Server {
    /// Listens on a port of all addresses on behalf of `service`. May sleep.
    ///
    /// There may be several servers, on different ports.
    ///
    /// # Errors
    ///
    /// `EINVAL` for sizes that do not fit together. `EADDRNOTAVAIL` if the port is in use: the
    /// connection manager reports that so for an address of every device. Any other error of the
    /// connection manager. `ENOMEM`.
    pub fn open(service: Arc<impl Service>, config: &ServerConfig) -> Result<Self> {
        Self::open_for(User::Rust(KBox::new(service, GFP_KERNEL)?), config)
    }

    /// The same on behalf of `user`.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open).
    pub(crate) fn open_for(user: User, config: &ServerConfig) -> Result<Self> {
        let port = config.port;
        let config = Config::new(config)?;
        let owned = OwnedQueue::new(
            c"rtrs_server",
            Options::UNBOUND.mem_reclaim().max_active(OWNERS_AT_A_TIME),
        )?;
        let owned_handshake = OwnedQueue::new(
            c"rtrs_server_cm",
            Options::UNBOUND
                .mem_reclaim()
                .max_active(HANDSHAKES_AT_A_TIME),
        )?;
        let owned_slow = OwnedQueue::new(
            c"rtrs_server_slow",
            Options::UNBOUND.mem_reclaim().max_active(SLOW_AT_A_TIME),
        )?;
        let owned_io = OwnedQueue::new(
            c"rtrs_server_io",
            // The same options as the queue of ib_core on which completions are handled.
            Options::PER_CPU
                .high_priority()
                .mem_reclaim()
                .max_active(IO_AT_A_TIME),
        )?;
        let mut turns = KVVec::with_capacity(PLACES.get() as usize, GFP_KERNEL)?;
        for _ in 0..PLACES.get() {
            turns.push(Turns::new(SLOW_PER_SOURCE)?, GFP_KERNEL)?;
        }
        let queue = owned.handle();
        let handshake_queue = owned_handshake.handle();
        let slow_queue = owned_slow.handle();
        let io_queue = owned_io.handle();
        let ctx = Arc::pin_init(
            try_pin_init!(Context {
                user,
                config,
                queue,
                handshake_queue,
                slow_queue,
                turns,
                io_queue,
                closing: Atomic::new(false),
                pending: Pending::new(MAX_PENDING),
                vectors: Atomic::new(0),
                registry: registry::get()?,
                sessions: Atomic::new(0),
                quiet <- new_wait_queue!("rtrs_srv_quiet"),
            }),
            GFP_KERNEL,
        )?;
        let mut server = Self {
            listeners: KVec::with_capacity(2, GFP_KERNEL)?,
            ctx: Some(ctx),
            _handshake_queue: owned_handshake,
            _queue: owned,
            _slow_queue: owned_slow,
            _io_queue: owned_io,
        };
        server.listen(port)?;
        Ok(server)
    }

    /// Starts to listen. On failure nothing is left that refers to the context: the drop of the
    /// server waits for that.
    fn listen(&mut self, port: u16) -> Result {
        let Some(ctx) = &self.ctx else {
            return Err(EINVAL);
        };
        let acceptor = Acceptor::new(ctx)?;
        let any = SockAddr::any(port);
        let ip = Listener::new(&any, LISTEN_BACKLOG, acceptor.clone(), &ctx.registry.rdma)?;
        let ip = (ip, Listening::new(&ctx.registry, any)?);
        self.listeners.push(ip, GFP_KERNEL)?;
        let any = SockAddr::gid([0; 16], port);
        match Listener::new(&any, LISTEN_BACKLOG, acceptor, &ctx.registry.rdma) {
            Ok(ib) => {
                let ib = (ib, Listening::new(&ctx.registry, any)?);
                self.listeners.push(ib, GFP_KERNEL)?;
            }
            Err(e) => pr_info!("port {port}: not listening for GID addresses: {e:?}\n"),
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(ctx) = self.ctx.take() else { return };

        ctx.closing.store(true, Release);
        // No request comes after this.
        self.listeners.clear();
        ctx.quiet.wait_until(|| ctx.pending.is_empty());
        ctx.registry.end_all(&ctx);
        ctx.quiet.wait_until(|| ctx.sessions.load(Acquire) == 0);
    }
}
