// SPDX-License-Identifier: GPL-2.0

//! A box that is set once. Getting it is just a load of the pointer.
//!
//! # Context
//!
//! Any.

use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    pin::Pin,
    ptr::{
        null_mut,
        NonNull, //
    },
};
use kernel::prelude::*;

use crate::atomic::{
    Acquire,
    Atomic,
    Full, //
};

/// A place for one pinned box, which lives as long as the place.
///
/// # Invariants
///
/// The pointer is null, or that of a pinned box that belongs to this object. Once it is not null it
/// does not change any more.
pub(crate) struct OnceBox<T> {
    ptr: Atomic<*mut T>,
    /// As in an [`RcuCell`](crate::rcu::RcuCell).
    _owns: PhantomData<UnsafeCell<T>>,
}

// SAFETY: It owns a `T`.
unsafe impl<T: Send> Send for OnceBox<T> {}
// SAFETY: It lends `&T`, and takes one (`Send`).
unsafe impl<T: Send + Sync> Sync for OnceBox<T> {}

impl<T> OnceBox<T> {
    /// An empty place.
    pub(crate) fn new() -> Self {
        // INVARIANT: The pointer is null.
        Self {
            ptr: Atomic::new(null_mut()),
            _owns: PhantomData,
        }
    }

    /// Sets the box to `value`. If there is one already, drops `value` and returns `false`.
    pub(crate) fn populate(&self, value: Pin<KBox<T>>) -> bool {
        // SAFETY: The box stays pinned: it is not moved before it is dropped.
        let ptr = KBox::into_raw(unsafe { Pin::into_inner_unchecked(value) });
        // INVARIANT: The pointer changes only if it was null.
        // ORDERING: Full, so that a thread that finds the pointer sees the contents of the box.
        if self.ptr.cmpxchg(null_mut(), ptr, Full).is_ok() {
            return true;
        }
        // SAFETY: The pointer comes from `into_raw()` above, and was not shared.
        drop(unsafe { KBox::from_raw(ptr) });
        false
    }

    /// Returns the box, if it was set.
    #[inline(always)]
    pub(crate) fn get(&self) -> Option<&T> {
        // SAFETY: By the invariant the pointer is null, or valid for as long as this object.
        unsafe { self.ptr.load(Acquire).as_ref() }
    }

    /// As [`get`](Self::get), if the box is known to be set.
    ///
    /// # Safety
    ///
    /// The box must have been set, and that must have happened before this call.
    #[inline(always)]
    pub(crate) unsafe fn get_unchecked(&self) -> &T {
        // SAFETY: By the safety requirements of this function the box was set, so that the pointer
        // is not null.
        let ptr = unsafe { NonNull::new_unchecked(self.ptr.load(Acquire)) };
        // SAFETY: By the type invariant the pointer is valid, and the box is only shared.
        unsafe { ptr.as_ref() }
    }
}

impl<T> Drop for OnceBox<T> {
    fn drop(&mut self) {
        let ptr = *self.ptr.get_mut();
        if !ptr.is_null() {
            // SAFETY: By the invariant the box belongs to this object, and nothing borrows this
            // object any more.
            drop(unsafe { KBox::from_raw(ptr) });
        }
    }
}
