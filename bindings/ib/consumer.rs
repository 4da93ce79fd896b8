// SPDX-License-Identifier: GPL-2.0

//! A module, or a part of it, as a user of RDMA: its name, its connections, and the ids that it waits
//! for when it ends.
//!
//! # Datagrams need an active port
//!
//! Connecting, accepting, rejecting, disconnecting and destroying an id send datagrams of the
//! connection manager. While the port is down, a device may be unable to send them: with soft RoCE
//! the queue pair for all datagrams of the port then enters the error state for good, and no
//! connection can be made over that device any more. So steps that need no datagram are done at
//! once, those that need one fail, and an id that may send one when it is destroyed waits here
//! until its port is active again, the device is removed, or the [`OwnedConsumer`] is dropped. A
//! port that goes down between the check and the datagram is not noticed, and the connection manager
//! repeats some datagrams by itself.
//!
//! # Locking
//!
//! `waiting` (spinlock, interrupts off) is never held while an id is destroyed, as that waits for
//! its event handler, nor while the state of a port is read, which takes locks of the device.

use core::{
    marker::PhantomPinned,
    ptr::NonNull, //
};
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
        impl_work_item,
        DelayedOn,
        DelayedWork,
        DelayedWorkExt,
        Options,
        OwnedQueue,
        Queue, //
    },
};

/// Interval in which ports are checked while an id waits.
const INTERVAL_MS: u32 = 250;

/// A module that uses RDMA. Made when it is loaded.
///
/// Dropping it sleeps until all [`Consumer`] handles are gone, and with them every endpoint and
/// listener, so the owner of a handle must not do it. If a handle is leaked, for example in a cycle
/// of references, the module does not unload; there are no callbacks into freed code. The consumer
/// itself must not be forgotten, see [`Users`].
///
/// With `CONFIG_PREEMPT_RT` a task that drops an endpoint or a domain may still be freeing its
/// memory when this returns. So it has to be a task that the module waits for in another way too,
/// for example a work item of its queue.
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
    /// Ids that wait for their port.
    #[pin]
    waiting: SpinLockIrq<List>,
    #[pin]
    work: DelayedWork<Shared>,
}

/// Ids, linked by their entries.
type List = Option<KBox<Farewell>>;

/// The list entry of an id that waits. Allocated with its endpoint, or with its request to connect,
/// so that destroying the endpoint needs no memory.
pub(super) struct Farewell {
    // Dropped first: there are no events after that.
    id: Option<CmId>,
    /// The device is being removed. The handler of the id has a pointer to it, which it may use
    /// while the owner of the box has a `&mut Farewell`.
    removed: Atomic<bool>,
    next: List,
    /// Makes it `!Unpin`: the compiler does not take a `&mut Farewell` for the only way to
    /// `removed`. A `KBox` is a raw pointer to it, of which nothing is assumed.
    _pin: PhantomPinned,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self> for Shared { self.work }
}

impl_work_item! {
    impl WorkItem<0> for Shared { Self::destroy_some }
}

impl Shared {
    /// Destroys the ids that need not wait any longer. Work item; sleeps.
    fn destroy_some(self: &Arc<Self>) {
        // Ports are looked at without the lock, which disables interrupts.
        let mut all = self.waiting.lock().take();
        let (mut over, mut left) = (None, None);
        while let Some(mut place) = all {
            all = place.next.take();
            match place.may_go() {
                true => push(&mut over, place),
                false => push(&mut left, place),
            }
        }
        if left.is_some() {
            while let Some(mut place) = left {
                left = place.next.take();
                push(&mut self.waiting.lock(), place);
            }
            self.work.enqueue(self, msecs_to_jiffies(INTERVAL_MS));
        }
        destroy(over);
    }
}

impl DelayedOn for Shared {
    fn queue(&self) -> &Queue {
        &self.queue
    }
}

impl OwnedConsumer {
    /// Creates a consumer. `rdma resource` shows `name`. Sleeps.
    pub fn new(name: &'static CStr) -> Result<Self> {
        let owned = OwnedQueue::new(name, Options::UNBOUND.mem_reclaim())?;
        let queue = owned.handle();
        let shared = Arc::pin_init(
            pin_init!(Shared {
                name,
                queue,
                waiting <- SpinLockIrq::new(
                    None,
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

    /// Returns a handle. Any context.
    pub fn handle(&self) -> Consumer {
        Consumer {
            shared: self.shared.0.clone(),
            _user: self.users.add(),
        }
    }
}

/// Destroys the ids that still wait when it is dropped.
struct Emptied(Arc<Shared>);

impl Drop for Emptied {
    fn drop(&mut self) {
        // No id is added any more.
        self.0.work.cancel_sync();
        let all = self.0.waiting.lock().take();
        destroy(all);
    }
}

impl Consumer {
    /// The name that `rdma resource` shows.
    pub(super) fn name(&self) -> &'static CStr {
        self.shared.name
    }

    /// Destroys `id`, which has no queue pair and may have sent datagrams, so that its address is
    /// resolved: at once if its port is active. Otherwise `place` waits with it until the port is
    /// active or the device is being removed, as it is already if `removed` is true; a work item
    /// looks for that. When this returns, no handler of the caller runs for the id any more.
    /// Sleeps.
    pub(super) fn part_with(&self, id: CmId, removed: &Atomic<bool>, place: KBox<Farewell>) {
        if id.port_is_active() {
            return;
        }
        id.with_handler_lock(|| {
            // SAFETY: No handler of the id runs. The entry has the id from now on, and destroys it
            // first.
            unsafe { place.watch(id.as_nonnull()) };
            // The removal is announced only once.
            place.removed.store(removed.load(Relaxed), Relaxed);
        });
        self.part_with_watched(id, place);
    }

    /// The same for an id that `place` watches. Sleeps.
    pub(super) fn part_with_watched(&self, id: CmId, mut place: KBox<Farewell>) {
        place.id = Some(id);
        if place.may_go() {
            return;
        }
        push(&mut self.shared.waiting.lock(), place);
        self.shared
            .work
            .enqueue(&self.shared, msecs_to_jiffies(INTERVAL_MS));
    }
}

/// Adds an entry to a list. Any context.
fn push(list: &mut List, mut place: KBox<Farewell>) {
    place.next = list.take();
    *list = Some(place);
}

/// Destroys ids, one after the other. Sleeps; must not be called with a lock held.
fn destroy(mut list: List) {
    while let Some(mut place) = list {
        list = place.next.take();
        drop(place);
    }
}

impl Farewell {
    /// An entry for one id. May sleep.
    pub(super) fn new() -> Result<KBox<Self>> {
        let place = Self {
            id: None,
            removed: Atomic::<bool>::new(false),
            next: None,
            _pin: PhantomPinned,
        };
        Ok(KBox::new(place, GFP_KERNEL)?)
    }

    /// Makes the handler of `id` note here that its device is being removed. Other events are
    /// ignored.
    ///
    /// # Safety
    ///
    /// `id` must be valid, and no other task may be running its handler or change that. The entry
    /// must be in a box, and stay there: it must not be dropped, nor moved out, before the id is
    /// destroyed or has another handler.
    pub(super) unsafe fn watch(&self, id: NonNull<raw::rdma_cm_id>) {
        let context = core::ptr::from_ref(&self.removed).cast_mut().cast();
        // SAFETY: By the safety requirements of this function the id is valid, and its handler does
        // not run. `removed` stays where it is for as long as `event()` may be called for the id.
        unsafe { raw::rtrs_helper_cm_set_context(id.as_ptr(), context, Some(event)) };
    }

    /// Whether the device of the [watched](Self::watch) id is being removed. Any context.
    pub(super) fn is_removed(&self) -> bool {
        self.removed.load(Relaxed)
    }

    fn may_go(&self) -> bool {
        self.is_removed() || self.id.as_ref().is_none_or(CmId::port_is_active)
    }
}

/// Handles events of an id that waits: those of a connection that is over are ignored, but the
/// removal of a device waits for this module.
///
/// # Safety
///
/// Must be called by the connection manager only, for an id with the `removed` of a [`Farewell`] as
/// its context.
unsafe extern "C" fn event(id: *mut raw::rdma_cm_id, ev: *mut raw::rdma_cm_event) -> ffi::c_int {
    // SAFETY: The connection manager passes a valid event.
    if unsafe { (*ev).event } == raw::rdma_cm_event_type_RDMA_CM_EVENT_DEVICE_REMOVAL {
        // SAFETY: By the safety requirements of this function, the context is `removed` of a
        // `Farewell`, which is freed after the id is destroyed; that waits for this handler.
        let removed = unsafe { &*raw::rtrs_helper_cm_context(id).cast::<Atomic<bool>>() };
        removed.store(true, Relaxed);
    }
    // The connection manager must not destroy the id, which has an owner.
    0
}
