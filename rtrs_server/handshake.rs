// SPDX-License-Identifier: GPL-2.0

//! A connection request that is not accepted or rejected yet.
//!
//! The connection manager calls the listener with a lock that holds up all other requests on that
//! device. So that call only looks at the message, and a task decides: one for each request until
//! its path is known, then one for each path. So requests of one path wait for each other, and
//! requests of other paths do not wait for them.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use rtrs_bindings::{
    ib::{
        ConnectRequest,
        Decide,
        Decision,
        Listen,
        PendingSlot,
        RejectMessage,
        SockAddr, //
    },
    ratelimit::pr_info_caused_by,
    workqueue::{
        impl_has_work,
        impl_work_item,
        new_work,
        Work, //
    },
};
use rtrs_core::{
    addr::{
        Addr,
        AddrPair, //
    },
    proto::{
        ConnReject,
        ConnReq,
        RejectErrno, //
    },
    sockaddr::to_addr,
};

use crate::{
    config,
    context::Context,
    limits::Refusal,
    logic::source::Source,
    path::{
        connect::{
            path_queue_memory,
            takes_sends, //
        },
        Path, //
    },
    stats, //
};

/// Returns the private data of a reject.
pub(crate) fn reject_message(errno: RejectErrno) -> RejectMessage {
    RejectMessage::new(&ConnReject { errno }.to_bytes())
}

/// A socket address as the operator sees it. The connection manager has no other families.
fn show_addr(addr: &SockAddr) -> Addr {
    to_addr(addr).unwrap_or(Addr::Gid([0; 16]))
}

/// A request in the server's queue, later in that of its path.
#[pin_data]
pub(crate) struct Handshake {
    ctx: Arc<Context>,
    source: Source,
    req: ConnReq,
    #[pin]
    pending: PendingSlot,
    #[pin]
    work: Work<Handshake>,
}

impl_has_work! {
    impl HasWork<Self> for Handshake { self.work }
}

impl_work_item! {
    impl WorkItem<0> for Handshake { Self::decide }
}

impl Decide for Handshake {
    fn slot(&self) -> &PendingSlot {
        &self.pending
    }
}

impl Handshake {
    /// Gives the request to its path, or refuses it. Work item; may sleep.
    fn decide(self: &Arc<Self>) {
        let refusal = match self.admit() {
            // Continues in the path's own work item.
            Ok(path) => match path.expect_connection(self.clone()) {
                Ok(()) => return,
                Err(refusal) => refusal,
            },
            Err(refusal) => refusal,
        };
        if let Some(pending) = self.pending.take() {
            let addrs = addrs(&pending.peer(), &pending.local());
            pending.reject(&reject_message(refusal.errno()));
            log_refused(&self.ctx, &addrs, &self.req, refusal);
        }
        self.ctx.drop_pending(self.source);
    }

    /// Finds or makes the path. May sleep.
    fn admit(&self) -> Result<Arc<Path>, Refusal> {
        let config = &self.ctx.config;
        let (addrs, chunks, queues) = self
            .pending
            .look(|pending| -> Result<_, Refusal> {
                let device = pending.device().ok_or(Refusal::RESET)?;
                Ok((
                    addrs(&pending.peer(), &pending.local()),
                    config.chunk_memory(takes_sends(config, device, &self.req.capabilities)),
                    path_queue_memory(config, device, &self.req)?,
                ))
            })
            .ok_or(Refusal::RESET)??;

        self.ctx
            .registry
            .admit(&self.ctx, &self.req, &addrs, chunks, queues)
    }

    /// The turn of this request at its path has come. May sleep.
    pub(crate) fn connect(&self, path: &Arc<Path>) {
        if let Some(pending) = self.pending.take() {
            let addrs = addrs(&pending.peer(), &pending.local());
            // Rejects by itself, since the reject needs the state of the request.
            if let Err(refusal) = path.connect(&self.req, pending) {
                log_refused(&self.ctx, &addrs, &self.req, refusal);
            }
        }
        self.ctx.drop_pending(self.source);
    }
}

/// The same order as in sysfs: the client is the source.
fn addrs(peer: &SockAddr, local: &SockAddr) -> AddrPair {
    AddrPair {
        src: Some(show_addr(peer)),
        dst: show_addr(local),
    }
}

fn log_refused(ctx: &Context, addrs: &AddrPair, req: &ConnReq, refusal: Refusal) {
    pr_info_caused_by!(
        log_place(ctx, addrs.src),
        "{}: connection {} of {} refused: {}\n",
        addrs,
        req.cid,
        req.cid_num,
        refusal
    );
}

/// Returns the place of a client at `from` in the log's limits.
fn log_place(ctx: &Context, from: Option<Addr>) -> usize {
    ctx.registry.log_place(config::source_of(from))
}

/// Rejects a request at once.
fn refuse(
    ctx: &Context,
    request: &ConnectRequest<'_>,
    req: &ConnReq,
    refusal: Refusal,
) -> Decision<Handshake> {
    let message = reject_message(refusal.errno());

    log_refused(ctx, &addrs(&request.peer(), &request.local()), req, refusal);
    Decision::Reject(message)
}

/// Takes the requests of one listening address.
pub(crate) struct Acceptor {
    ctx: Arc<Context>,
}

impl Acceptor {
    /// For clients of `ctx`. May sleep.
    pub(crate) fn new(ctx: &Arc<Context>) -> Result<Arc<Self>> {
        Ok(Arc::new(Self { ctx: ctx.clone() }, GFP_KERNEL)?)
    }
}

impl Listen for Acceptor {
    type Task = Handshake;

    fn connect_request(&self, request: &ConnectRequest<'_>) -> Decision<Handshake> {
        let req = match ConnReq::parse(request.private_data()) {
            Ok(req) => req,
            Err(e) => {
                stats::bad_request();
                let peer = show_addr(&request.peer());
                pr_info_caused_by!(
                    log_place(&self.ctx, Some(peer)),
                    "{}: connection refused: {}\n",
                    peer,
                    e.as_str()
                );
                let errno = RejectErrno::from_kernel(e.to_errno());
                return Decision::Reject(reject_message(errno));
            }
        };
        let source = config::source_of(Some(show_addr(&request.peer())));
        if let Err(refusal) = self.ctx.take_pending(source) {
            return refuse(&self.ctx, request, &req, refusal);
        }
        let handshake = Arc::pin_init(
            pin_init!(Handshake {
                ctx: self.ctx.clone(),
                source,
                req,
                pending <- PendingSlot::new(),
                work <- new_work!("rtrs_srv_handshake"),
            }),
            GFP_KERNEL,
        );
        match handshake {
            Ok(handshake) => Decision::Later(handshake, self.ctx.handshake_queue.clone()),
            Err(e) => {
                self.ctx.drop_pending(source);
                refuse(&self.ctx, request, &req, e.into())
            }
        }
    }
}
