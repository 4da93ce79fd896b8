// SPDX-License-Identifier: GPL-2.0

//! Setting up a link, in four steps.
//!
//! 1. The owner starts the service connection ([`Link::start`]). Its events resolve the addresses,
//!    create the protection domain and the queue pair, and connect. The server's answer has its
//!    limits.
//! 2. The owner starts the others, all at once ([`Link::expand`]).
//! 3. When all are up, the owner asks for the chunks ([`Link::ask_info`]).
//! 4. The answer wakes the owner, which reads it ([`Link::finish`]) and has receives posted. The
//!    link can be published then.
//!
//! The owner task carries out each step when events wake it. An event handler only advances its own
//! connection, for which it makes the domain and the queue pair.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use rtrs_bindings::{
    errno,
    ib::{
        Access,
        Bounce,
        Chain,
        CmEvent,
        ConnParam,
        DmaDirection,
        DmaPages,
        Domain,
        Endpoint,
        Flights,
        Locked,
        PollContext,
        PortSpace,
        QueueConfig,
        Sge,
        Sges,
        MAX_SGES, //
    },
    noio,
    pages::Pages,
    ratelimit::{
        pr_err_ratelimited,
        pr_warn_ratelimited, //
    },
};
use rtrs_core::{
    proto::{
        reject_errno,
        Capabilities,
        ChunkImm,
        ConnAccept,
        ConnReq,
        Geometry,
        InfoReq,
        InfoRsp,
        MostSent,
        Room,
        MAX_SEGMENTS,
        SENT_REST,
        SERVICE_QUEUE_DEPTH, //
    },
    qp_size::{
        QpLimits,
        QpSize,
        RECV_BATCH, //
    },
};

use super::{
    Accepted,
    Chunk,
    Link,
    LinkCore,
    LinkIo,
    Ready,
    ACK_TOKEN,
    INFO_TOKEN,
    RECV_SIZE, //
};
use crate::{
    atomic::{
        Atomic,
        Relaxed, //
    },
    logic::{
        creation::Creation,
        path_state::Failure, //
    },
    params,
    path::Path,
    request::MessageSlot,
    stats::Stamp, //
};

/// How long resolving an address may take the first time, in milliseconds. The neighbour tables
/// retry for three seconds and then give up. The connection manager does not notice that and would
/// go on waiting.
const RESOLVE_ADDR_FIRST_MS: u32 = 4_000;

/// The same for a path that was connected before. When a cable is plugged in again, the neighbour
/// tables may be about to give up; each attempt makes them start again.
const RESOLVE_ADDR_AGAIN_MS: u32 = 1_000;

/// How long resolving a route may take, in milliseconds.
const RESOLVE_ROUTE_TIMEOUT_MS: u32 = 30_000;

/// Scatter/gather elements of a send. The data of a write are sent from where they are, in as many
/// pieces, less one for the message; more pieces are registered first.
// CAST: The value is 8.
const SEND_SGES: u32 = MAX_SGES as u32;

/// Minimum of scatter/gather elements of a send: data and header.
const MIN_SEND_SGES: u32 = 2;

/// Registrations of bounce buffers, made once: as many as the service connection has room for
/// before it asks for the chunks. Requests without a buffer have their data registered.
const BOUNCE_MRS: usize = 8;

/// Retries of an unacknowledged request; without limit if the receiver is not ready.
const RETRY: u8 = 7;

impl Link {
    /// Starts the service connection. May sleep.
    pub(crate) fn start(path: &Arc<Path>, number: u32) -> Result<Self> {
        let core = LinkCore::new(path.clone(), number)?;
        let mut link = Self {
            endpoints: KVec::with_capacity(usize::from(core.cons.count()), GFP_KERNEL)?,
            usual: Flights::none(),
            core,
        };
        link.add_endpoint()?;
        Ok(link)
    }

    /// Starts one more connection.
    fn add_endpoint(&mut self) -> Result {
        let path = &self.core.path;
        // CAST: At most `cons.count()`.
        let index = self.endpoints.len() as u16;
        let ep = Endpoint::new(
            self.core.clone(),
            index,
            PortSpace::of(&path.dst),
            &path.session.rdma,
        )?;
        // CAST: The value has 5 bits.
        match path.session.settings.ack_timeout.get() as u8 {
            0 => {}
            exponent => ep.set_ack_timeout(exponent)?,
        }
        self.endpoints.push(ep, GFP_KERNEL)?;
        let ep = self.endpoints.last_mut().ok_or(EINVAL)?.as_mut();
        let timeout = match path.via() {
            Some(_) => RESOLVE_ADDR_AGAIN_MS,
            None => RESOLVE_ADDR_FIRST_MS,
        };
        ep.resolve_addr(path.src.as_ref(), &path.dst, timeout)
    }

    /// The service connection is up: starts the others. May sleep.
    pub(crate) fn expand(&mut self) -> Result {
        let core = self.core.clone();
        let geometry = core.geometry().ok_or(EINVAL)?;
        core.path.session.prepare(geometry, &core.path)?;
        let service = self.endpoint(0).and_then(Endpoint::qp).ok_or(EINVAL)?;
        let ready = core.make_ready(geometry, service.domain())?;
        if ready.narrower.is_none() {
            self.usual = ready.flights.clone();
        }
        for _ in 1..core.cons.count() {
            self.add_endpoint()?;
        }
        Ok(())
    }

    /// All connections are up: asks for the chunks. May sleep.
    pub(crate) fn ask_info(&self) -> Result {
        let core = &self.core;
        let geometry = core.geometry().ok_or(EINVAL)?;
        let ready = core.ready.as_ref().ok_or(EINVAL)?;
        let dma_pages = &ready.info;
        let qp = self.endpoint(0).and_then(Endpoint::qp).ok_or(EINVAL)?;

        let rsp_size = InfoRsp::size(geometry.queue_depth());
        let name = *core.path.session.name();
        dma_pages.write(rsp_size, &InfoReq { name }.to_bytes())?;
        let send = Sges::from(dma_pages.sge(rsp_size, InfoReq::SIZE)?);
        qp.post_recv(INFO_TOKEN, Some(dma_pages.sge(0, rsp_size)?))?;
        // Posted before the request for the chunks, so that they are done when its answer comes.
        let mut chain = Chain::<BOUNCE_MRS>::new(qp);
        for mr in ready.flights.mrs() {
            chain.reg_mr(mr, Access::REMOTE_WRITE);
        }
        if !chain.is_empty() {
            chain.post(None)?;
        }
        Chain::<1>::new(qp).send(&send).post(None)?;
        Ok(())
    }

    /// The chunks arrived in a message of `len` bytes. May sleep.
    pub(crate) fn finish(&self, len: usize) -> Result {
        let core = &self.core;
        let geometry = core.geometry().ok_or(EINVAL)?;
        let ready = core.ready.as_ref().ok_or(EINVAL)?;

        if len > InfoRsp::size(geometry.queue_depth()) {
            return Err(errno::EBADMSG);
        }
        let mut buf = KVVec::<u8>::with_capacity(len, GFP_KERNEL)?;
        buf.extend_with(len, 0, GFP_KERNEL)?;
        ready.info.read(0, &mut buf)?;
        InfoRsp::parse(&buf)
            .and_then(|rsp| {
                geometry.for_each_chunk(rsp.descs(), |id, buf| {
                    if let Some(flight) = ready.flights.get(usize::from(id)) {
                        flight.cargo().chunk.set(buf);
                    }
                })
            })
            .map_err(|e| {
                pr_err_ratelimited!("{}: answer with chunks: {}\n", &*core.path, e.as_str());
                errno::EBADMSG
            })?;

        let mut sges = MAX_SGES;
        for con in 0..core.cons.count() {
            self.post_receives(con, geometry)?;
            let qp = self.endpoint(con).and_then(Endpoint::qp).ok_or(EINVAL)?;
            sges = sges.min(qp.max_sges());
        }
        // One element is for the message.
        let direct = u32::try_from(sges)?.saturating_sub(1);
        core.direct_segments.store(direct, Relaxed);
        Ok(())
    }

    fn post_receives(&self, con: u16, geometry: &Geometry) -> Result {
        let qp = self.endpoint(con).and_then(Endpoint::qp).ok_or(EINVAL)?;
        let has_memory = self.core.receives_bytes();
        // A device may have less room; the server waits in that case.
        let posted = recv_count(con, geometry).min(qp.recv_room());
        qp.post_recv_each(0..posted, |token| match has_memory {
            true => self.core.recv_sge(con, token).map(Some),
            false => Ok(None),
        })?;
        let counted_on = recv_count(con, geometry).saturating_sub(RECV_BATCH);
        qp.may_withhold(posted.saturating_sub(counted_on));
        Ok(())
    }
}

/// Returns the number of receives of a connection: two for each request, and those that may be
/// withheld.
fn recv_count(con: u16, geometry: &Geometry) -> u32 {
    let depth = match con {
        0 => SERVICE_QUEUE_DEPTH,
        _ => geometry.queue_depth(),
    };
    2 * u32::from(depth) + RECV_BATCH
}

fn new_pages(domain: &Arc<Domain>, len: usize, dir: DmaDirection) -> Result<DmaPages> {
    let node = domain.device().numa_node();
    let pages = Pages::new(Pages::order_of(len), node)?;
    domain.map(Arc::new(pages, GFP_KERNEL)?, dir)
}

impl LinkCore {
    /// Whether answers may have bytes, for which receives need memory.
    fn receives_bytes(&self) -> bool {
        self.new_rkey.load(Relaxed) || self.inval_answers.load(Relaxed)
    }

    fn recv_sge(&self, con: u16, token: u32) -> Result<Sge<'_>> {
        let ready = self.ready.as_ref().ok_or(EINVAL)?;
        let dma_pages = ready.recv.get(usize::from(con)).ok_or(EINVAL)?;
        dma_pages.sge(token as usize * RECV_SIZE, RECV_SIZE)
    }

    /// Allocates the state of all permits on this link. May sleep.
    fn make_ready(&self, geometry: &Geometry, domain: &Arc<Domain>) -> Result<&Ready> {
        let depth = geometry.queue_depth();
        // One more than the number of segments: data need not begin at a page boundary.
        let pages = domain
            .device()
            .attrs()
            .max_fast_reg_pages
            .min(MAX_SEGMENTS + 1);
        let info = InfoRsp::size(depth) + InfoReq::SIZE;
        let info = new_pages(domain, info, DmaDirection::Bidirectional)?;
        let mut recv = KVec::new();
        if self.receives_bytes() {
            for con in 0..self.cons.count() {
                let len = recv_count(con, geometry) as usize * RECV_SIZE;
                recv.push(
                    new_pages(domain, len, DmaDirection::FromDevice)?,
                    GFP_KERNEL,
                )?;
            }
        }
        let messages = self.path.session.map_messages(domain)?;
        let bounce = params::copy_max().map(|room| Bounce::new(domain, depth, room, BOUNCE_MRS));
        let bounce = match bounce.transpose() {
            // A path without bounce buffers is better than none.
            Err(e) if e == ENOMEM => None,
            bounce => bounce?,
        };
        let session = &self.path.session;
        let permits = session.permits().ok_or(EINVAL)?;
        let link_io = |id| {
            Ok(LinkIo {
                place: permits.keep(usize::from(id)).ok_or(EINVAL)?,
                stamp: Stamp::new(),
                chunk: Chunk {
                    addr: Atomic::new(0),
                    rkey: Atomic::new(0),
                },
                imm: ChunkImm::new(geometry, id).map_err(|_| EINVAL)?,
            })
        };
        let room = Room::new(geometry, MAX_SEGMENTS, MessageSlot::SIZE);
        // In the usual case a request fits if it is within the limits of the session.
        let fits = |least: &Room| room.header() >= least.header() && room.data() >= least.data();
        let narrower = (!session.room().is_some_and(fits)).then_some(room);
        if let Some(room) = &narrower {
            pr_warn_ratelimited!(
                "{}: takes shorter requests than the session's first path: {} bytes, messages of {}\n",
                &*self.path,
                room.data(),
                room.header()
            );
        }
        let flights = Flights::new(
            domain,
            depth,
            pages,
            messages,
            MessageSlot::SIZE,
            bounce,
            link_io,
        )?;
        let new_rkey = self.new_rkey.load(Relaxed);
        let needs_key = new_rkey && !self.capabilities.keeps_keys;
        let ready = Ready {
            narrower,
            permits: permits.clone(),
            answered: match needs_key {
                true => Flights::none(),
                false => flights.clone(),
            },
            counted: match new_rkey && self.capabilities.counts_keys {
                true => flights.clone(),
                false => Flights::none(),
            },
            flights,
            info,
            recv,
        };
        if !self.ready.populate(ready) {
            return Err(EBUSY);
        }
        self.ready.as_ref().ok_or(EINVAL)
    }

    fn queue_config(&self, con: u16, domain: &Domain) -> Result<QueueConfig> {
        let attrs = domain.device().attrs();
        if attrs.max_send_sge < MIN_SEND_SGES || attrs.max_fast_reg_pages < MAX_SEGMENTS {
            pr_err_ratelimited!("{}: the device is too limited\n", &*self.path);
            return Err(errno::EOPNOTSUPP);
        }
        let sends = match con != 0 && self.sends.load(Relaxed) {
            true => SENT_REST,
            false => 0,
        };
        let limits = QpLimits {
            max_qp_wr: attrs.max_qp_wr,
            max_cqe: attrs.max_cqe,
            max_send_sge: attrs.max_send_sge,
        };
        let (size, send_tokens, recv_tokens) = match (con, self.geometry()) {
            (0, _) => (
                QpSize::service(&limits, SEND_SGES, 0),
                ACK_TOKEN + 1,
                INFO_TOKEN + 1,
            ),
            (_, Some(geometry)) => (
                // Registration, write, invalidation. Also for requests that were answered, but whose
                // work requests are not known to be done.
                QpSize::client_io(&limits, geometry.queue_depth(), RECV_BATCH, 3, SEND_SGES),
                // Requests complete to their flights.
                0,
                recv_count(con, geometry),
            ),
            _ => return Err(EINVAL),
        };
        let size = size.map_err(|_| EINVAL)?;
        Ok(QueueConfig {
            // The queue pair adds the entry for draining itself.
            send_wrs: size.send_wr.saturating_sub(1),
            recv_wrs: size.recv_wr.saturating_sub(1),
            send_sges: size.send_sge,
            inline_max: params::inline_max(),
            // Drivers do not tell which CPU the interrupt of a vector goes to (the core has no call
            // for it any more). By default they spread vectors over CPUs in order.
            comp_vector: self.cpu_of(con).unwrap_or(0),
            poll: if self.cons.is_polled(con) {
                PollContext::Direct
            } else {
                PollContext::Softirq
            },
            portion: 0,
            send_tokens,
            key_tokens: 0,
            recv_tokens,
            recv_rest: 0,
            sends,
            // The service connection has few messages, and tokens for some.
            sent: match con != 0 && !self.cons.is_polled(con) {
                true => Some(self.path.session.sent.clone()),
                false => None,
            },
        })
    }

    /// What the server is told that this side can do on connection `con`.
    fn capabilities_of(&self, con: u16) -> Capabilities {
        let sends = match (con, self.geometry()) {
            (0, _) => self.capabilities.sends,
            (_, Some(geometry)) if self.sends.load(Relaxed) => {
                let spread = self.cons.spread(geometry.queue_depth());
                Some(MostSent::of(spread.most()))
            }
            _ => None,
        };
        Capabilities {
            sends,
            ..self.capabilities
        }
    }

    /// The address is resolved, so there is a device.
    fn resolved(&self, ep: &Locked<'_, Self>) -> Result {
        let con = ep.index();
        let domain = match con {
            0 => Domain::new(ep.device().ok_or(ENODEV)?, ep.consumer())?,
            _ => self.ready.as_ref().ok_or(EINVAL)?.info.domain().clone(),
        };
        let mut config = self.queue_config(con, &domain)?;
        let made = ep.create_qp(&domain, &config);
        // Devices report the maximum of each attribute, not of all in combination. With fewer
        // elements more requests are registered.
        if matches!(made, Err(e) if e == ENOMEM || e == EINVAL) {
            config.send_sges = MIN_SEND_SGES;
            ep.create_qp(&domain, &config)?;
        } else {
            made?;
        }
        ep.resolve_route(RESOLVE_ROUTE_TIMEOUT_MS)
    }

    fn connect(&self, ep: &Locked<'_, Self>) -> Result {
        let path = &self.path;
        let creation = path.creation(ep.index());
        self.gave_way.store(creation == Creation::GiveWay, Relaxed);
        let presumed = ep.index() == 0 && creation == Creation::Known;
        self.presumed.store(presumed, Relaxed);
        let req = ConnReq {
            cid: ep.index(),
            cid_num: self.cons.count(),
            // CAST: The field has 16 bits; the server only compares it.
            recon_cnt: self.number as u16,
            path_uuid: *path.uuid.as_bytes(),
            session_uuid: *path.session.uuid.as_bytes(),
            first_conn: creation == Creation::Ask,
            capabilities: self.capabilities_of(ep.index()),
            path_wait: path.session.fail_after().to_path_wait(),
        };
        ep.connect(ConnParam {
            private_data: &req.to_bytes(),
            retry_count: RETRY,
            rnr_retry_count: RETRY,
        })
    }

    /// The server accepted; `data` is its answer.
    fn accepted(&self, ep: &Locked<'_, Self>, data: &[u8]) -> Result {
        let accept = ConnAccept::parse(data).map_err(|e| {
            pr_err_ratelimited!("{}: answer to connect: {}\n", &*self.path, e.as_str());
            errno::ECONNRESET
        })?;
        if ep.index() == 0 {
            let geometry = Geometry::from_accept(&accept).map_err(|e| {
                pr_err_ratelimited!("{}: limits of the server: {}\n", &*self.path, e.as_str());
                errno::EPROTO
            })?;
            if u32::from(geometry.queue_depth()) > params::max_queue_depth() {
                pr_err_ratelimited!(
                    "{}: the server offers {} requests at a time, max_queue_depth is {}\n",
                    &*self.path,
                    geometry.queue_depth(),
                    params::max_queue_depth()
                );
                return Err(errno::EPROTO);
            }
            // Before anything is noted about the server: one with another queue depth is not the
            // session's, and does not tell whether that one knows it.
            self.path.session.check_limits(&geometry, &self.path)?;
            self.new_rkey.store(accept.new_rkey, Relaxed);
            let inval_answers = match accept.new_rkey {
                true => self.capabilities.inval_answers,
                false => self.capabilities.inval_answers_always && accept.inval_answers,
            };
            self.inval_answers.store(inval_answers, Relaxed);
            let sends = self.capabilities.sends.is_some() && accept.takes_sends;
            self.sends.store(sends, Relaxed);
            self.path.session.accepted(accept.kept);
            self.accepted.populate(Accepted {
                geometry,
                kept: accept.kept,
                orders_copies: accept.orders_copies,
            });
            self.path.connected_via(ep.endpoint());
        }
        let up = self.established.fetch_add(1, Relaxed) + 1;
        // The first connection is the service connection alone; then the others count.
        if up == 1 {
            self.path
                .notify(|notes| notes.service_up = Some(self.number));
        }
        if up == u32::from(self.cons.count()) {
            self.path.notify(|notes| notes.all_up = Some(self.number));
        }
        Ok(())
    }

    /// Memory reclaim may wait for a path to come back, so allocations must not wait for IO.
    pub(super) fn handle_cm_event(&self, ep: &Locked<'_, Self>, event: CmEvent<'_>) {
        noio::scope(|| self.carry_on(ep, event));
    }

    fn carry_on(&self, ep: &Locked<'_, Self>, event: CmEvent<'_>) {
        let step = match event {
            CmEvent::AddrResolved => self.resolved(ep),
            CmEvent::RouteResolved => self.connect(ep),
            CmEvent::Established(data) => self.accepted(ep, data),
            CmEvent::Rejected(_, data) => {
                let errno = match data {
                    // Not refused by the server: no server listens.
                    [] => errno::ECONNRESET.to_errno(),
                    data => reject_errno(data).to_kernel(),
                };
                self.refused(ep.index(), errno);
                return;
            }
            // No answer of the server, or none that is understood: never final.
            CmEvent::Failed(e) => return self.fail_as(Failure::Again, "no connection", e),
            CmEvent::Disconnected => {
                return self.fail("disconnected by the server", errno::ECONNRESET.to_errno());
            }
            CmEvent::AddrChange => {
                return self.fail("local address moved", errno::ECONNRESET.to_errno());
            }
            CmEvent::DeviceRemoval => {
                self.path
                    .notify(|notes| notes.device_gone = Some(self.number));
                return;
            }
            CmEvent::TimewaitExit | CmEvent::Other(_) => return,
        };
        if let Err(e) = step {
            self.fail("set-up of a connection", e.to_errno());
        }
    }
}
