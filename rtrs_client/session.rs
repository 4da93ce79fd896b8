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
//! * `paths.lock` (mutex): changes of the set of paths; see [`paths`].
//! * `negotiated.lock` (mutex): the first path to connect sizes the session; see [`negotiated`].
//! * Readers of the set of paths, which are the submitters, are inside RCU.
//!
//! # Requests
//!
//! The place of a permit, with its request, belongs to the permit's holder until the request is
//! posted, and to its link until it is complete. A request in flight on a link that ends is handed
//! to [`Session::reissue`] by the path's owner task, after nothing can complete it any more.

mod epochs;
mod events;
mod flush;
mod io;
mod long_lock;
mod negotiated;
mod paths;
mod polled;
mod restart;
mod restore;
mod settings;
mod uevents;
mod wait;
mod watch;

pub(crate) use self::io::{
    complete,
    Ready, //
};
pub(crate) use self::settings::{
    Settings,
    Tunable, //
};
pub use self::{
    events::{
        Events,
        LinkEvent, //
    },
    negotiated::Limits,
};

use kernel::{
    cpu::nr_cpu_ids,
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};
use rtrs_bindings::{
    class::Class,
    ib::Consumer,
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
    SessionName,
    MAX_CONS_PER_PATH, //
};

use self::{
    epochs::Epochs,
    events::LinkEvents,
    long_lock::LongLock,
    negotiated::Negotiation,
    paths::Paths,
    polled::Polled,
    restart::Restart,
    uevents::Uevents,
    wait::Waiting, //
};
use crate::{
    logic::unanswered::InARow,
    params::FailAfter,
    request::Cons,
    sysfs::SessionFiles, //
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

/// A session.
#[pin_data]
pub(crate) struct Session {
    /// The queue of timers and of requests that wait.
    pub(crate) queue: Queue,
    /// The queue of the owner tasks.
    pub(crate) owners: Queue,
    /// The queue of completions that come after their answer.
    pub(crate) sent: Queue,
    /// The RDMA consumer, for connections.
    pub(crate) rdma: Consumer,
    pub(crate) options: Options,
    pub(crate) uuid: Uuid,
    /// Connections of each path.
    pub(crate) cons: Cons,
    /// Marks of requests, by which those for an earlier life of the server are known.
    epochs: Epochs,
    restart: Option<Arc<Restart>>,
    pub(crate) settings: Settings,
    /// Number of links in a row that were given up without an answer.
    pub(crate) unanswered: InARow,
    polled: Polled,
    #[pin]
    negotiated: Negotiation,
    #[pin]
    paths: Paths,
    #[pin]
    recreate_lock: LongLock,
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

/// The queues of a session's work.
pub(crate) struct Queues {
    /// For items that wait for no server.
    pub(crate) short: Queue,
    /// For owner tasks.
    pub(crate) owners: Queue,
    /// For callbacks of the user.
    pub(crate) events: Queue,
    /// For items that may wait for memory.
    pub(crate) slow: Queue,
    /// For completions that come after their answer.
    pub(crate) sent: Queue,
}

impl Session {
    /// A session without paths.
    pub(crate) fn new(queues: Queues, rdma: Consumer, mut options: Options) -> Result<Arc<Self>> {
        let max = u32::from(MAX_CONS_PER_PATH);
        let cons = nr_cpu_ids().saturating_add(1).min(max);
        // At most one for each CPU that polls, and as many as fit.
        let poll_cons = options.poll_cons.min(nr_cpu_ids()).min(max - cons);
        let polled = Polled::new()?;
        let cons = Cons::new(
            u16::try_from(cons.saturating_sub(1))?,
            u16::try_from(poll_cons)?,
        );
        let settings = Settings::new(options.max_reconnect_attempts);
        let fail_after = options.fail_after;
        let events = LinkEvents::new(queues.events, options.events.take());
        let paths = Paths::new()?;
        let uevents = Uevents::new(queues.slow)?;
        let restart = options
            .may_be_rnbd
            .then(|| Restart::new(options.name))
            .transpose()?;
        Arc::pin_init(
            pin_init!(Self {
                queue: queues.short,
                owners: queues.owners,
                sent: queues.sent,
                rdma,
                options,
                uuid: Uuid::random(),
                cons,
                epochs: Epochs::new(),
                restart,
                settings,
                unanswered: InARow::new(),
                polled,
                negotiated <- Negotiation::new(),
                paths <- paths,
                recreate_lock <- LongLock::new(),
                events <- events,
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
        // Before anything that waits for memory, which may wait for these requests.
        self.stop_waiting();
        // Waits for writers of the files, so that no path is added after this.
        let files = self.files.lock().take();
        drop(files);
        let paths = self.end_paths();
        self.stop_guard();
        self.stop_watch();
        self.close_events();
        self.end_restart();
        if let Some(negotiated) = self.negotiated.get() {
            negotiated.permits.close_and_wait();
        }
        // A grace period has passed meanwhile, unless the session never connected.
        drop(paths);
    }
}
