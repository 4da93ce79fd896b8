// SPDX-License-Identifier: GPL-2.0

//! Requests of one connection on their way to the user.
//!
//! The user may sleep in [`Service::request()`](crate::api::Service::request) for as long as a disk
//! is full. So completion handlers do not call it: draining a connection waits for completion
//! handlers, and the end of a path and the removal of a device wait for the drain. Completion
//! handlers leave requests here, and a work item takes them out, one at a time. Requests that may
//! take long are handled in [turns](crate::turns), so that clients of one source cannot use all the
//! tasks that there are. On the processor where a request arrived, the thread that handled the
//! completion runs the work item next, if it has nothing else to do.
//!
//! A connection that has many data of answers under way is *held*: requests that the user does not have
//! yet wait here until the device has sent some of them ([`logic::valve`](crate::logic::valve)). Where
//! connections share a device, they then take turns by a few answers each.
//!
//! A waiting request stays in its chunk; the inbox has numbers only. So a path that ends takes back
//! all of them while the user sleeps over another one; see [`Active::release_waiting`].
//!
//! # Locking
//!
//! None except that of its turns. If there is a number here, then the work item is queued, or waits
//! for its turn, or runs and will look, or the inbox is held.
//!
//! [`Active::release_waiting`]: crate::active::Active::release_waiting

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
        impl_work_item,
        new_work,
        Queue,
        Work,
        WorkExt, //
    },
};

use crate::{
    active::{
        Active,
        Chunk, //
    },
    logic::{
        pile::{
            Batch,
            Pile, //
        },
        valve::Valve, //
    },
    op::Op,
    ops_ref::OpsRef,
    path::Path,
    turns::{
        LineEntry,
        Taker,
        Turns, //
    }, //
};

/// Requests that are handed to the user before other work gets the thread.
const BUDGET: usize = 64;

/// Requests of one connection that the user has not seen yet.
#[pin_data]
pub(crate) struct Inbox {
    path: Arc<Path>,
    queue: Queue,
    /// Set if the inbox has to wait for its turn.
    turns: Option<Arc<Turns<Inbox>>>,
    chunks: Pile,
    /// Shut while the connection has many data under way.
    valve: Valve,
    #[pin]
    work: Work<Inbox>,
    #[pin]
    line_entry: SpinLockIrq<LineEntry<Inbox>>,
    /// Dropped last. The end of the path is not announced while the user's function runs, even if
    /// it has answered.
    _ops_ref: Arc<OpsRef>,
}

impl_has_work! {
    impl HasWork<Self> for Inbox { self.work }
}

impl_work_item! {
    impl WorkItem<0> for Inbox { Self::serve }
}

impl Taker for Inbox {
    fn line_entry(&self) -> &SpinLockIrq<LineEntry<Self>> {
        &self.line_entry
    }

    fn call(self: &Arc<Self>) {
        self.work.enqueue(&self.queue, self);
    }
}

impl Inbox {
    /// Makes an inbox for a connection of `path`. `queue` runs the work item that hands requests to
    /// the user; if there are `turns`, it runs in its turn. May sleep.
    pub(crate) fn new(
        path: &Arc<Path>,
        queue: &Queue,
        turns: Option<Arc<Turns<Self>>>,
        ops_ref: &Arc<OpsRef>,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                path: path.clone(),
                queue: queue.clone(),
                turns,
                chunks: Pile::new(),
                valve: Valve::new(),
                work <- new_work!("rtrs_srv_inbox"),
                line_entry <- new_spinlock_irq!(LineEntry::new(), "rtrs_srv_line_entry"),
                _ops_ref: ops_ref.clone(),
            }),
            GFP_KERNEL,
        )
    }

    /// The operation of chunk `buf_id` is queued in the chunk. Any context.
    #[inline(always)]
    pub(crate) fn put(self: ArcBorrow<'_, Self>, buf_id: u16, chunk: &Chunk) {
        if self.chunks.push(buf_id, chunk.as_ref()) {
            Self::start(self);
        }
    }

    /// The connection has many data under way while `is_ahead` says so: the next request, or the one
    /// after it, waits until [`resume`](Self::resume). Any context.
    #[inline(never)]
    pub(crate) fn hold(self: ArcBorrow<'_, Self>, is_ahead: impl Fn() -> bool) {
        self.valve.shut();
        // The last completion may have come before that.
        if !is_ahead() {
            self.release();
        }
    }

    /// The same is over if `is_ahead` does not say so any more. Called when it may be, after a full
    /// barrier. Any context.
    #[inline(always)]
    pub(crate) fn resume(self: ArcBorrow<'_, Self>, is_ahead: impl Fn() -> bool) {
        if !self.valve.is_open() && !is_ahead() {
            self.release();
        }
    }

    /// Whether it is held now. Any context.
    pub(crate) fn is_held(&self) -> bool {
        !self.valve.is_open()
    }

    #[inline(never)]
    fn release(self: ArcBorrow<'_, Self>) {
        if self.valve.open() {
            Self::start(self);
        }
    }

    #[inline(never)]
    fn start(this: ArcBorrow<'_, Self>) {
        if this.turns.is_some() {
            return Self::want_turn(this);
        }
        this.work.enqueue_owned(&this.queue, this.into());
    }

    #[cold]
    #[inline(never)]
    fn want_turn(this: ArcBorrow<'_, Self>) {
        if let Some(turns) = &this.turns {
            turns.wanted(&this.into());
        }
    }

    /// The path ends: no request here is handed to the user any more, so the inbox stops waiting.
    /// Called when no other task can find the inbox any more. Any context.
    pub(crate) fn release_waiting(self: &Arc<Self>) {
        if let Some(turns) = &self.turns {
            turns.left(self);
        }
    }

    /// Hands requests to the user for one turn, or until its budget is used up. Work item; sleeps
    /// for as long as the user likes.
    #[inline(always)]
    fn serve(self: &Arc<Self>) {
        match &self.turns {
            None => {
                if self.work_off() {
                    Self::start(self.as_arc_borrow());
                }
            }
            Some(turns) => self.serve_in_turn(turns),
        }
    }

    #[cold]
    #[inline(never)]
    fn serve_in_turn(self: &Arc<Self>, turns: &Turns<Self>) {
        turns.begun(self);
        let more = self.work_off();
        turns.ended(self, more);
        // `release_waiting()` may have found the inbox working, and then leaves it to this task to
        // take it out of the line. If the path ends after this check, `release_waiting()` runs after
        // `ended()`.
        if self.path.is_closing() {
            turns.left(self);
        }
    }

    /// Hands requests to the user, until there are none, the budget is used up, or the inbox is held.
    /// Returns whether there may be more for it. If it has taken all, the next [`Inbox::put`] starts it
    /// again.
    #[inline(always)]
    fn work_off(&self) -> bool {
        if !self.valve.lets_through() {
            return false;
        }
        let mut batch = self.chunks.take_left();
        if !batch.is_empty() {
            return self.work_off_left(batch);
        }
        let first = self.take(&mut batch);
        self.hand_over(first, batch)
    }

    /// The same for the rest of a batch. There may be more then in any case, but if this has stopped at the
    /// valve, the task that opens it sees to that.
    #[cold]
    #[inline(never)]
    fn work_off_left(&self, mut batch: Batch) -> bool {
        let first = next(&self.path, &mut batch);
        self.hand_over(first, batch);
        !self.valve.is_held()
    }

    /// Hands the first request, and those of the batch, to the user. Returns whether a part of the
    /// batch was left, which does not wait.
    #[inline(always)]
    fn hand_over(&self, first: Option<KBox<Op>>, mut batch: Batch) -> bool {
        let path: &Path = &self.path;
        let mut waiting = first;
        let mut left = BUDGET;

        while let Some(op) = waiting {
            path.call_user(op);
            if batch.is_empty() {
                return false;
            }
            left = left.wrapping_sub(1);
            if left == 0 {
                self.chunks.leave(batch);
                return true;
            }
            if !self.valve.lets_through() {
                self.chunks.leave(batch);
                return false;
            }
            waiting = next(path, &mut batch);
        }
        false
    }

    /// Takes all numbers, which become the `batch`, and returns the first operation. Mostly there
    /// is one, so both take one look at the path.
    #[inline(always)]
    fn take(&self, batch: &mut Batch) -> Option<KBox<Op>> {
        let guard = rcu::read_lock();

        // If the path is being taken down, the operations are given up in their chunks.
        let chunks = self.path.active(&guard).map_or(&[][..], Active::chunks);
        *batch = self.chunks.take(|id| chunks.get(id as usize));
        dequeue(chunks, batch)
    }
}

/// Returns the next operation; `None` if there is none, or if the path is being taken down.
#[inline(always)]
fn next(path: &Path, batch: &mut Batch) -> Option<KBox<Op>> {
    let guard = rcu::read_lock();

    dequeue(path.active(&guard)?.chunks(), batch)
}

/// The same, of a path's `chunks`.
#[inline(always)]
fn dequeue(chunks: &[Chunk], batch: &mut Batch) -> Option<KBox<Op>> {
    loop {
        let chunk = batch.pop(|id| chunks.get(id as usize))?;
        // It may have been given up.
        if let Some(op) = chunk.dequeue() {
            return Some(op);
        }
    }
}
