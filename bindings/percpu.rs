// SPDX-License-Identifier: GPL-2.0

//! CPUs, and memory that each of them has its own copy of.
//!
//! C headers: [`include/linux/percpu.h`](srctree/include/linux/percpu.h),
//! [`include/linux/cpumask.h`](srctree/include/linux/cpumask.h)

use core::{
    ffi::c_void,
    marker::PhantomData,
    mem::needs_drop,
    ptr::NonNull, //
};
use kernel::{
    cpu::nr_cpu_ids,
    page::PAGE_SIZE,
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

use crate::raw;

/// All CPUs that exist or may be plugged in, in ascending order. Any context.
pub fn possible_cpus() -> impl Iterator<Item = u32> {
    (0..nr_cpu_ids()).filter(|&cpu| is_possible(cpu))
}

fn is_possible(cpu: u32) -> bool {
    // SAFETY: Looks at a mask that is constant after boot; takes every number.
    unsafe { raw::rtrs_helper_cpu_possible(cpu) }
}

/// Allocated per-CPU memory, uninitialised but zero.
///
/// # Invariants
///
/// `ptr` is a per-CPU pointer to a `T` for each possible CPU, owned by this
/// object.
struct Block<T> {
    ptr: NonNull<c_void>,
    _type: PhantomData<*mut T>,
}

impl<T> Block<T> {
    fn new() -> Result<Self> {
        const {
            assert!(size_of::<T>() > 0 && size_of::<T>() <= raw::RTRS_PERCPU_MAX_SIZE);
            assert!(align_of::<T>() <= PAGE_SIZE);
        }
        // SAFETY: Size and alignment are what the allocator can do.
        let ptr = unsafe {
            raw::pcpu_alloc_noprof(size_of::<T>(), align_of::<T>(), false, raw::GFP_KERNEL)
        };
        // INVARIANT: Just allocated with this size and alignment.
        Ok(Self {
            ptr: NonNull::new(ptr).ok_or(ENOMEM)?,
            _type: PhantomData,
        })
    }

    #[inline]
    fn this(&self) -> *mut T {
        // SAFETY: By the type invariant `ptr` is a per-CPU pointer; the CPU
        // this runs on is possible.
        unsafe { raw::rtrs_helper_this_cpu_ptr(self.ptr.as_ptr()) }.cast()
    }

    #[inline]
    fn get(&self, cpu: u32) -> Option<*mut T> {
        if !is_possible(cpu) {
            return None;
        }
        // SAFETY: By the type invariant `ptr` is a per-CPU pointer; `cpu` is
        // possible.
        Some(unsafe { raw::rtrs_helper_per_cpu_ptr(self.ptr.as_ptr(), cpu) }.cast())
    }
}

impl<T> Drop for Block<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant this object owns the memory.
        unsafe { raw::free_percpu(self.ptr.as_ptr()) }
    }
}

/// A `T` for each possible CPU.
///
/// They are shared: [`this`](Self::this) is a good choice, not a right. So `T`
/// is something that is [`Sync`], made of atomics or locks; what is won is that
/// they are rarely contended and stay in the cache of one CPU.
///
/// # Invariants
///
/// The `T` of each possible CPU is initialised.
pub struct PerCpu<T> {
    block: Block<T>,
}

// SAFETY: It owns several `T`.
unsafe impl<T: Send> Send for PerCpu<T> {}
// SAFETY: It lends `&T` only.
unsafe impl<T: Sync> Sync for PerCpu<T> {}

impl<T> PerCpu<T> {
    /// Calls `init` with the number of each possible CPU. Sleeps.
    pub fn new(mut init: impl FnMut(u32) -> T) -> Result<Self> {
        let block: Block<T> = Block::new()?;
        for cpu in possible_cpus() {
            if let Some(ptr) = block.get(cpu) {
                // SAFETY: By the invariant of `Block` this is memory for a `T`,
                // which nobody else uses yet.
                unsafe { ptr.write(init(cpu)) };
            }
        }
        // INVARIANT: Just initialised.
        Ok(Self { block })
    }

    /// The one of the CPU this runs on, or ran on when it was called: the task
    /// may have moved when it uses the reference. Any context.
    #[inline]
    pub fn this(&self) -> &T {
        // SAFETY: Valid for as long as the block, and initialised; shared
        // references only.
        unsafe { &*self.block.this() }
    }

    /// The one of `cpu`, if that is possible. Any context.
    pub fn get(&self, cpu: u32) -> Option<&T> {
        // SAFETY: Valid for as long as the block, and initialised; shared
        // references only.
        self.block.get(cpu).map(|ptr| unsafe { &*ptr })
    }

    /// All of them, with the number of their CPU. Any context.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        possible_cpus().filter_map(|cpu| Some((cpu, self.get(cpu)?)))
    }
}

impl<T> Drop for PerCpu<T> {
    fn drop(&mut self) {
        if !needs_drop::<T>() {
            return;
        }
        for cpu in possible_cpus() {
            if let Some(ptr) = self.block.get(cpu) {
                // SAFETY: Initialised, and not used after this.
                unsafe { ptr.drop_in_place() };
            }
        }
    }
}

/// `N` counters for statistics, which cost next to nothing to add to: no lock,
/// no atomic operation, no shared cache line.
///
/// Sums are exact when nobody is counting, and otherwise as good as any.
/// Counters wrap.
pub struct Counters<const N: usize> {
    block: Block<Slots<N>>,
}

/// One CPU's counters, and where they stood when they were reset: nothing but
/// the CPU itself ever writes to `now`, so that nothing gets lost.
#[repr(C)]
struct Slots<const N: usize> {
    now: [u64; N],
    start: [u64; N],
}

// SAFETY: The memory can be used and freed on every CPU.
unsafe impl<const N: usize> Send for Counters<N> {}
// SAFETY: Counters are changed by operations that are atomic with respect to
// their CPU, on the copy of that CPU, and read with single loads.
unsafe impl<const N: usize> Sync for Counters<N> {}

impl<const N: usize> Counters<N> {
    /// All zero. Sleeps.
    pub fn new() -> Result<Self> {
        Ok(Self {
            block: Block::new()?,
        })
    }

    /// Adds `value` to counter `index`; nothing if there is no such counter.
    ///
    /// Any context but NMI.
    #[inline(always)]
    pub fn add(&self, index: usize, value: u64) {
        self.here().add(index, value);
    }

    /// Where several are added to, found once.
    #[inline(always)]
    pub fn here(&self) -> Here<'_, N> {
        // `now` is the first field.
        // INVARIANT: By that of the block.
        Here {
            now: self.block.ptr.cast(),
            _counters: PhantomData,
        }
    }

    /// What was added to counter `index` on all CPUs since the last reset. 0 if
    /// there is no such counter. Any context.
    pub fn sum(&self, index: usize) -> u64 {
        possible_cpus().fold(0, |sum: u64, cpu| sum.wrapping_add(self.get(cpu, index)))
    }

    /// What was added to some counters on all CPUs, reset or not. Any context.
    pub fn total_of(&self, indices: impl Iterator<Item = usize> + Clone) -> u64 {
        // The numbers of one CPU are neighbours.
        possible_cpus().fold(0, |sum: u64, cpu| {
            indices.clone().fold(sum, |sum, index| {
                let now = self
                    .slot(cpu, index)
                    .map_or(0, |(now, _)| now.load(Relaxed));
                sum.wrapping_add(now)
            })
        })
    }

    /// What was added to counter `index` on `cpu`. 0 if there is no such
    /// counter or CPU. Any context.
    pub fn get(&self, cpu: u32, index: usize) -> u64 {
        match self.slot(cpu, index) {
            Some((now, start)) => now.load(Relaxed).wrapping_sub(start.load(Relaxed)),
            None => 0,
        }
    }

    /// Sets counter `index` to zero on all CPUs. What is added meanwhile may be
    /// counted or not. Any context.
    pub fn reset(&self, index: usize) {
        for cpu in possible_cpus() {
            if let Some((now, start)) = self.slot(cpu, index) {
                start.store(now.load(Relaxed), Relaxed);
            }
        }
    }

    fn slot(&self, cpu: u32, index: usize) -> Option<(&Atomic<u64>, &Atomic<u64>)> {
        if index >= N {
            return None;
        }
        let slots = self.block.get(cpu)?;
        // SAFETY: `slots` is valid for as long as the block, and zero is a
        // valid number; `index` is in range. They are only accessed as atomics,
        // but for the `this_cpu_add()` of their CPU, which for readers is one
        // store.
        unsafe {
            let now = (&raw mut (*slots).now).cast::<u64>().add(index);
            let start = (&raw mut (*slots).start).cast::<u64>().add(index);
            Some((Atomic::from_ptr(now), Atomic::from_ptr(start)))
        }
    }
}

/// [`Counters`], to add to them.
///
/// # Invariants
///
/// `now` is a per-CPU pointer to `N` numbers, which stay for `'a`.
#[derive(Clone, Copy)]
pub struct Here<'a, const N: usize> {
    now: NonNull<u64>,
    _counters: PhantomData<&'a Counters<N>>,
}

impl<const N: usize> Here<'_, N> {
    /// Adds `value` to counter `index`, on whatever CPU this runs; nothing if there is no such
    /// counter.
    ///
    /// Any context but NMI.
    #[inline(always)]
    pub fn add(self, index: usize, value: u64) {
        if index >= N {
            return;
        }
        // SAFETY: By the type invariant a per-CPU pointer to one of the `N` numbers.
        // It is no address: nothing says that it is in an allocation.
        unsafe { raw::rtrs_helper_this_cpu_add(self.now.as_ptr().wrapping_add(index), value) };
    }
}
