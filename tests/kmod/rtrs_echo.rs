// SPDX-License-Identifier: GPL-2.0

//! An echo over RDMA: an example of a driver that uses `rtrs_bindings`.
//!
//! Loading the module connects two ends in this kernel, over the device with the address `addr`.
//! One end sends a message, the other end sends it back, and loading succeeds if it comes back
//! unchanged. The module uses only the wrappers. The numbers give the order of its steps:
//!
//! 1. one end listens, and leaves a request to connect to a task, which may sleep;
//! 2. the other one resolves the address and the route: events start each following step;
//! 3. a side that knows its device makes what it needs there: a protection domain, memory that is
//!    mapped for the device, a queue pair, and a receive before a message can arrive;
//! 4. both are connected: the end that asked for the connection sends a message;
//! 5. completions report that a message has arrived, and that one has been sent;
//! 6. everything ends by being dropped: connections in the order of the fields, then what they
//!    used, and at last the consumer, which waits for all of them.
//!
//! There is no `unsafe` in it. Memory that a device may write is copied from and to, never
//! borrowed. What a work request names belongs to the domain, which outlives the queue pair. After
//! an [`Endpoint`] was dropped none of its callbacks runs.

use core::net::Ipv4Addr;

use kernel::{
    prelude::*,
    str::CStr,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        SetOnce, //
    },
    time::msecs_to_jiffies, //
};
use rtrs_bindings::{
    errno,
    ib::{
        Chain,
        CmEvent,
        ConnParam,
        ConnectRequest,
        Decide,
        Decision,
        DmaDirection,
        DmaPages,
        Domain,
        Endpoint,
        Handler,
        Listen,
        Listener,
        Locked,
        OwnedConsumer,
        PendingSlot,
        PollContext,
        PortSpace,
        QueueConfig,
        QueuePair,
        Receiving,
        Sges,
        SockAddr,
        Success,
        Wc,
        WcOpcode, //
    },
    pages::Pages,
    param::module_params,
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

const OWNER: &CStr = c"rtrs_echo";
const PORT: u16 = 4791;
const WORDS: &[u8; 16] = b"what comes back?";
/// Milliseconds that each step may take.
const PATIENCE_MS: u32 = 5_000;
/// How often unacknowledged messages are sent again; without end if there is no receive.
const PARAM: ConnParam<'static> = ConnParam {
    private_data: &[],
    retry_count: 7,
    rnr_retry_count: 7,
};

module_params! {
    /// An IPv4 address of an RDMA device of this host.
    static ADDR: charp = "addr", c"10.9.0.1", "IPv4 address of an RDMA device (default: 10.9.0.1)",
        |addr| match parse(addr) {
            Ok(_) => Ok(()),
            Err(_) => Err("must be an IPv4 address"),
        };
}

fn parse(addr: &CStr) -> Result<Ipv4Addr> {
    addr.to_str()?.parse().map_err(|_| EINVAL)
}

/// One of the two ends. It handles events and completions.
#[pin_data]
struct Side {
    /// Whether this end sends the message back, or begins.
    answers: bool,
    /// Memory for one message, mapped for as long as its domain exists: the queue pair keeps that.
    memory: SetOnce<DmaPages>,
    /// 0, or the error that ended the echo.
    result: Atomic<i32>,
    #[pin]
    over: Completion,
}

impl Side {
    fn new(answers: bool) -> Result<Arc<Self>> {
        let init = pin_init!(Self {
            answers,
            memory: SetOnce::new(),
            result: Atomic::new(0),
            over <- Completion::new(),
        });
        Arc::pin_init(init, GFP_KERNEL)
    }

    /// Step 3. The endpoint's lock keeps events out meanwhile.
    fn prepare(&self, ep: &Locked<'_, Self>) -> Result {
        let domain = Domain::new(ep.device().ok_or(ENODEV)?, ep.consumer())?;
        let pages = Arc::new(Pages::new(0, -1)?, GFP_KERNEL)?;
        let memory = domain.map(pages, DmaDirection::Bidirectional)?;
        let config = QueueConfig {
            send_wrs: 1,
            recv_wrs: 1,
            send_sges: 1,
            inline_max: 0,
            comp_vector: 0,
            poll: PollContext::Softirq,
            portion: 0,
            send_tokens: 1,
            key_tokens: 0,
            recv_tokens: 1,
            recv_rest: 0,
            sends: 0,
            sent: None,
        };
        let qp = ep.create_qp(&domain, &config)?;
        qp.post_recv(0, Some(memory.sge(0, WORDS.len())?))?;
        self.memory.populate(memory);
        Ok(())
    }

    /// Sends the content of the memory. A token requests a completion; here only a failure has one.
    fn send(&self, qp: &QueuePair) -> Result {
        let memory = self.memory.as_ref().ok_or(EINVAL)?;
        let words = Sges::from(memory.sge(0, WORDS.len())?);
        Ok(Chain::<1>::new(qp).send(&words).post(None)?)
    }

    /// Step 4.
    fn begin(&self, ep: &Endpoint<Self>) -> Result {
        let memory = self.memory.as_ref().ok_or(EINVAL)?;
        memory.write(0, WORDS)?;
        self.send(ep.qp().ok_or(EINVAL)?)?;
        // The acknowledged message has been read by the device. A driver with more than one message
        // receives elsewhere.
        Ok(())
    }

    /// Step 5: a message has arrived.
    fn heard(&self, qp: &QueuePair, wc: &Success) -> Result {
        if wc.opcode() != WcOpcode::Recv || wc.byte_len() != WORDS.len() {
            return Err(errno::EPROTO);
        }
        if self.answers {
            return self.send(qp);
        }
        let mut words = [0; WORDS.len()];
        self.memory.as_ref().ok_or(EINVAL)?.read(0, &mut words)?;
        if words == *WORDS {
            self.over.complete_all();
            Ok(())
        } else {
            Err(EIO)
        }
    }

    fn end(&self, result: Result) {
        if let Err(e) = result {
            self.result.store(e.to_errno(), Relaxed);
            self.over.complete_all();
        }
    }
}

impl Handler for Side {
    type Cargo = ();

    /// Step 2. May sleep.
    fn cm_event(&self, ep: Locked<'_, Self>, event: CmEvent<'_>) {
        self.end(match event {
            CmEvent::AddrResolved => self
                .prepare(&ep)
                .and_then(|()| ep.resolve_route(PATIENCE_MS)),
            CmEvent::RouteResolved => ep.connect(PARAM),
            CmEvent::Established(_) if !self.answers => self.begin(&ep),
            CmEvent::Rejected(..) => Err(errno::ECONNRESET),
            CmEvent::Failed(e) => Err(Error::from_errno(e)),
            _ => Ok(()),
        });
    }

    fn send_done(&self, _: &Endpoint<Self>, _: &QueuePair, _: Option<u32>, wc: &Wc) {
        if !wc.status().is_ok() {
            self.end(Err(EIO));
        }
    }

    /// Softirq: must not sleep.
    fn recv_done(&self, _: &Endpoint<Self>, qp: Receiving<'_>, _: u32, wc: &Success) {
        self.end(self.heard(&qp, wc));
    }

    fn recv_failed(&self, _: &Endpoint<Self>, _: &Wc) {
        self.end(Err(EIO));
    }
}

/// Step 1: a request to connect, and the work item that handles it.
#[pin_data]
struct Knock {
    #[pin]
    pending: PendingSlot,
    #[pin]
    work: Work<Knock>,
    #[pin]
    knocked: Completion,
}

impl_has_work! {
    impl HasWork<Self> for Knock { self.work }
}

impl WorkItem for Knock {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.knocked.complete_all();
    }
}

impl Decide for Knock {
    fn slot(&self) -> &PendingSlot {
        &self.pending
    }
}

struct Door {
    knock: Arc<Knock>,
    queue: Queue,
}

impl Listen for Door {
    type Task = Knock;

    fn connect_request(&self, _: &ConnectRequest<'_>) -> Decision<Knock> {
        // Accepting takes time, and this function delays all other requests to connect.
        Decision::Later(self.knock.clone(), self.queue.clone())
    }
}

/// Step 6: the fields are dropped in this order.
struct Echo {
    _asking: Pin<KBox<Endpoint<Side>>>,
    _answering: Pin<KBox<Endpoint<Side>>>,
    _listener: Listener<Door>,
    _queue: OwnedQueue,
    _consumer: OwnedConsumer,
}

impl kernel::Module for Echo {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let addr = SockAddr::v4(ADDR.with(parse)?.octets(), PORT);
        let patience = msecs_to_jiffies(PATIENCE_MS);
        let owned = OwnedConsumer::new(OWNER)?;
        let consumer = owned.handle();

        let queue = OwnedQueue::new(c"rtrs_echo", Options::UNBOUND)?;
        let knock = Arc::pin_init(
            pin_init!(Knock {
                pending <- PendingSlot::new(),
                work <- new_work!("rtrs_echo_knock"),
                knocked <- Completion::new(),
            }),
            GFP_KERNEL,
        )?;
        let door = Door {
            knock: knock.clone(),
            queue: queue.handle(),
        };
        let listener = Listener::new(
            &SockAddr::any(PORT),
            1,
            Arc::new(door, GFP_KERNEL)?,
            &consumer,
        )?;

        let (one, other) = (Side::new(false)?, Side::new(true)?);
        let mut asking = Endpoint::new(one.clone(), 0, PortSpace::of(&addr), &consumer)?;
        asking.as_mut().resolve_addr(None, &addr, PATIENCE_MS)?;

        knock.knocked.wait_timeout(patience)?;
        let pending = knock.pending.take().ok_or(EINVAL)?;
        let answering = Endpoint::from_pending(other.clone(), 0, pending).map_err(|(_, e)| e)?;
        answering.locked(|ep| other.prepare(&ep).and_then(|()| ep.accept(PARAM)))??;

        one.over.wait_timeout(patience)?;
        match one.result.load(Relaxed) {
            0 => pr_info!("it came back\n"),
            e => return Err(Error::from_errno(e)),
        }
        Ok(Self {
            _asking: asking,
            _answering: answering,
            _listener: listener,
            _queue: queue,
            _consumer: owned,
        })
    }
}

module! {
    type: Echo,
    name: "rtrs_echo",
    authors: ["The RTRS in Rust authors"],
    description: "Echo over RDMA, an example",
    license: "GPL",
}
