// SPDX-License-Identifier: GPL-2.0

//! A count of users that costs nothing to share, until it is closed.
//!
//! C header: [`include/linux/percpu-refcount.h`](srctree/include/linux/percpu-refcount.h)

use core::ptr::NonNull;
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Full,
        Relaxed, //
    },
    types::Opaque, //
};

use crate::{
    raw,
    wait::Completion, //
};

/// A gate: while it is open everybody may enter; who closes it can wait until
/// all have left.
///
/// Entering and leaving touch only memory of the own CPU. Dropping the gate
/// closes it and sleeps until all have left: not to be done inside.
///
/// # Invariants
///
/// `inner` is an initialised `Inner`, which lives until this object is dropped
/// and every [`Entry`] is gone.
pub struct PercpuRef {
    inner: NonNull<Inner>,
}

#[pin_data]
struct Inner {
    #[pin]
    refs: Opaque<raw::percpu_ref>,
    /// All have left, after it was closed.
    #[pin]
    empty: Completion,
    closed: Atomic<bool>,
}

// SAFETY: a `percpu_ref` can be used and freed by every thread.
unsafe impl Send for PercpuRef {}
// SAFETY: all operations on a `percpu_ref` are synchronised.
unsafe impl Sync for PercpuRef {}

impl PercpuRef {
    /// Open, nobody inside. Sleeps.
    pub fn new() -> Result<Self> {
        let inner = KBox::pin_init(
            try_pin_init!(Inner {
                refs <- Opaque::try_ffi_init(|slot| {
                    // SAFETY: `slot` is valid for writes, and pinned.
                    let ret = unsafe {
                        raw::percpu_ref_init(slot, Some(released), 0, raw::GFP_KERNEL)
                    };
                    kernel::error::to_result(ret)
                }),
                empty <- Completion::new(),
                closed: Atomic::new(false),
            }),
            GFP_KERNEL,
        )?;
        // SAFETY: what the pointer points to is not moved.
        let inner = KBox::into_raw(unsafe { Pin::into_inner_unchecked(inner) });
        // INVARIANT: fresh, and freed only in `drop`.
        Ok(Self {
            // SAFETY: a box is not null.
            inner: unsafe { NonNull::new_unchecked(inner) },
        })
    }

    /// Enters, unless it is closed. Any context.
    #[inline]
    pub fn try_enter(&self) -> Option<Entry> {
        // SAFETY: initialised and alive by the type invariant.
        let entered = unsafe { raw::rtrs_helper_percpu_ref_tryget_live(self.refs()) };
        // INVARIANT: a reference was just taken.
        entered.then(|| Entry { inner: self.inner })
    }

    /// Closes it: nobody enters any more. Any context.
    ///
    /// Who calls [`try_enter`](Self::try_enter) at the same time may still get
    /// in, and will be waited for.
    pub fn close(&self) {
        // SAFETY: alive by the type invariant.
        let inner = unsafe { self.inner.as_ref() };
        if !inner.closed.xchg(true, Full) {
            // SAFETY: initialised and alive by the type invariant, and killed
            // only here, by one thread, once.
            unsafe { raw::rtrs_helper_percpu_ref_kill(self.refs()) };
        }
    }

    /// Closes it and sleeps until all have left. Can be called more than once.
    pub fn close_and_wait(&self) {
        self.close();
        // SAFETY: alive by the type invariant.
        unsafe { self.inner.as_ref() }.empty.wait();
    }

    /// Whether it was closed. Any context.
    pub fn is_closed(&self) -> bool {
        // SAFETY: alive by the type invariant.
        unsafe { self.inner.as_ref() }.closed.load(Relaxed)
    }

    fn refs(&self) -> *mut raw::percpu_ref {
        // SAFETY: alive by the type invariant.
        unsafe { self.inner.as_ref() }.refs.get()
    }
}

impl Drop for PercpuRef {
    fn drop(&mut self) {
        self.close_and_wait();
        // SAFETY: the count is zero and dead, so every `Entry` is gone, and
        // with the completion, the last access of the release callback, nobody
        // uses it any more.
        unsafe { raw::percpu_ref_exit(self.refs()) };
        // SAFETY: from `KBox::into_raw` in `new`, and not used any more.
        drop(unsafe { KBox::from_raw(self.inner.as_ptr()) });
    }
}

/// # Safety
///
/// Called by percpu_ref code only, for the `refs` of an [`Inner`].
unsafe extern "C" fn released(refs: *mut raw::percpu_ref) {
    let refs: *mut Opaque<raw::percpu_ref> = refs.cast();
    // SAFETY: `refs` is that field of an `Inner`, which is alive until the wait
    // for `empty` is over.
    let empty = unsafe { &raw const (*kernel::container_of!(refs, Inner, refs)).empty };
    // SAFETY: as above. The waiter may free it as soon as it is complete, when
    // `complete_all()` does not touch it any more.
    unsafe { Completion::complete_all_raw(empty) };
}

/// Somebody inside a [`PercpuRef`]; dropping it is leaving. Any context.
///
/// Does not borrow the gate, which waits for it.
///
/// # Invariants
///
/// Owns a reference of `inner.refs`.
pub struct Entry {
    inner: NonNull<Inner>,
}

// SAFETY: references can be put by every thread.
unsafe impl Send for Entry {}
// SAFETY: nothing can be done with a shared one but clone it, which is atomic.
unsafe impl Sync for Entry {}

impl Entry {
    fn refs(&self) -> *mut raw::percpu_ref {
        // SAFETY: by the type invariant there is a reference, so the owner is
        // still waiting or has not begun to.
        unsafe { Opaque::cast_into(&raw const (*self.inner.as_ptr()).refs) }
    }
}

impl Clone for Entry {
    /// Enters as a companion, also when it is closed.
    fn clone(&self) -> Self {
        // SAFETY: alive, and the count is not zero.
        unsafe { raw::rtrs_helper_percpu_ref_get(self.refs()) };
        // INVARIANT: a reference was just taken.
        Self { inner: self.inner }
    }
}

impl Drop for Entry {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: by the type invariant it owns the reference it gives up.
        unsafe { raw::rtrs_helper_percpu_ref_put(self.refs()) };
    }
}
