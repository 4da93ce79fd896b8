// SPDX-License-Identifier: GPL-2.0

//! A module as a user of RDMA: its name, its connections, and what it has to wait for when it goes.
//!
//! # The port has to be there to say goodbye
//!
//! To disconnect, to reject and to destroy an id sends datagrams of the connection manager. While
//! the port is down a device may not be able to send any: with soft RoCE the queue pair of all
//! datagrams of the port enters the error state then, for good, and no connection can be made over
//! that device any more. So what needs no datagram is done at once, and an id that may send one
//! waits here until its port is active again, or the device is removed.
//!
//! # Locking
//!
//! `waiting` (spinlock) is never held to destroy an id, which waits for its event handler.

use kernel::{
    ffi,
    prelude::*,
    static_lock_class,
    str::CStr,
    sync::Arc, //
};

use super::cm::CmId;
use crate::{
    atomic::{
        Atomic,
        Relaxed, //
    },
    lock::{
        lock_name,
        SpinLockIrq, //
    },
    raw,
    time::msecs_to_jiffies,
    wait::{
        Tails,
        User,
        Users, //
    },
    workqueue::{
        impl_has_delayed_work,
        DelayedOn,
        DelayedWork,
        DelayedWorkExt,
        Options,
        OwnedQueue,
        Queue,
        WorkItem, //
    },
};

/// How often ports are looked at while an id waits.
const INTERVAL_MS: u32 = 250;

/// Ids that wait at most; more are destroyed whatever state their port is in.
const MAX_WAITING: u32 = 4096;

/// A module that uses RDMA. Made when it is loaded.
///
/// Dropping it sleeps until all [`Consumer`] handles are gone, and with them every endpoint and
/// listener: not to be done by the owner of a handle. One that is leaked, in a cycle of references
/// perhaps, is a module that does not unload, and not callbacks into code that is gone.
//
// Field order is teardown order.
pub struct OwnedConsumer {
    users: Users,
    _tails: Tails,
    shared: Emptied,
    _queue: OwnedQueue,
}

/// A handle of an [`OwnedConsumer`], which lives at least as long. Clone and drop in any context.
#[derive(Clone)]
pub struct Consumer {
    // Dropped before the user.
    shared: Arc<Shared>,
    _user: User,
}

#[pin_data]
struct Shared {
    name: &'static CStr,
    queue: Queue,
    #[pin]
    waiting: SpinLockIrq<Waiting>,
    #[pin]
    work: DelayedWork<Shared>,
}

/// Ids that wait for their port.
struct Waiting {
    first: Option<KBox<Farewell>>,
    count: u32,
}

/// The place of an id that waits. Made with its endpoint, so that its end takes no memory.
pub(super) struct Farewell {
    // Dropped first: no event comes after that.
    id: Option<CmId>,
    /// The device goes away.
    removed: Atomic<bool>,
    next: Option<KBox<Farewell>>,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self> for Shared { self.work }
}

impl WorkItem for Shared {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let (over, left) = this.waiting.lock().take(Farewell::may_go);
        destroy(over);
        if left {
            this.work.enqueue(&this, msecs_to_jiffies(INTERVAL_MS));
        }
    }
}

impl DelayedOn for Shared {
    fn queue(&self) -> &Queue {
        &self.queue
    }
}

impl OwnedConsumer {
    /// `name` is what `rdma resource` shows. Sleeps.
    pub fn new(name: &'static CStr) -> Result<Self> {
        let owned = OwnedQueue::new(name, Options::UNBOUND.mem_reclaim())?;
        let queue = owned.handle();
        let shared = Arc::pin_init(
            pin_init!(Shared {
                name,
                queue,
                waiting <- SpinLockIrq::new(
                    Waiting {
                        first: None,
                        count: 0,
                    },
                    lock_name!("rtrs_rdma_waiting"),
                    static_lock_class!(),
                ),
                work <- DelayedWork::new(
                    lock_name!("rtrs_rdma_work"),
                    static_lock_class!(),
                    lock_name!("rtrs_rdma_timer"),
                    static_lock_class!(),
                ),
            }),
            GFP_KERNEL,
        )?;
        Ok(Self {
            users: Users::new()?,
            _tails: Tails,
            shared: Emptied(shared),
            _queue: owned,
        })
    }

    /// A handle. Any context.
    pub fn handle(&self) -> Consumer {
        Consumer {
            shared: self.shared.0.clone(),
            _user: self.users.add(),
        }
    }
}

/// Destroys what still waits when it is dropped.
struct Emptied(Arc<Shared>);

impl Drop for Emptied {
    fn drop(&mut self) {
        // Nobody adds to it any more.
        self.0.work.cancel_sync();
        let (all, _) = self.0.waiting.lock().take(|_| true);
        destroy(all);
    }
}

impl Consumer {
    /// What `rdma resource` shows.
    pub(super) fn name(&self) -> &'static CStr {
        self.shared.name
    }

    /// Destroys `id`, which has no queue pair and may have sent datagrams: at once if its port is
    /// active or its device is being `removed`, later if not. No handler of the caller runs for it
    /// any more when this returns. Sleeps.
    pub(super) fn part_with(&self, id: CmId, removed: &Atomic<bool>, mut place: KBox<Farewell>) {
        if id.port_is_active() {
            return;
        }
        let context = core::ptr::from_ref(&place.removed).cast_mut().cast();
        id.with_handler_lock(|| {
            // SAFETY: No handler of the id runs. The context is in a box that stays until the id in
            // it is destroyed.
            unsafe { raw::rtrs_helper_cm_set_context(id.as_raw(), context, Some(event)) };
            // It is said once.
            place.removed.store(removed.load(Relaxed), Relaxed);
        });
        place.id = Some(id);
        let refused = self.shared.waiting.lock().add(place);
        self.shared
            .work
            .enqueue(&self.shared, msecs_to_jiffies(INTERVAL_MS));
        destroy(refused);
    }
}

/// Destroys ids, one after the other. Sleeps; not with a lock held.
fn destroy(mut list: Option<KBox<Farewell>>) {
    while let Some(mut place) = list {
        list = place.next.take();
        drop(place);
    }
}

impl Waiting {
    /// Gives it back if there are too many.
    fn add(&mut self, mut place: KBox<Farewell>) -> Option<KBox<Farewell>> {
        if self.count >= MAX_WAITING {
            return Some(place);
        }
        self.count = self.count.saturating_add(1);
        place.next = self.first.take();
        self.first = Some(place);
        None
    }

    /// Takes those out for which `test` is true. Whether others are left.
    fn take(&mut self, test: impl Fn(&Farewell) -> bool) -> (Option<KBox<Farewell>>, bool) {
        let (mut rest, mut taken) = (self.first.take(), None);
        self.count = 0;
        while let Some(mut place) = rest {
            rest = place.next.take();
            if test(&place) {
                place.next = taken;
                taken = Some(place);
            } else {
                // There was room for all.
                let _ = self.add(place);
            }
        }
        (taken, self.first.is_some())
    }
}

impl Farewell {
    /// A place for one id. May sleep.
    pub(super) fn new() -> Result<KBox<Self>> {
        let place = Self {
            id: None,
            removed: Atomic::<bool>::new(false),
            next: None,
        };
        Ok(KBox::new(place, GFP_KERNEL)?)
    }

    fn may_go(&self) -> bool {
        self.removed.load(Relaxed) || self.id.as_ref().is_none_or(CmId::port_is_active)
    }
}

/// Events of an id that waits: what is said on a connection that is over is of no interest, but the
/// removal of a device waits for us.
///
/// # Safety
///
/// To be called by the connection manager, for an id whose context is the `removed` of a
/// [`Farewell`].
unsafe extern "C" fn event(id: *mut raw::rdma_cm_id, ev: *mut raw::rdma_cm_event) -> ffi::c_int {
    // SAFETY: The connection manager passes a valid event.
    if unsafe { (*ev).event } == raw::rdma_cm_event_type_RDMA_CM_EVENT_DEVICE_REMOVAL {
        // SAFETY: By the function's requirement; it is freed after the id is destroyed, which waits
        // for this handler.
        let removed = unsafe { &*raw::rtrs_helper_cm_context(id).cast::<Atomic<bool>>() };
        removed.store(true, Relaxed);
    }
    // Never ask the connection manager to destroy what we own.
    0
}
