// SPDX-License-Identifier: GPL-2.0

//! A connection request that waits for its decision.
//!
//! The connection manager calls the listener with a lock that holds up all other requests on that
//! device. So that call only looks at the message, and a task decides: one for each request until
//! its path is known, then one for each path. A client's requests wait for each other then, and
//! nobody else's for them.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};

use rtrs_bindings::{
    ib::{
        ConnectRequest,
        Listen,
        PendingConnection,
        SockAddr, //
    },
    ratelimit::pr_info_ratelimited,
    workqueue::{
        impl_has_work,
        new_work,
        Work,
        WorkExt,
        WorkItem, //
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
    context::Context,
    path::{
        connect::path_queue_memory,
        Path, //
    },
    registry::Refusal,
    stats, //
};

/// The private data of a reject.
pub(crate) fn reject_message(errno: RejectErrno) -> [u8; ConnReject::SIZE] {
    let mut message = [0; ConnReject::SIZE];

    // It is exactly as large as it has to be.
    let _ = ConnReject { errno }.write(&mut message);
    message
}

/// A socket address as the operator sees it. The connection manager has no others than these.
fn show_addr(addr: &SockAddr) -> Addr {
    to_addr(addr).unwrap_or(Addr::Gid([0; 16]))
}

/// A request in the queue, later in that of its path.
#[pin_data]
pub(crate) struct Handshake {
    ctx: Arc<Context>,
    req: ConnReq,
    /// Locked below the handler mutex of the listener, for a moment.
    #[pin]
    pending: Mutex<Option<PendingConnection>>,
    #[pin]
    work: Work<Handshake>,
}

impl_has_work! {
    impl HasWork<Self> for Handshake { self.work }
}

impl WorkItem for Handshake {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let refusal = match this.admit() {
            // Goes on in the path's own work item.
            Ok(path) => match path.expect_connection(this.clone()) {
                Ok(()) => return,
                Err(refusal) => refusal,
            },
            Err(refusal) => refusal,
        };
        // Not in the condition: it is rejected without the lock.
        let pending = this.pending.lock().take();
        if let Some(pending) = pending {
            let addrs = addrs(&pending.peer(), &pending.local());
            pending.reject(&reject_message(refusal.errno()));
            log_refused(&addrs, &this.req, refusal);
        }
        this.ctx.drop_pending();
    }
}

impl Handshake {
    /// Finds or makes its path. May sleep.
    fn admit(&self) -> Result<Arc<Path>, Refusal> {
        let (addrs, queues) = {
            let pending = self.pending.lock();
            let pending = pending.as_ref().ok_or(Refusal::RESET)?;
            let device = pending.device().ok_or(Refusal::RESET)?;
            (
                addrs(&pending.peer(), &pending.local()),
                path_queue_memory(self.ctx.config(), device, self.req.cid_num)?,
            )
        };

        self.ctx
            .registry()
            .admit(&self.ctx, &self.req, &addrs, queues)
    }

    /// The turn of this one has come at the path it belongs to. May sleep.
    pub(crate) fn connect(&self, path: &Arc<Path>) {
        let pending = self.pending.lock().take();
        if let Some(pending) = pending {
            let addrs = addrs(&pending.peer(), &pending.local());
            // It rejects by itself, since that needs what has become of the request.
            if let Err(refusal) = path.connect(&self.req, pending) {
                log_refused(&addrs, &self.req, refusal);
            }
        }
        self.ctx.drop_pending();
    }
}

/// Named as in sysfs: the client is the source.
fn addrs(peer: &SockAddr, local: &SockAddr) -> AddrPair {
    AddrPair {
        src: Some(show_addr(peer)),
        dst: show_addr(local),
    }
}

fn log_refused(addrs: &AddrPair, req: &ConnReq, refusal: Refusal) {
    pr_info_ratelimited!(
        "{}: connection {} of {} refused: {}\n",
        addrs,
        req.cid,
        req.cid_num,
        refusal
    );
}

/// Rejects what nobody has looked at yet.
fn refuse(request: ConnectRequest<'_>, req: &ConnReq, refusal: Refusal) {
    let addrs = addrs(&request.peer(), &request.local());

    request.reject(&reject_message(refusal.errno()));
    log_refused(&addrs, req, refusal);
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
    fn connect_request(&self, request: ConnectRequest<'_>) {
        let req = match ConnReq::parse(request.private_data()) {
            Ok(req) => req,
            Err(e) => {
                stats::bad_request();
                pr_info_ratelimited!(
                    "{}: connection refused: {}\n",
                    show_addr(&request.peer()),
                    e.as_str()
                );
                request.reject(&reject_message(RejectErrno::from_kernel(e.to_errno())));
                return;
            }
        };
        if let Err(refusal) = self.ctx.take_pending() {
            refuse(request, &req, refusal);
            return;
        }
        // Made before the request is taken away: from then on it must not be dropped here.
        let handshake = Arc::pin_init(
            pin_init!(Handshake {
                ctx: self.ctx.clone(),
                req,
                pending <- new_mutex!(None, "rtrs_srv_pending"),
                work <- new_work!("rtrs_srv_handshake"),
            }),
            GFP_KERNEL,
        );
        match handshake {
            Ok(handshake) => {
                *handshake.pending.lock() = Some(request.detach());
                handshake
                    .work
                    .enqueue(self.ctx.handshake_queue(), &handshake);
            }
            Err(e) => {
                self.ctx.drop_pending();
                refuse(request, &req, e.into());
            }
        }
    }
}
