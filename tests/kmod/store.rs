// SPDX-License-Identifier: GPL-2.0

//! The server's side: checks every byte that arrives and makes the bytes to send.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
    time::{
        delay::fsleep,
        hrtimer::ArcHrTimerHandle,
        Delta, //
    },
};
use rtrs_bindings::workqueue::{
    Options,
    OwnedQueue, //
};
use rtrs_server::api::{
    DataDir,
    Operation,
    Server,
    ServerConfig,
    Service,
    Session, //
};

use crate::{
    answers::Answers,
    disk::Disk,
    order::{
        Order,
        CORRUPT, //
    },
    pattern::Pattern,
};

/// Number of bytes of data that are checked at a time.
const STEP: usize = 256;

/// Counts over all servers.
#[derive(Default)]
pub(crate) struct Seen {
    /// Requests to write.
    pub(crate) writes: Count,
    /// Requests to read.
    pub(crate) reads: Count,
    /// Requests that did not arrive as they were sent.
    pub(crate) corrupt: Count,
    /// Sessions that connected.
    pub(crate) ups: Count,
    /// Sessions that disconnected, or are about to.
    pub(crate) downs: Count,
}

/// A counter. Any context.
pub(crate) struct Count(Atomic<u64>);

impl Default for Count {
    fn default() -> Self {
        Self(Atomic::new(0))
    }
}

impl Count {
    /// Counts one.
    pub(crate) fn up(&self) {
        self.0.add(1, Relaxed);
    }

    /// Counts one less.
    pub(crate) fn down(&self) {
        self.0.fetch_sub(1, Relaxed);
    }

    /// The count.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The service. Unless it is a disk it stores nothing: the content of each write is known in advance.
struct Store {
    answers: Arc<Answers>,
    seen: Arc<Seen>,
    /// Whether clients are turned away.
    refuse: bool,
    /// Time that it takes to let go of a session.
    farewell: Delta,
    disk: Option<Pin<KBox<Disk>>>,
}

impl Store {
    /// Executes the request; returns the order for the answer.
    fn execute(&self, op: &Operation) -> Result<Order> {
        let order = Order::read(op.usr(), op.data_len())?;
        let pattern = Pattern::of_data(order.seed);
        let mut buf = [0; STEP];
        for at in (0..op.data_len()).step_by(STEP) {
            let len = STEP.min(op.data_len() - at);
            let part = buf.get_mut(..len).ok_or(EINVAL)?;
            match op.dir() {
                DataDir::Write => {
                    op.read_data(at, part)?;
                    if let Some(at) = pattern.mismatch(at, part) {
                        pr_err!(
                            "data to write of {} bytes: wrong at {}\n",
                            op.data_len(),
                            at
                        );
                        return Err(Error::from_errno(CORRUPT));
                    }
                }
                DataDir::Read => {
                    pattern.fill(at, part);
                    op.write_data(at, part)?;
                }
            }
        }
        Ok(order)
    }
}

impl Service for Store {
    fn link_up(&self, _session: &Session) -> Result {
        if self.refuse {
            return Err(EACCES);
        }
        self.seen.ups.up();
        Ok(())
    }

    fn link_down(&self, _session: &Session) {
        self.seen.downs.up();
        if !self.farewell.is_zero() {
            fsleep(self.farewell);
        }
    }

    fn request(&self, _session: &Session, op: Operation) {
        match op.dir() {
            DataDir::Write => self.seen.writes.up(),
            DataDir::Read => self.seen.reads.up(),
        }
        if let Some(disk) = &self.disk {
            let result = disk.execute(&op);
            if result.is_err() {
                self.seen.corrupt.up();
            }
            op.respond(result);
            return;
        }
        match self.execute(&op) {
            Ok(order) => self.answers.answer(op, &order),
            Err(e) => {
                self.seen.corrupt.up();
                op.respond(Err(e));
            }
        }
    }
}

/// A server that listens.
//
// Field order is teardown order: the server waits for its answers, which need timer and queue.
pub(crate) struct Serving {
    port: u16,
    server: Option<Server>,
    _timer: ArcHrTimerHandle<Answers>,
    answers: Arc<Answers>,
    _queue: OwnedQueue,
}

impl Serving {
    /// Starts to listen. Sleeps.
    pub(crate) fn new(
        config: &ServerConfig,
        refuse: bool,
        farewell: Delta,
        disk: Option<Pin<KBox<Disk>>>,
        seen: Arc<Seen>,
    ) -> Result<Self> {
        let queue = OwnedQueue::new(c"rtrs_test", Options::UNBOUND.max_active(512))?;
        let answers = Answers::new(queue.handle())?;
        let store = Arc::new(
            Store {
                answers: answers.clone(),
                seen,
                refuse,
                farewell,
                disk,
            },
            GFP_KERNEL,
        )?;
        Ok(Self {
            port: config.port,
            server: Some(Server::open(store, config)?),
            _timer: answers.start_timer(),
            answers,
            _queue: queue,
        })
    }

    /// The port that the server listens on.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The answers that the server still has to give.
    pub(crate) fn answers(&self) -> &Arc<Answers> {
        &self.answers
    }

    /// Takes the server out, to close it while its answers can still be released.
    pub(crate) fn take_server(&mut self) -> Option<Server> {
        self.server.take()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.answers.stop_holding();
    }
}
