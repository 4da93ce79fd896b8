// SPDX-License-Identifier: GPL-2.0

//! Numbered tags. Each request in flight needs one.
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

/// The bits that the numbers of the last two tags of a word have in common. A word of the bitmap has
/// as many tags as bits; `sbitmap_get()` may leave it with the last one, or at the end of the bitmap
/// with the one before. The last tags of a word that is not full have other bits: the CPU then stays
/// in the word that it moved to, which costs locality and nothing else.
// CAST: A small number.
const LAST_OF_WORD: i32 = 8 * size_of::<usize>() as i32 - 2;

/// `depth` tags, numbered from 0, to take and to give back.
///
/// A scalable bitmap spreads them over cache lines: each CPU takes the lowest free tag of a word of
/// its own, as far as there are enough words, and of others if that is used up. It is not used with
/// the kernel's `sbitmap_queue`, which wakes waiters in batches: if some tags are held for long, a
/// waiter could sleep while others are free. Here each tag that is returned wakes one waiter.
///
/// # Invariants
///
/// `bitmap` is initialised with `depth` bits. The bit of a tag is set from when a caller gets the
/// tag until that caller returns it, and no other caller clears it. The tags that were taken to
/// close the queue are not returned; `taken` is their number.
#[pin_data(PinnedDrop)]
pub struct TagQueue {
    #[pin]
    bitmap: Opaque<raw::sbitmap>,
    /// Waiters for a tag, and for all tags to be returned.
    #[pin]
    wait: WaitQueue,
    closed: Atomic<bool>,
    taken: Atomic<u32>,
    depth: u32,
}

// SAFETY: An `sbitmap` can be used and freed by every thread.
unsafe impl Send for TagQueue {}
// SAFETY: The operations of an `sbitmap` are atomic.
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
            taken: Atomic::new(0),
            depth,
        })
    }

    /// The number of tags, taken or not.
    pub fn depth(&self) -> usize {
        // CAST: `usize` has at least 32 bits.
        self.depth as usize
    }

    /// Takes a tag, unless all are taken or the queue is closed. No other caller gets it until it
    /// is [returned](Self::put). A tag is less than the depth. Any context.
    #[inline(always)]
    pub fn try_get(&self) -> Option<u32> {
        // If this is too early to see it, the task that closes the queue waits for the tag.
        if self.closed.load(Relaxed) {
            return None;
        }
        self.take()
    }

    #[inline(always)]
    fn take(&self) -> Option<u32> {
        // SAFETY: The bitmap is initialised by the type invariant.
        let nr = unsafe { raw::sbitmap_get(self.bitmap.get()) };
        // One of the last tags of a word, or -1: then this CPU may have left its word.
        if nr & LAST_OF_WORD == LAST_OF_WORD {
            return self.go_home(nr);
        }
        // CAST: `nr` is not negative. By the type invariant it is the number of one of the bits.
        Some(nr as u32)
    }

    /// Makes this CPU search in its own word again. Returns the tag `nr`; [`None`] if it is
    /// negative.
    #[cold]
    #[inline(never)]
    fn go_home(&self, nr: i32) -> Option<u32> {
        // SAFETY: The bitmap is initialised by the type invariant.
        unsafe { raw::rtrs_helper_tag_go_home(self.bitmap.get()) };
        u32::try_from(nr).ok()
    }

    /// Takes a tag as soon as one is free; [`None`] when the queue is closed.
    ///
    /// Sleeps, and cannot be interrupted. Waiters get tags in the order in which they came, but a
    /// caller that does not have to wait may overtake them.
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
    /// Earlier accesses of the caller are visible to the caller that takes the tag next.
    ///
    /// # Safety
    ///
    /// The caller must have the tag, and must not use it afterwards.
    #[inline(always)]
    pub unsafe fn put(&self, tag: u32) {
        // SAFETY: Both are initialised by the type invariant; by the safety requirements of this
        // function, `tag` is a bit of the bitmap.
        if unsafe { raw::rtrs_helper_tag_put(self.bitmap.get(), tag, self.wait.as_raw()) } {
            self.wake_one();
        }
    }

    /// Wakes a waiter for the tag that was just returned.
    #[inline(never)]
    fn wake_one(&self) {
        // SAFETY: The bitmap is initialised by the type invariant; `rtrs_helper_tag_put()` asked
        // for this call.
        unsafe { raw::rtrs_helper_tag_wake(self.wait.as_raw()) }
    }

    /// Closes the queue for good, and sleeps until all tags have been returned: no caller has or
    /// gets one after that. Waiters get none.
    ///
    /// Accesses of other tasks before they returned their tags are visible after this.
    pub fn close_and_wait(&self) {
        self.closed.store(true, Relaxed);
        self.wait.wake_all();
        // Takes them all, as they come back: so a caller that has seen the queue open gets none.
        self.wait.wait_until(|| {
            while self.take().is_some() {
                self.taken.add(1, Relaxed);
            }
            self.taken.load(Relaxed) == self.depth
        });
        // Another task that closes the queue waits for the same.
        self.wait.wake_all();
        // The caller that returned the last tag may still be looking for a task to wake, in a
        // section that this waits for.
        rcu::synchronize();
    }
}

#[pinned_drop]
impl PinnedDrop for TagQueue {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: The bitmap is initialised by the type invariant, and not used any more.
        unsafe { raw::rtrs_helper_sbitmap_free(self.bitmap.get()) }
    }
}
