// SPDX-License-Identifier: GPL-2.0

//! A connection request that waits for its decision.
//!
//! The connection manager calls the listener with a lock that holds up all other requests on that
//! device. So that call only looks at the message, and a task decides.

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
        errno,
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
    show::Show,
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

/// A request in the queue.
#[pin_data]
struct Handshake {
    ctx: Arc<Context>,
    req: ConnReq,
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
        let pending = this.pending.lock().take();
        if let Some(pending) = pending {
            this.decide(pending);
        }
        this.ctx.drop_pending();
    }
}

impl Handshake {
    /// May sleep.
    fn decide(&self, pending: PendingConnection) {
        // Named as in sysfs: the client is the source.
        let addrs = AddrPair {
            src: Some(show_addr(&pending.peer())),
            dst: show_addr(&pending.local()),
        };

        let refused = match self.admit(&addrs, &pending) {
            // It rejects by itself, since that needs what has become of the request.
            Ok(path) => path.connect(&self.req, pending),
            Err(refusal) => {
                pending.reject(&reject_message(refusal.errno()));
                Err(refusal)
            }
        };
        if let Err(refusal) = refused {
            pr_info_ratelimited!(
                "{}: connection {} of {} refused: {}\n",
                Show(addrs),
                self.req.cid,
                self.req.cid_num,
                Show(refusal)
            );
        }
    }
}

impl Handshake {
    /// Finds or makes its path. May sleep.
    fn admit(&self, addrs: &AddrPair, pending: &PendingConnection) -> Result<Arc<Path>, Refusal> {
        let device = pending.device().ok_or(Refusal::RESET)?;
        let queues = path_queue_memory(self.ctx.config(), device, self.req.cid_num)?;

        self.ctx
            .registry()
            .admit(&self.ctx, &self.req, addrs, queues)
    }
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
                    Show(show_addr(&request.peer())),
                    e.as_str()
                );
                request.reject(&reject_message(RejectErrno::from_kernel(e.to_errno())));
                return;
            }
        };
        if !self.ctx.take_pending() {
            request.reject(&reject_message(RejectErrno::from_kernel(-errno::EUSERS)));
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
                handshake.work.enqueue(self.ctx.queue(), &handshake);
            }
            Err(_) => {
                self.ctx.drop_pending();
                request.reject(&reject_message(RejectErrno::from_kernel(-errno::ENOMEM)));
            }
        }
    }
}
