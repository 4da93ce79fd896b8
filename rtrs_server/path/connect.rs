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
        Equipped,
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
        Capabilities,
        ConnAccept,
        ConnReq,
        InfoReq,
        RejectErrno,
        SENT_REST,
        SERVICE_QUEUE_DEPTH, //
    },
    qp_size::{
        QpLimits,
        QpSize, //
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
        receives::{
            self,
            Receives, //
        },
        ring::Ring, //
    }, //
};

/// Send work requests from request to answer: invalidation of the chunk's key, data, registration,
/// invalidation of the client's key, answer.
const WRS_INVALIDATE: u32 = 5;

/// The same if keys do not change: data, invalidation of the client's key, answer.
const WRS_KEEP: u32 = 3;

/// Elements of a receive for sent writes: the data, and what follows them.
const RECV_SGES: u32 = 2;

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
    pub(super) eps: KVVec<Option<Equipped<Path>>>,
    /// Receives to post, by connection id.
    pub(super) recvs: KVVec<Receives>,
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
        let recvs = KVVec::from_elem(Receives::default(), announced, GFP_KERNEL)?;
        let mut expected = KVVec::with_capacity(announced, GFP_KERNEL)?;
        for _ in 0..announced {
            eps.push(None, GFP_KERNEL)?;
            expected.push(None, GFP_KERNEL)?;
        }
        let setup = Setup {
            closed: false,
            domain: None,
            eps,
            recvs,
        };
        Ok(pin_init!(Self {
            accepted: Atomic::new(0),
            expected <- new_spinlock_irq!(Ring::new(expected), "rtrs_srv_expected"),
            setup <- new_mutex!(setup, "rtrs_srv_setup"),
        }))
    }
}

/// The queues of a connection.
struct Queues {
    size: QpSize,
    /// The receives have memory, for so many sent writes that the client counts on.
    sent: Option<u32>,
}

impl Queues {
    /// For a connection with so many sent writes.
    fn new(config: &Config, device: &Device, service: bool, sent: Option<u32>) -> Result<Self> {
        Ok(Self {
            size: queue_size(config, device, service, sent)?,
            sent,
        })
    }

    /// The bytes that are counted for them.
    fn memory(&self) -> u64 {
        let queues = queue_memory(self.size.send_wr, self.size.recv_wr);
        let buffers = match self.sent {
            Some(_) => receives::memory(self.size.recv_wr),
            None => 0,
        };
        queues.saturating_add(buffers)
    }
}

/// Whether `device` can receive the writes that `client` may send.
pub(crate) fn takes_sends(config: &Config, device: &Device, client: &Capabilities) -> bool {
    if !config.takes_sends_of(client) {
        return false;
    }
    let attrs = device.attrs();
    attrs.tells_messages && attrs.max_recv_sge >= RECV_SGES
}

/// Returns the sizes of the queues of a connection.
fn queue_size(
    config: &Config,
    device: &Device,
    service: bool,
    sent: Option<u32>,
) -> Result<QpSize> {
    let attrs = device.attrs();
    let limits = QpLimits {
        max_qp_wr: attrs.max_qp_wr,
        max_cqe: attrs.max_cqe,
        max_send_sge: attrs.max_send_sge,
    };
    let depth = config.geometry.queue_depth();
    let counted_on = sent.unwrap_or(depth.into());

    if service {
        QpSize::service(&limits, 1, REG_BATCH)
    } else if config.always_invalidate {
        QpSize::server_io(&limits, depth, counted_on, WRS_INVALIDATE, 1)
    } else {
        QpSize::server_io(&limits, depth, counted_on, WRS_KEEP, 1)
    }
    .map_err(|_| EINVAL)
}

/// Returns the bytes that are counted for the queues of a path, the first connection of which has
/// asked by `req`.
pub(crate) fn path_queue_memory(config: &Config, device: &Device, req: &ConnReq) -> Result<u64> {
    let service = Queues::new(config, device, true, None)?;
    let io_cons = req.cid_num.saturating_sub(1);
    // Each may ask for as much as it can get, or for receives without memory.
    let io = Queues::new(config, device, false, None)?.memory();
    let io = match takes_sends(config, device, &req.capabilities) {
        true => {
            let most = receives::most_counted_on(config.geometry.queue_depth(), io_cons);
            io.max(Queues::new(config, device, false, Some(most))?.memory())
        }
        false => io,
    };

    Ok(service
        .memory()
        .saturating_add(io.saturating_mul(io_cons.into())))
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

        let (mut setup, queues) = loop {
            let mut setup = self.conns.setup.lock();
            let refusal = match self.check(&mut setup, req, &pending) {
                Ok(queues) => break (setup, queues),
                Err(refusal) => refusal,
            };
            // Neither rejected, nor is room made, with the lock held.
            drop(setup);
            tries = tries.saturating_sub(1);
            if tries == 0 || !self.finds_room(&refusal, req, &pending) {
                pending.reject(&reject_message(refusal.errno()));
                return Err(refusal);
            }
        };
        let memory = queues.memory();
        let ep = match Endpoint::from_pending(self.clone(), req.cid, pending) {
            Ok(ep) => ep,
            Err((pending, e)) => {
                self.one_less(memory);
                // A connection is neither rejected nor dropped with the lock held.
                drop(setup);
                let refusal = Refusal::from(e);
                pending.reject(&reject_message(refusal.errno()));
                return Err(refusal);
            }
        };
        let result = ep
            .locked(|locked| -> Result {
                let message = self.equip(&mut setup, &locked, &queues).inspect_err(|e| {
                    let errno = RejectErrno::from_kernel(e.to_errno());
                    locked.reject(&reject_message(errno));
                })?;
                self.accept(&locked, &message)
            })
            .and_then(|result| result);
        let result = match result {
            // Does not fail: it was equipped above.
            Ok(()) => Equipped::new(ep).map_err(|ep| (ep, EINVAL)),
            Err(e) => Err((ep, e)),
        };
        match result {
            Ok(ep) => {
                if let Some(place) = setup.eps.get_mut(usize::from(req.cid)) {
                    *place = Some(ep);
                }
                drop(setup);
                self.kick();
                Ok(())
            }
            Err((ep, e)) => {
                self.one_less(memory);
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

    /// Checks that the connection can be added, and returns its queues.
    fn check(
        &self,
        setup: &mut Setup,
        req: &ConnReq,
        pending: &PendingConnection,
    ) -> Result<Queues, Refusal> {
        let taken = setup
            .eps
            .get(usize::from(req.cid))
            .is_none_or(Option::is_some);
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
        let queues = self.queues(device, req)?;
        self.take_shares(queues.memory())?;
        Ok(queues)
    }

    /// The queues of the connection that is asked for by `req`.
    fn queues(&self, device: &Device, req: &ConnReq) -> Result<Queues> {
        let config = &self.session.ctx.config;
        let service = req.cid == 0;
        // What the first connection has said counts for the chunks, which have pages for sent writes, or
        // none.
        let most = req
            .capabilities
            .sends
            .filter(|_| !service && takes_sends(config, device, &self.client));
        let sent = most.map(|most| {
            let io = self.cid_num.saturating_sub(1);
            receives::counted_on(config.geometry.queue_depth(), io, most)
        });
        Queues::new(config, device, service, sent)
    }

    /// Whether others have given way, so that the connection that is asked for by `req`, for which there
    /// was `refusal`, may be tried again. May sleep.
    fn finds_room(&self, refusal: &Refusal, req: &ConnReq, pending: &PendingConnection) -> bool {
        let (Refusal::Quota(over), Some(device)) = (refusal, pending.device()) else {
            return false;
        };
        let Ok(queues) = self.queues(device, req) else {
            return false;
        };
        let amount = match over.resource {
            Resource::Memory => queues.memory(),
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
        queues: &Queues,
    ) -> Result<[u8; ConnAccept::SIZE]> {
        let domain = setup.domain.clone().ok_or(EINVAL)?;
        let service = ep.index() == 0;
        let cfg = self.queue_config(queues);
        let qp = ep.create_qp(&domain, &cfg)?;
        let counted_on = match queues.sent {
            _ if service => SERVICE_QUEUE_DEPTH.into(),
            Some(sent) => sent,
            None => self.geometry().queue_depth().into(),
        };
        if let Some(place) = setup.recvs.get_mut(usize::from(ep.index())) {
            *place = Receives::of(cfg.recv_wrs, counted_on);
        }
        if service {
            self.expect_info(&domain, qp)?;
        }

        let config = &self.session.ctx.config;
        let accept = ConnAccept {
            kept: self.session.is_kept(),
            orders_copies: true,
            inval_answers: !config.always_invalidate && self.client.inval_answers_always,
            takes_sends: takes_sends(config, domain.device(), &self.client),
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

    fn queue_config(&self, queues: &Queues) -> QueueConfig {
        let size = &queues.size;
        let recv_wrs = size.recv_wr.saturating_sub(1);
        // The queue pair adds the one for draining by itself.
        QueueConfig {
            send_wrs: size.send_wr.saturating_sub(1),
            recv_wrs,
            send_sges: size.send_sge,
            inline_max: inline_max(),
            comp_vector: self.session.ctx.next_vector(),
            poll: PollContext::Workqueue,
            portion: self.session.ctx.config.portion(),
            send_tokens: SEND_TOKENS,
            key_tokens: match self.session.ctx.config.always_invalidate {
                true => self.geometry().queue_depth().into(),
                false => 0,
            },
            recv_tokens: match queues.sent {
                Some(_) => recv_wrs,
                None => RECV_TOKENS,
            },
            recv_rest: match queues.sent {
                Some(_) => SENT_REST,
                None => 0,
            },
            // Answers are written.
            sends: 0,
            // Invalidations are waited for.
            sent: None,
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
