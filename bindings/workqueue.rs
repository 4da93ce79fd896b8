// SPDX-License-Identifier: GPL-2.0

//! Owned work queues, and operations that the kernel crate's work items lack: cancelling, flushing
//! and changing the delay.
//!
//! Work items themselves are those of [`kernel::workqueue`]: a field [`Work`] or [`DelayedWork`],
//! an [`impl_has_work!`] or [`impl_has_delayed_work!`], and an [`impl_work_item!`] or an
//! implementation of [`WorkItem`] with `Pointer = Arc<Self>`. The methods to use them are in
//! [`WorkExt`] and [`DelayedWorkExt`]; the type of the field selects one of several items of a
//! structure.
//!
//! ```ignore
//! use rtrs_bindings::workqueue::*;
//!
//! #[pin_data]
//! struct Path {
//!     queue: Queue,
//!     #[pin]
//!     close: Work<Path, 0>,
//!     #[pin]
//!     reconnect: DelayedWork<Path, 1>,
//! }
//!
//! impl_has_work! { impl HasWork<Self, 0> for Path { self.close } }
//! impl_has_delayed_work! { impl HasDelayedWork<Self, 1> for Path { self.reconnect } }
//!
//! impl_work_item! {
//!     impl WorkItem<0> for Path { Self::close }
//!     impl WorkItem<1> for Path { Self::reconnect }
//! }
//! impl DelayedOn<1> for Path { fn queue(&self) -> &Queue { &self.queue } }
//!
//! path.close.enqueue(&path.queue, &path);
//! path.reconnect.mod_delayed(&path, msecs_to_jiffies(500));
//! path.reconnect.cancel_sync();
//! ```
//!
//! # Ownership
//!
//! An item that is pending owns an `Arc` of the structure it is part of; the function that runs
//! gets the `Arc`; a call that cancels the item drops it. Each [`Queue`] counts as a user of its
//! [`OwnedQueue`], which waits for all of them and for all items before it goes away.
//!
//! C header: [`include/linux/workqueue.h`](srctree/include/linux/workqueue.h)

use core::ptr::NonNull;
use kernel::{
    bindings,
    ffi,
    prelude::*,
    sync::Arc,
    time::Jiffies, //
};

use crate::{
    raw,
    wait::{
        Tails,
        User,
        Users, //
    },
};

pub use kernel::workqueue::{
    impl_has_delayed_work,
    impl_has_work,
    new_delayed_work,
    new_work,
    DelayedWork,
    HasDelayedWork,
    HasWork,
    Work,
    WorkItem, //
};

/// Implements [`WorkItem`] for items that call a function with a reference to the structure, an
/// `&Arc<Self>`.
#[macro_export]
macro_rules! impl_work_item {
    ($(impl WorkItem<$id:tt> for $type:ty { $run:path })*) => {$(
        impl $crate::workqueue::WorkItem<$id> for $type {
            type Pointer = ::kernel::sync::Arc<Self>;

            fn run(this: ::kernel::sync::Arc<Self>) {
                $run(&this);
            }
        }
    )*};
}
pub use impl_work_item;

/// The most items of a queue that the kernel lets run at a time, for [`Options::max_active`].
// CAST: A small number.
pub const MAX_ACTIVE: u16 = raw::wq_consts_WQ_MAX_ACTIVE as u16;

/// The kind of queue to make; see [`OwnedQueue::new`].
#[derive(Clone, Copy)]
pub struct Options {
    flags: u32,
    max_active: u32,
}

impl Options {
    /// Items run on the processor where they were queued.
    pub const PER_CPU: Self = Self {
        flags: raw::wq_flags_WQ_PERCPU,
        max_active: 0,
    };

    /// Items run on any processor, as the scheduler chooses.
    pub const UNBOUND: Self = Self {
        flags: raw::wq_flags_WQ_UNBOUND,
        max_active: 0,
    };

    /// Items run in softirq, on the processor where they were queued: they do not sleep, and need no
    /// memory to make progress. Cannot be combined with other options but
    /// [`high_priority`](Self::high_priority).
    pub const SOFTIRQ: Self = Self {
        flags: raw::wq_flags_WQ_BH | raw::wq_flags_WQ_PERCPU,
        max_active: 0,
    };

    /// Items run before those of other queues and before most tasks.
    pub const fn high_priority(mut self) -> Self {
        self.flags |= raw::wq_flags_WQ_HIGHPRI;
        self
    }

    /// Guarantees progress when there is no memory for new threads: for work that a block device
    /// depends on.
    pub const fn mem_reclaim(mut self) -> Self {
        self.flags |= raw::wq_flags_WQ_MEM_RECLAIM;
        self
    }

    /// At most `max` items run at a time; in a [`PER_CPU`](Self::PER_CPU) queue at most `max` on
    /// each processor.
    pub const fn max_active(mut self, max: u16) -> Self {
        self.max_active = max as u32;
        self
    }
}

/// A work queue. Dropping it destroys the queue.
///
/// Dropping it sleeps until all [`Queue`] handles are gone and all items have run, so neither an
/// item nor the owner of a handle may do it. After that no code runs on behalf of the queue, so
/// that a module can be unloaded.
///
/// One that is forgotten stays with its queue, and items go on, but the module's exit does not wait
/// for them: a module must not do it, see [`Users`].
//
// Field order is teardown order: first the users, then the queue.
pub struct OwnedQueue {
    users: Users,
    _tails: Tails,
    raw: RawQueue,
}

/// # Invariants
///
/// A work queue that this object owns.
struct RawQueue(NonNull<bindings::workqueue_struct>);

// SAFETY: Work queues can be used and destroyed by every thread.
unsafe impl Send for RawQueue {}
// SAFETY: Work queues are synchronised by locks of their own.
unsafe impl Sync for RawQueue {}

impl Drop for RawQueue {
    fn drop(&mut self) {
        // SAFETY: By the type invariant this object owns the queue. Pending items are run. No item
        // is queued any more, and no timer of a delayed item is running, as both need a `Queue`:
        // `OwnedQueue` has waited until all are gone.
        unsafe { raw::destroy_workqueue(self.0.as_ptr()) }
    }
}

impl OwnedQueue {
    /// Makes a queue; `name` appears in the names of threads. Sleeps.
    pub fn new(name: &CStr, options: Options) -> Result<Self> {
        let users = Users::new()?;
        // SAFETY: The format takes one string, and `name` is one.
        let queue = unsafe {
            raw::alloc_workqueue_noprof(
                c"%s".as_char_ptr(),
                options.flags,
                // CAST: At most `u16::MAX`.
                options.max_active as ffi::c_int,
                name.as_char_ptr(),
            )
        };
        // INVARIANT: The queue was just made, and nothing else owns it.
        let raw = RawQueue(NonNull::new(queue).ok_or(ENOMEM)?);
        Ok(Self {
            users,
            _tails: Tails,
            raw,
        })
    }

    /// Returns a handle, for queuing items. Any context.
    pub fn handle(&self) -> Queue {
        // INVARIANT: `user` keeps the queue alive.
        Queue {
            raw: self.raw.0,
            _user: self.users.add(),
        }
    }
}

/// A handle of an [`OwnedQueue`], which lives at least as long. Clone and drop
/// in any context.
///
/// # Invariants
///
/// `raw` is a work queue, which is not destroyed before `_user` is dropped.
#[derive(Clone)]
pub struct Queue {
    raw: NonNull<bindings::workqueue_struct>,
    _user: User,
}

// SAFETY: Work queues can be used by every thread.
unsafe impl Send for Queue {}
// SAFETY: Work queues are synchronised by locks of their own.
unsafe impl Sync for Queue {}

impl Queue {
    /// Not public, as the kernel crate's queue lets a delayed item outlive the queue.
    fn get(&self) -> &kernel::workqueue::Queue {
        // SAFETY: By the type invariant the queue is valid for as long as `self`.
        unsafe { kernel::workqueue::Queue::from_raw(self.raw.as_ptr()) }
    }

    /// Queues the item of `owner`, unless it is pending already. Any context.
    pub(crate) fn run<T>(&self, owner: Arc<T>)
    where
        T: WorkItem<Pointer = Arc<T>> + HasWork<T> + Send + Sync + 'static,
    {
        // An item that is refused is already pending, as wanted. The reference is not the last one
        // then, unless that item has finished meanwhile.
        let _ = self.get().enqueue(owner);
    }

    /// Sleeps until all items that are queued now have run. Not to be called by
    /// an item of this queue.
    pub fn flush(&self) {
        // SAFETY: Valid by the type invariant.
        unsafe { raw::__flush_workqueue(self.raw.as_ptr()) }
    }
}

/// Drops the reference of an item that is pending already.
#[cold]
#[inline(never)]
fn let_go<T>(owner: Arc<T>) {
    drop(owner);
}

/// Operations that [`kernel::workqueue::Work`] lacks.
pub trait WorkExt<T, const ID: u64> {
    /// Queues this item of `owner`, unless it is pending already: then nothing
    /// changes, and [`false`] is returned. Any context.
    ///
    /// An item that is running can be queued again, and then runs again. It is not queued while a
    /// task [cancels](Self::cancel_sync) it.
    fn enqueue(&self, queue: &Queue, owner: &Arc<T>) -> bool;

    /// As [`enqueue`](Self::enqueue), for a caller that has a reference to give away.
    fn enqueue_owned(&self, queue: &Queue, owner: Arc<T>) -> bool;

    /// Makes it not pending and sleeps until it is not running. Returns whether it was pending.
    ///
    /// It can be queued again afterwards. Must not be called by the item itself, or with a lock
    /// that the item takes.
    fn cancel_sync(&self) -> bool;

    /// Sleeps until it is not pending and not running, as of now.
    fn flush(&self);
}

impl<T, const ID: u64> WorkExt<T, ID> for Work<T, ID>
where
    T: WorkItem<ID, Pointer = Arc<T>> + HasWork<T, ID> + Send + Sync + 'static,
{
    fn enqueue(&self, queue: &Queue, owner: &Arc<T>) -> bool {
        self.enqueue_owned(queue, owner.clone())
    }

    fn enqueue_owned(&self, queue: &Queue, owner: Arc<T>) -> bool {
        match queue.get().enqueue(owner) {
            Ok(()) => true,
            Err(owner) => {
                let_go(owner);
                false
            }
        }
    }

    fn cancel_sync(&self) -> bool {
        // SAFETY: `self` is a valid item.
        let work = unsafe { Work::raw_get(self) };
        // SAFETY: The item is initialised, as every `Work` is.
        let was_pending = unsafe { raw::cancel_work_sync(work) };
        if was_pending {
            // SAFETY: It was pending, and this call made it not pending without running it.
            drop(unsafe { take_back::<T, ID>(work) });
        }
        was_pending
    }

    fn flush(&self) {
        // SAFETY: `self` is an initialised item.
        unsafe { raw::flush_work(Work::raw_get(self)) };
    }
}

/// Selects the queue on which the delayed item `ID` of a structure runs.
///
/// The structure owns the handle, directly or through another object: a pending delayed item keeps
/// its structure alive, and so its queue. The queue itself does not know of the item before the
/// delay has passed.
pub trait DelayedOn<const ID: u64 = 0> {
    /// The queue.
    fn queue(&self) -> &Queue;
}

/// Operations that [`kernel::workqueue::DelayedWork`] lacks.
pub trait DelayedWorkExt<T, const ID: u64> {
    /// Queues this item of `owner` after `delay`, unless it is pending already:
    /// then nothing changes, and [`false`] is returned. Any context.
    fn enqueue(&self, owner: &Arc<T>, delay: Jiffies) -> bool;

    /// Queues this item of `owner` after `delay`, whether it is pending or not.
    /// Any context.
    ///
    /// Does nothing while a task [cancels](Self::cancel_sync) the item.
    fn mod_delayed(&self, owner: &Arc<T>, delay: Jiffies);

    /// Makes it not pending and sleeps until it is not running. Returns whether it was pending.
    ///
    /// It can be queued again afterwards. Must not be called by the item itself, or with a lock
    /// that the item takes.
    fn cancel_sync(&self) -> bool;

    /// Sleeps until it is not pending and not running, as of now. It does not
    /// wait for the delay.
    fn flush(&self);
}

impl<T, const ID: u64> DelayedWorkExt<T, ID> for DelayedWork<T, ID>
where
    T: WorkItem<ID, Pointer = Arc<T>> + HasDelayedWork<T, ID>,
    T: DelayedOn<ID> + Send + Sync + 'static,
{
    fn enqueue(&self, owner: &Arc<T>, delay: Jiffies) -> bool {
        // The timer, and then the item, use the queue later. The queue lives as long as
        // `DelayedOn::queue()` can lend a handle of it, thus as long as the `Arc` that belongs to
        // the pending item exists.
        let queue = owner.queue().get();
        queue.enqueue_delayed(owner.clone(), delay).is_ok()
    }

    fn mod_delayed(&self, owner: &Arc<T>, delay: Jiffies) {
        // SAFETY: Pointers into an `Arc` point to a valid value.
        let work = unsafe { T::raw_get_work(Arc::as_ptr(owner).cast_mut()) };
        // SAFETY: `raw_get_work()` returns a valid item.
        let work = unsafe { Work::raw_get(work) };

        // If the item is cancelled at the same time, `mod_delayed_work()` does not tell whether it
        // has queued the item, and so whether the item owns the `Arc`.
        loop {
            // SAFETY: The item is initialised and is part of a `delayed_work`.
            if unsafe { raw::cancel_delayed_work(delayed(work)) } {
                // SAFETY: It was pending, and this call made it not pending without running it.
                drop(unsafe { take_back::<T, ID>(work) });
            }
            if DelayedWorkExt::enqueue(self, owner, delay) {
                return;
            }
            // If it is pending, another task has just queued it, with another delay. Otherwise it
            // is being cancelled, or is running already.
            // SAFETY: `self` is an initialised item.
            if !unsafe { raw::rtrs_helper_work_pending(work) } {
                return;
            }
        }
    }

    fn cancel_sync(&self) -> bool {
        // SAFETY: `self` is a valid item.
        let work = unsafe { Work::raw_get(DelayedWork::raw_as_work(self)) };
        // SAFETY: The item is initialised and is part of a `delayed_work`.
        let was_pending = unsafe { raw::cancel_delayed_work_sync(delayed(work)) };
        if was_pending {
            // SAFETY: It was pending, and this call made it not pending without running it.
            drop(unsafe { take_back::<T, ID>(work) });
        }
        was_pending
    }

    fn flush(&self) {
        // SAFETY: `self` is a valid item.
        let work = unsafe { Work::raw_get(DelayedWork::raw_as_work(self)) };
        // SAFETY: The item is initialised and is part of a `delayed_work`.
        unsafe { raw::flush_delayed_work(delayed(work)) };
    }
}

/// # Safety
///
/// `work` must be the item in a `delayed_work`.
unsafe fn delayed(work: *mut raw::work_struct) -> *mut raw::delayed_work {
    // SAFETY: By the safety requirements of this function, `work` is such an item.
    unsafe { kernel::container_of!(work, raw::delayed_work, work) }
}

/// # Safety
///
/// `work` must be the item `ID` of a `T`. It was pending, and the caller has made it not pending
/// without running it.
unsafe fn take_back<T, const ID: u64>(work: *mut raw::work_struct) -> Arc<T>
where
    T: WorkItem<ID, Pointer = Arc<T>> + HasWork<T, ID>,
{
    // SAFETY: By the safety requirements of this function, `work` is such an item.
    let owner = unsafe { T::work_container_of(work.cast()) };
    // SAFETY: An item becomes pending in `RawWorkItem::__enqueue` of `Arc<T>` only, which gives it
    // the pointer that `Arc::into_raw` returns; nothing else takes that back, as the item does not
    // run.
    unsafe { Arc::from_raw(owner) }
}
