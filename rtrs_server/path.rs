// SPDX-License-Identifier: GPL-2.0

//! One way to a client.
//!
//! # The owner task
//!
//! A path has one delayed work item, its owner. All transitions ([`ServerPathState::next`]) and all
//! building and tearing down happen in it, one after the other. All others only note an event and
//! kick the owner: connection and completion handlers, the listener, sysfs, other paths.
//!
//! # Locking
//!
//! * `owner` (mutex): the owner task, for as long as it runs.
//! * `status`, `info` (spinlocks, interrupts off): leaves.
//! * Connections while they are being accepted: see [`connect`]. Resources that quotas count: see
//!   [`account`].
//! * `active` (RCU): the objects of a path while it carries IO; see [`crate::active`].

mod account;
mod close;
pub(crate) mod connect;
mod inspect;
mod owner;
mod receive;
mod start;

use core::fmt;
use kernel::{
    new_mutex,
    prelude::*,
    str::CString,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        rcu,
        Arc,
        Mutex,
        SetOnce, //
    },
};

use rtrs_bindings::{
    ib::{
        DeviceName,
        DmaPages,
        PostError, //
    },
    lock::{
        new_spinlock_irq,
        SpinLockIrq, //
    },
    ratelimit::pr_warn_caused_by,
    rcu::RcuHome,
    time::{
        msecs_to_jiffies,
        now_ns, //
    },
    uuid::Uuid,
    wait::Completion,
    workqueue::{
        impl_has_delayed_work,
        impl_has_work,
        impl_work_item,
        new_delayed_work,
        new_work,
        DelayedOn,
        DelayedWork,
        DelayedWorkExt,
        Queue,
        Work, //
    },
};
use rtrs_core::{
    addr::AddrPair,
    proto::{
        heartbeat::{
            HbAsked,
            HbCounts,
            Heartbeat,
            Liveness, //
        },
        Capabilities,
        ConnReq,
        Geometry,
        PathWait,
        SessionName, //
    },
};

use crate::{
    active::Active,
    chunk::Home,
    config,
    limits::Charge,
    logic::{
        admission::{
            join,
            Join,
            Known, //
        },
        chunk_state::Incarnation,
        path_state::{
            CloseReason,
            ServerPathState, //
        },
        source::Source, //
    },
    op::Op,
    ops_ref::OpsRef,
    session::Session,
    stats::Stats,
    sysfs::PathDir,
    trace, //
};

pub(crate) use self::close::Violation;
use self::{
    account::Account,
    connect::Connections, //
};

const NS_PER_MS: u64 = 1_000_000;

/// The state, as all see it.
struct Status {
    state: ServerPathState,
    /// Time of the last change, in nanoseconds of the monotonic clock.
    since: u64,
}

impl Status {
    /// It enters `state` now.
    fn new(state: ServerPathState) -> Self {
        Self {
            state,
            since: now_ns(),
        }
    }
}

/// The info request.
#[derive(Default)]
struct Info {
    /// The memory that receives it.
    dma_pages: Option<DmaPages>,
    name: Option<SessionName>,
}

/// State of the owner task alone.
struct Owner {
    /// The name of the session was claimed.
    claimed: bool,
    /// When the name was asked for first, in nanoseconds of the monotonic clock.
    asked_for_name: Option<u64>,
    /// The directory, while the path is up for session and sysfs.
    dir: Option<PathDir>,
    /// User space was told that the path is connected.
    told: bool,
    /// Made, not yet published.
    staged: Option<KBox<Active>>,
    heartbeat: Heartbeat,
    /// What was received up to the last heartbeat.
    received: HbCounts,
    /// Next heartbeat, in nanoseconds of the monotonic clock.
    next_tick: u64,
    /// Another object is in the way: the owner has to try again after so many milliseconds.
    retry: Option<u32>,
}

impl Owner {
    /// Of a path that was just made.
    fn new() -> Self {
        Self {
            claimed: false,
            asked_for_name: None,
            dir: None,
            told: false,
            staged: None,
            heartbeat: Heartbeat::new(),
            received: HbCounts::default(),
            next_tick: 0,
            retry: None,
        }
    }
}

/// One life of a path: a client that comes back gets a new one.
#[pin_data]
pub(crate) struct Path {
    pub(crate) session: Arc<Session>,
    pub(crate) uuid: Uuid,
    pub(crate) incarnation: Incarnation,
    pub(crate) recon_cnt: u16,
    cid_num: u16,
    /// What its client can do.
    pub(crate) client: Capabilities,
    /// How long requests wait at the client.
    pub(crate) path_wait: PathWait,
    /// The client is the source.
    pub(crate) addrs: AddrPair,
    /// The same in the form that sysfs has.
    pub(crate) cname: CString,
    /// The source of the client, by which shares are counted.
    pub(crate) source: Source,
    /// End of the handshake, in nanoseconds of the monotonic clock.
    deadline: u64,

    /// Device and port, set when the path comes up.
    hca: SetOnce<(DeviceName, u32)>,
    closing: Atomic<bool>,
    /// The path has no connection any more, and will not get one.
    drained: Atomic<bool>,
    reason: SetOnce<CloseReason>,
    /// Operations exist, in the path or with the user.
    ops_out: Atomic<bool>,
    /// It has, or is about to get, its directory in sysfs.
    has_dir: Atomic<bool>,
    /// The client was sent its chunks: heartbeats may follow.
    has_told: Atomic<bool>,

    active: RcuHome<KBox<Active>>,
    liveness: Liveness,
    /// Another session has asked whether the client lives.
    asked: HbAsked,
    pub(crate) stats: Stats,
    /// Bytes of memory that devices and clients can access, set when the path comes up.
    memory: Atomic<u64>,
    registered_ok: Atomic<bool>,

    #[pin]
    registered: Completion,
    #[pin]
    status: SpinLockIrq<Status>,
    #[pin]
    account: Account,
    #[pin]
    info: SpinLockIrq<Info>,
    #[pin]
    conns: Connections,
    #[pin]
    owner: Mutex<Owner>,
    #[pin]
    owner_work: DelayedWork<Path, OWNER_TASK>,
    #[pin]
    connect_work: Work<Path, CONNECT>,
    #[pin]
    room_work: Work<Path, ROOM>,
}

/// The path's work items.
const OWNER_TASK: u64 = 0;
const CONNECT: u64 = 1;
const ROOM: u64 = 2;

impl_has_delayed_work! {
    impl HasDelayedWork<Self, OWNER_TASK> for Path { self.owner_work }
}

impl_has_work! {
    impl HasWork<Self, CONNECT> for Path { self.connect_work }
    impl HasWork<Self, ROOM> for Path { self.room_work }
}

impl DelayedOn<OWNER_TASK> for Path {
    fn queue(&self) -> &Queue {
        &self.session.ctx.queue
    }
}

impl_work_item! {
    impl WorkItem<OWNER_TASK> for Path { Self::attend }
    impl WorkItem<CONNECT> for Path { Self::connect_next }
    // Continues operations that wait for room in a send queue, for callers that hold a lock.
    impl WorkItem<ROOM> for Path { Self::make_room }
}

impl Path {
    /// Makes a path without connections. Its queues will take `queues` bytes, and `handshake`
    /// counts its handshake. May sleep.
    pub(crate) fn new(
        session: &Arc<Session>,
        req: &ConnReq,
        addrs: &AddrPair,
        queues: u64,
        handshake: Option<Charge>,
    ) -> Result<Arc<Self>> {
        let timeout = u64::from(config::handshake_timeout_ms());
        let deadline = now_ns().saturating_add(timeout * NS_PER_MS);
        let conns = Connections::new(req.cid_num)?;

        Arc::pin_init(
            try_pin_init!(Self {
                session: session.clone(),
                uuid: Uuid::from_bytes(req.path_uuid),
                incarnation: session.next_incarnation(),
                recon_cnt: req.recon_cnt,
                cid_num: req.cid_num,
                client: req.capabilities,
                path_wait: req.path_wait,
                addrs: *addrs,
                source: config::source_of(addrs.src),
                cname: CString::try_from_fmt(fmt!("{}", *addrs))?,
                deadline,
                hca: SetOnce::new(),
                closing: Atomic::new(false),
                drained: Atomic::new(false),
                reason: SetOnce::new(),
                ops_out: Atomic::new(false),
                has_dir: Atomic::new(false),
                has_told: Atomic::new(false),
                active: RcuHome::empty(),
                liveness: Liveness::new(),
                asked: HbAsked::new(),
                stats: Stats::new()?,
                memory: Atomic::new(0),
                registered_ok: Atomic::new(false),
                registered <- Completion::new(),
                status <- new_spinlock_irq!(
                    Status::new(ServerPathState::Handshaking),
                    "rtrs_srv_state"
                ),
                account <- Account::new(queues, handshake),
                info <- new_spinlock_irq!(Info::default(), "rtrs_srv_info"),
                conns <- conns,
                owner <- new_mutex!(Owner::new(), "rtrs_srv_owner"),
                owner_work <- new_delayed_work!("rtrs_srv_path"),
                connect_work <- new_work!("rtrs_srv_connect"),
                room_work <- new_work!("rtrs_srv_room"),
            }),
            GFP_KERNEL,
        )
    }

    /// Starts the handshake timeout.
    pub(crate) fn start_deadline(self: &Arc<Self>) {
        self.owner_work
            .enqueue(self, msecs_to_jiffies(config::handshake_timeout_ms()));
    }

    /// Returns queue depth, chunk and header sizes, as its server has them. Any context.
    pub(crate) fn geometry(&self) -> &Geometry {
        self.session.geometry()
    }

    /// Judges a connection request that names this path. Any context.
    pub(crate) fn judge(&self, req: &ConnReq) -> Join {
        let known = Known {
            recon_cnt: self.recon_cnt,
            cid_num: self.cid_num,
            open: self.accepts_cons(),
            closing: self.is_closing(),
        };
        join(known, req.recon_cnt, req.cid_num)
    }

    /// The number of connections that its client has announced, while it can have any. Any context.
    pub(crate) fn announced(&self) -> u16 {
        if self.drained.load(Relaxed) {
            0
        } else {
            self.cid_num
        }
    }

    /// Returns the bytes of memory that the path holds for its chunks and their keys. Any context.
    pub(crate) fn memory(&self) -> u64 {
        if self.ops_out.load(Acquire) {
            self.memory.load(Relaxed)
        } else {
            0
        }
    }

    /// Nanoseconds since the state changed. Any context.
    pub(crate) fn state_age(&self) -> u64 {
        now_ns().saturating_sub(self.status.lock().since)
    }

    /// Device and port, while it is up or was. The name is that which the device has now, or had
    /// when the path came up. Any context.
    pub(crate) fn hca(&self) -> Option<(DeviceName, u32)> {
        let (name, port) = self.hca.as_ref()?;
        let guard = rcu::read_lock();
        let ep = self.active(&guard).and_then(|a| a.endpoints().first());
        let now = ep.and_then(|ep| Some(ep.device()?.name()));

        Some((now.unwrap_or(*name), *port))
    }

    /// Returns the state that the owner task has entered last. Any context.
    pub(crate) fn state(&self) -> ServerPathState {
        self.status.lock().state
    }

    /// Whether connections can be added.
    pub(crate) fn accepts_cons(&self) -> bool {
        !self.is_closing() && self.state().accepts_cons()
    }

    /// Whether it closes, or is closed. Any context.
    #[inline]
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Acquire)
    }

    /// Whether its directory is, or may be, in the way of another one of the same name. Any
    /// context.
    pub(crate) fn has_dir(&self) -> bool {
        self.has_dir.load(Acquire)
    }

    /// Returns the prefix of log lines.
    fn label(&self) -> Label<'_> {
        Label(self)
    }

    //
    // Events for the owner. Any context.
    //

    fn kick(self: &Arc<Self>) {
        self.owner_work.mod_delayed(self, 0);
    }

    /// The path has to be closed; the first reason counts.
    pub(crate) fn close(self: &Arc<Self>, reason: CloseReason) {
        self.reason.populate(reason);
        if !self.closing.xchg(true, Full) {
            self.kick();
        }
    }

    /// The client broke the protocol. Counted once per path, if that is the reason for its end,
    /// even if several connections find a violation at the same time.
    pub(crate) fn violated(self: &Arc<Self>, violation: Violation) {
        if !self.reason.populate(CloseReason::Violation) {
            return;
        }
        self.stats.violation();
        self.session.violation();
        trace::violation(self, violation.as_str());
        pr_warn_caused_by!(
            self.log_place(),
            "{}: {}\n",
            self.label(),
            violation.as_str()
        );
        self.close(CloseReason::Violation);
    }

    /// A work request could not be posted, although the path is not being torn down and the queue
    /// is not full.
    pub(crate) fn post_failed(self: &Arc<Self>, e: PostError) {
        if !self.is_closing() {
            pr_warn_caused_by!(self.log_place(), "{}: not posted: {:?}\n", self.label(), e);
        }
        self.close(CloseReason::ConnError);
    }

    /// All operations are gone.
    pub(crate) fn ops_ended(self: &Arc<Self>) {
        self.end_chunk_memory();
        self.ops_out.store(false, Release);
        self.kick();
    }

    /// Returns the objects that the path has while it carries IO. Any context.
    #[inline(always)]
    pub(crate) fn active<'a>(&self, guard: &'a rcu::Guard) -> Option<&'a Active> {
        self.active.read(guard)
    }
}

impl Home for Path {
    type OpsRef = OpsRef;

    /// Answers a request, unless the path is gone.
    #[inline(always)]
    fn answer(op: KBox<Op>, errno: i32) {
        let guard = rcu::read_lock();
        let path: &Self = op.home();
        let active = path.active(&guard);

        path.stats.done();
        trace::done(&op, errno);
        match active {
            Some(active) => active.answer(op, errno),
            // The last operation does not free the path: `OpsRef` has a reference.
            None => drop(op),
        }
    }

    fn abandoned(&self, buf_id: u16) {
        self.session.end(buf_id, self.incarnation);
    }
}

/// Session and path.
struct Label<'a>(&'a Path);

rtrs_core::kernel_display!(Label<'_>);

impl fmt::Display for Label<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0.session.name() {
            "" => "-",
            name => name,
        };
        write!(f, "{} {}", name, self.0.addrs)
    }
}
