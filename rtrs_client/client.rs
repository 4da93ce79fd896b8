// SPDX-License-Identifier: GPL-2.0

//! State of the module: the sysfs class, the queue of the owner tasks, and the names in use.
//!
//! # Locking
//!
//! [`CLIENT`] is a mutex. It is held for lookups and to add a device to the class, never while
//! waiting for a path. Events of RDMA devices take it, and paths need these events to come back. So
//! an allocation with it held must not wait for IO.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use rtrs_bindings::{
    class::Class,
    errno,
    ib::{
        device_watch,
        Device,
        DeviceEvent,
        OwnedConsumer,
        SockAddr,
        Watch,
        Watching, //
    },
    noio,
    ratelimit::pr_err_ratelimited,
    workqueue::{
        Options as QueueOptions,
        OwnedQueue, //
    },
};
use rtrs_core::table::Tables;

use crate::{
    debugfs,
    session::{
        Options,
        Session, //
    },
    MODULE_NAME,
};

/// The module's state.
struct Client {
    // Waits for readers, which look at sessions.
    _debugfs: Tables,
    _watching: Watching<Devices>,
    // Dropped in this order. When the module is unloaded there are no sessions; the others wait for
    // their last users.
    sessions: KVec<Arc<Session>>,
    queue: OwnedQueue,
    /// For the users' callbacks. Owner tasks wait for these at times.
    event_queue: OwnedQueue,
    /// For work that may wait for memory, and so for requests.
    slow_queue: OwnedQueue,
    rdma: OwnedConsumer,
    class: Class,
}

kernel::sync::global_lock! {
    // SAFETY: Initialised in `init()`, which the module calls before all other functions.
    unsafe(uninit) static CLIENT: Mutex<Option<Client>> = None;
}

/// Makes the module's state. Called once, at load.
pub(crate) fn init() -> Result {
    // SAFETY: Called once, when the module is loaded.
    unsafe { CLIENT.init() };
    let client = Client {
        _debugfs: debugfs::init()?,
        _watching: WATCH.start()?,
        sessions: KVec::new(),
        queue: OwnedQueue::new(c"rtrs_client", QueueOptions::UNBOUND.mem_reclaim())?,
        event_queue: OwnedQueue::new(c"rtrs_client_ev", QueueOptions::UNBOUND.mem_reclaim())?,
        slow_queue: OwnedQueue::new(c"rtrs_client_slow", QueueOptions::UNBOUND)?,
        rdma: OwnedConsumer::new(MODULE_NAME)?,
        class: Class::new(c"rtrs-client")?,
    };
    *CLIENT.lock() = Some(client);
    Ok(())
}

/// The watch on devices, which tells paths about events that they would notice later.
struct Devices;

device_watch! {
    static WATCH: Devices = MODULE_NAME;
}

impl Watch for Devices {
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

/// Undoes [`init`]; sleeps until nothing of the module runs. A user of a session keeps the module
/// loaded, so there is no session.
pub(crate) fn exit() {
    let client = CLIENT.lock().take();
    drop(client);
}

/// Returns all sessions, as of now. May sleep.
pub(crate) fn sessions() -> Result<KVec<Arc<Session>>> {
    noio::scope(|| {
        let client = CLIENT.lock();
        let mut sessions = KVec::new();
        if let Some(client) = client.as_ref() {
            for session in client.sessions.iter() {
                sessions.push(session.clone(), GFP_KERNEL)?;
            }
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
    let (queue, event_queue, slow_queue, rdma) = {
        let client = CLIENT.lock();
        let client = client.as_ref().ok_or(errno::ESHUTDOWN)?;
        (
            client.queue.handle(),
            client.event_queue.handle(),
            client.slow_queue.handle(),
            client.rdma.handle(),
        )
    };
    // Without the lock: a failure drops the user's object.
    let session = Session::new(queue, event_queue, slow_queue, rdma, options)?;
    noio::scope(|| {
        let mut client = CLIENT.lock();
        let client = client.as_mut().ok_or(errno::ESHUTDOWN)?;
        if client.sessions.iter().any(|s| s.name() == session.name()) {
            return Err(EEXIST);
        }
        Ok(client.sessions.push(session.clone(), GFP_KERNEL)?)
    })?;
    let opened = session.add_paths(paths).and_then(|()| {
        let published = noio::scope(|| {
            let client = CLIENT.lock();
            let class = &client.as_ref().ok_or((errno::ESHUTDOWN, None))?.class;
            session.publish(class)
        });
        // Without the lock: dropping the files waits for their users, such as an operator that adds
        // a path.
        published.map_err(|(e, files)| {
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
    if let Some(client) = CLIENT.lock().as_mut() {
        client.sessions.retain(|s| !Arc::ptr_eq(s, session));
    }
}
