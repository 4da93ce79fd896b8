// SPDX-License-Identifier: GPL-2.0

//! Answers of the server: at once, later, and from other contexts.
//!
//! # Locking
//!
//! `due` is a spinlock that interrupts take. Nothing is answered while it is held.

use kernel::{
    impl_has_hr_timer, pr_err_once,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Release, //
        },
        Arc,
        ArcBorrow, //
    },
    time::{
        delay::fsleep,
        hrtimer::{
            ArcHrTimerHandle,
            HrTimer,
            HrTimerCallback,
            HrTimerCallbackContext,
            HrTimerPointer,
            HrTimerRestart,
            RelativeMode, //
        },
        Delta,
        Monotonic, //
    },
};
use rtrs_bindings::{
    lock::{
        new_spinlock_irq,
        SpinLockIrq, //
    },
    time,
    try_lock::TryLock,
    wait::{
        new_wait_queue,
        WaitQueue, //
    },
    workqueue::{
        impl_has_work,
        new_work,
        Queue,
        Work,
        WorkExt,
        WorkItem, //
    },
};
use rtrs_server::api::Operation;

use crate::order::{
    How,
    Order, //
};

/// Requests that can wait for the timer, or for a command.
const ROOM: usize = 4096;

/// Interval at which the timer checks requests.
const TICK: Delta = Delta::from_millis(1);

const NS_PER_MS: u64 = 1_000_000;

/// A request that waits for its answer.
struct Due {
    op: Operation,
    result: Result,
    /// On the monotonic clock; `None` for a request that waits for a command.
    at: Option<u64>,
}

/// The answers that a server still has to give.
#[pin_data]
pub(crate) struct Answers {
    queue: Queue,
    /// Whether requests may be held.
    holding: Atomic<bool>,
    /// Tasks of the server that sleep over a request.
    asleep: Atomic<u32>,
    /// Number of commands to answer.
    told: Atomic<u32>,
    #[pin]
    awake: WaitQueue,
    #[pin]
    due: SpinLockIrq<KVec<Due>>,
    #[pin]
    timer: HrTimer<Self>,
}

impl_has_hr_timer! {
    impl HasHrTimer<Self> for Answers {
        mode: RelativeMode<Monotonic>,
        field: self.timer,
    }
}

impl HrTimerCallback for Answers {
    type Pointer<'a> = Arc<Self>;

    /// In an interrupt.
    fn run(this: ArcBorrow<'_, Self>, mut ctx: HrTimerCallbackContext<'_, Self>) -> HrTimerRestart {
        let now = time::now_ns();
        this.answer_all(|due| due.at.is_some_and(|at| at <= now));
        ctx.forward_now(TICK);
        HrTimerRestart::Restart
    }
}

impl Answers {
    /// Makes an empty set of answers. Sleeps.
    pub(crate) fn new(queue: Queue) -> Result<Arc<Self>> {
        let due = KVec::with_capacity(ROOM, GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                queue,
                holding: Atomic::new(true),
                asleep: Atomic::new(0),
                told: Atomic::new(0),
                awake <- new_wait_queue!("rtrs_test_awake"),
                due <- new_spinlock_irq!(due, "rtrs_test_due"),
                timer <- HrTimer::new(),
            }),
            GFP_KERNEL,
        )
    }

    /// Starts the timer, until the handle is dropped.
    pub(crate) fn start_timer(self: &Arc<Self>) -> ArcHrTimerHandle<Self> {
        self.clone().start(TICK)
    }

    /// Answers `op` as `order` says. Process context; sleeps.
    pub(crate) fn answer(&self, op: Operation, order: &Order) {
        let result = match order.errno {
            0 => Ok(()),
            errno => Err(Error::from_errno(-i32::from(errno))),
        };
        match order.how {
            How::Work => Later::start(&self.queue, op, result, order.delay_ms),
            How::Timer => {
                let delay = u64::from(order.delay_ms) * NS_PER_MS;
                let at = Some(time::now_ns().saturating_add(delay));
                self.put(Due { op, result, at });
            }
            How::Hold if self.holding.load(Acquire) => {
                self.put(Due {
                    op,
                    result,
                    at: None,
                });
                // The thread that stops the holding may not have seen this request.
                if !self.holding.load(Acquire) {
                    self.release();
                }
            }
            How::Sleep => {
                self.sleep();
                op.respond(result);
            }
            How::Hold | How::Now => op.respond(result),
        }
    }

    /// Sleeps until the next command to answer, or until nothing is held any more.
    fn sleep(&self) {
        let before = self.told.load(Acquire);
        self.asleep.fetch_add(1, Full);
        self.awake
            .wait_until(|| self.told.load(Acquire) != before || !self.holding.load(Acquire));
        self.asleep.fetch_sub(1, Full);
    }

    fn put(&self, due: Due) {
        let full = self.due.lock().push_within_capacity(due);
        if full.is_err() {
            // The request is dropped, which answers it with `EIO`.
            pr_err_once!("more than {} requests wait\n", ROOM);
        }
    }

    /// Answers held requests, and wakes tasks that sleep. Any context.
    pub(crate) fn release(&self) {
        self.told.fetch_add(1, Full);
        self.awake.wake_all();
        self.answer_all(|due| due.at.is_none());
    }

    /// Stops holding requests. Any context.
    pub(crate) fn stop_holding(&self) {
        self.holding.store(false, Release);
        self.release();
    }

    /// Number of requests that wait here. Any context.
    pub(crate) fn waiting(&self) -> usize {
        self.due.lock().len()
    }

    /// Number of the server's tasks that sleep over a request. Any context.
    pub(crate) fn asleep(&self) -> u32 {
        self.asleep.load(Acquire)
    }

    fn answer_all(&self, which: impl Fn(&Due) -> bool) {
        loop {
            let next = {
                let mut due = self.due.lock();
                let index = due.iter().position(&which);
                index.and_then(|index| due.remove(index).ok())
            };
            match next {
                Some(due) => due.op.respond(due.result),
                None => return,
            }
        }
    }
}

/// An answer that a work item gives.
#[pin_data]
struct Later {
    answer: TryLock<Option<(Operation, Result)>>,
    delay_ms: u32,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Later { self.work }
}

impl WorkItem for Later {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if this.delay_ms != 0 {
            fsleep(Delta::from_millis(this.delay_ms.into()));
        }
        let answer = this.answer.try_take().and_then(|mut answer| answer.take());
        if let Some((op, result)) = answer {
            op.respond(result);
        }
    }
}

impl Later {
    fn start(queue: &Queue, op: Operation, result: Result, delay_ms: u32) {
        let later = Arc::pin_init(
            pin_init!(Self {
                answer: TryLock::new(Some((op, result))),
                delay_ms,
                work <- new_work!("rtrs_test_answer"),
            }),
            GFP_KERNEL,
        );
        // Without memory the request was dropped, which answers it with `EIO`.
        if let Ok(later) = later {
            later.work.enqueue(queue, &later);
        }
    }
}
