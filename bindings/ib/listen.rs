// SPDX-License-Identifier: GPL-2.0

//! Listeners, and requests to connect that are not accepted yet.

use core::{
    mem::ManuallyDrop,
    ptr::NonNull, //
};
use kernel::{
    error::to_result,
    ffi,
    prelude::*,
    sync::{
        static_lock_class,
        Arc,
        Mutex, //
    },
};

use super::{
    cm::{
        private_data,
        CmId,
        PortSpace,
        RejectMessage, //
    },
    consumer::{
        Consumer,
        Farewell, //
    },
    device::Device,
    sockaddr::SockAddr, //
};
use crate::{
    lock::lock_name,
    raw,
    workqueue::{
        HasWork,
        Queue,
        WorkItem, //
    },
};

/// A connection request that arrived, for the duration of the callback.
pub struct ConnectRequest<'a> {
    id: NonNull<raw::rdma_cm_id>,
    private_data: &'a [u8],
}

impl<'a> ConnectRequest<'a> {
    /// The private data that the client sent with the request.
    pub fn private_data(&self) -> &'a [u8] {
        self.private_data
    }

    /// The client's address.
    pub fn peer(&self) -> SockAddr {
        // SAFETY: The id is valid for the duration of the callback.
        unsafe { SockAddr::from_storage(raw::rtrs_helper_cm_dst(self.id.as_ptr())) }
    }

    /// The address that the client wants to connect to.
    pub fn local(&self) -> SockAddr {
        // SAFETY: The id is valid for the duration of the callback.
        unsafe { SockAddr::from_storage(raw::rtrs_helper_cm_src(self.id.as_ptr())) }
    }
}

/// A connection request that waits for its decision. Dropping it refuses the request without a
/// message, as soon as its port is active; may sleep.
///
/// Dropping it, and [`PendingConnection::reject`], wait for the lock that is held while the
/// listener is called. Therefore the listener never gets one: it is taken out of a [`PendingSlot`]
/// by the task that the listener has [left](Decision::Later) the request to.
///
/// Events of the id are ignored, so that the owner finds it; the removal of its device, which is
/// announced only once and waits for the id, is kept for the endpoint.
///
/// # Invariants
///
/// `place` watches `id`. Both are taken out when this is dropped or taken apart, and not used after
/// that.
pub struct PendingConnection {
    id: ManuallyDrop<CmId>,
    place: ManuallyDrop<KBox<Farewell>>,
    /// Dropped last: the module may be unloaded after that.
    consumer: Consumer,
}

impl PendingConnection {
    /// The device that the request arrived on.
    pub fn device(&self) -> Option<&Device> {
        self.id.device()
    }

    /// The device port that the request arrived on.
    pub fn port(&self) -> u32 {
        self.id.port()
    }

    /// The client's address.
    pub fn peer(&self) -> SockAddr {
        self.id.dst()
    }

    /// The local address.
    pub fn local(&self) -> SockAddr {
        self.id.src()
    }

    /// Refuses the request with a message; while its port is down, as by dropping it. May sleep.
    pub fn reject(self, message: &RejectMessage) {
        self.id.with_handler_lock(|| self.id.reject(message));
    }

    /// The module that listens.
    pub fn consumer(&self) -> &Consumer {
        &self.consumer
    }

    /// Returns the id, the entry that watches it and must stay until it has another handler, and
    /// the module's handle.
    pub(super) fn into_parts(self) -> (CmId, KBox<Farewell>, Consumer) {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: Each field is taken out once: `this` is not dropped, nor used afterwards.
        unsafe {
            (
                ManuallyDrop::take(&mut this.id),
                ManuallyDrop::take(&mut this.place),
                core::ptr::read(&this.consumer),
            )
        }
    }
}

impl Drop for PendingConnection {
    fn drop(&mut self) {
        // SAFETY: Both are taken out once: they are not used after this.
        let (id, place) = unsafe {
            (
                ManuallyDrop::take(&mut self.id),
                ManuallyDrop::take(&mut self.place),
            )
        };
        self.consumer.part_with_watched(id, place);
    }
}

/// Room for one connection request that waits for its decision.
#[pin_data]
pub struct PendingSlot {
    /// Nests inside the handler mutex of the listener: no request is dropped with it held.
    #[pin]
    pending: Mutex<Option<PendingConnection>>,
}

impl PendingSlot {
    /// A slot without a request.
    pub fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            pending <- Mutex::new(None, lock_name!("rtrs_cm_pending"), static_lock_class!()),
        })
    }

    /// Takes the request out. May sleep.
    pub fn take(&self) -> Option<PendingConnection> {
        self.pending.lock().take()
    }

    /// Calls `look` with the request. May sleep; `look` is called with a lock held that nests
    /// inside those of handlers.
    pub fn look<R>(&self, look: impl FnOnce(&PendingConnection) -> R) -> Option<R> {
        self.pending.lock().as_ref().map(look)
    }

    /// Whether the slot has no request. It may have got one since. May sleep.
    pub fn is_empty(&self) -> bool {
        self.pending.lock().is_none()
    }

    /// Takes a request over from the connection manager, unless the slot has one already, or there
    /// is no memory. Returns whether it did. May sleep.
    ///
    /// # Safety
    ///
    /// Must be called by the handler of a connect request, with its id. If this returns true the
    /// handler must return 0, as the connection manager destroys the id otherwise.
    unsafe fn fill(&self, id: NonNull<raw::rdma_cm_id>, consumer: &Consumer) -> bool {
        let Ok(place) = Farewell::new() else {
            return false;
        };
        let mut pending = self.pending.lock();
        if pending.is_some() {
            return false;
        }
        // SAFETY: The id is valid, and this runs in its handler, which is serialised with its
        // events. The entry stays with the id.
        unsafe { place.watch(id) };
        // SAFETY: By the safety requirements of this function, the connection manager leaves the id
        // to this slot.
        let id = unsafe { CmId::from_raw(id) };
        // INVARIANT: `place` watches the id.
        *pending = Some(PendingConnection {
            id: ManuallyDrop::new(id),
            place: ManuallyDrop::new(place),
            consumer: consumer.clone(),
        });
        true
    }
}

/// A task that decides about a connection request: a work item of the structure that has the
/// request.
pub trait Decide: WorkItem<Pointer = Arc<Self>> + HasWork<Self> + Send + Sync + Sized {
    /// The slot of the request. It is filled before the item runs, unless there is no memory, or a
    /// request is in it already. The item must take the request out.
    fn slot(&self) -> &PendingSlot;
}

/// The decision about a connection request.
pub enum Decision<T> {
    /// The request is rejected with a message. While its port is down it is forgotten instead: the
    /// client sends another one.
    Reject(RejectMessage),
    /// The request is left in the slot of the task, which is queued. If the slot has a request
    /// already, the new one is refused without a message, or forgotten.
    Later(Arc<T>, Queue),
}

/// Takes connection requests.
pub trait Listen: Send + Sync + 'static {
    /// The task that decides about requests that take longer.
    type Task: Decide + 'static;

    /// Called when a request arrived. May sleep, but delays all other messages of the connection
    /// manager that this processor handles: it should make cheap decisions only, and leave all
    /// others to a task.
    fn connect_request(&self, request: &ConnectRequest<'_>) -> Decision<Self::Task>;
}

/// What a listening id has as its context.
struct Reception<L: Listen> {
    listen: Arc<L>,
    consumer: Consumer,
}

/// A listening address. Dropping it stops listening and waits for callbacks; may sleep, and must
/// not be done from a callback.
///
/// # Invariants
///
/// The context of `id` is the `Reception<L>` in `reception`.
pub struct Listener<L: Listen> {
    // Dropped first: no callback runs afterwards.
    _id: CmId,
    _reception: KBox<Reception<L>>,
    // Dropped last: the module may be unloaded after that.
    _consumer: Consumer,
}

impl<L: Listen> Listener<L> {
    /// Listens on `addr`, which is [any address](SockAddr::any) of IP, or any GID, on all present
    /// and future devices. A listener with an address of its own would belong to a device, and the
    /// removal of the device would wait for it. May sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` (a certain address), `EADDRINUSE`, `ENODEV` (IB address without IB device).
    pub fn new(addr: &SockAddr, backlog: u16, listen: Arc<L>, consumer: &Consumer) -> Result<Self> {
        if !addr.is_any() {
            return Err(EINVAL);
        }
        let reception = Reception {
            listen,
            consumer: consumer.clone(),
        };
        let reception = KBox::new(reception, GFP_KERNEL)?;
        let context = core::ptr::from_ref(&*reception).cast_mut().cast();
        let (space, owner) = (PortSpace::of(addr), consumer.name());
        // SAFETY: `reception` stays where it is, and outlives the id: it is dropped after the id,
        // below and in the structure.
        let id = unsafe { CmId::new(Some(listen_event::<L>), context, space, owner)? };
        // SAFETY: The id is valid; the address is only read.
        to_result(unsafe { raw::rdma_bind_addr(id.as_raw(), addr.as_raw().cast_mut()) })?;
        // SAFETY: As above.
        to_result(unsafe { raw::rdma_listen(id.as_raw(), backlog.into()) })?;
        // INVARIANT: `context` points to what is in `reception`.
        Ok(Self {
            _id: id,
            _reception: reception,
            _consumer: consumer.clone(),
        })
    }
}

/// Handles events of a listening id and of the requests that arrive on it.
///
/// # Safety
///
/// Must be called by the connection manager only, for a [`Listener<L>`].
unsafe extern "C" fn listen_event<L: Listen>(
    id: *mut raw::rdma_cm_id,
    ev: *mut raw::rdma_cm_event,
) -> ffi::c_int {
    // SAFETY: The connection manager passes a valid event.
    if unsafe { (*ev).event } != raw::rdma_cm_event_type_RDMA_CM_EVENT_CONNECT_REQUEST {
        // An event of the listener itself; its owner destroys it.
        return 0;
    }
    let Some(id) = NonNull::new(id) else { return 0 };
    // SAFETY: A new id inherits the context of its listener, which by the invariant of `Listener`
    // is a `Reception<L>`; destroying the listener waits for this handler.
    let reception = unsafe { &*raw::rtrs_helper_cm_context(id.as_ptr()).cast::<Reception<L>>() };
    let consumer = &reception.consumer;
    let decision = reception.listen.connect_request(&ConnectRequest {
        id,
        // SAFETY: A connect request has connection parameters.
        private_data: unsafe { private_data(ev) },
    });
    let message = match decision {
        Decision::Reject(message) => Some(message),
        Decision::Later(task, queue) => {
            // SAFETY: This is the handler; it returns 0 if the id was taken over.
            let filled = unsafe { task.slot().fill(id, consumer) };
            // In any case: this may be the last reference, and the slot may have a request, which
            // must not be dropped here.
            queue.run(task);
            if filled {
                return 0;
            }
            None
        }
    };
    // SAFETY: The id is valid, and it is not dropped here.
    let id = ManuallyDrop::new(unsafe { CmId::from_raw(id) });
    // In any case the connection manager destroys the id.
    if !id.port_is_active() {
        // For this error ib_cm sends nothing, and the client's next request is one more to decide
        // about; iw_cm rejects over TCP, which needs no datagram of the port.
        return -(raw::ENOMEM as ffi::c_int);
    }
    if let Some(message) = message {
        id.reject(&message);
    }
    -(raw::ECONNREFUSED as ffi::c_int)
}
