// SPDX-License-Identifier: GPL-2.0

//! One end of a reliable connection.
//!
//! # Locking
//!
//! Events of one endpoint are serialised by the connection manager's handler
//! mutex of its `cm_id`. A [`Locked`] is the proof that it is held: what must
//! not run beside an event takes one.

use core::{
    mem::ManuallyDrop,
    ops::Deref, //
};
use kernel::{
    error::to_result,
    ffi,
    prelude::*,
    sync::{
        Arc,
        SetOnce, //
    },
};

use super::{
    cm::{
        CmEvent,
        CmId,
        ConnParam,
        InterfaceName,
        PendingConnection,
        PortSpace,
        RejectMessage, //
    },
    consumer::{
        Consumer,
        Farewell, //
    },
    device::Device,
    domain::Domain,
    flight::Landing,
    queue::{
        QpEvent,
        QueueConfig,
        QueuePair, //
    },
    sockaddr::SockAddr,
    wc::{
        Success,
        Wc, //
    },
};
use crate::{
    atomic::{
        Acquire,
        Atomic,
        Relaxed,
        Release, //
    },
    once::OnceBox,
    raw,
};

/// Somebody who gets what happens at an endpoint.
pub trait Handler: Send + Sync + Sized + 'static {
    /// What is kept with each [`Flight`](super::Flight).
    type Cargo: Send + Sync + 'static;

    /// Something happened to the connection. May sleep; must not drop the
    /// endpoint.
    fn cm_event(&self, ep: Locked<'_, Self>, event: CmEvent<'_>);

    /// A signalled chain with `token` completed; or some request of a chain
    /// without token, or before the last of one, failed (`token` is `None`, or
    /// the chain's, and the status is not success). Context: the queue's.
    fn send_done(&self, ep: &Endpoint<Self>, qp: &QueuePair, token: Option<u32>, wc: &Wc);

    /// A completion was found, the `position`th of its poll, from 1. Called first of all for each
    /// completion, of sends without a token too. Context: the queue's.
    #[inline]
    fn found(&self, position: u32) {
        let _ = position;
    }

    /// A signalled chain completed, and with it everything posted before: there is room in the send
    /// queue again. Follows or replaces `send_done()`, with which nobody needs to be told of chains
    /// without a token. Context: the queue's.
    #[inline]
    fn send_retired(&self, ep: &Endpoint<Self>, qp: &QueuePair) {
        let _ = (ep, qp);
    }

    /// A [`Flight`](super::Flight) is over. Context: the queue's.
    fn landed(&self, ep: &Endpoint<Self>, landing: Landing<'_, Self>) {
        let _ = ep;
        drop(landing);
    }

    /// A receive completed. Context: the queue's.
    fn recv_done(&self, ep: &Endpoint<Self>, qp: &QueuePair, token: u32, wc: &Success);

    /// A receive failed: nothing more is received. Context: the queue's.
    fn recv_failed(&self, ep: &Endpoint<Self>, wc: &Wc);

    /// The device says that the peer broke the rules of the transport, perhaps before what was
    /// outstanding fails. Any context.
    fn qp_event(&self, ep: &Endpoint<Self>, event: QpEvent) {
        let _ = (ep, event);
    }
}

/// One end of a reliable connection: `cm_id`, and once created, queue pair.
///
/// Dropping it ends the connection and waits until no callback runs; it sleeps,
/// and must not be done from a callback.
#[pin_data(PinnedDrop)]
pub struct Endpoint<H: Handler> {
    // Dropped after `free_cq()`.
    qp: OnceBox<QueuePair>,
    /// Taken in the end, after the queue pair was destroyed.
    id: SetOnce<ManuallyDrop<CmId>>,
    handler: Arc<H>,
    /// Set under the handler lock: events are ignored from then on.
    dying: Atomic<bool>,
    /// The address is resolved: what the id has of it does not change any more.
    resolved: Atomic<bool>,
    /// The id may have sent datagrams, or be about to, so that its end sends some.
    greeted: Atomic<bool>,
    /// The device goes away.
    removed: Atomic<bool>,
    /// The queue pair was destroyed, if there is one.
    severed: bool,
    /// Where the id waits for its port in the end.
    place: Option<KBox<Farewell>>,
    index: u16,
    /// Flights that were over, modulo 2^32; written by who handles completions.
    landed: Atomic<u32>,
    /// Dropped last: its module goes after that.
    consumer: Consumer,
    #[pin]
    _pin: core::marker::PhantomPinned,
}

impl<H: Handler> Endpoint<H> {
    fn alloc(handler: Arc<H>, index: u16, consumer: &Consumer) -> Result<Pin<KBox<Self>>> {
        let place = Some(Farewell::new()?);
        let consumer = consumer.clone();
        KBox::pin_init(
            pin_init!(Self {
                qp: OnceBox::new(),
                id: SetOnce::new(),
                handler,
                dying: Atomic::new(false),
                resolved: Atomic::new(false),
                greeted: Atomic::new(false),
                removed: Atomic::new(false),
                severed: false,
                place,
                index,
                landed: Atomic::new(0),
                consumer,
                _pin: core::marker::PhantomPinned,
            }),
            GFP_KERNEL,
        )
    }

    fn context(self: Pin<&Self>) -> *mut ffi::c_void {
        core::ptr::from_ref(self.get_ref()).cast_mut().cast()
    }

    /// An endpoint that is going to connect. May sleep.
    ///
    /// `index` is for the caller, to tell endpoints of one handler apart.
    pub fn new(
        handler: Arc<H>,
        index: u16,
        ps: PortSpace,
        consumer: &Consumer,
    ) -> Result<Pin<KBox<Self>>> {
        let this = Self::alloc(handler, index, consumer)?;
        // SAFETY: The endpoint stays where it is until the id, which it owns,
        // is destroyed.
        let id = unsafe {
            CmId::new(
                Some(event::<H>),
                this.as_ref().context(),
                ps,
                consumer.name(),
            )
        }?;
        this.id.populate(ManuallyDrop::new(id));
        Ok(this)
    }

    /// An endpoint for a request that is going to be accepted. May sleep.
    pub fn from_pending(
        handler: Arc<H>,
        index: u16,
        pending: PendingConnection,
        consumer: &Consumer,
    ) -> Result<Pin<KBox<Self>>, (PendingConnection, Error)> {
        let this = match Self::alloc(handler, index, consumer) {
            Ok(this) => this,
            Err(e) => return Err((pending, e)),
        };
        let id = pending.into_id();
        let context = this.as_ref().context();
        id.with_handler_lock(|| {
            // SAFETY: No handler of the id runs; the endpoint stays where it
            // is until the id, which it owns from now on, is destroyed.
            unsafe {
                raw::rtrs_helper_cm_set_context(id.as_raw(), context, Some(event::<H>));
            }
        });
        this.id.populate(ManuallyDrop::new(id));
        // It came with the address, and waits for an answer.
        this.resolved.store(true, Release);
        this.greeted.store(true, Relaxed);
        Ok(this)
    }

    /// The queue pair, once there is one.
    #[inline(always)]
    pub fn qp(&self) -> Option<&QueuePair> {
        self.qp.get()
    }

    /// The queue pair.
    ///
    /// # Safety
    ///
    /// One of its completions must be what the caller is called for: whoever posted the request had
    /// found the queue pair here.
    #[inline(always)]
    pub(super) unsafe fn qp_of_completion(&self) -> &QueuePair {
        // SAFETY: By the function's requirement.
        unsafe { self.qp.get_unchecked() }
    }

    /// Who gets the events.
    #[inline]
    pub fn handler(&self) -> &Arc<H> {
        &self.handler
    }

    /// The number it was created with.
    #[inline]
    pub fn index(&self) -> u16 {
        self.index
    }

    /// Flights that were posted here, and are neither over nor collected. Any context.
    pub fn in_flight(&self) -> u32 {
        let landed = self.landed.load(Relaxed);
        let flown = self.qp().map_or(0, QueuePair::flown);
        // CAST: The difference, modulo 2^32, of counts that are close to each other.
        let left = flown.wrapping_sub(landed) as i32;
        // One of both may be newer than the other.
        left.max(0).unsigned_abs()
    }

    /// A flight is over. By the one that handles completions.
    #[inline(always)]
    pub(super) fn count_landed(&self) {
        self.landed
            .store(self.landed.load(Relaxed).wrapping_add(1), Relaxed);
    }

    fn id(&self) -> Result<&CmId> {
        self.known_id().ok_or(EINVAL)
    }

    fn known_id(&self) -> Option<&CmId> {
        self.id.as_ref().map(|id| &**id)
    }

    /// The id, once its address is resolved. Until then the connection manager writes to it.
    fn resolved_id(&self) -> Option<&CmId> {
        // Pairs with the stores: what was written before is there.
        self.resolved
            .load(Acquire)
            .then(|| self.known_id())
            .flatten()
    }

    /// The device, once the address is resolved.
    pub fn device(&self) -> Option<&Device> {
        self.resolved_id()?.device()
    }

    /// The device port, once the address is resolved; 0 before.
    pub fn port(&self) -> u32 {
        self.resolved_id().map_or(0, CmId::port)
    }

    /// The local address, once it is resolved.
    pub fn local(&self) -> Option<SockAddr> {
        self.resolved_id().map(CmId::src)
    }

    /// The peer's address.
    pub fn peer(&self) -> Option<SockAddr> {
        self.known_id().map(CmId::dst)
    }

    /// Whether the local address is still one of the port's. True until the address is resolved.
    /// Any context.
    pub fn has_source(&self) -> bool {
        self.resolved_id().is_none_or(CmId::has_source)
    }

    /// The network interface that the address was resolved to. Any context.
    pub fn interface(&self) -> Option<InterfaceName> {
        self.resolved_id()?.interface()
    }

    /// Starts to resolve `dst`, and the way to it from `src`; an event tells
    /// the end. May sleep. Before anybody else has the endpoint: what it finds is read without a
    /// lock.
    pub fn resolve_addr(
        self: Pin<&mut Self>,
        src: Option<&SockAddr>,
        dst: &SockAddr,
        timeout_ms: u32,
    ) -> Result {
        let src = src.map_or(core::ptr::null_mut(), |s| s.as_raw().cast_mut());
        // SAFETY: The id is valid; the addresses are only read.
        to_result(unsafe {
            raw::rdma_resolve_addr(
                self.id()?.as_raw(),
                src,
                dst.as_raw(),
                timeout_ms as ffi::c_ulong,
            )
        })
    }

    /// Sets the time after which an unacknowledged request is repeated, as the
    /// exponent of the IB specification: 4.096 us * 2^`exponent`.
    pub fn set_ack_timeout(&self, exponent: u8) -> Result {
        // SAFETY: The id is valid.
        to_result(unsafe { raw::rdma_set_ack_timeout(self.id()?.as_raw(), exponent) })
    }

    /// Runs `f` while no event of this endpoint is handled. May sleep; not from
    /// its own event handler.
    pub fn locked<R>(&self, f: impl FnOnce(Locked<'_, H>) -> R) -> Result<R> {
        Ok(self.id()?.with_handler_lock(|| f(Locked(self))))
    }

    /// The queue pair has received something before the connection manager was told that the
    /// connection is up: its last message was lost, and need not be repeated. Any context.
    pub(super) fn communication_established(&self) {
        if let Some(id) = self.known_id() {
            // SAFETY: The id is valid. It fails if the connection is up by now.
            unsafe { raw::rdma_notify(id.as_raw(), raw::ib_event_type_IB_EVENT_COMM_EST) };
        }
    }

    /// Closes the gate, tells the peer, and lets the queue pair flush what is
    /// outstanding; while the port is down only the first of these. Does not wait. May sleep.
    pub fn disconnect(&self) {
        if let Some(qp) = self.qp() {
            qp.close_gate();
        }
        if let Some(id) = self.known_id().filter(|id| id.port_is_active()) {
            // SAFETY: The id is valid. Fails when there is no connection.
            unsafe { raw::rdma_disconnect(id.as_raw()) };
        }
    }

    /// Disconnects, and waits until nothing of the connection runs: no event and no completion is
    /// being handled any more when this returns, none will be, and the device does not touch
    /// memory on its behalf. Only [`Handler::qp_event`], for asynchronous events of the queue pair,
    /// may still be called until the endpoint is dropped. Does not wait if another caller drains
    /// already.
    ///
    /// What is left is to [destroy the queue pair](Self::destroy_qp), and to drop the endpoint. Both
    /// may take long, where this does not. Sleeps; not from a callback.
    pub fn drain(&self) {
        let Some(id) = self.known_id() else { return };

        id.with_handler_lock(|| self.dying.store(true, Release));
        self.disconnect();
        if let Some(qp) = self.qp() {
            qp.drain();
        }
    }

    /// Drains, and destroys the queue pair: nothing of the connection is on its way out of this host
    /// when this returns. May take long: a device may have packets that wait for a link.
    ///
    /// What is left when the endpoint is dropped is the completion queue and the id, which may take
    /// as long, and which nobody has to wait for who wants to send elsewhere what was in flight.
    /// Sleeps; not from a callback.
    pub fn destroy_qp(self: Pin<&mut Self>) {
        // SAFETY: Nothing is moved out of it that is pinned.
        let this = unsafe { self.get_unchecked_mut() };
        // No event reaches the handler after this, so that the queue pair can go before the id, as
        // it has to.
        this.drain();
        if core::mem::replace(&mut this.severed, true) {
            return;
        }
        if let Some(qp) = this.qp() {
            // SAFETY: Called once, as the flag says; we own it, and are not called from a callback,
            // as the type says.
            unsafe { qp.destroy_qp() };
        }
    }
}

#[pinned_drop]
impl<H: Handler> PinnedDrop for Endpoint<H> {
    fn drop(mut self: Pin<&mut Self>) {
        self.as_mut().destroy_qp();
        // SAFETY: Nothing is moved out of it that is pinned.
        let this = unsafe { self.get_unchecked_mut() };
        if let Some(qp) = this.qp() {
            // SAFETY: Called once, here, after its QP was destroyed.
            unsafe { qp.free_cq() };
        }
        // SAFETY: Here alone, and nobody looks at it afterwards.
        let id = this.id.as_ref().map(|id| unsafe { core::ptr::read(&**id) });
        match (id, this.place.take()) {
            (Some(id), Some(place)) if this.greeted.load(Relaxed) => {
                this.consumer.part_with(id, &this.removed, place);
            }
            (id, _) => drop(id),
        }
    }
}

/// An endpoint none of whose events is being handled elsewhere.
pub struct Locked<'a, H: Handler>(&'a Endpoint<H>);

impl<H: Handler> Deref for Locked<'_, H> {
    type Target = Endpoint<H>;

    fn deref(&self) -> &Endpoint<H> {
        self.0
    }
}

impl<'a, H: Handler> Locked<'a, H> {
    /// The endpoint.
    pub fn endpoint(&self) -> &'a Endpoint<H> {
        self.0
    }

    /// Creates the queue pair, in the domain `domain` on the device the address
    /// was resolved to. May sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` if there is one, `EINVAL` if the sizes are beyond the device,
    /// `ECONNABORTED` during teardown, or what the driver says.
    pub fn create_qp(&self, domain: &Arc<Domain>, cfg: &QueueConfig) -> Result<&'a QueuePair> {
        let ep = self.0;
        if ep.dying.load(Acquire) {
            return Err(crate::errno::ECONNABORTED);
        }
        if ep.qp().is_some() {
            return Err(EBUSY);
        }
        let (id, owner) = (ep.id()?.as_nonnull(), ep.consumer.name());
        // SAFETY: `ep` is pinned and owns id and result; it has no QP, and
        // nobody else creates one: that takes the handler lock, which we have.
        let qp = unsafe { QueuePair::new(id, ep, domain, cfg, owner) }?;
        ep.qp.populate(qp);
        ep.qp().ok_or(EINVAL)
    }

    /// Starts to resolve the route; an event tells the end.
    pub fn resolve_route(&self, timeout_ms: u32) -> Result {
        // SAFETY: The id is valid.
        to_result(unsafe {
            raw::rdma_resolve_route(self.0.id()?.as_raw(), timeout_ms as ffi::c_ulong)
        })
    }

    /// Starts to connect; an event tells the end. May sleep.
    pub fn connect(&self, param: ConnParam<'_>) -> Result {
        let mut param = param.to_raw()?;
        self.0.greeted.store(true, Relaxed);
        // SAFETY: The id is valid, its handler lock held; the parameters are
        // only read.
        to_result(unsafe { raw::rdma_connect_locked(self.0.id()?.as_raw(), &mut param) })
    }

    /// Accepts the request the endpoint was made from. If that fails the connection manager has
    /// rejected it, without a message. May sleep.
    pub fn accept(&self, param: ConnParam<'_>) -> Result {
        let mut param = param.to_raw()?;
        // SAFETY: As for `connect()`.
        to_result(unsafe { raw::rdma_accept(self.0.id()?.as_raw(), &mut param) })
    }

    /// Refuses the request the endpoint was made from.
    pub fn reject(&self, message: &RejectMessage) {
        if let Ok(id) = self.0.id() {
            message.send(id.as_nonnull());
        }
    }
}

/// Events of an endpoint's id.
///
/// # Safety
///
/// To be called by the connection manager, for the id of an [`Endpoint<H>`].
unsafe extern "C" fn event<H: Handler>(
    id: *mut raw::rdma_cm_id,
    ev: *mut raw::rdma_cm_event,
) -> ffi::c_int {
    // SAFETY: The context is the endpoint, which destroys the id before it goes.
    let ep = unsafe { &*raw::rtrs_helper_cm_context(id).cast::<Endpoint<H>>() };
    // SAFETY: Valid for the time of this handler.
    let ev = unsafe { CmEvent::from_raw(id, ev) };
    if matches!(ev, CmEvent::DeviceRemoval) {
        ep.removed.store(true, Relaxed);
    }
    if !ep.dying.load(Acquire) {
        if matches!(ev, CmEvent::AddrResolved) {
            ep.resolved.store(true, Release);
        }
        ep.handler.cm_event(Locked(ep), ev);
    }
    // Never ask the connection manager to destroy what we own.
    0
}
