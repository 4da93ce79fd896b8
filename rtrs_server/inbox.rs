// SPDX-License-Identifier: GPL-2.0

//! Requests of one connection on their way to the user.
//!
//! The user may sleep in [`Service::request()`](crate::api::Service::request) for as long as a disk
//! is full. So completion handlers do not call it: to drain a connection is to wait for those, and
//! the end of a path and the removal of a device wait for that. They leave requests here, and a
//! work item takes them out, one at a time. What may take long is worked on in [turns](crate::turns),
//! since there are so many tasks for it, and clients of one source are not to have them all. On the processor where a request arrived it is the next
//! thing the thread does that has handled the completion, if that is all there is to do.
//!
//! A request that waits stays in its chunk; what is here are numbers. So a path that ends takes all
//! of them back while the user sleeps over another one, see [`Live::give_up`].
//!
//! # Locking
//!
//! None but that of its turns. If there is a number here then the work item is queued, or waits for
//! its turn, or runs and is going to look.
//!
//! [`Live::give_up`]: crate::live::Live::give_up

use kernel::{
    prelude::*,
    sync::{
        rcu,
        Arc,
        ArcBorrow, //
    },
};

use rtrs_bindings::{
    lock::{
        new_spinlock_irq,
        SpinLockIrq, //
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

use crate::{
    lease::Lease,
    live::{
        Chunk,
        Live, //
    },
    logic::pile::{
        Batch,
        Pile, //
    },
    op::Op,
    path::Path,
    turns::{
        Place,
        Taker,
        Turns, //
    }, //
};

/// Requests handed to the user before others get the thread.
const BUDGET: usize = 64;

/// Requests of one connection that the user has not seen yet.
#[pin_data]
pub(crate) struct Inbox {
    path: Arc<Path>,
    queue: Queue,
    /// If it has to wait for its turn.
    turns: Option<Arc<Turns<Inbox>>>,
    chunks: Pile,
    #[pin]
    work: Work<Inbox>,
    #[pin]
    place: SpinLockIrq<Place<Inbox>>,
    /// Dropped last. The end of the path is not announced while the user's function runs, even if
    /// it has answered.
    _lease: Arc<Lease>,
}

impl_has_work! {
    impl HasWork<Self> for Inbox { self.work }
}

impl WorkItem for Inbox {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if let Some(turns) = &this.turns {
            turns.begun(&this);
        }
        let more = this.work_off();
        match &this.turns {
            Some(turns) => {
                turns.ended(&this, more);
                // `give_up()` has found it working, perhaps: nobody else takes it out of the line.
                // If the path ends after this look then `give_up()` comes after `ended()`.
                if this.path.is_closing() {
                    turns.left(&this);
                }
            }
            None if more => Self::start(this.as_arc_borrow()),
            None => (),
        }
    }
}

impl Taker for Inbox {
    fn place(&self) -> &SpinLockIrq<Place<Self>> {
        &self.place
    }

    fn call(self: &Arc<Self>) {
        self.work.enqueue(&self.queue, self);
    }
}

impl Inbox {
    /// An inbox of a connection of `path`, whose requests `queue` hands to the user, if there are
    /// `turns` for it, in its turn. May sleep.
    pub(crate) fn new(
        path: &Arc<Path>,
        queue: &Queue,
        turns: Option<Arc<Turns<Self>>>,
        lease: &Arc<Lease>,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                path: path.clone(),
                queue: queue.clone(),
                turns,
                chunks: Pile::new(),
                work <- new_work!("rtrs_srv_inbox"),
                place <- new_spinlock_irq!(Place::new(), "rtrs_srv_place"),
                _lease: lease.clone(),
            }),
            GFP_KERNEL,
        )
    }

    /// The operation of chunk `buf_id` is queued there. Any context.
    #[inline(always)]
    pub(crate) fn put(self: ArcBorrow<'_, Self>, buf_id: u16, chunk: &Chunk) {
        if self.chunks.push(buf_id, chunk.as_ref()) {
            Self::start(self);
        }
    }

    #[inline(never)]
    fn start(this: ArcBorrow<'_, Self>) {
        match &this.turns {
            Some(turns) => turns.wanted(&this.into()),
            None => {
                this.work.enqueue_owned(&this.queue, this.into());
            }
        }
    }

    /// The path ends: nothing here is handed to the user any more, so there is nothing to wait for.
    /// For when nobody finds the inbox any more. Any context.
    pub(crate) fn give_up(self: &Arc<Self>) {
        if let Some(turns) = &self.turns {
            turns.left(self);
        }
    }

    /// Hands requests to the user, until there are none, or others want the thread: then there may
    /// be more. If it has taken all, whoever lays down the next one starts it again.
    #[inline(always)]
    fn work_off(&self) -> bool {
        let path: &Path = &self.path;
        let mut batch = self.chunks.rest();
        let was_left = !batch.is_empty();

        if !was_left {
            batch = self.take();
        }
        for _ in 0..BUDGET {
            if batch.is_empty() {
                break;
            }
            let Some(op) = next(path, &mut batch) else {
                batch = Batch::none();
                break;
            };
            path.call_user(op);
        }
        let more = was_left || !batch.is_empty();
        if more {
            self.chunks.leave(batch);
        }
        more
    }

    /// What there is.
    #[inline(always)]
    fn take(&self) -> Batch {
        let guard = rcu::read_lock();

        // If the path is being taken down they are given up where they are.
        let chunks = self.path.live(&guard).map_or(&[][..], Live::chunks);
        self.chunks.take(|id| chunks.get(id as usize))
    }
}

/// The next operation, if there is one: none any more if the path is being taken down.
#[inline(always)]
fn next(path: &Path, batch: &mut Batch) -> Option<KBox<Op>> {
    let guard = rcu::read_lock();
    let chunks = path.live(&guard)?.chunks();

    loop {
        let chunk = batch.pop(|id| chunks.get(id as usize))?;
        // Unless it was given up.
        if let Some(op) = chunk.dequeue() {
            return Some(op);
        }
    }
}
