// SPDX-License-Identifier: GPL-2.0

//! The part of `kernel::sync::atomic` that the shared sources use, over the host's atomics or,
//! with `--cfg loom`, over loom's.
//!
//! Orderings follow the kernel: a failed `cmpxchg` orders nothing, `Full` is the strongest.

#[cfg(not(loom))]
use core::sync::atomic as imp;
#[cfg(loom)]
use loom::sync::atomic as imp;

use imp::Ordering;

/// No ordering.
#[derive(Clone, Copy, Debug)]
pub struct Relaxed;
/// Orders the load before what follows.
#[derive(Clone, Copy, Debug)]
pub struct Acquire;
/// Orders what precedes before the store.
#[derive(Clone, Copy, Debug)]
pub struct Release;
/// Orders everything.
#[derive(Clone, Copy, Debug)]
pub struct Full;

/// Orderings of a read-modify-write operation.
pub trait AnyOrdering {
    /// The host's name of the ordering.
    const ORDERING: Ordering;
}

impl AnyOrdering for Relaxed {
    const ORDERING: Ordering = Ordering::Relaxed;
}
impl AnyOrdering for Acquire {
    const ORDERING: Ordering = Ordering::Acquire;
}
impl AnyOrdering for Release {
    const ORDERING: Ordering = Ordering::Release;
}
impl AnyOrdering for Full {
    const ORDERING: Ordering = Ordering::SeqCst;
}

/// Orderings of a load.
pub trait AcquireOrRelaxed: AnyOrdering {}
impl AcquireOrRelaxed for Relaxed {}
impl AcquireOrRelaxed for Acquire {}

/// Orderings of a store.
pub trait ReleaseOrRelaxed: AnyOrdering {}
impl ReleaseOrRelaxed for Relaxed {}
impl ReleaseOrRelaxed for Release {}

/// The ordering of an operation that returns nothing.
pub trait RelaxedOnly: AnyOrdering {}
impl RelaxedOnly for Relaxed {}

/// Types that can be atomic.
pub trait AtomicType: Copy {
    /// The host's atomic.
    type Repr;
}

/// A memory location that may be used by several threads at once.
pub struct Atomic<T: AtomicType>(T::Repr);

macro_rules! impl_atomic {
    ($($ty:ty => $repr:ident),* $(,)?) => {$(
        impl AtomicType for $ty {
            type Repr = imp::$repr;
        }

        impl Atomic<$ty> {
            /// A new atomic.
            #[cfg(not(loom))]
            pub const fn new(v: $ty) -> Self {
                Self(imp::$repr::new(v))
            }

            /// A new atomic.
            #[cfg(loom)]
            pub fn new(v: $ty) -> Self {
                Self(imp::$repr::new(v))
            }

            /// Reads the value.
            pub fn load<O: AcquireOrRelaxed>(&self, _: O) -> $ty {
                self.0.load(O::ORDERING)
            }

            /// Writes the value.
            pub fn store<O: ReleaseOrRelaxed>(&self, v: $ty, _: O) {
                self.0.store(v, O::ORDERING)
            }

            /// Writes the value and returns the old one.
            pub fn xchg<O: AnyOrdering>(&self, v: $ty, _: O) -> $ty {
                self.0.swap(v, O::ORDERING)
            }

            /// Writes `new` if the value is `old`; returns the old value.
            pub fn cmpxchg<O: AnyOrdering>(&self, old: $ty, new: $ty, _: O) -> Result<$ty, $ty> {
                self.0.compare_exchange(old, new, O::ORDERING, Ordering::Relaxed)
            }

            /// Adds.
            pub fn add<O: RelaxedOnly>(&self, v: $ty, _: O) {
                self.0.fetch_add(v, O::ORDERING);
            }

            /// Adds and returns the old value.
            pub fn fetch_add<O: AnyOrdering>(&self, v: $ty, _: O) -> $ty {
                self.0.fetch_add(v, O::ORDERING)
            }

            /// Subtracts and returns the old value.
            pub fn fetch_sub<O: AnyOrdering>(&self, v: $ty, _: O) -> $ty {
                self.0.fetch_sub(v, O::ORDERING)
            }
        }
    )*};
}

impl AtomicType for bool {
    type Repr = imp::AtomicBool;
}

impl Atomic<bool> {
    /// A new atomic.
    #[cfg(not(loom))]
    pub const fn new(v: bool) -> Self {
        Self(imp::AtomicBool::new(v))
    }

    /// A new atomic.
    #[cfg(loom)]
    pub fn new(v: bool) -> Self {
        Self(imp::AtomicBool::new(v))
    }

    /// Reads the value.
    pub fn load<O: AcquireOrRelaxed>(&self, _: O) -> bool {
        self.0.load(O::ORDERING)
    }

    /// Writes the value.
    pub fn store<O: ReleaseOrRelaxed>(&self, v: bool, _: O) {
        self.0.store(v, O::ORDERING)
    }

    /// Writes the value and returns the old one.
    pub fn xchg<O: AnyOrdering>(&self, v: bool, _: O) -> bool {
        self.0.swap(v, O::ORDERING)
    }

    /// Writes `new` if the value is `old`; returns the old value.
    pub fn cmpxchg<O: AnyOrdering>(&self, old: bool, new: bool, _: O) -> Result<bool, bool> {
        self.0
            .compare_exchange(old, new, O::ORDERING, Ordering::Relaxed)
    }
}

impl_atomic!(
    i32 => AtomicI32,
    i64 => AtomicI64,
    u32 => AtomicU32,
    u64 => AtomicU64,
    usize => AtomicUsize,
);
