// SPDX-License-Identifier: GPL-2.0

//! State of the module: the sysfs class, the queue of the owner tasks, and the names in use.
//!
//! # Locking
//!
//! [`Client::sessions`] is a mutex. It is held for lookups, never while waiting for a path. Events
//! of RDMA devices take it, and paths need these events to come back. So an allocation with it held
//! must not wait for IO.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};
use rtrs_bindings::{
    class::Class,
    errno,
    ib::{
        device_watch,
        Device,
        DeviceEvent,
        DeviceEvents,
        OwnedConsumer,
        SockAddr,
        Watching, //
    },
    noio,
    ratelimit::pr_err_ratelimited,
    rcu::RcuCell,
    workqueue::{
        self,
        Options as QueueOptions,
        OwnedQueue, //
    },
};

use crate::{
    session::{
        Options,
        Queues,
        Session, //
    },
    MODULE_NAME,
};

/// The module's state.
#[pin_data]
struct Client {
    // Dropped in this order. When the module is unloaded there are no sessions; the others wait for
    // their last users.
    #[pin]
    sessions: Mutex<KVec<Arc<Session>>>,
    /// For timers, and for requests that wait: items that wait for no server.
    queue: OwnedQueue,
    /// For owner tasks. One may wait for its server, or for a disk of that, as long as requests do.
    /// As many run as a queue can have, since the kernel shares them out among the memory nodes.
    owner_queue: OwnedQueue,
    /// For the users' callbacks. Owner tasks wait for these at times.
    event_queue: OwnedQueue,
    /// For work that may wait for memory, and so for requests.
    slow_queue: OwnedQueue,
    /// For completions that come after their answer.
    sent_queue: OwnedQueue,
    rdma: OwnedConsumer,
    class: Class,
}

/// The module's state, while the module is loaded.
static CLIENT: RcuCell<Arc<Client>> = RcuCell::empty();

/// Removes the module's state when dropped; sleeps until nothing of the module runs.
///
/// Readers of tables and the watch on devices, which use the state, have to be gone before. A user
/// of a session keeps the module loaded, so there is no session, and nothing else has the state.
pub(crate) struct ClientGuard(());

impl Drop for ClientGuard {
    fn drop(&mut self) {
        drop(CLIENT.replace(None));
    }
}

/// Makes the module's state. Called once, at load.
pub(crate) fn init() -> Result<ClientGuard> {
    let mem_reclaim = QueueOptions::UNBOUND.mem_reclaim();
    let client = Arc::pin_init(
        try_pin_init!(Client {
            sessions <- new_mutex!(KVec::new(), "rtrs_clt_sessions"),
            queue: OwnedQueue::new(c"rtrs_client", mem_reclaim)?,
            owner_queue: OwnedQueue::new(
                c"rtrs_client_own",
                mem_reclaim.max_active(workqueue::MAX_ACTIVE),
            )?,
            event_queue: OwnedQueue::new(c"rtrs_client_ev", mem_reclaim)?,
            slow_queue: OwnedQueue::new(c"rtrs_client_slow", QueueOptions::UNBOUND)?,
            sent_queue: OwnedQueue::new(c"rtrs_client_sent", QueueOptions::SOFTIRQ)?,
            rdma: OwnedConsumer::new(MODULE_NAME)?,
            class: Class::new(c"rtrs-client")?,
        }),
        GFP_KERNEL,
    )?;

    // There was none before.
    drop(CLIENT.replace(Some(client)));
    Ok(ClientGuard(()))
}

/// Returns the module's state. Any context.
fn get() -> Result<Arc<Client>> {
    CLIENT.get().ok_or(errno::ESHUTDOWN)
}

/// The watch on devices, which tells paths about events that they would notice later.
pub(crate) struct Devices;

/// Starts the watch on devices. May sleep.
pub(crate) fn watch() -> Result<Watching<Devices>> {
    WATCH.start()
}

device_watch! {
    static WATCH: Devices = MODULE_NAME;
}

impl DeviceEvents for Devices {
    fn device_event(device: &Device, event: DeviceEvent) {
        noio::scope(|| {
            let Ok(sessions) = sessions() else {
                // The paths notice by themselves, although later.
                return;
            };
            for session in sessions.iter() {
                session.for_each_path(|path| path.device_event(device, event));
            }
        });
    }
}

/// Returns all sessions, as of now. May sleep.
pub(crate) fn sessions() -> Result<KVec<Arc<Session>>> {
    let client = get()?;
    noio::scope(|| {
        let mut sessions = KVec::new();
        for session in client.sessions.lock().iter() {
            sessions.push(session.clone(), GFP_KERNEL)?;
        }
        Ok(sessions)
    })
}

/// Opens a session over `paths`, all of which have to connect. May sleep.
///
/// # Errors
///
/// `EEXIST` for a name in use, `EINVAL` without paths, or the error of a path that did not connect.
pub(crate) fn open(
    options: Options,
    paths: impl Iterator<Item = (Option<SockAddr>, SockAddr)>,
) -> Result<Arc<Session>> {
    let client = get()?;
    let session = Session::new(
        Queues {
            short: client.queue.handle(),
            owners: client.owner_queue.handle(),
            events: client.event_queue.handle(),
            slow: client.slow_queue.handle(),
            sent: client.sent_queue.handle(),
        },
        client.rdma.handle(),
        options,
    )?;
    noio::scope(|| {
        let mut sessions = client.sessions.lock();
        if sessions.iter().any(|s| s.name() == session.name()) {
            return Err(EEXIST);
        }
        Ok(sessions.push(session.clone(), GFP_KERNEL)?)
    })?;
    let opened = session.add_paths(paths).and_then(|()| {
        // Dropping the files waits for their users, such as an operator that adds a path.
        session.publish(&client.class).map_err(|(e, files)| {
            session.stop_adding();
            drop(files);
            e
        })
    });
    match opened {
        Ok(()) => Ok(session),
        Err(e) => {
            pr_err_ratelimited!("{}: not opened: {}\n", session.name(), e.to_errno());
            close(&session);
            Err(e)
        }
    }
}

/// Ends a session and releases its name. May sleep.
pub(crate) fn close(session: &Arc<Session>) {
    session.close();
    if let Ok(client) = get() {
        client.sessions.lock().retain(|s| !Arc::ptr_eq(s, session));
    }
}
