// SPDX-License-Identifier: GPL-2.0

//! A path: one way to the server, from its addition until its removal.
//!
//! # The owner task
//!
//! One work item per path, its owner task, makes all changes of the path: it takes the pending
//! events, asks the state machine ([`PathMachine`]), and carries out its actions, building links up
//! and tearing them down. All others (completions, connection events, timers, files) leave a note,
//! and wait if they need the outcome.
//!
//! # Locking
//!
//! In this order; all of the client: `Documentation/architecture.rst`.
//!
//! * `command` (mutex): one operator at a time.
//! * `owner` (mutex): state of the owner task. No other task takes it, so it is never contended.
//! * `files` (mutex): its directory in sysfs, while it is made or removed.
//! * `pending`, `status`, `via`, `heartbeat`, `silence` (spinlocks, interrupts off): notes for the
//!   owner task, and the state that it shows. Innermost, held for a few instructions.
//! * `active` (RCU): the link, for submitters.

mod device;
mod heartbeat;
mod operator;
mod owner;
mod silence;

use core::fmt;
use kernel::{
    new_mutex,
    prelude::*,
    str::CString,
    sync::{
        rcu,
        Arc,
        Mutex,
        SetOnce, //
    },
};
use rtrs_bindings::{
    errno,
    ib::SockAddr,
    lock::{
        new_spinlock_irq,
        SpinLockIrq, //
    },
    new_wait_queue,
    rcu::RcuCell,
    time,
    uuid::Uuid,
    wait::WaitQueue,
    workqueue::{
        impl_has_delayed_work,
        impl_has_work,
        impl_work_item,
        new_delayed_work,
        new_work,
        DelayedOn,
        DelayedWork,
        Queue,
        Work,
        WorkExt, //
    },
};
use rtrs_core::{
    addr::Addr,
    sockaddr, //
};

use self::{
    device::Via,
    heartbeat::Watched, //
};
use crate::{
    atomic::Atomic,
    link::Link,
    logic::{
        creation::Creation,
        path_state::{
            Event,
            Failure,
            PathMachine,
            Reply,
            State, //
        },
        silence::Silence,
        trial::Record, //
    },
    request::Io,
    session::Session,
    stats::Stats,
    sysfs::{
        PathFiles,
        SessionFiles, //
    },
};

impl Failure {
    /// Classifies an error of this host while connecting.
    pub(crate) fn of(errno: i32) -> Self {
        if errno == errno::EPROTO.to_errno() {
            Self::Final
        } else {
            Self::Again
        }
    }
}

/// Unread notes for the owner task: the latest of each kind, since older ones are about older
/// links.
#[derive(Default)]
pub(crate) struct PendingEvents {
    /// The service connection of this link is up.
    pub(crate) service_up: Option<u32>,
    /// All connections of this link are up.
    pub(crate) all_up: Option<u32>,
    /// The answer with the chunks has arrived on this link, with so many bytes.
    pub(crate) info: Option<(u32, usize)>,
    /// A link failed.
    pub(crate) failed: Option<Failed>,
    /// The time for connecting this link is over.
    deadline: Option<u32>,
    /// The wait between attempts is over.
    timer: Option<u32>,
    /// The device of this link is going away.
    pub(crate) device_gone: Option<u32>,
    /// A device or port that may be the path's has come.
    device_back: bool,
    /// Addresses have come or gone, maybe the path's.
    address_change: bool,
    /// A command of the operator.
    command: Option<Event>,
}

/// Why a link failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failed {
    /// The link's number.
    pub(crate) link: u32,
    pub(crate) failure: Failure,
    pub(crate) errno: i32,
    pub(crate) why: &'static str,
}

/// State that the owner task shows.
pub(crate) struct Status {
    pub(crate) machine: PathMachine,
    /// The reason why the path was last lost or not established: negative errno and text.
    pub(crate) last_error: Option<(i32, &'static str)>,
    /// The time when the state was entered, in monotonic nanoseconds.
    pub(crate) since_ns: u64,
    /// The requests of the link that is being torn down are collected.
    collected: bool,
    /// The answer to the operator's last command.
    reply: Option<Reply>,
}

/// State that only the owner task uses.
struct Owner {
    /// The link that is being established.
    link: Option<Link>,
    /// The history of links that were up.
    record: Record,
}

/// A path.
#[pin_data]
pub(crate) struct Path {
    pub(crate) session: Arc<Session>,
    pub(crate) uuid: Uuid,
    /// The source address that was asked for; without one the route decides.
    pub(crate) src: Option<SockAddr>,
    pub(crate) dst: SockAddr,
    active: RcuCell<KBox<Link>>,
    /// End of its trial, during which it is a last resort, in monotonic nanoseconds; 0 if it is not
    /// on trial. Set by the owner task when the path comes up, cleared by `tick` and when the path
    /// goes down.
    trial_end_ns: Atomic<u64>,
    /// A server that takes sent writes has refused a connection for them, or ended them all: the next
    /// attempt does not ask for that.
    pub(crate) only_writes: Atomic<bool>,
    /// The path's statistics.
    pub(crate) stats: Stats,
    /// The name of the directory: `<src>@<dst>` at the time when it was made.
    name: SetOnce<CString>,
    #[pin]
    command: Mutex<()>,
    #[pin]
    owner: Mutex<Owner>,
    #[pin]
    pending: SpinLockIrq<PendingEvents>,
    #[pin]
    status: SpinLockIrq<Status>,
    #[pin]
    via: SpinLockIrq<Option<Via>>,
    #[pin]
    changed: WaitQueue,
    #[pin]
    files: Mutex<Option<PathFiles>>,
    /// State of the link that is up; used by `tick`, which does not run twice at a time.
    #[pin]
    heartbeat: SpinLockIrq<Watched>,
    /// State of the link with that number; used by the session's watch.
    #[pin]
    silence: SpinLockIrq<(u32, Silence)>,
    #[pin]
    work: Work<Self, OWNER>,
    #[pin]
    timer: DelayedWork<Self, TIMER>,
    #[pin]
    deadline: DelayedWork<Self, DEADLINE>,
    #[pin]
    heartbeat_work: DelayedWork<Self, HEARTBEAT>,
}

/// The path's work items.
const OWNER: u64 = 0;
const TIMER: u64 = 1;
const DEADLINE: u64 = 2;
const HEARTBEAT: u64 = 3;

impl_has_work! {
    impl HasWork<Self, OWNER> for Path { self.work }
}
impl_has_delayed_work! {
    impl HasDelayedWork<Self, TIMER> for Path { self.timer }
    impl HasDelayedWork<Self, DEADLINE> for Path { self.deadline }
    impl HasDelayedWork<Self, HEARTBEAT> for Path { self.heartbeat_work }
}
impl_work_item! {
    impl WorkItem<OWNER> for Path { owner::run }
    impl WorkItem<TIMER> for Path { owner::timer_fired }
    impl WorkItem<DEADLINE> for Path { owner::deadline_passed }
    impl WorkItem<HEARTBEAT> for Path { heartbeat::tick }
}

impl<const ID: u64> DelayedOn<ID> for Path {
    fn queue(&self) -> &Queue {
        &self.session.queue
    }
}

impl Path {
    /// A path in its first state.
    pub(crate) fn new(
        session: Arc<Session>,
        src: Option<SockAddr>,
        dst: SockAddr,
    ) -> Result<Arc<Self>> {
        let stats = Stats::new()?;
        Arc::pin_init(
            pin_init!(Self {
                session,
                uuid: Uuid::random(),
                src,
                dst,
                active: RcuCell::empty(),
                trial_end_ns: Atomic::new(0),
                only_writes: Atomic::new(false),
                stats,
                name: SetOnce::new(),
                command <- new_mutex!((), "rtrs_path_command"),
                owner <- new_mutex!(Owner {
                        link: None,
                        record: Record::new(),
                    }, "rtrs_path_owner"),
                heartbeat <- new_spinlock_irq!(Watched::nothing(), "rtrs_path_heartbeat"),
                silence <- new_spinlock_irq!((0, Silence::new()), "rtrs_path_silence"),
                pending <- new_spinlock_irq!(PendingEvents::default(), "rtrs_path_pending"),
                status <- new_spinlock_irq!(
                    Status {
                        machine: PathMachine::new(),
                        last_error: None,
                        since_ns: rtrs_bindings::time::now_ns(),
                        collected: false,
                        reply: None,
                    },
                    "rtrs_path_status"
                ),
                via <- new_spinlock_irq!(None, "rtrs_path_via"),
                changed <- new_wait_queue!("rtrs_path_changed"),
                files <- new_mutex!(None, "rtrs_path_files"),
                work <- new_work!("rtrs_path_owner"),
                timer <- new_delayed_work!("rtrs_path_timer"),
                deadline <- new_delayed_work!("rtrs_path_deadline"),
                heartbeat_work <- new_delayed_work!("rtrs_path_heartbeat_work"),
            }),
            GFP_KERNEL,
        )
    }

    /// The source address in use, or the requested one; `None` if there is none yet.
    pub(crate) fn src_addr(&self) -> Option<Addr> {
        let used = self.via.lock().as_ref().map(|via| via.src);
        used.or(self.src).as_ref().and_then(sockaddr::to_addr)
    }

    /// The server's address.
    pub(crate) fn dst_addr(&self) -> Option<Addr> {
        sockaddr::to_addr(&self.dst)
    }

    /// Whether another path has the same addresses.
    pub(crate) fn same_addresses(&self, other: &Self) -> bool {
        self.dst_addr() == other.dst_addr() && self.src_addr() == other.src_addr()
    }

    /// Calls `f` with the state and its details.
    pub(crate) fn status<R>(&self, f: impl FnOnce(&Status) -> R) -> R {
        f(&self.status.lock())
    }

    fn state(&self) -> State {
        self.status(|s| s.machine.state())
    }

    /// Whether a link is being torn down and its requests are not collected yet. Any context.
    pub(crate) fn is_ending(&self) -> bool {
        self.status(|s| matches!(s.machine.state(), State::TearingDown(_)) && !s.collected)
    }

    /// Whether it does not try to connect any more. Any context.
    pub(crate) fn is_given_up(&self) -> bool {
        matches!(self.state(), State::Closed(_) | State::Dead)
    }

    /// As [`PathMachine::is_incompatible`]. Any context.
    pub(crate) fn is_incompatible(&self) -> bool {
        self.status(|s| s.machine.is_incompatible())
    }

    /// Whether there is an urgent note for the owner task, besides those of its link, while the
    /// path connects: the owner task may be waiting for another path. Any context.
    pub(crate) fn has_urgent_note(&self) -> bool {
        let noted = {
            let pending = self.pending.lock();
            pending.command.is_some() || pending.device_gone.is_some()
        };
        noted && self.state() == State::Connecting
    }

    /// Whether the path takes requests. Any context.
    pub(crate) fn is_connected(&self) -> bool {
        !self.active.is_empty()
    }

    /// Whether its link has failed, and the owner task has not taken it back yet. Any context.
    pub(crate) fn has_failed_link(&self) -> bool {
        let guard = rcu::read_lock();
        self.link(&guard).is_some_and(|link| link.core.has_failed())
    }

    /// Returns the link, valid during the RCU section.
    #[inline(always)]
    pub(crate) fn link<'a>(&'a self, guard: &'a rcu::Guard) -> Option<&'a Link> {
        self.active.read(guard)
    }

    /// Number of requests in flight. Any context.
    pub(crate) fn inflight(&self) -> u64 {
        let guard = rcu::read_lock();
        self.link(&guard).map_or(0, |link| link.inflight())
    }

    /// Number of requests in flight on the connection that `io` would use. Any context.
    pub(crate) fn inflight_beside(&self, io: &Io) -> u64 {
        let guard = rcu::read_lock();
        self.link(&guard).map_or(0, |link| link.inflight_on(io.con))
    }

    /// The name of the path's directory, empty before it has one. Any context.
    pub(crate) fn cached_name(&self) -> &CStr {
        self.name.as_ref().map_or(c"", |name| name)
    }

    /// Average latency of requests in nanoseconds, 0 if not known. Heartbeats are used while there
    /// are no requests.
    pub(crate) fn latency(&self) -> u64 {
        self.stats.latency()
    }

    /// Notes the round trip of a heartbeat in nanoseconds.
    pub(crate) fn heartbeat_took(&self, ns: u64) {
        self.stats
            .heartbeat_took(ns, time::now_ns(), self.inflight() == 0);
    }

    /// Whether a connection may make the server create the session. It may not if other paths of
    /// the session are there, because then the server has to know it. If the server does not know
    /// it, it refuses, until those paths are known to be gone: a session that it created meanwhile
    /// would look like the one of those paths. If several paths find none up, one of them may ask:
    /// C servers that are asked by two at a time create two sessions, each with a part of the
    /// connections.
    pub(crate) fn creation(&self, con: u16) -> Creation {
        match con {
            0 => self.session.may_be_created_by(self),
            // The other connections of a path follow its first.
            _ => Creation::Known,
        }
    }

    /// The server has `answered` and so knows the session, or this path will not tell it.
    fn end_creation(&self, answered: bool) {
        self.session.end_creation(self, answered);
        self.changed.wake_all();
    }

    /// Leaves a note for the owner task: `write` sets it. Any context.
    pub(crate) fn notify(self: &Arc<Self>, write: impl FnOnce(&mut PendingEvents)) {
        write(&mut self.pending.lock());
        self.wake_owner();
    }

    fn wake_owner(self: &Arc<Self>) {
        self.work.enqueue(&self.session.owners, self);
    }

    /// Makes the path's directory, when its name is known.
    pub(crate) fn publish_files(self: &Arc<Self>, session: &SessionFiles) -> Result {
        // Held until the files exist: a task that removes the path waits, or has set its state
        // before.
        let mut place = self.files.lock();
        if place.is_some() {
            return Ok(());
        }
        if self.state() == State::Dead {
            return Err(ENODEV);
        }
        self.name
            .populate(CString::try_from_fmt(fmt!("{}", PathName(self)))?);
        *place = Some(PathFiles::new(session, self)?);
        Ok(())
    }
}

rtrs_core::kernel_display!(Path, PathName<'_>);

/// `<session> <src>@<dst>`, the prefix of log lines.
impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.session.name(), PathName(self))
    }
}

/// `<src>@<dst>`: the name of the path's directory, or the name it would get now. The directory
/// keeps its name when the path connects from another address later.
pub(crate) struct PathName<'a>(pub(crate) &'a Path);

impl fmt::Display for PathName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = self.0.name.as_ref() {
            return f.write_str(name.to_str().unwrap_or("?"));
        }
        if let Some(src) = self.0.src_addr() {
            write!(f, "{src}@")?;
        }
        match self.0.dst_addr() {
            Some(dst) => write!(f, "{dst}"),
            None => f.write_str("?"),
        }
    }
}
