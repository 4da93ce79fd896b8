// SPDX-License-Identifier: GPL-2.0

//! Owners published for RCU readers.
//!
//! # Sleeping
//!
//! A borrow from an [`RcuCell`] lives as long as the reader's [`rcu::Guard`], and what it points to
//! as long as the read-side critical section. With `CONFIG_PREEMPT_RCU` these are the same. Without
//! it (arm64 kernels that preempt lazily, for example) a task that sleeps ends its section although
//! the guard is still there, and the borrow dangles. So no code may sleep while it holds a guard.
//! Memory safety depends on this rule, and types cannot enforce it; the guard is that of the kernel
//! crate, which cannot either. A debug kernel checks it (`CONFIG_PROVE_RCU`,
//! `CONFIG_DEBUG_ATOMIC_SLEEP`), and the documentation of every function that may sleep says so, and
//! that of every type the drop of which may.
//!
//! C header: [`include/linux/rcupdate.h`](srctree/include/linux/rcupdate.h)

use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    mem::ManuallyDrop, //
};
use kernel::{
    ffi::{
        c_ulong,
        c_void, //
    },
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full, //
        },
        rcu,
        Arc, //
    },
    types::ForeignOwnable, //
};

use crate::raw;

/// Waits until every RCU read-side critical section that runs now has ended.
///
/// Sleeps, for milliseconds. Must not be called while holding a [`rcu::Guard`] (see
/// [Sleeping](self#sleeping)) or a lock that readers need.
pub fn synchronize() {
    // SAFETY: The function has no requirement of its own. This module requires of all callers of
    // functions that sleep that they may sleep, and so hold no guard.
    unsafe { raw::synchronize_rcu() }
}

/// Waits until every task that is in the kernel now, and was not asleep, has slept or left the
/// kernel: no task is still where it was preempted. Sleeps, for tens of milliseconds or more.
///
/// For code that is about to be freed, when only a few of its instructions, which do not sleep, can
/// still be running. A kernel that preempts tasks must have `CONFIG_TASKS_RCU`; the C code of this
/// call is refused by the compiler otherwise.
pub(crate) fn synchronize_tasks() {
    // SAFETY: As for `synchronize()`.
    unsafe { raw::rtrs_helper_synchronize_rcu_tasks() }
}

/// A point in time. Code that began before it in an RCU read-side critical section, or with interrupts,
/// preemption or softirqs disabled, can be waited for.
#[derive(Clone, Copy)]
pub struct Past(c_ulong);

impl Past {
    /// Now. Everything that the caller did before is seen by code that begins later. Any context.
    pub fn now() -> Self {
        // SAFETY: The function has no requirements. It orders itself after what came before.
        Self(unsafe { raw::get_state_synchronize_rcu() })
    }

    /// Waits until all such code has ended. Sleeps, for milliseconds, unless that much time has passed.
    /// As for [`synchronize`].
    pub fn wait(self) {
        // SAFETY: As for `synchronize()`; it waits for a grace period since then, if none has passed.
        unsafe { raw::cond_synchronize_rcu(self.0) }
    }
}

/// A cell in which readers find a `P` without locks, and from which a writer can take it back.
///
/// `P` owns an object behind a pointer: an [`Arc`], a `KBox` or a pinned `KBox`. The cell may be
/// empty.
///
/// Reading works in any context. Replacing is atomic and works in any context too, but the caller
/// gets the old owner only after a grace period, see [`Retired`]. Dropping the cell drops its
/// contents at once: readers borrow the cell, so there are none.
///
/// # Invariants
///
/// The pointer is null, or comes from `P::into_foreign` and is owned by the cell alone. A pointer
/// that was replaced is passed to `P::from_foreign` only after a grace period that began when it
/// was no longer in the cell.
pub struct RcuCell<P: ForeignOwnable> {
    ptr: Atomic<*mut c_void>,
    /// A shared cell can be written to, so its `P` must not pass for one that lives shorter.
    _owns: PhantomData<UnsafeCell<P>>,
}

// SAFETY: Moving the cell moves the `P` in it.
unsafe impl<P: ForeignOwnable + Send> Send for RcuCell<P> {}
// SAFETY: A shared cell lends `P` to several threads at once (`Sync`), and lets
// one of them take it (`Send`).
unsafe impl<P: ForeignOwnable + Send + Sync> Sync for RcuCell<P> {}

impl<P: ForeignOwnable> RcuCell<P> {
    /// An empty cell.
    pub const fn empty() -> Self {
        // INVARIANT: The pointer is null.
        Self {
            ptr: Atomic::new(core::ptr::null_mut()),
            _owns: PhantomData,
        }
    }

    /// A cell with `value` in it.
    pub fn new(value: P) -> Self {
        // INVARIANT: The pointer comes from `into_foreign`, and only the cell has it.
        Self {
            ptr: Atomic::new(value.into_foreign()),
            _owns: PhantomData,
        }
    }

    /// Returns what is in the cell now, valid as long as the guard.
    ///
    /// Any context.
    #[inline]
    pub fn read<'a>(&'a self, _guard: &'a rcu::Guard) -> Option<P::Borrowed<'a>> {
        // ORDERING: Acquire, so that what `P` points to is seen as it was when
        // it was published.
        let ptr = self.ptr.load(Acquire);
        if ptr.is_null() {
            return None;
        }
        // SAFETY: By the type invariant `ptr` comes from `into_foreign`. It
        // goes to `from_foreign` when the cell is dropped, thus after `'a`, or
        // after a grace period that begins after this load, which the guard,
        // alive for `'a`, delays beyond `'a`.
        Some(unsafe { P::borrow(ptr) })
    }

    /// Whether the cell is empty now. Any context.
    pub fn is_empty(&self) -> bool {
        self.ptr.load(Acquire).is_null()
    }

    /// Replaces the contents with `new`. Any context.
    ///
    /// Readers that begin from now on find `new`. Concurrent replacements are fine; each gets the
    /// value that it displaced.
    pub fn replace(&self, new: Option<P>) -> Retired<P> {
        let new = new.map_or(core::ptr::null_mut(), P::into_foreign);
        // ORDERING: Release, to publish what `new` points to; acquire, to see what the publisher of
        // the old pointer wrote.
        let old = self.ptr.xchg(new, Full);
        let since = Past::now();
        // INVARIANT: The cell owns `new`; `old`, which only the cell owned, is no longer in it, and
        // was not when the state was taken.
        Retired {
            ptr: old,
            since,
            _owns: PhantomData,
        }
    }
}

impl<T: 'static> RcuCell<Arc<T>> {
    /// Returns a counted reference to what is in the cell now.
    ///
    /// Any context.
    pub fn get(&self) -> Option<Arc<T>> {
        let guard = rcu::read_lock();
        self.read(&guard).map(Arc::from)
    }
}

impl<P: ForeignOwnable> Drop for RcuCell<P> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the pointer is null or comes from `into_foreign`. Borrows
        // of it are borrows of the cell as well, so they have ended.
        drop(unsafe { P::try_from_foreign(*self.ptr.get_mut()) });
    }
}

/// An [`RcuCell`] that need not outlive its readers: its contents stay until the end of their
/// read-side section, even if the cell is dropped.
///
/// Dropping it sleeps until readers have ended, unless it is empty.
pub struct RcuHome<P: ForeignOwnable> {
    cell: RcuCell<P>,
}

impl<P: ForeignOwnable> RcuHome<P> {
    /// An empty cell.
    pub const fn empty() -> Self {
        Self {
            cell: RcuCell::empty(),
        }
    }

    /// Returns what is in the cell now, valid as long as the guard. Any context.
    #[inline(always)]
    pub fn read<'a>(&self, _guard: &'a rcu::Guard) -> Option<P::Borrowed<'a>> {
        // ORDERING: As in `RcuCell::read()`.
        let ptr = self.cell.ptr.load(Acquire);
        if ptr.is_null() {
            return None;
        }
        // SAFETY: By the invariant of the cell `ptr` comes from `into_foreign`. It goes to
        // `from_foreign` after a grace period that begins after this load, also when this object
        // is dropped; the guard, alive for `'a`, delays that beyond `'a`.
        Some(unsafe { P::borrow(ptr) })
    }

    /// Replaces the contents with `new`, see [`RcuCell::replace`]. Any context.
    pub fn replace(&self, new: Option<P>) -> Retired<P> {
        self.cell.replace(new)
    }
}

impl<P: ForeignOwnable> Drop for RcuHome<P> {
    fn drop(&mut self) {
        // Wait here: dropping the cell itself does not.
        drop(self.cell.replace(None));
    }
}

/// An owner that was taken out of an [`RcuCell`]. Readers may still be using it.
///
/// [`synchronize`](Self::synchronize) must wait for readers before the value can be used. Dropping
/// this object waits too, and drops the owner. Both sleep, unless the cell was empty, or a grace
/// period has passed since the value was taken out: one that is kept for some time costs no wait.
///
/// # Invariants
///
/// The pointer is null, or comes from `P::into_foreign`, is in no cell any more
/// and belongs to this object. `since` is when it was in none any more.
#[must_use = "dropping it waits for an RCU grace period"]
pub struct Retired<P: ForeignOwnable> {
    ptr: *mut c_void,
    since: Past,
    _owns: PhantomData<P>,
}

// SAFETY: It owns a `P`, and nothing else.
unsafe impl<P: ForeignOwnable + Send> Send for Retired<P> {}

impl<P: ForeignOwnable> Retired<P> {
    /// Waits for the readers and returns the owner. Sleeps, unless the cell was empty or a grace
    /// period has passed.
    pub fn synchronize(self) -> Option<P> {
        let this = ManuallyDrop::new(self);
        // SAFETY: The type invariant has what is required, and as `self` is gone the pointer is
        // used only once.
        unsafe { reclaim(this.ptr, this.since) }
    }

    /// Whether the cell was empty. Any context.
    pub fn is_none(&self) -> bool {
        self.ptr.is_null()
    }
}

impl<P: ForeignOwnable> Drop for Retired<P> {
    fn drop(&mut self) {
        // SAFETY: The type invariant has what is required, and this is the last use of the pointer.
        drop(unsafe { reclaim::<P>(self.ptr, self.since) });
    }
}

/// # Safety
///
/// `ptr` and `since` must be as in the invariant of [`Retired`]. The caller gives up the owner.
unsafe fn reclaim<P: ForeignOwnable>(ptr: *mut c_void, since: Past) -> Option<P> {
    if !ptr.is_null() {
        since.wait();
    }
    // SAFETY: By the safety requirements of this function, `ptr` is null or comes from
    // `into_foreign`, and is passed on only once; all borrows have ended.
    unsafe { P::try_from_foreign(ptr) }
}
