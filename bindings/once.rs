// SPDX-License-Identifier: GPL-2.0

//! A box that is put in its place once, and found there without more than a look at the pointer.
//!
//! # Context
//!
//! Any.

use core::{
    marker::PhantomData,
    pin::Pin,
    ptr::null_mut, //
};
use kernel::prelude::*;

use crate::atomic::{
    Acquire,
    Atomic,
    Full, //
};

/// A place for one pinned box, which stays as long as the place.
///
/// # Invariants
///
/// The pointer is null, or that of a pinned box which belongs to this object, and then does not change
/// any more.
pub(crate) struct OnceBox<T> {
    ptr: Atomic<*mut T>,
    _owns: PhantomData<T>,
}

// SAFETY: It owns a `T`.
unsafe impl<T: Send> Send for OnceBox<T> {}
// SAFETY: It lends `&T`, and takes one (`Send`).
unsafe impl<T: Send + Sync> Sync for OnceBox<T> {}

impl<T> OnceBox<T> {
    /// An empty place.
    pub(crate) fn new() -> Self {
        // INVARIANT: Null.
        Self {
            ptr: Atomic::new(null_mut()),
            _owns: PhantomData,
        }
    }

    /// Puts `value` there; `false`, and `value` is dropped, if there is one.
    pub(crate) fn populate(&self, value: Pin<KBox<T>>) -> bool {
        // SAFETY: It stays pinned: it is not moved before it is dropped.
        let ptr = KBox::into_raw(unsafe { Pin::into_inner_unchecked(value) });
        // INVARIANT: If it was null.
        // ORDERING: Full, so that who finds it finds what is in it.
        if self.ptr.cmpxchg(null_mut(), ptr, Full).is_ok() {
            return true;
        }
        // SAFETY: From `into_raw()` just now, and nobody else has it.
        drop(unsafe { KBox::from_raw(ptr) });
        false
    }

    /// What is there.
    #[inline(always)]
    pub(crate) fn get(&self) -> Option<&T> {
        // SAFETY: By the invariant it is null, or valid for as long as this object.
        unsafe { self.ptr.load(Acquire).as_ref() }
    }

    /// The same, where something is there.
    ///
    /// # Safety
    ///
    /// There must be: what the caller knows of must have happened after it was put there.
    #[inline(always)]
    pub(crate) unsafe fn get_unchecked(&self) -> &T {
        // SAFETY: By the function's requirement and the invariant.
        unsafe { &*self.ptr.load(Acquire) }
    }
}

impl<T> Drop for OnceBox<T> {
    fn drop(&mut self) {
        let ptr = *self.ptr.get_mut();
        if !ptr.is_null() {
            // SAFETY: By the invariant it is ours, and nobody borrows this object any more.
            drop(unsafe { KBox::from_raw(ptr) });
        }
    }
}
