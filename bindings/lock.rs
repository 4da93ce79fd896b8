// SPDX-License-Identifier: GPL-2.0

//! A spinlock that disables interrupts. The kernel crate has one since 7.3.
//!
//! C header: [`include/linux/spinlock.h`](srctree/include/linux/spinlock.h)

use kernel::{
    ffi,
    sync::lock::{
        Backend,
        Guard,
        Lock, //
    }, //
};

use crate::raw;

/// Creates a [`SpinLockIrq`] initialiser with the given name, or one made of
/// file and line, and a lock class of its own.
#[macro_export]
macro_rules! new_spinlock_irq {
    ($inner:expr $(, $name:literal)? $(,)?) => {
        $crate::lock::SpinLockIrq::new(
            $inner,
            ::kernel::optional_name!($($name)?),
            ::kernel::sync::static_lock_class!(),
        )
    };
}
pub use new_spinlock_irq;

/// The name of a lock that a function of this crate makes. Such a function may be compiled into
/// each crate that uses it, with a literal of its own, while the lock's class is a `static` and
/// exists only once; lockdep complains if the name of one class is at two addresses.
macro_rules! lock_name {
    ($name:literal) => {{
        static NAME: &::kernel::str::CStr = ::kernel::c_str!($name);
        NAME
    }};
}
pub(crate) use lock_name;

/// A spinlock for data that interrupt handlers use too.
///
/// Local interrupts are disabled while it is held; unlocking restores their previous state. Can be
/// taken in any context but NMI; on PREEMPT_RT only where sleeping is allowed, as it sleeps there
/// like any `spinlock_t`.
///
/// Guards must be dropped in the reverse order of locking: each guard restores the interrupt state
/// from the time when it was taken.
pub type SpinLockIrq<T> = Lock<T, SpinLockIrqBackend>;

/// The guard of a [`SpinLockIrq`].
pub type SpinLockIrqGuard<'a, T> = Guard<'a, T, SpinLockIrqBackend>;

/// `spin_lock_irqsave()` as a lock backend.
pub struct SpinLockIrqBackend;

// SAFETY: The kernel's `spinlock_t` excludes other threads and CPUs; `relock`
// is the default implementation, which locks in the same way.
unsafe impl Backend for SpinLockIrqBackend {
    type State = raw::spinlock_t;
    /// The interrupt state to restore.
    type GuardState = ffi::c_ulong;

    unsafe fn init(ptr: *mut Self::State, name: *const ffi::c_char, key: *mut raw::lock_class_key) {
        // SAFETY: The caller guarantees that `ptr` is valid for writes, and
        // `name` and `key` for reads indefinitely.
        unsafe { raw::rtrs_helper_spin_lock_init(ptr, name, key) }
    }

    #[inline]
    unsafe fn lock(ptr: *mut Self::State) -> Self::GuardState {
        // SAFETY: The caller guarantees that the lock is initialised.
        unsafe { raw::rtrs_helper_spin_lock_irqsave(ptr) }
    }

    #[inline]
    unsafe fn try_lock(ptr: *mut Self::State) -> Option<Self::GuardState> {
        let mut flags = 0;
        // SAFETY: The caller guarantees that the lock is initialised; `flags`
        // is a local variable.
        unsafe { raw::rtrs_helper_spin_trylock_irqsave(ptr, &mut flags) }.then_some(flags)
    }

    #[inline]
    unsafe fn unlock(ptr: *mut Self::State, guard_state: &Self::GuardState) {
        // SAFETY: The caller guarantees to be the owner, and `guard_state` is the value that the
        // lock operation returned.
        unsafe { raw::rtrs_helper_spin_unlock_irqrestore(ptr, *guard_state) }
    }

    #[inline]
    unsafe fn assert_is_held(ptr: *mut Self::State) {
        #[cfg(CONFIG_LOCKDEP)]
        // SAFETY: The caller guarantees that the lock is initialised.
        unsafe {
            raw::rtrs_helper_spin_assert_held(ptr)
        }
        #[cfg(not(CONFIG_LOCKDEP))]
        let _ = ptr;
    }
}
