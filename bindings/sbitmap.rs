// SPDX-License-Identifier: GPL-2.0

//! Numbered tags of which everything in flight needs one.
//!
//! C header: [`include/linux/sbitmap.h`](srctree/include/linux/sbitmap.h)

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        static_lock_class, //
    },
    types::Opaque, //
};

use crate::{
    lock::lock_name,
    raw,
    rcu,
    wait::WaitQueue, //
};

/// `depth` tags, numbered from 0, to take and to give back.
///
/// A scalable bitmap spreads them over cache lines. It is not used with the
/// kernel's `sbitmap_queue`, which wakes waiters in batches: with some tags held
/// for long a waiter could sleep while others are free. Here each tag that is
/// returned wakes one waiter.
///
/// # Invariants
///
/// `bitmap` is initialised with `depth` bits. The bit of a tag is set from when somebody gets it
/// until they return it, and is nobody else's to clear.
#[pin_data(PinnedDrop)]
pub struct TagQueue {
    #[pin]
    bitmap: Opaque<raw::sbitmap>,
    /// For a tag, and for all to be returned.
    #[pin]
    wait: WaitQueue,
    closed: Atomic<bool>,
    depth: u32,
}

// SAFETY: An `sbitmap` can be used and freed by every thread.
unsafe impl Send for TagQueue {}
// SAFETY: Its operations are atomic.
unsafe impl Sync for TagQueue {}

impl TagQueue {
    /// `depth` tags (not 0), the memory on NUMA node `node` (negative: any).
    ///
    /// Sleeps.
    pub fn new(depth: u32, node: i32) -> impl PinInit<Self, Error> {
        // INVARIANT: Initialised with `depth` bits.
        try_pin_init!(Self {
            bitmap <- Opaque::try_ffi_init(move |slot| {
                if depth == 0 || depth > i32::MAX as u32 {
                    return Err(EINVAL);
                }
                // SAFETY: `slot` is valid for writes; `node` is checked by the
                // helper.
                kernel::error::to_result(unsafe {
                    raw::rtrs_helper_sbitmap_init(slot, depth, raw::GFP_KERNEL, node)
                })
            }),
            wait <- WaitQueue::new(lock_name!("TagQueue::wait"), static_lock_class!()),
            closed: Atomic::new(false),
            depth,
        })
    }

    /// How many tags there are, taken or not.
    pub fn depth(&self) -> usize {
        // CAST: `usize` has at least 32 bits.
        self.depth as usize
    }

    /// A tag, unless all are taken or the queue is closed: nobody else gets it until it is
    /// [returned](Self::put). Any context.
    #[inline(always)]
    pub fn try_get(&self) -> Option<u32> {
        // SAFETY: Initialised by the type invariant; `closed` is a `bool`.
        let nr = unsafe { raw::rtrs_helper_tag_get(self.bitmap.get(), self.closed.as_ptr()) };
        if nr < 0 {
            return None;
        }
        // CAST: Not negative.
        Some(nr as u32)
    }

    /// A tag, as soon as one is free; [`None`] when the queue is closed.
    ///
    /// Sleeps, whatever happens. Waiters get their turn in the order they came,
    /// but who does not have to wait may overtake them.
    pub fn get(&self) -> Option<u32> {
        if let Some(tag) = self.try_get() {
            return Some(tag);
        }
        self.wait.wait_for(|| match self.try_get() {
            None if self.closed.load(Relaxed) => Some(None),
            None => None,
            tag => Some(tag),
        })
    }

    /// Returns a tag. Any context.
    ///
    /// What was done with the tag before is visible to who takes it next.
    ///
    /// # Safety
    ///
    /// The caller must have it, and not use it afterwards.
    #[inline(always)]
    pub unsafe fn put(&self, tag: u32) {
        // SAFETY: Both are initialised by the type invariant; by the function's requirement the
        // number is one of the bitmap's.
        if unsafe { raw::rtrs_helper_tag_put(self.bitmap.get(), tag, self.wait.as_raw()) } {
            self.wake_one();
        }
    }

    /// Somebody waits for the tag that was just returned.
    #[inline(never)]
    fn wake_one(&self) {
        // SAFETY: Initialised by the type invariant; `rtrs_helper_tag_put()` says that it is to be done.
        unsafe { raw::rtrs_helper_tag_wake(self.wait.as_raw()) }
    }

    /// Closes the queue for good: who waits gets no tag and nobody takes one
    /// after this returns. Sleeps.
    pub fn close(&self) {
        self.closed.store(true, Relaxed);
        self.wait.wake_all();
        // A caller that did not see it is in a section that this waits for.
        rcu::synchronize();
    }

    /// Closes the queue and sleeps until all tags have been returned.
    ///
    /// What others did before they returned their tags is visible after this.
    pub fn close_and_wait(&self) {
        self.close();
        self.wait.wait_until(|| self.in_use() == 0);
        // The caller that returned the last tag may still be looking for somebody to wake, in a
        // section that this waits for.
        rcu::synchronize();
    }

    /// How many tags are taken: exact once the queue is closed and otherwise an
    /// estimate. Any context.
    pub fn in_use(&self) -> u32 {
        // SAFETY: Initialised by the type invariant.
        unsafe { raw::rtrs_helper_sbitmap_weight(self.bitmap.get()) }
    }
}

#[pinned_drop]
impl PinnedDrop for TagQueue {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: Initialised by the type invariant, and not used any more.
        unsafe { raw::rtrs_helper_sbitmap_free(self.bitmap.get()) }
    }
}
