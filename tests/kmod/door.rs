// SPDX-License-Identifier: GPL-2.0

//! A door: a listening address at which requests to connect wait until a command decides about
//! them. The server decides at once.

use kernel::{
    prelude::*,
    str::CStr,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
    time::msecs_to_jiffies, //
};
use rtrs_bindings::{
    ib::{
        CmEvent,
        ConnParam,
        ConnectRequest,
        Decide,
        Decision,
        Endpoint,
        Handler,
        Listen,
        Listener,
        Locked,
        OwnedConsumer,
        PendingSlot,
        QueuePair,
        Receiving,
        RejectMessage,
        SockAddr,
        Success,
        Wc, //
    },
    wait::Completion,
    workqueue::{
        impl_has_work,
        new_work,
        Options,
        OwnedQueue,
        Queue,
        Work,
        WorkItem, //
    },
};

const OWNER: &CStr = c"rtrs_test";
const BACKLOG: u16 = 16;
/// Milliseconds that a porter waits.
const PATIENCE_MS: u32 = 10_000;

/// One end of a connection that never becomes one.
struct Guest;

impl Handler for Guest {
    type Cargo = ();

    fn cm_event(&self, _: Locked<'_, Self>, _: CmEvent<'_>) {}
    fn send_done(&self, _: &Endpoint<Self>, _: &QueuePair, _: Option<u32>, _: &Wc) {}
    fn recv_done(&self, _: &Endpoint<Self>, _: Receiving<'_>, _: u32, _: &Success) {}
    fn recv_failed(&self, _: &Endpoint<Self>, _: &Wc) {}
}

/// Where a request waits.
#[pin_data]
struct Hall {
    /// A porter waits to turn a request away.
    knocked: Atomic<bool>,
    #[pin]
    turned_away: Completion,
    #[pin]
    pending: PendingSlot,
    #[pin]
    work: Work<Hall>,
}

impl_has_work! {
    impl HasWork<Self> for Hall { self.work }
}

impl WorkItem for Hall {
    type Pointer = Arc<Self>;

    /// The request waits for a command.
    fn run(_: Arc<Self>) {}
}

impl Decide for Hall {
    fn slot(&self) -> &PendingSlot {
        &self.pending
    }
}

fn message() -> RejectMessage {
    RejectMessage::new(&[0])
}

struct Porter {
    /// The request waits in the call of the connection manager.
    is_slow: bool,
    hall: Arc<Hall>,
    queue: Queue,
}

impl Listen for Porter {
    type Task = Hall;

    fn connect_request(&self, _: &ConnectRequest<'_>) -> Decision<Hall> {
        if self.is_slow {
            self.hall.knocked.store(true, Relaxed);
            let _ = self
                .hall
                .turned_away
                .wait_timeout(msecs_to_jiffies(PATIENCE_MS));
            return Decision::Reject(message());
        }
        Decision::Later(self.hall.clone(), self.queue.clone())
    }
}

/// A door, with room for one request.
//
// Field order is teardown order.
pub(crate) struct Door {
    port: u16,
    _listener: Listener<Porter>,
    hall: Arc<Hall>,
    _queue: OwnedQueue,
    _consumer: OwnedConsumer,
}

impl Door {
    /// Opens a door. If its porter `is_slow`, a request can only be turned away. Sleeps.
    pub(crate) fn new(port: u16, is_slow: bool) -> Result<Self> {
        let consumer = OwnedConsumer::new(OWNER)?;
        let queue = OwnedQueue::new(c"rtrs_test_door", Options::UNBOUND)?;
        let hall = Arc::pin_init(
            pin_init!(Hall {
                knocked: Atomic::new(false),
                turned_away <- Completion::new(),
                pending <- PendingSlot::new(),
                work <- new_work!("rtrs_test_hall"),
            }),
            GFP_KERNEL,
        )?;
        let porter = Porter {
            is_slow,
            hall: hall.clone(),
            queue: queue.handle(),
        };
        let porter = Arc::new(porter, GFP_KERNEL)?;
        let any = SockAddr::any(port);
        Ok(Self {
            port,
            _listener: Listener::new(&any, BACKLOG, porter, &consumer.handle())?,
            hall,
            _queue: queue,
            _consumer: consumer,
        })
    }

    /// The port that it listens on.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Whether a request waits. May sleep.
    pub(crate) fn is_taken(&self) -> bool {
        self.hall.knocked.load(Relaxed) || !self.hall.pending.is_empty()
    }

    /// Decides about the request that waits: `drop`s it, `reject`s or `accept`s it; or lets a slow
    /// porter `turn-away` it. A connection ends at once. Sleeps.
    pub(crate) fn decide(&self, how: &str) -> Result {
        let take = || self.hall.pending.take().ok_or(ENOENT);
        match how {
            "drop" => drop(take()?),
            "reject" => take()?.reject(&message()),
            "accept" => {
                let guest = Arc::new(Guest, GFP_KERNEL)?;
                let ep = Endpoint::from_pending(guest, 0, take()?).map_err(|(_, e)| e)?;
                let param = ConnParam {
                    private_data: &[],
                    retry_count: 7,
                    rnr_retry_count: 7,
                };
                ep.locked(|ep| ep.accept(param))??;
            }
            "turn-away" => self.hall.turned_away.complete_all(),
            _ => return Err(EINVAL),
        }
        Ok(())
    }
}
