// SPDX-License-Identifier: GPL-2.0

//! A session: the paths to one server, and the requests that travel on them.
//!
//! # Locking
//!
//! In this order; all of the client: `Documentation/architecture.rst`.
//!
//! * `recreate_lock` (`LongLock`): paths come up one after the other, and the first that finds that
//!   the server has forgotten the session tells the user. Below the owner task's lock of a path;
//!   tearing down a link and failing requests do not need it.
//! * `files` (mutex): the session's directory in sysfs, and its users.
//! * `paths_lock` (mutex): changes of the set of paths; see [`paths`].
//! * `negotiated_lock` (mutex): the first path to connect sizes the session. Never held
//!   together with `paths_lock`.
//! * Readers of the set of paths, which are the submitters, are inside RCU.
//!
//! # Requests
//!
//! The place of a permit, with its request, belongs to the permit's holder until the request is
//! posted, and to its link until it is complete. A request in flight on a link that ends is handed
//! to [`Session::reissue`] by the path's owner task, after nothing can complete it any more.

mod events;
mod flush;
mod io;
mod long_lock;
mod paths;
mod polled;
mod restart;
mod restore;
mod settings;
mod uevents;
mod wait;
mod watch;

pub use self::events::{
    Events,
    LinkEvent, //
};
pub(crate) use self::io::{
    complete,
    Ready, //
};
pub(crate) use self::settings::{
    Settings,
    Tunable, //
};

use kernel::{
    cpu::nr_cpu_ids,
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex,
        SetOnce, //
    },
};
use rtrs_bindings::{
    class::Class,
    errno,
    ib::{
        Consumer,
        DmaDirection,
        DmaPages,
        Domain, //
    },
    pages::{
        Pages,
        Part, //
    },
    percpu,
    ratelimit::pr_err_ratelimited,
    rcu::RcuCell,
    uuid::Uuid,
    workqueue::{
        impl_has_delayed_work,
        impl_has_work,
        impl_work_item,
        new_delayed_work,
        new_work,
        DelayedOn,
        DelayedWork,
        Queue,
        Work, //
    },
};
use rtrs_core::proto::{
    DataDir,
    Geometry,
    Layout,
    Room,
    SessionName,
    MAX_CONS_PER_PATH,
    MAX_SEGMENTS, //
};

use self::{
    events::LinkEvents,
    long_lock::LongLock,
    paths::{
        OldSet,
        PathSet, //
    },
    polled::Polled,
    restart::Restart,
    uevents::Uevents,
    wait::{
        Mark,
        Waiting, //
    },
};
use crate::{
    atomic::{
        Atomic,
        Relaxed, //
    },
    logic::{
        epoch::Epoch,
        policy::Policy,
        unanswered::InARow, //
    },
    params::FailAfter,
    path::Path,
    request::{
        Cons,
        Io,
        MessageSlot,
        Permits, //
    },
    sysfs::SessionFiles,
};

/// Options of a session.
pub(crate) struct Options {
    /// Name, unique on this host.
    pub(crate) name: SessionName,
    /// Port for paths added later.
    pub(crate) port: u16,
    /// Longest regular wait between attempts to reconnect, in seconds.
    pub(crate) reconnect_delay_sec: u8,
    /// Attempts to reconnect in a row, -1 for no limit.
    pub(crate) max_reconnect_attempts: i32,
    /// How long requests wait for a path.
    pub(crate) fail_after: FailAfter,
    /// Connections of each path that the user polls.
    pub(crate) poll_cons: u32,
    /// Told when the session loses its last path, and when it gets one back.
    pub(crate) events: Option<Arc<dyn Events>>,
    /// The user may be RNBD, which can have its devices opened again: see [`restart`].
    pub(crate) may_be_rnbd: bool,
}

/// Limits for the user of a session.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Permits.
    pub queue_depth: u16,
    /// Bytes of data in a request.
    pub max_io_size: u32,
    /// Segments of a request's scatter list.
    pub max_segments: u32,
    /// Bytes of the user message and the transport's own header, which has 4 for a
    /// write, 8 for a read without data and 24 for one with data.
    pub max_hdr_size: u32,
}

/// State with the size of the queue depth; made when the first server has told it.
struct Negotiated {
    geometry: Geometry,
    room: Room,
    permits: Arc<Permits>,
    /// Which requests wait for a path; changed with the lock of `Waiting` held.
    marks: KVVec<Mark>,
    /// User messages and the protocol's, by permit. Every path maps them.
    messages: KVec<Arc<Pages>>,
}

/// A session.
#[pin_data]
pub(crate) struct Session {
    /// The queue of the owner tasks.
    pub(crate) queue: Queue,
    /// For calls to the user, which may take long.
    event_queue: Queue,
    /// The RDMA consumer, for connections.
    pub(crate) rdma: Consumer,
    pub(crate) options: Options,
    pub(crate) uuid: Uuid,
    /// Connections of each path.
    pub(crate) cons: Cons,
    max_reconnect_attempts: Atomic<i32>,
    policy: Atomic<u32>,
    /// Changes when the server has forgotten the session: older requests are not sent after that
    /// unless they were translated. See [`Epoch`](crate::logic::epoch::Epoch) for this and the
    /// next.
    epoch: Atomic<u32>,
    /// The mark of new requests: the same, unless all of them have to be translated.
    epoch_of_new: Atomic<u32>,
    /// Requests older than this one cannot be translated.
    oldest: Atomic<u32>,
    restart: Option<Arc<Restart>>,
    /// Writes that were answered on paths that are gone. Changed with `paths_lock` held.
    written_by_gone: Atomic<u64>,
    /// How fast failures are noticed.
    pub(crate) settings: Settings,
    /// Number of links in a row that were given up without an answer.
    pub(crate) unanswered: InARow,
    polled: Polled,
    negotiated: SetOnce<Negotiated>,
    paths: RcuCell<Arc<PathSet>>,
    #[pin]
    paths_lock: Mutex<Option<OldSet>>,
    #[pin]
    recreate_lock: LongLock,
    /// No path is added any more. Set with `paths_lock` held.
    closing: Atomic<bool>,
    #[pin]
    negotiated_lock: Mutex<()>,
    /// The path used last, by CPU, from which round-robin continues.
    last_path: percpu::PerCpu<Atomic<u32>>,
    #[pin]
    events: LinkEvents,
    #[pin]
    uevents: Uevents,
    #[pin]
    waiting: Waiting,
    #[pin]
    event_work: Work<Self, EVENTS>,
    #[pin]
    uevent_work: Work<Self, UEVENTS>,
    #[pin]
    resume_work: Work<Self, RESUME>,
    #[pin]
    fail_timer: DelayedWork<Self, FAIL>,
    #[pin]
    retry: DelayedWork<Self, RETRY>,
    #[pin]
    poll_guard: DelayedWork<Self, POLL>,
    #[pin]
    watch: DelayedWork<Self, WATCH>,
    #[pin]
    files: Mutex<Option<SessionFiles>>,
}

/// The session's work items.
const EVENTS: u64 = 0;
const RESUME: u64 = 1;
const FAIL: u64 = 2;
const RETRY: u64 = 3;
const UEVENTS: u64 = 4;
const POLL: u64 = 5;
const WATCH: u64 = 6;

impl_has_work! {
    impl HasWork<Self, EVENTS> for Session { self.event_work }
    impl HasWork<Self, RESUME> for Session { self.resume_work }
    impl HasWork<Self, UEVENTS> for Session { self.uevent_work }
}
impl_has_delayed_work! {
    impl HasDelayedWork<Self, FAIL> for Session { self.fail_timer }
    impl HasDelayedWork<Self, RETRY> for Session { self.retry }
    impl HasDelayedWork<Self, POLL> for Session { self.poll_guard }
    impl HasDelayedWork<Self, WATCH> for Session { self.watch }
}
impl_work_item! {
    impl WorkItem<EVENTS> for Session { Self::tell_events }
    impl WorkItem<RESUME> for Session { Self::resume }
    impl WorkItem<UEVENTS> for Session { Self::send_uevents }
    impl WorkItem<FAIL> for Session { Self::waiting_timeout }
    impl WorkItem<RETRY> for Session { Self::resume }
    impl WorkItem<POLL> for Session { Self::look_after_polled }
    impl WorkItem<WATCH> for Session { Self::look_at_paths }
}

impl<const ID: u64> DelayedOn<ID> for Session {
    fn queue(&self) -> &Queue {
        &self.queue
    }
}

impl Session {
    /// A session without paths.
    pub(crate) fn new(
        queue: Queue,
        event_queue: Queue,
        uevents: Queue,
        rdma: Consumer,
        mut options: Options,
    ) -> Result<Arc<Self>> {
        let max = u32::from(MAX_CONS_PER_PATH);
        let cons = nr_cpu_ids().saturating_add(1).min(max);
        // At most one for each CPU that polls, and as many as fit.
        let poll_cons = options.poll_cons.min(nr_cpu_ids()).min(max - cons);
        let polled = Polled::new()?;
        let cons = Cons::new(
            u16::try_from(cons.saturating_sub(1))?,
            u16::try_from(poll_cons)?,
        );
        let max_reconnect_attempts = options.max_reconnect_attempts;
        let fail_after = options.fail_after;
        let user = options.events.take();
        let paths = Arc::new(PathSet(KVec::new()), GFP_KERNEL)?;
        let last_path = percpu::PerCpu::new(|_| Atomic::new(0))?;
        let uevents = Uevents::new(uevents)?;
        let restart = options
            .may_be_rnbd
            .then(|| Restart::new(options.name))
            .transpose()?;
        Arc::pin_init(
            pin_init!(Self {
                queue,
                event_queue,
                rdma,
                options,
                uuid: Uuid::random(),
                cons,
                max_reconnect_attempts: Atomic::new(max_reconnect_attempts),
                policy: Atomic::new(Policy::MinInflight.number()),
                epoch: Atomic::new(Epoch::FIRST.to_word()),
                epoch_of_new: Atomic::new(Epoch::FIRST.to_word()),
                oldest: Atomic::new(Epoch::FIRST.to_word()),
                restart,
                written_by_gone: Atomic::new(0),
                settings: Settings::from_params(),
                unanswered: InARow::new(),
                polled,
                negotiated: SetOnce::new(),
                paths: RcuCell::new(paths),
                paths_lock <- new_mutex!(None, "rtrs_paths"),
                recreate_lock <- LongLock::new(),
                closing: Atomic::new(false),
                negotiated_lock <- new_mutex!((), "rtrs_negotiated"),
                last_path,
                events <- LinkEvents::new(user),
                uevents <- uevents,
                waiting <- Waiting::new(fail_after),
                event_work <- new_work!("rtrs_session_events"),
                uevent_work <- new_work!("rtrs_session_uevents"),
                resume_work <- new_work!("rtrs_session_resume"),
                fail_timer <- new_delayed_work!("rtrs_session_fail"),
                retry <- new_delayed_work!("rtrs_session_retry"),
                poll_guard <- new_delayed_work!("rtrs_session_poll"),
                watch <- new_delayed_work!("rtrs_session_watch"),
                files <- new_mutex!(None, "rtrs_session_files"),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the name that it was opened with, by which the server knows it, too. Any context.
    pub(crate) fn name(&self) -> &SessionName {
        &self.options.name
    }

    /// The permits, once a server has told the queue depth.
    pub(crate) fn permits(&self) -> Option<&Arc<Permits>> {
        self.negotiated
            .as_ref()
            .map(|negotiated| &negotiated.permits)
    }

    /// Limits of requests, once a server has told them.
    pub(crate) fn room(&self) -> Option<&Room> {
        self.negotiated.as_ref().map(|negotiated| &negotiated.room)
    }

    /// Returns the maximum of attempts to reconnect in a row, -1 for no limit. Any context.
    pub(crate) fn max_reconnect_attempts(&self) -> i32 {
        self.max_reconnect_attempts.load(Relaxed)
    }

    /// Sets that maximum. Each path looks at it with its next event. Any context.
    pub(crate) fn set_max_reconnect_attempts(&self, attempts: i32) {
        self.max_reconnect_attempts.store(attempts, Relaxed);
    }

    /// Returns the policy that chooses the path of a request. Any context.
    pub(crate) fn policy(&self) -> Policy {
        Policy::from_number(self.policy.load(Relaxed)).unwrap_or(Policy::MinInflight)
    }

    /// Sets the policy for later requests. Any context.
    pub(crate) fn set_policy(&self, policy: Policy) {
        self.policy.store(policy.number(), Relaxed);
    }

    /// The limits, once a server has told them.
    pub(crate) fn limits(&self) -> Option<Limits> {
        let negotiated = self.negotiated.as_ref()?;
        Some(Limits {
            queue_depth: negotiated.geometry.queue_depth(),
            max_io_size: negotiated.room.data(),
            max_segments: MAX_SEGMENTS,
            max_hdr_size: negotiated.room.header(),
        })
    }

    /// Sizes the session for a server with these limits, which were told on `path`, or checks that
    /// they fit the session. May sleep.
    pub(crate) fn prepare(&self, geometry: &Geometry, path: &Path) -> Result {
        let _guard = self.negotiated_lock.lock();
        if let Some(negotiated) = self.negotiated.as_ref() {
            return geometry
                .check_session_depth(negotiated.geometry.queue_depth())
                .map_err(|e| {
                    pr_err_ratelimited!("{}: {}\n", path, e.as_str());
                    errno::EPROTO
                });
        }
        let depth = geometry.queue_depth();
        let mut marks = KVVec::with_capacity(usize::from(depth), GFP_KERNEL)?;
        for _ in 0..depth {
            marks.push(Mark::new(), GFP_KERNEL)?;
        }
        let regions = MessageSlot::regions(depth);
        let mut messages = KVec::with_capacity(regions, GFP_KERNEL)?;
        for _ in 0..regions {
            let pages = Pages::new(Pages::order_of(MessageSlot::REGION_SIZE), NO_NODE)?;
            messages.push(Arc::new(pages, GFP_KERNEL)?, GFP_KERNEL)?;
        }
        let room = Room::new(geometry, MAX_SEGMENTS, MessageSlot::SIZE);
        // Not of a request yet.
        let layout = Layout::new(&room, DataDir::Read, 0, 0).map_err(|_| errno::EPROTO)?;
        let mut requests = KVVec::with_capacity(usize::from(depth), GFP_KERNEL)?;
        for id in 0..depth {
            let (region, offset) = MessageSlot::of(id);
            let message = Part::new(messages.get(region).ok_or(EINVAL)?, offset)?;
            requests.push(Io::new(id, layout, message), GFP_KERNEL)?;
        }
        self.negotiated.populate(Negotiated {
            geometry: *geometry,
            room,
            permits: Arc::pin_init(Permits::new(requests, NO_NODE)?, GFP_KERNEL)?,
            marks,
            messages,
        });
        Ok(())
    }

    /// Maps the message store for a path's device. May sleep.
    pub(crate) fn map_messages(&self, domain: &Arc<Domain>) -> Result<KVec<DmaPages>> {
        let negotiated = self.negotiated.as_ref().ok_or(EINVAL)?;
        let mut mapped = KVec::with_capacity(negotiated.messages.len(), GFP_KERNEL)?;
        for pages in negotiated.messages.iter() {
            mapped.push(
                domain.map(pages.clone(), DmaDirection::ToDevice)?,
                GFP_KERNEL,
            )?;
        }
        Ok(mapped)
    }

    /// Permits of the session, 0 before it has any.
    fn depth(&self) -> u16 {
        self.negotiated
            .as_ref()
            .map_or(0, |negotiated| negotiated.geometry.queue_depth())
    }

    fn with_files<R>(&self, f: impl FnOnce(Option<&SessionFiles>) -> R) -> R {
        f(self.files.lock().as_ref())
    }

    /// The paths are connected: shows the session to operator and user. May sleep.
    ///
    /// # Errors
    ///
    /// The reason of a failure, with those files that exist already: dropping them waits for their
    /// users.
    pub(crate) fn publish(
        self: &Arc<Self>,
        class: &Class,
    ) -> Result<(), (Error, Option<SessionFiles>)> {
        let files = SessionFiles::new(class, self).map_err(|e| (e, None))?;
        // From now on an operator may add paths. With the lock held, such a path is shown either
        // here or by the task that adds it. Files are not dropped with the lock held, since a drop
        // waits for tasks that may want it.
        let shown = {
            let mut place = self.files.lock();
            let mut result = Ok(());
            self.for_each_path(|path| {
                if result.is_ok() && path.via().is_some() {
                    result = match path.publish_files(&files) {
                        // It was added by an operator, and is gone again.
                        Err(e) if e == ENODEV => Ok(()),
                        result => result,
                    };
                }
            });
            match result {
                Ok(()) => {
                    files.announce();
                    *place = Some(files);
                    Ok(())
                }
                Err(e) => Err((e, Some(files))),
            }
        };
        shown?;
        self.announce_events();
        self.open_uevents();
        Ok(())
    }

    /// Ends the session: removes the paths, and waits for permits that are still held. May sleep.
    pub(crate) fn close(self: &Arc<Self>) {
        self.stop_adding();
        // Waits for writers of the files, so that no path is added after this.
        let files = self.files.lock().take();
        drop(files);
        self.stop_waiting();
        let paths = self.end_paths();
        self.stop_guard();
        self.stop_watch();
        self.close_events();
        self.end_restart();
        if let Some(negotiated) = self.negotiated.as_ref() {
            negotiated.permits.close_and_wait();
        }
        // A grace period has passed meanwhile, unless the session never connected.
        drop(paths);
    }
}

/// No preferred NUMA node.
const NO_NODE: i32 = -1;
