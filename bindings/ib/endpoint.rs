// SPDX-License-Identifier: GPL-2.0

//! One end of a reliable connection.
//!
//! # Locking
//!
//! Events of one endpoint are serialised by the connection manager's handler mutex of its `cm_id`.
//! A [`Locked`] proves that the mutex is held: functions that must not run concurrently with an
//! event take one.

mod equipped;
mod locked;

pub use self::{
    equipped::Equipped,
    locked::Locked, //
};

use core::{
    mem::ManuallyDrop,
    ptr::NonNull, //
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
        InterfaceName,
        PortSpace, //
    },
    consumer::{
        Consumer,
        Farewell, //
    },
    device::Device,
    domain::Domain,
    flight::Landing,
    listen::PendingConnection,
    queue::{
        Message,
        Polled,
        QpEvent,
        QueuePair,
        Receiving, //
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

/// The receiver of the events and completions of an endpoint.
///
/// The context of a queue is its [`PollContext`](super::PollContext). Completions of a [queue for
/// sends](super::QueueConfig::sent) are handled in softirq, or in a task that [looks for
/// them](QueuePair::reap_in_task), perhaps while another processor handles a receive.
pub trait Handler: Send + Sync + Sized + 'static {
    /// Data of the user that is kept with each [`Flight`](super::Flight).
    type Cargo: Send + Sync + 'static;

    /// Whether a [`Flight`](super::Flight) of this side can end by a receive that invalidates its
    /// key. If not then such receives are not noted: a side that registers nothing for its peer, or
    /// invalidates its keys itself, does not look at each receive for one.
    const KEYS_ARE_INVALIDATED: bool = true;

    /// Whether queue pairs of this side may have receives with [`Buffer`](super::Buffer)s.
    const RECEIVES_MESSAGES: bool = false;

    /// Size in bytes of the pages in which a [`Flight`](super::Flight) describes data to its memory
    /// region. Not every device has every size: [`Flights::new`](super::Flights::new) checks it.
    const PAGE_SIZE: u32 = 4096;

    /// An event of the connection. May sleep; must not drop the endpoint.
    fn cm_event(&self, ep: Locked<'_, Self>, event: CmEvent<'_>);

    /// A signalled chain with `token` completed. Or a request of a chain without a token, or one
    /// that is not the last of its chain, failed: then `token` is `None`, or that of the chain, and
    /// the status is not success. Context: the queue's.
    fn send_done(&self, ep: &Endpoint<Self>, qp: &QueuePair, token: Option<u32>, wc: &Wc);

    /// A completion was found. Called before all other functions for each completion, also for sends
    /// without a token. Context: the queue's.
    #[inline]
    fn cqe_polled(&self, polled: Polled) {
        let _ = polled;
    }

    /// A chain with a note in the ledger completed, and with it everything posted before: there is
    /// room in the send queue again. Called after `send_done()` or `landed()`, or instead of
    /// `send_done()` for chains without a token.
    /// Context: the queue's.
    #[inline]
    fn send_retired(&self, ep: &Endpoint<Self>, qp: &QueuePair) {
        let _ = (ep, qp);
    }

    /// An [invalidation](QueuePair::invalidate) with `token` completed: the key is not valid any
    /// more. Called after `send_retired()` if there is room in the send queue again. Context: the
    /// queue's.
    #[inline]
    fn key_invalid(&self, ep: &Endpoint<Self>, qp: &QueuePair, token: u32) {
        let _ = (ep, qp, token);
    }

    /// A [`Flight`](super::Flight) is over. Context: the queue's.
    fn landed(&self, ep: &Endpoint<Self>, landing: Landing<'_, Self>) {
        let _ = ep;
        drop(landing);
    }

    /// A receive completed; [`QueuePair::recv_token`] has returned `token`. Context: the queue's.
    fn recv_done(&self, ep: &Endpoint<Self>, qp: Receiving<'_>, token: u32, wc: &Success);

    /// The same, if it was by an RDMA write with the immediate value `imm`, but without the token, which
    /// not every receiver needs. Without this function such receives go to
    /// [`recv_done`](Self::recv_done), too.
    #[inline(always)]
    fn recv_written(&self, ep: &Endpoint<Self>, qp: Receiving<'_>, imm: u32, wc: &Success) {
        let _ = imm;
        self.recv_done(ep, qp, qp.recv_token(wc), wc);
    }

    /// The same, if it was by a message, each receive of the queue has a [`Buffer`](super::Buffer), and
    /// [`RECEIVES_MESSAGES`](Self::RECEIVES_MESSAGES) is set; such a handler must have this function. A
    /// message that is not [posted again](Message::post_again) is a receive less.
    fn recv_message(&self, ep: &Endpoint<Self>, message: Message<'_>, wc: &Success) {
        let _ = (ep, message, wc);
    }

    /// A receive failed: no further message is received. Context: the queue's.
    fn recv_failed(&self, ep: &Endpoint<Self>, wc: &Wc);

    /// The device reports that the peer broke the rules of the transport, perhaps before
    /// outstanding requests fail. Any context.
    fn qp_event(&self, ep: &Endpoint<Self>, event: QpEvent) {
        let _ = (ep, event);
    }
}

/// One end of a reliable connection: the `cm_id`, and the queue pair once it is created.
///
/// Dropping it ends the connection and waits until no callback runs; this sleeps, and must not be
/// done from a callback.
#[pin_data(PinnedDrop)]
pub struct Endpoint<H: Handler> {
    // Dropped after `free_cq()`.
    qp: OnceBox<QueuePair>,
    /// Address of the domain of the queue pair; 0 before there is one.
    domain: Atomic<usize>,
    /// Taken out by `drop()`, after the queue pair was destroyed.
    id: SetOnce<ManuallyDrop<CmId>>,
    handler: Arc<H>,
    /// Set under the handler lock: events are ignored from then on.
    dying: Atomic<bool>,
    /// Set under the handler lock: no attempt to connect begins any more. One that fails frees what
    /// `rdma_disconnect()` uses.
    ending: Atomic<bool>,
    /// Made for a request that was neither accepted nor refused. Changed under the handler lock. On
    /// iWARP a second decision frees what the first one uses, and so does one about a request that
    /// is this side's own.
    undecided: Atomic<bool>,
    /// The address is resolved: the addresses in the id do not change any more.
    resolved: Atomic<bool>,
    /// Copies of the addresses in the id, as soon as they are known: on iWARP the connection
    /// manager writes them again when the connection is made.
    peer: SetOnce<SockAddr>,
    local: SetOnce<SockAddr>,
    /// The id may have sent datagrams, or be about to, so that destroying it sends some.
    greeted: Atomic<bool>,
    /// The device is being removed.
    removed: Atomic<bool>,
    /// The queue pair was destroyed, if there is one.
    severed: bool,
    /// The entry with which the id waits for its port at the end.
    place: Option<KBox<Farewell>>,
    index: u16,
    /// Dropped last: the module may be unloaded after that.
    consumer: Consumer,
    #[pin]
    _pin: core::marker::PhantomPinned,
}

impl<H: Handler> Endpoint<H> {
    fn alloc(
        handler: Arc<H>,
        index: u16,
        place: Option<KBox<Farewell>>,
        consumer: &Consumer,
    ) -> Result<Pin<KBox<Self>>> {
        let consumer = consumer.clone();
        KBox::pin_init(
            pin_init!(Self {
                qp: OnceBox::new(),
                domain: Atomic::new(0),
                id: SetOnce::new(),
                handler,
                dying: Atomic::new(false),
                ending: Atomic::new(false),
                undecided: Atomic::new(false),
                resolved: Atomic::new(false),
                peer: SetOnce::new(),
                local: SetOnce::new(),
                greeted: Atomic::new(false),
                removed: Atomic::new(false),
                severed: false,
                place,
                index,
                consumer,
                _pin: core::marker::PhantomPinned,
            }),
            GFP_KERNEL,
        )
    }

    fn context(self: Pin<&Self>) -> *mut ffi::c_void {
        core::ptr::from_ref(self.get_ref()).cast_mut().cast()
    }

    /// Creates an endpoint that is going to connect. May sleep.
    ///
    /// The caller can use `index` to distinguish the endpoints of one handler.
    pub fn new(
        handler: Arc<H>,
        index: u16,
        ps: PortSpace,
        consumer: &Consumer,
    ) -> Result<Pin<KBox<Self>>> {
        let this = Self::alloc(handler, index, Some(Farewell::new()?), consumer)?;
        // SAFETY: The endpoint is pinned, and lives until the id, which it owns, is destroyed.
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

    /// Creates an endpoint for a request that is going to be accepted. May sleep.
    pub fn from_pending(
        handler: Arc<H>,
        index: u16,
        pending: PendingConnection,
    ) -> Result<Pin<KBox<Self>>, (PendingConnection, Error)> {
        let mut this = match Self::alloc(handler, index, None, pending.consumer()) {
            Ok(this) => this,
            Err(e) => return Err((pending, e)),
        };
        let (id, place, _consumer) = pending.into_parts();
        // SAFETY: No pinned field is moved, and no other task has the endpoint.
        unsafe { this.as_mut().get_unchecked_mut() }.place = Some(place);
        let context = this.as_ref().context();
        id.with_handler_lock(|| {
            // SAFETY: No handler of the id runs; the endpoint is pinned, and lives until the id,
            // which it owns from now on, is destroyed.
            unsafe {
                raw::rtrs_helper_cm_set_context(id.as_raw(), context, Some(event::<H>));
            }
            // The removal is announced only once.
            let removed = this.place.as_ref().is_some_and(|place| place.is_removed());
            this.removed.store(removed, Relaxed);
        });
        this.peer.populate(id.dst());
        this.local.populate(id.src());
        this.id.populate(ManuallyDrop::new(id));
        // The request came with the address, and waits for an answer.
        this.resolved.store(true, Release);
        this.greeted.store(true, Relaxed);
        this.undecided.store(true, Relaxed);
        Ok(this)
    }

    /// The queue pair, if it was created.
    #[inline(always)]
    pub fn qp(&self) -> Option<&QueuePair> {
        self.qp.get()
    }

    /// The queue pair, if it was created, in `domain`.
    #[inline(always)]
    pub(super) fn qp_in(&self, domain: NonNull<Domain>) -> Option<&QueuePair> {
        // Acquire pairs with the store in `create_qp()`. The queue pair keeps its domain: no
        // other one has that address.
        if self.domain.load(Acquire) != domain.addr().get() {
            return None;
        }
        // SAFETY: The address was stored after the queue pair.
        Some(unsafe { self.qp.get_unchecked() })
    }

    /// The queue pair.
    ///
    /// # Safety
    ///
    /// The caller must be called for one of its completions: the code that posted the request had
    /// found the queue pair here.
    #[inline(always)]
    pub(super) unsafe fn qp_of_completion(&self) -> &QueuePair {
        // SAFETY: By the safety requirements of this function, the queue pair was found here
        // before.
        unsafe { self.qp.get_unchecked() }
    }

    /// The receiver of the events.
    #[inline]
    pub fn handler(&self) -> &Arc<H> {
        &self.handler
    }

    /// The number that the endpoint was created with.
    #[inline]
    pub fn index(&self) -> u16 {
        self.index
    }

    /// The number of flights that were posted here, and have neither ended nor been collected. Any
    /// context.
    pub fn in_flight(&self) -> u32 {
        let (landed, flown) = self.qp().map_or((0, 0), |qp| (qp.landed(), qp.flown()));
        // CAST: The difference, modulo 2^32, of counts that are close to each other.
        let left = flown.wrapping_sub(landed) as i32;
        // One of them may be newer than the other.
        left.max(0).unsigned_abs()
    }

    /// The number of flights that have ended here, modulo 2^32. Any context.
    pub fn landed(&self) -> u32 {
        self.qp().map_or(0, QueuePair::landed)
    }

    fn id(&self) -> Result<&CmId> {
        self.known_id().ok_or(EINVAL)
    }

    fn known_id(&self) -> Option<&CmId> {
        self.id.as_ref().map(|id| &**id)
    }

    /// The id, once its address is resolved. Until then the connection manager writes to it.
    fn resolved_id(&self) -> Option<&CmId> {
        // Acquire pairs with the stores: everything written before them is visible.
        self.resolved
            .load(Acquire)
            .then(|| self.known_id())
            .flatten()
    }

    /// The module, as a user of RDMA.
    pub fn consumer(&self) -> &Consumer {
        &self.consumer
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
        self.local.copy()
    }

    /// The peer's address: that of the request, or the one that is
    /// [resolved](Self::resolve_addr), once that was begun.
    pub fn peer(&self) -> Option<SockAddr> {
        self.peer.copy()
    }

    /// Whether the local address still belongs to the port. True until the address is resolved. Any
    /// context.
    pub fn has_source(&self) -> bool {
        self.resolved_id().is_none_or(CmId::has_source)
    }

    /// Whether the port can send and receive. True until the address is resolved, or if the state
    /// is not known. Does not sleep; process context.
    pub fn port_is_active(&self) -> bool {
        self.resolved_id().is_none_or(CmId::port_is_active)
    }

    /// The network interface that the address was resolved to. Any context.
    pub fn interface(&self) -> Option<InterfaceName> {
        self.resolved_id()?.interface()
    }

    /// Starts to resolve `dst`, and the route to it from `src`; an event reports the result. May
    /// sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a second call, or an error of the connection manager.
    pub fn resolve_addr(
        self: Pin<&mut Self>,
        src: Option<&SockAddr>,
        dst: &SockAddr,
        timeout_ms: u32,
    ) -> Result {
        if !self.peer.populate(*dst) {
            return Err(EINVAL);
        }
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
    /// exponent of the IB specification: 4.096 us * 2^`exponent`. May sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an exponent above 31: it has five bits, and the connection manager shifts by it.
    pub fn set_ack_timeout(&self, exponent: u8) -> Result {
        if exponent > 31 {
            return Err(EINVAL);
        }
        // SAFETY: The id is valid.
        to_result(unsafe { raw::rdma_set_ack_timeout(self.id()?.as_raw(), exponent) })
    }

    /// Runs `f` while no event of this endpoint is handled. May sleep; must not be called from its
    /// own event handler, nor from such an `f`.
    pub fn locked<R>(&self, f: impl FnOnce(Locked<'_, H>) -> R) -> Result<R> {
        Ok(self.id()?.with_handler_lock(|| f(Locked(self))))
    }

    /// Tells the connection manager that the connection is up, as the queue pair has received a
    /// message before the last message of the connection manager, which was lost and need not be
    /// repeated. Any context.
    pub(super) fn communication_established(&self) {
        if let Some(id) = self.known_id() {
            // SAFETY: The id is valid. The call fails if the connection is already up.
            unsafe { raw::rdma_notify(id.as_raw(), raw::ib_event_type_IB_EVENT_COMM_EST) };
        }
    }

    /// Closes the gate, tells the peer, and lets the queue pair flush outstanding requests; while
    /// the port is down, only closes the gate. A connection that is not there yet will not be made.
    /// Waits for the handler of an event that runs, but not for the peer. May sleep; must not be
    /// called from the endpoint's own event handler, nor within [`locked`](Self::locked).
    pub fn disconnect(&self) {
        if let Some(qp) = self.qp() {
            qp.close_gate();
        }
        let Some(id) = self.known_id() else { return };
        // The lock is not kept for the call below: on iWARP that waits for an attempt to connect,
        // the end of which is an event.
        id.with_handler_lock(|| self.ending.store(true, Release));
        // Before the address is resolved there is no connection.
        if let Some(id) = self.resolved_id().filter(|id| id.port_is_active()) {
            // SAFETY: The id is valid. No attempt to connect fails while this runs: one that failed
            // before has returned, and none begins. If one is under way, or there is a connection,
            // what the call uses is freed with the id; if there is neither, the call fails.
            unsafe { raw::rdma_disconnect(id.as_raw()) };
        }
    }

    /// Disconnects, and waits until the connection is quiet, unless another caller drains already:
    /// then this returns at once. When the call that drains returns, no event is being handled or
    /// will be, nothing is posted any more, and what was posted has completed. Only
    /// [`Handler::qp_event`], for asynchronous events of the queue pair, may still be called until
    /// the endpoint is dropped.
    ///
    /// If the device refuses to change the state of the queue pair, this returns earlier. Then the
    /// device may access memory until the queue pair is [destroyed](Self::destroy_qp), and
    /// completions may be handled until the endpoint is dropped. No memory is given back because of
    /// a drain: pages stay as long as the domain, and a [`Flight`](super::Flight) that has not
    /// ended is collected when the domain has no queue pair.
    ///
    /// The remaining steps are to [destroy the queue pair](Self::destroy_qp), and to drop the
    /// endpoint. Unlike this function, both may take long. Sleeps; must not be called from a
    /// callback.
    pub fn drain(&self) {
        let Some(id) = self.known_id() else { return };

        id.with_handler_lock(|| self.dying.store(true, Release));
        self.disconnect();
        if let Some(qp) = self.qp() {
            qp.drain();
        }
    }

    /// Drains, and destroys the queue pair: when this returns, no packet of the connection is on
    /// its way out of this host, and the device does not access memory on its behalf. May take
    /// long: a device may have packets that wait for a link.
    ///
    /// Dropping the endpoint then destroys the completion queues and the id, which may take as long.
    /// A caller that wants to send the requests in flight elsewhere need not wait for it. Sleeps;
    /// must not be called from a callback.
    pub fn destroy_qp(self: Pin<&mut Self>) {
        // SAFETY: No pinned field is moved.
        let this = unsafe { self.get_unchecked_mut() };
        // No event reaches the handler after this, so that the queue pair can be destroyed before
        // the id, as required.
        this.drain();
        if core::mem::replace(&mut this.severed, true) {
            return;
        }
        if let Some(qp) = this.qp() {
            // SAFETY: The flag ensures that this is called once; this endpoint owns the queue pair,
            // and is not dropped or drained from a callback, as documented.
            unsafe { qp.destroy_qp() };
        }
    }
}

#[pinned_drop]
impl<H: Handler> PinnedDrop for Endpoint<H> {
    fn drop(mut self: Pin<&mut Self>) {
        self.as_mut().destroy_qp();
        // SAFETY: No pinned field is moved.
        let this = unsafe { self.get_unchecked_mut() };
        if let Some(qp) = this.qp() {
            // SAFETY: This is the only call, after the QP was destroyed.
            unsafe { qp.free_cq() };
        }
        // SAFETY: The id is taken out only here, and is not used in the endpoint afterwards.
        let id = this.id.as_ref().map(|id| unsafe { core::ptr::read(&**id) });
        match (id, this.place.take()) {
            // Without an address the id has sent nothing: an attempt to connect has failed.
            (Some(id), Some(place))
                if this.greeted.load(Relaxed) && this.resolved.load(Acquire) =>
            {
                this.consumer.part_with(id, &this.removed, place);
            }
            (id, _) => drop(id),
        }
    }
}

/// Handles events of an endpoint's id.
///
/// # Safety
///
/// Must be called by the connection manager only, for the id of an [`Endpoint<H>`].
unsafe extern "C" fn event<H: Handler>(
    id: *mut raw::rdma_cm_id,
    ev: *mut raw::rdma_cm_event,
) -> ffi::c_int {
    // SAFETY: The context is the endpoint, which destroys the id before it is freed.
    let ep = unsafe { &*raw::rtrs_helper_cm_context(id).cast::<Endpoint<H>>() };
    // SAFETY: `id` and `ev` are valid while this handler runs.
    let ev = unsafe { CmEvent::from_raw(id, ev) };
    if matches!(ev, CmEvent::DeviceRemoval) {
        ep.removed.store(true, Relaxed);
    }
    if !ep.dying.load(Acquire) {
        if matches!(ev, CmEvent::AddrResolved) {
            if let Some(id) = ep.known_id() {
                ep.local.populate(id.src());
            }
            ep.resolved.store(true, Release);
        }
        ep.handler.cm_event(Locked(ep), ev);
    }
    // The connection manager must not destroy the id, which the endpoint owns.
    0
}
