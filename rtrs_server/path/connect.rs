// SPDX-License-Identifier: GPL-2.0

//! Connections of a path, one by one, and the table that has them during the handshake.
//!
//! # Locking
//!
//! * `setup` (mutex): the table. The connection manager's handler mutexes nest inside. Event
//!   handlers of a connection therefore never take it, and connections are never dropped with it
//!   held.
//! * `expected` (spinlock, interrupts off): a leaf.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
};

use rtrs_bindings::{
    ib::{
        ConnParam,
        Device,
        DmaDirection,
        Domain,
        Endpoint,
        Locked,
        PendingConnection,
        PollContext,
        QueueConfig,
        QueuePair, //
    },
    lock::{
        new_spinlock_irq,
        SpinLockIrq, //
    },
    pages::Pages,
    workqueue::WorkExt,
};
use rtrs_core::{
    proto::{
        ConnAccept,
        ConnReq,
        InfoReq,
        RejectErrno,
        SERVICE_QUEUE_DEPTH, //
    },
    qp_size::{
        QpLimits,
        QpSize,
        RECV_BATCH, //
    },
};

use super::{
    receive::{
        RECV_INFO,
        RECV_TOKENS,
        SEND_TOKENS, //
    },
    start::REG_BATCH,
    Path, //
};
use crate::{
    config::{
        ack_timeout,
        inline_max,
        Config, //
    },
    handshake::{
        reject_message,
        Handshake, //
    },
    limits::Refusal,
    logic::{
        path_state::CloseReason,
        quota::{
            queue_memory,
            Resource, //
        },
        ring::Ring, //
    }, //
};

/// Send work requests from request to answer: invalidation of the chunk's key, data, registration,
/// invalidation of the client's key, answer.
const WRS_INVALIDATE: u32 = 5;

/// The same if keys do not change: data, invalidation of the client's key, answer.
const WRS_KEEP: u32 = 3;

/// Number of attempts to find room for a connection.
const MAX_TRIES: u32 = 16;

/// Retries of an unacknowledged request; without limit if the receiver is not ready.
const RETRY: u8 = 7;

/// The table of connections during the handshake.
pub(super) struct Setup {
    /// No connection is added any more.
    pub(super) closed: bool,
    pub(super) domain: Option<Arc<Domain>>,
    /// By connection id, as many as the client announced.
    pub(super) eps: KVVec<Option<Pin<KBox<Endpoint<Path>>>>>,
    /// Receives to post on the service connection, and on each other one.
    pub(super) recvs: (Receives, Receives),
}

/// The connections of a path, until it is started.
#[pin_data]
pub(super) struct Connections {
    /// The number that was accepted, or is just about to be.
    accepted: Atomic<u32>,
    /// Connection requests, in the order of arrival; with room for the announced connections.
    #[pin]
    expected: SpinLockIrq<Ring<KVVec<Option<Arc<Handshake>>>>>,
    #[pin]
    pub(super) setup: Mutex<Setup>,
}

impl Connections {
    /// None of `announced` connections is there yet. May sleep.
    pub(super) fn new(announced: u16) -> Result<impl PinInit<Self>> {
        let announced = usize::from(announced);
        let mut eps = KVVec::with_capacity(announced, GFP_KERNEL)?;
        let mut expected = KVVec::with_capacity(announced, GFP_KERNEL)?;
        for _ in 0..announced {
            eps.push(None, GFP_KERNEL)?;
            expected.push(None, GFP_KERNEL)?;
        }
        let setup = Setup {
            closed: false,
            domain: None,
            eps,
            recvs: Default::default(),
        };
        Ok(pin_init!(Self {
            accepted: Atomic::new(0),
            expected <- new_spinlock_irq!(Ring::new(expected), "rtrs_srv_expected"),
            setup <- new_mutex!(setup, "rtrs_srv_setup"),
        }))
    }
}

/// Receives of a connection.
#[derive(Clone, Copy, Default)]
pub(super) struct Receives {
    /// All receives.
    pub(super) posted: u32,
    /// The receives that the client does not count on.
    pub(super) spare: u32,
}

impl Receives {
    /// As many as there is room for, with `counted_on` that the client counts on.
    fn of(room: u32, counted_on: u32) -> Self {
        let posted = room.min(counted_on.saturating_add(RECV_BATCH));
        Self {
            posted,
            spare: posted.saturating_sub(counted_on),
        }
    }
}

/// Returns the sizes of the queues of a connection.
fn queue_size(config: &Config, device: &Device, service: bool) -> Result<QpSize> {
    let attrs = device.attrs();
    let limits = QpLimits {
        max_qp_wr: attrs.max_qp_wr,
        max_cqe: attrs.max_cqe,
        max_send_sge: attrs.max_send_sge,
    };
    let depth = config.geometry.queue_depth();

    if service {
        QpSize::service(&limits, 1, REG_BATCH)
    } else if config.always_invalidate {
        QpSize::server_io(&limits, depth, WRS_INVALIDATE, 1)
    } else {
        QpSize::server_io(&limits, depth, WRS_KEEP, 1)
    }
    .map_err(|_| EINVAL)
}

/// Returns the bytes that are counted for the queues of a path with `cons` connections.
pub(crate) fn path_queue_memory(config: &Config, device: &Device, cons: u16) -> Result<u64> {
    let service = queue_size(config, device, true)?;
    let io = queue_size(config, device, false)?;
    let all_io = queue_memory(io.send_wr, io.recv_wr).saturating_mul(cons.saturating_sub(1).into());

    Ok(queue_memory(service.send_wr, service.recv_wr).saturating_add(all_io))
}

impl Path {
    /// The number of connections that were accepted; 0 if they are gone. Any context.
    pub(crate) fn cons(&self) -> u32 {
        match self.drained.load(Relaxed) {
            true => 0,
            false => self.conns.accepted.load(Relaxed),
        }
    }

    /// Whether all connections were accepted. Any context.
    pub(super) fn has_all_cons(&self) -> bool {
        self.conns.accepted.load(Acquire) >= u32::from(self.cid_num)
    }

    /// Queues a connection that belongs to this path, until its turn. May sleep.
    ///
    /// # Errors
    ///
    /// If more are waiting than were announced.
    pub(crate) fn expect_connection(
        self: &Arc<Self>,
        handshake: Arc<Handshake>,
    ) -> Result<(), Refusal> {
        let pushed = self.conns.expected.lock().push(handshake);

        pushed.map_err(|_| Refusal::RESET)?;
        self.connect_soon();
        Ok(())
    }

    fn connect_soon(self: &Arc<Self>) {
        self.connect_work
            .enqueue(&self.session.ctx.handshake_queue, self);
    }

    /// Accepts or rejects the first waiting connection. The next one waits until other paths had
    /// their turn.
    pub(super) fn connect_next(self: &Arc<Self>) {
        let next = self.conns.expected.lock().pop();
        let Some(handshake) = next else { return };

        handshake.connect(self);
        if !self.conns.expected.lock().is_empty() {
            self.connect_soon();
        }
    }

    /// Accepts or rejects a connection that belongs to this path. May sleep.
    pub(crate) fn connect(
        self: &Arc<Self>,
        req: &ConnReq,
        pending: PendingConnection,
    ) -> Result<(), Refusal> {
        let result = self.try_connect(req, pending);

        // A path without any connection would get no further event.
        if result.is_err() && self.conns.accepted.load(Acquire) == 0 {
            self.close(CloseReason::Refused);
        }
        result
    }

    fn try_connect(
        self: &Arc<Self>,
        req: &ConnReq,
        pending: PendingConnection,
    ) -> Result<(), Refusal> {
        let mut tries = MAX_TRIES;

        let (mut setup, size) = loop {
            let mut setup = self.conns.setup.lock();
            let refusal = match self.check(&mut setup, req.cid, &pending) {
                Ok(size) => break (setup, size),
                Err(refusal) => refusal,
            };
            // Neither rejected, nor is room made, with the lock held.
            drop(setup);
            tries = tries.saturating_sub(1);
            if tries == 0 || !self.finds_room(&refusal, req.cid, &pending) {
                pending.reject(&reject_message(refusal.errno()));
                return Err(refusal);
            }
        };
        let queues = queue_memory(size.send_wr, size.recv_wr);
        let ep = match Endpoint::from_pending(self.clone(), req.cid, pending) {
            Ok(ep) => ep,
            Err((pending, e)) => {
                self.one_less(queues);
                // A connection is neither rejected nor dropped with the lock held.
                drop(setup);
                let refusal = Refusal::from(e);
                pending.reject(&reject_message(refusal.errno()));
                return Err(refusal);
            }
        };
        let result = ep
            .locked(|locked| -> Result {
                let message = self.equip(&mut setup, &locked, &size).inspect_err(|e| {
                    let errno = RejectErrno::from_kernel(e.to_errno());
                    locked.reject(&reject_message(errno));
                })?;
                self.accept(&locked, &message)
            })
            .and_then(|result| result);
        match result {
            Ok(()) => {
                if let Some(place) = setup.eps.get_mut(usize::from(req.cid)) {
                    *place = Some(ep);
                }
                drop(setup);
                self.kick();
                Ok(())
            }
            Err(e) => {
                self.one_less(queues);
                // A connection is never dropped with the lock held.
                drop(setup);
                drop(ep);
                // It cannot become complete any more. If the client went on trying, the resources
                // it has by now would not be counted.
                self.close(CloseReason::ConnError);
                Err(e.into())
            }
        }
    }

    /// Checks that the connection can be added, and returns the sizes of its queues.
    fn check(
        &self,
        setup: &mut Setup,
        cid: u16,
        pending: &PendingConnection,
    ) -> Result<QpSize, Refusal> {
        let taken = setup.eps.get(usize::from(cid)).is_none_or(Option::is_some);
        if taken || setup.closed || !self.accepts_cons() {
            return Err(Refusal::RESET);
        }

        let device = pending.device().ok_or(Refusal::RESET)?;
        match &setup.domain {
            Some(domain) if core::ptr::eq(domain.device(), device) => (),
            Some(_) => return Err(Refusal::RESET),
            // There is a domain for each path, so that a client's access to its own memory gives it
            // none to the memory of another one.
            None => setup.domain = Some(Domain::new(device, pending.consumer())?),
        }
        let size = queue_size(&self.session.ctx.config, device, cid == 0)?;
        self.take_shares(queue_memory(size.send_wr, size.recv_wr))?;
        Ok(size)
    }

    /// Whether others have given way, so that connection `cid`, for which there was `refusal`, may
    /// be tried again. May sleep.
    fn finds_room(&self, refusal: &Refusal, cid: u16, pending: &PendingConnection) -> bool {
        let (Refusal::Quota(over), Some(device)) = (refusal, pending.device()) else {
            return false;
        };
        let Ok(size) = queue_size(&self.session.ctx.config, device, cid == 0) else {
            return false;
        };
        let amount = match over.resource {
            Resource::Memory => queue_memory(size.send_wr, size.recv_wr),
            _ => 1,
        };
        let registry = &self.session.ctx.registry;
        registry
            .make_room(self.source, *over, amount, Some(self))
            .is_ok()
    }

    /// Makes the objects of the connection, and the message to accept it with.
    fn equip(
        self: &Arc<Self>,
        setup: &mut Setup,
        ep: &Locked<'_, Self>,
        size: &QpSize,
    ) -> Result<[u8; ConnAccept::SIZE]> {
        let domain = setup.domain.clone().ok_or(EINVAL)?;
        let service = ep.index() == 0;
        let cfg = self.queue_config(size);
        let qp = ep.create_qp(&domain, &cfg)?;
        if service {
            let counted_on = u32::from(SERVICE_QUEUE_DEPTH);
            setup.recvs.0 = Receives::of(cfg.recv_wrs, counted_on);
            self.expect_info(&domain, qp)?;
        } else {
            let counted_on = u32::from(self.geometry().queue_depth());
            setup.recvs.1 = Receives::of(cfg.recv_wrs, counted_on);
        }

        let config = &self.session.ctx.config;
        let accept = ConnAccept {
            kept: self.session.is_kept(),
            orders_copies: true,
            inval_answers: !config.always_invalidate && self.client.inval_answers_always,
            ..config.geometry.to_accept(config.always_invalidate)
        };
        if let Some(exponent) = ack_timeout() {
            ep.set_ack_timeout(exponent)?;
        }
        Ok(accept.to_bytes())
    }

    fn accept(&self, ep: &Locked<'_, Self>, message: &[u8]) -> Result {
        // Counted before: the client's first message may arrive before `accept()` returns.
        self.conns.accepted.fetch_add(1, Full);
        let accepted = ep.accept(ConnParam {
            private_data: message,
            retry_count: RETRY,
            // A client that has no receive posted makes the server wait for as long as it likes. On
            // the service connection the heartbeat ends that. On an IO connection nothing does, but
            // only answers to this client wait there.
            rnr_retry_count: RETRY,
        });
        if accepted.is_err() {
            self.conns.accepted.fetch_sub(1, Full);
        }
        accepted
    }

    fn queue_config(&self, size: &QpSize) -> QueueConfig {
        // The queue pair adds the one for draining by itself.
        QueueConfig {
            send_wrs: size.send_wr.saturating_sub(1),
            recv_wrs: size.recv_wr.saturating_sub(1),
            send_sges: size.send_sge,
            inline_max: inline_max(),
            comp_vector: self.session.ctx.next_vector(),
            poll: PollContext::Workqueue,
            send_tokens: SEND_TOKENS,
            key_tokens: match self.session.ctx.config.always_invalidate {
                true => self.geometry().queue_depth().into(),
                false => 0,
            },
            recv_tokens: RECV_TOKENS,
        }
    }

    /// Posts the receive of the info request. Must be called before the connection is accepted.
    fn expect_info(&self, domain: &Arc<Domain>, qp: &QueuePair) -> Result {
        let node = domain.device().numa_node();
        let pages = Pages::new(0, node)?;
        let dma_pages = domain.map(Arc::new(pages, GFP_KERNEL)?, DmaDirection::FromDevice)?;

        qp.post_recv(RECV_INFO, Some(dma_pages.sge(0, InfoReq::SIZE)?))?;
        self.info.lock().dma_pages = Some(dma_pages);
        Ok(())
    }
}
