// SPDX-License-Identifier: GPL-2.0

//! Connections of a path, one by one.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Full, //
        },
        Arc, //
    },
};

use rtrs_bindings::{
    ib::{
        ConnParam,
        Direction,
        Domain,
        Endpoint,
        Locked,
        PendingConnection,
        PollContext,
        QueueConfig,
        QueuePair, //
    },
    noio::Gfp,
    pages::Pages,
};
use rtrs_core::proto::{
    ConnAccept,
    ConnReq,
    InfoReq,
    QpLimits,
    QpSize,
    RejectErrno,
    SERVICE_QUEUE_DEPTH, //
};

use super::{
    receive::{
        EXTRA_TOKENS,
        RECV_INFO,
        RECV_TOKENS, //
    },
    start::REG_BATCH,
    Path,
    Setup, //
};
use crate::{
    config::ack_timeout,
    handshake::reject_message,
    logic::{
        path_state::CloseReason,
        quota::Resource, //
    },
    registry::Refusal,
    OWNER, //
};

/// Send work requests from request to answer: invalidation of the chunk's key, data, registration,
/// invalidation of the client's key, answer.
const WRS_INVALIDATE: u32 = 5;

/// The same without changing keys: data, invalidation of the client's key, answer.
const WRS_KEEP: u32 = 3;

impl Path {
    /// Accepts or rejects a connection that was found to belong here. May sleep.
    pub(crate) fn connect(
        self: &Arc<Self>,
        req: &ConnReq,
        pending: PendingConnection,
    ) -> Result<(), Refusal> {
        let result = self.try_connect(req, pending);

        // Nothing would ever happen to a path without any connection.
        if result.is_err() && self.accepted.load(Acquire) == 0 {
            self.close(CloseReason::Refused);
        }
        result
    }

    fn try_connect(
        self: &Arc<Self>,
        req: &ConnReq,
        pending: PendingConnection,
    ) -> Result<(), Refusal> {
        let mut setup = self.setup.lock();

        if let Err(refusal) = self.check(&mut setup, req.cid, &pending) {
            drop(setup);
            pending.reject(&reject_message(refusal.errno()));
            return Err(refusal);
        }
        let ep = match Endpoint::from_pending(self.clone(), req.cid, pending, OWNER) {
            Ok(ep) => ep,
            Err((pending, e)) => {
                setup.one_less();
                // Neither is a connection rejected, nor dropped, with the lock held.
                drop(setup);
                let refusal = Refusal::from(e);
                pending.reject(&reject_message(refusal.errno()));
                return Err(refusal);
            }
        };
        let result = ep
            .locked(|locked| {
                let result = self.accept(&mut setup, &locked);
                if let Err(e) = result {
                    let errno = RejectErrno::from_kernel(e.to_errno());
                    locked.reject(&reject_message(errno));
                }
                result
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
                setup.one_less();
                // A connection is never dropped with the lock held.
                drop(setup);
                drop(ep);
                Err(e.into())
            }
        }
    }

    /// Whether the connection can be added.
    fn check(
        &self,
        setup: &mut Setup,
        cid: u16,
        pending: &PendingConnection,
    ) -> Result<(), Refusal> {
        let taken = setup.eps.get(usize::from(cid)).is_none_or(Option::is_some);
        if taken || setup.closed || !self.accepts_cons() {
            return Err(Refusal::RESET);
        }

        let device = pending.device().ok_or(Refusal::RESET)?;
        match &setup.domain {
            Some(domain) if core::ptr::eq(domain.device(), device) => (),
            Some(_) => return Err(Refusal::RESET),
            // A domain for each path: what one client may do to its memory says nothing about the
            // memory of another one.
            None => setup.domain = Some(Domain::new(device, OWNER)?),
        }
        self.take_share(setup)
    }

    /// Counts one more connection.
    fn take_share(&self, setup: &mut Setup) -> Result<(), Refusal> {
        let limits = self.session().context().registry().limits();

        match &mut setup.cons {
            Some(cons) => cons.more(1)?,
            None => setup.cons = Some(limits.take(Resource::Cons, 1)?),
        }
        Ok(())
    }

    fn accept(self: &Arc<Self>, setup: &mut Setup, ep: &Locked<'_, Self>) -> Result {
        let domain = setup.domain.clone().ok_or(EINVAL)?;
        let service = ep.index() == 0;
        let cfg = self.queue_config(&domain, service)?;
        let qp = ep.create_qp(&domain, &cfg)?;
        if service {
            setup.recvs.0 = cfg.recv_wrs.min(u32::from(SERVICE_QUEUE_DEPTH));
            self.expect_info(&domain, qp)?;
        } else {
            setup.recvs.1 = cfg.recv_wrs.min(u32::from(self.geometry().queue_depth()));
        }

        let config = self.session().context().config();
        let mut message = [0; ConnAccept::SIZE];
        ConnAccept {
            kept: self.session().is_kept(),
            ..config.geometry.to_accept(config.always_invalidate)
        }
        .write(&mut message)
        .map_err(|_| EINVAL)?;
        if let Some(exponent) = ack_timeout() {
            ep.set_ack_timeout(exponent)?;
        }
        // Counted before: the client's first message may be here before `accept()` returns.
        self.accepted.fetch_add(1, Full);
        let accepted = ep.accept(ConnParam {
            private_data: &message,
            retry_count: 7,
            // A client that has no receive posted makes us wait for as long as it likes; the
            // heartbeat ends that.
            rnr_retry_count: 7,
        });
        if accepted.is_err() {
            self.accepted.fetch_sub(1, Full);
        }
        accepted
    }

    fn queue_config(&self, domain: &Domain, service: bool) -> Result<QueueConfig> {
        let config = self.session().context().config();
        let attrs = domain.device().attrs();
        let limits = QpLimits {
            max_qp_wr: attrs.max_qp_wr,
            max_cqe: attrs.max_cqe,
            max_send_sge: attrs.max_send_sge,
        };
        let depth = config.geometry.queue_depth();
        let size = if service {
            QpSize::service(&limits, 1, REG_BATCH)
        } else if config.always_invalidate {
            QpSize::server_io(&limits, depth, WRS_INVALIDATE, 1)
        } else {
            QpSize::server_io(&limits, depth, WRS_KEEP, 1)
        }
        .map_err(|_| EINVAL)?;

        // The queue pair adds the one for draining by itself.
        Ok(QueueConfig {
            send_wrs: size.send_wr.saturating_sub(1),
            recv_wrs: size.recv_wr.saturating_sub(1),
            send_sges: size.send_sge,
            comp_vector: self.session().context().next_vector(),
            poll: PollContext::Workqueue,
            send_tokens: u32::from(depth).saturating_add(EXTRA_TOKENS),
            recv_tokens: RECV_TOKENS,
        })
    }

    /// Posts the receive of the info request.
    fn expect_info(&self, domain: &Arc<Domain>, qp: &QueuePair) -> Result {
        let node = domain.device().numa_node();
        let pages = Pages::new(0, node, Gfp::KERNEL)?;
        let region = domain.map(Arc::new(pages, GFP_KERNEL)?, Direction::FromDevice)?;
        let sge = region.sge(0, InfoReq::SIZE)?;

        self.info.lock().region = Some(region);
        qp.post_recv(RECV_INFO, Some(sge))?;
        Ok(())
    }
}
