// SPDX-License-Identifier: GPL-2.0

//! A link: the connections of one attempt to connect a path.
//!
//! A [`Path`] lives as long as the operator wants it. A link lives from one attempt to connect
//! until it fails, and none of its objects is ever reused, so nothing has to be reset on reconnect.
//!
//! # Lifetimes
//!
//! [`Link`] owns the endpoints. They call back into [`LinkCore`], which owns the objects that
//! requests need. While connecting, the link belongs to the path's owner task. Once connected, it
//! is published under RCU for the submitters. The teardown takes it back, waits for a grace period,
//! drains the endpoints, which ends all callbacks, and destroys their queue pairs. Requests that
//! were in flight are sent over other paths then. Finally the link is dropped: endpoints first,
//! then the core.
//!
//! # Context
//!
//! `cm_event` may sleep; completions run in softirq, or with softirqs disabled; [`LinkCore::fail`] may be
//! called anywhere.

mod completion;
mod inspect;
mod io;
mod left;
mod setup;

use kernel::{
    prelude::*,
    sync::{
        Arc,
        SetOnce, //
    },
};
use rtrs_bindings::{
    errno,
    ib::{
        DmaPages,
        Endpoint,
        Flights,
        QueuePair, //
    },
    places::Kept,
};
use rtrs_core::{
    proto::{
        heartbeat::{
            HbAsked,
            HbCounts, //
        },
        Capabilities,
        ChunkImm,
        Geometry,
        Liveness,
        RemoteBuf,
        Room,
        SERVICE_QUEUE_DEPTH, //
    },
    qp_size::RECV_BATCH,
};

use crate::{
    atomic::{
        Atomic,
        Relaxed, //
    },
    logic::path_state::Failure,
    params,
    path::{
        Failed,
        Path, //
    },
    request::{
        Cons,
        Io,
        Permits, //
    },
    stats::Stamp,
};

/// Receive token of the answer with the chunks, on the service connection.
const INFO_TOKEN: u32 = 2 * SERVICE_QUEUE_DEPTH as u32 + RECV_BATCH;

/// Send token of answers to heartbeats, on the service connection.
const ACK_TOKEN: u32 = 0;

/// Bytes of a receive buffer: the largest answer to a request.
const RECV_SIZE: usize = rtrs_core::proto::RkeyRsp::SIZE;

/// A link's state of one permit, with its flight.
pub(crate) struct LinkIo {
    /// The session's state of the permit.
    place: Kept<Io>,
    /// The time when the link took the request.
    stamp: Stamp,
    chunk: Chunk,
    imm: ChunkImm,
}

/// One chunk of the server.
struct Chunk {
    addr: Atomic<u64>,
    rkey: Atomic<u32>,
}

/// What the server said when it accepted the service connection.
struct Accepted {
    geometry: Geometry,
    /// It still had the session.
    kept: bool,
    /// A request that is sent again does not execute in parallel to its first copy.
    orders_copies: bool,
}

/// State of a link that knows what the server has: made before the connections for requests.
struct Ready {
    /// Limits of requests, if they are narrower than the session's.
    narrower: Option<Room>,
    /// The session's.
    permits: Arc<Permits>,
    /// By permit. The session's message store is mapped for them. They have the buffers for data
    /// that are copied.
    flights: Flights<LinkCore>,
    /// Those for which an answer without a message may be all: none if chunks' new keys have to
    /// come with answers.
    answered: Flights<LinkCore>,
    /// Those for which the answer may say that the chunk has its next key: none unless the server was
    /// told so.
    counted: Flights<LinkCore>,
    /// The answer with the chunks, and behind it the request for them.
    info: DmaPages,
    /// Receive buffers, by connection; empty if no answer has bytes.
    recv: KVec<DmaPages>,
}

/// State that the connections of a link share.
pub(crate) struct LinkCore {
    /// Number of the link in its path's life, for events.
    pub(crate) number: u32,
    pub(crate) path: Arc<Path>,
    cons: Cons,
    accepted: SetOnce<Accepted>,
    new_rkey: Atomic<bool>,
    /// The server may answer reads by the message that invalidates their key. Set when the server
    /// has accepted the service connection, before there are others and before receives are posted.
    inval_answers: Atomic<bool>,
    /// The server takes writes as messages. Set likewise.
    sends: Atomic<bool>,
    /// What the server was told that this side can do.
    capabilities: Capabilities,
    ready: SetOnce<Ready>,
    /// Pieces of data that are sent from where they are, without registration.
    direct_segments: Atomic<u32>,
    /// Another path of the session asks the server to create it.
    gave_way: Atomic<bool>,
    /// The server was presumed to know the session, since other paths of it are up.
    presumed: Atomic<bool>,
    established: Atomic<u32>,
    failed: Atomic<bool>,
    pub(crate) liveness: Liveness,
    /// For [`Link::heard`].
    asked: HbAsked,
}

/// A link and its endpoints.
pub(crate) struct Link {
    // Dropped first: they call into `core`.
    endpoints: KVec<Pin<KBox<Endpoint<LinkCore>>>>,
    /// The flights, for requests within the limits of the session. None before they are made, and
    /// if the limits of the link are narrower.
    usual: Flights<LinkCore>,
    pub(crate) core: Arc<LinkCore>,
}

/// A link without queue pairs. Dropping it destroys the rest of its connections, one after the
/// other. The drop may sleep.
pub(crate) struct Severed(Link);

impl Severed {
    /// The state that the connections shared.
    pub(crate) fn core(&self) -> &LinkCore {
        &self.0.core
    }

    /// The number of requests that were in flight, and have to be collected.
    pub(crate) fn left(&self) -> u64 {
        self.0.inflight()
    }
}

impl LinkCore {
    fn new(path: Arc<Path>, number: u32) -> Result<Arc<Self>> {
        let cons = path.session.cons;
        let sends = !path.only_writes.xchg(false, Relaxed) && cons.polled() == 0;
        let capabilities = params::capabilities(sends);
        Ok(Arc::new(
            Self {
                number,
                path,
                cons,
                accepted: SetOnce::new(),
                new_rkey: Atomic::new(false),
                inval_answers: Atomic::new(false),
                sends: Atomic::new(false),
                capabilities,
                ready: SetOnce::new(),
                direct_segments: Atomic::new(u32::MAX),
                gave_way: Atomic::new(false),
                presumed: Atomic::new(false),
                established: Atomic::new(0),
                failed: Atomic::new(false),
                liveness: Liveness::new(),
                asked: HbAsked::new(),
            },
            GFP_KERNEL,
        )?)
    }

    /// Limits of the server, once the service connection is up.
    pub(crate) fn geometry(&self) -> Option<&Geometry> {
        self.accepted.as_ref().map(|accepted| &accepted.geometry)
    }

    /// Whether the server still had the session when it accepted the link.
    pub(crate) fn is_kept(&self) -> bool {
        self.accepted.as_ref().is_some_and(|accepted| accepted.kept)
    }

    /// Whether a request that is sent again does not execute in parallel to its first copy. Any
    /// context.
    pub(crate) fn orders_copies(&self) -> bool {
        self.accepted
            .as_ref()
            .is_some_and(|accepted| accepted.orders_copies)
    }

    /// The link has failed; its owner is told once. Any context.
    pub(crate) fn fail(&self, why: &'static str, errno: i32) {
        self.fail_as(Failure::of(errno), why, errno);
    }

    /// The server refused connection `con`.
    fn refused(&self, con: u16, errno: i32) {
        // A refusal is about this client. It does not show that the server has changed: it is never
        // final.
        let unknown = errno == errno::ENXIO.to_errno();
        let (failure, why) = if unknown && self.gave_way.load(Relaxed) {
            (Failure::GaveWay, "rejected")
        } else if unknown && self.presumed.load(Relaxed) {
            (Failure::Unknown, "the server does not know the session")
        } else if con != 0 && self.sends.load(Relaxed) {
            // Perhaps for want of memory to receive them, or of a device that can.
            self.path.only_writes.store(true, Relaxed);
            (
                Failure::WithSends,
                "rejected, the next attempt sends no writes",
            )
        } else {
            (Failure::Again, "rejected")
        };
        self.fail_as(failure, why, errno);
    }

    fn fail_as(&self, failure: Failure, why: &'static str, errno: i32) {
        if self.failed.xchg(true, Relaxed) {
            return;
        }
        let failed = Failed {
            link: self.number,
            failure,
            errno,
            why,
        };
        self.path.notify(|notes| notes.failed = Some(failed));
    }

    /// Whether the link was found to have failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Relaxed)
    }
}

impl Link {
    /// Ends the connections as far as is needed to send the requests in flight elsewhere. After
    /// this nothing of the link runs, nothing uses the memory of requests, and no packet of them is
    /// on its way out of this host. The caller has to collect the requests that were in flight
    /// before it waits for the rest of the connections, which takes longer. May sleep.
    pub(crate) fn sever(mut self) -> Severed {
        // All at once, so that they are flushed in parallel.
        for ep in self.endpoints.iter() {
            ep.disconnect();
        }
        for ep in self.endpoints.iter() {
            ep.drain();
        }
        for ep in self.endpoints.iter_mut() {
            ep.as_mut().destroy_qp();
        }
        Severed(self)
    }

    /// Whether the server, which takes writes as messages, has accepted all connections, and has ended
    /// them before the link was up, if that failed with `errno`. Perhaps for want of memory, which
    /// receives for such writes take.
    pub(crate) fn was_dropped_with_sends(&self, errno: i32) -> bool {
        let core = &self.core;
        core.sends.load(Relaxed)
            && core.established.load(Relaxed) == u32::from(core.cons.count())
            && errno == errno::ECONNRESET.to_errno()
    }

    /// Number of requests in flight. Any context; a sum, not a snapshot.
    pub(crate) fn inflight(&self) -> u64 {
        Self::inflight_of(&self.endpoints)
    }

    /// Number of requests in flight on one connection.
    pub(crate) fn inflight_on(&self, con: u16) -> u64 {
        self.endpoints
            .get(usize::from(con))
            .map_or(0, |ep| Self::inflight_of(core::slice::from_ref(ep)))
    }

    /// Number of requests in flight on polled connections.
    pub(crate) fn polled_inflight(&self) -> u64 {
        let polled = usize::from(self.core.cons.polled());
        let first = self.endpoints.len().saturating_sub(polled);
        self.endpoints.get(first..).map_or(0, Self::inflight_of)
    }

    fn inflight_of(endpoints: &[Pin<KBox<Endpoint<LinkCore>>>]) -> u64 {
        endpoints.iter().map(|ep| u64::from(ep.in_flight())).sum()
    }

    /// Number of connections.
    pub(crate) fn connections(&self) -> usize {
        self.endpoints.len()
    }

    /// For each connection, in order, the number of requests that have ended there, modulo 2^32,
    /// and whether others are in flight. Any context.
    pub(crate) fn progress(&self) -> impl Iterator<Item = (u32, bool)> + '_ {
        self.endpoints
            .iter()
            .map(|ep| (ep.landed(), ep.in_flight() > 0))
    }

    /// Whether the server may not answer heartbeats, as a C server does not while its user handles
    /// an administrative request, which uses the same connection. A server that orders copies of
    /// requests is none of those. Any context.
    pub(crate) fn may_be_mute(&self) -> bool {
        !self.core.orders_copies() && self.inflight_on(0) > 0
    }

    /// The messages that were received. The queues count them in any case, so there is nothing to
    /// do for each. Any context.
    pub(crate) fn received(&self) -> HbCounts {
        let qps = self.endpoints.iter().map(|ep| ep.qp());

        HbCounts::of(qps.map(|qp| qp.map_or(0, QueuePair::received)))
    }

    /// Whether anything was received since the last call of this function. Independent of the
    /// heartbeat. Any context.
    pub(crate) fn heard(&self) -> bool {
        self.core.asked.ask(self.received().total())
    }

    /// Polls the queues for sends: afterwards it is known what has arrived, and whether a device has given
    /// up. Context: a task that holds no lock.
    pub(crate) fn reap_sends(&self) {
        for qp in self.endpoints.iter().filter_map(|ep| ep.qp()) {
            qp.reap_in_task();
        }
    }

    /// Asks for a sign of life, even if a heartbeat is on its way, which may be lost. The link
    /// fails if that is not possible. Any context.
    pub(crate) fn ask(&self) {
        let qp = self.endpoint(0).and_then(Endpoint::qp);
        if let Some(Err(e)) = qp.map(|qp| self.core.liveness.ask(qp)) {
            self.core
                .fail("sending a heartbeat", Error::from(e).to_errno());
        }
    }

    /// Handles completions of a polled queue.
    pub(crate) fn poll(&self, queue: u16, budget: u32) -> u32 {
        self.core
            .cons
            .of_queue(queue)
            .and_then(|con| self.endpoint(con))
            .and_then(Endpoint::qp)
            .map_or(0, |qp| qp.poll(budget))
    }

    /// Returns the end of connection `con`; `None` if the link has no such connection, or not yet.
    /// Any context.
    #[inline(always)]
    pub(crate) fn endpoint(&self, con: u16) -> Option<&Endpoint<LinkCore>> {
        self.endpoints
            .get(usize::from(con))
            .map(|ep| ep.as_ref().get_ref())
    }
}

/// A chunk as the protocol describes it.
impl Chunk {
    fn set(&self, buf: RemoteBuf) {
        self.addr.store(buf.addr, Relaxed);
        self.rkey.store(buf.rkey, Relaxed);
    }
}
