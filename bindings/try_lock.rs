// SPDX-License-Identifier: GPL-2.0

//! A lock that cannot be waited for.
//!
//! [`TryLock`] is for a value that has one user at a time for other reasons: two at a time are a
//! bug, or caused by a misbehaving peer, and the second one gets nothing instead of waiting.

use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    ops::{
        Deref,
        DerefMut, //
    },
};

use crate::atomic::{
    Acquire,
    Atomic,
    Release, //
};

/// A value with at most one holder at a time. Any context.
///
/// # Invariants
///
/// `held` is true exactly while a [`TryLockGuard`] exists.
pub struct TryLock<T> {
    held: Atomic<bool>,
    value: UnsafeCell<T>,
}

// SAFETY: The value is accessed only through `&mut self` or the only `TryLockGuard`.
unsafe impl<T: Send> Sync for TryLock<T> {}

impl<T> TryLock<T> {
    /// Wraps `value`, without a holder.
    pub fn new(value: T) -> Self {
        Self {
            held: Atomic::<bool>::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes the value; `None` if it has a holder.
    #[inline]
    pub fn try_take(&self) -> Option<TryLockGuard<'_, T>> {
        // INVARIANT: This call alone made `held` true.
        self.held
            .cmpxchg(false, true, Acquire)
            .is_ok()
            // Not `then_some()`: a `TryLockGuard` that was not taken would be dropped.
            .then(|| TryLockGuard {
                lock: self,
                _value: PhantomData,
            })
    }
}

/// The value of a [`TryLock`]. Dropping it lets the value go.
pub struct TryLockGuard<'a, T> {
    lock: &'a TryLock<T>,
    // `Send` and `Sync` as for `&mut T`, not as for the cell.
    _value: PhantomData<&'a mut T>,
}

impl<T> Deref for TryLockGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: By the invariant of the lock this is the only `TryLockGuard`, so nothing else
        // accesses the value.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for TryLockGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: By the invariant of the lock this is the only `TryLockGuard`, so nothing else
        // accesses the value.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for TryLockGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.held.store(false, Release);
    }
}
