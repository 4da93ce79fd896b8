// SPDX-License-Identifier: GPL-2.0

//! CPUs, and memory with one copy for each CPU.
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
    // SAFETY: The function reads a mask that is constant after boot, and accepts every number.
    unsafe { raw::rtrs_helper_cpu_possible(cpu) }
}

/// Allocated per-CPU memory, zeroed but otherwise uninitialised.
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
        // SAFETY: The allocator supports size and alignment, as checked above.
        let ptr = unsafe {
            raw::pcpu_alloc_noprof(size_of::<T>(), align_of::<T>(), false, raw::GFP_KERNEL)
        };
        // INVARIANT: The memory was just allocated with this size and alignment.
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
/// The instances are shared: [`this`](Self::this) selects one, but does not make the access
/// exclusive. So `T` must be [`Sync`], made of atomics or locks; the gain is that instances are
/// rarely contended and stay in the cache of one CPU.
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
                // SAFETY: By the invariant of `Block` this is memory for a `T`, which is not shared
                // yet.
                unsafe { ptr.write(init(cpu)) };
            }
        }
        // INVARIANT: Each `T` was just initialised.
        Ok(Self { block })
    }

    /// Returns the instance of the current CPU. The task may have moved to another CPU when it uses
    /// the reference. Any context.
    #[inline]
    pub fn this(&self) -> &T {
        // SAFETY: The instance is valid for as long as the block, and initialised; there are shared
        // references only.
        unsafe { &*self.block.this() }
    }

    /// Returns the instance of `cpu`, if that is a possible CPU. Any context.
    pub fn get(&self, cpu: u32) -> Option<&T> {
        // SAFETY: The instance is valid for as long as the block, and initialised; there are shared
        // references only.
        self.block.get(cpu).map(|ptr| unsafe { &*ptr })
    }

    /// Iterates over all instances, with the number of their CPU. Any context.
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
                // SAFETY: The instance is initialised, and not used after this.
                unsafe { ptr.drop_in_place() };
            }
        }
    }
}

/// `N` counters for statistics, with very cheap additions: no lock, no atomic operation, no shared
/// cache line.
///
/// Sums are exact while nothing is being counted, and otherwise approximate. Counters wrap.
pub struct Counters<const N: usize> {
    block: Block<CounterBlock<N>>,
}

/// One CPU's counters, and their values at the last reset: only the CPU itself writes to `now`, so
/// that no count is lost.
#[repr(C)]
struct CounterBlock<const N: usize> {
    now: [u64; N],
    start: [u64; N],
}

// SAFETY: The memory can be used and freed on every CPU.
unsafe impl<const N: usize> Send for Counters<N> {}
// SAFETY: Counters are changed by operations that are atomic with respect to
// their CPU, on the copy of that CPU, and read with single loads.
unsafe impl<const N: usize> Sync for Counters<N> {}

impl<const N: usize> Counters<N> {
    /// Creates counters with the value 0. Sleeps.
    pub fn new() -> Result<Self> {
        Ok(Self {
            block: Block::new()?,
        })
    }

    /// Adds `value` to counter `index`; does nothing if there is no such counter.
    ///
    /// Any context but NMI.
    #[inline(always)]
    pub fn add(&self, index: usize, value: u64) {
        self.here().add(index, value);
    }

    /// Returns a handle for several additions, with a single look-up.
    #[inline(always)]
    pub fn here(&self) -> Here<'_, N> {
        // `now` is the first field.
        // INVARIANT: By the invariant of the block.
        Here {
            now: self.block.ptr.cast(),
            _counters: PhantomData,
        }
    }

    /// The sum of counter `index` over all CPUs since the last reset. 0 if there is no such
    /// counter. Any context.
    pub fn sum(&self, index: usize) -> u64 {
        possible_cpus().fold(0, |sum: u64, cpu| sum.wrapping_add(self.get(cpu, index)))
    }

    /// The sum of some counters over all CPUs, regardless of resets. Any context.
    pub fn total_of(&self, indices: impl Iterator<Item = usize> + Clone) -> u64 {
        // CPU by CPU, as the numbers of one CPU are neighbours.
        possible_cpus().fold(0, |sum: u64, cpu| {
            indices.clone().fold(sum, |sum, index| {
                let now = self
                    .counter(cpu, index)
                    .map_or(0, |(now, _)| now.load(Relaxed));
                sum.wrapping_add(now)
            })
        })
    }

    /// The value of counter `index` on `cpu`. 0 if there is no such counter or CPU. Any context.
    pub fn get(&self, cpu: u32, index: usize) -> u64 {
        match self.counter(cpu, index) {
            Some((now, start)) => now.load(Relaxed).wrapping_sub(start.load(Relaxed)),
            None => 0,
        }
    }

    /// Sets counter `index` to zero on all CPUs. Concurrent additions may be counted or not. Any
    /// context.
    pub fn reset(&self, index: usize) {
        for cpu in possible_cpus() {
            if let Some((now, start)) = self.counter(cpu, index) {
                start.store(now.load(Relaxed), Relaxed);
            }
        }
    }

    fn counter(&self, cpu: u32, index: usize) -> Option<(&Atomic<u64>, &Atomic<u64>)> {
        if index >= N {
            return None;
        }
        let block_of_cpu = self.block.get(cpu)?;
        // SAFETY: `block_of_cpu` is valid for as long as the block, and zero is a valid number;
        // `index` is in range. They are only accessed as atomics, except by the `this_cpu_add()` of
        // their CPU, which is one store for readers: only 64-bit machines are supported.
        unsafe {
            let now = (&raw mut (*block_of_cpu).now).cast::<u64>().add(index);
            let start = (&raw mut (*block_of_cpu).start).cast::<u64>().add(index);
            Some((Atomic::from_ptr(now), Atomic::from_ptr(start)))
        }
    }
}

/// A handle of [`Counters`], for additions.
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
    /// Adds `value` to counter `index` of the current CPU; does nothing if there is no such
    /// counter.
    ///
    /// Any context but NMI.
    #[inline(always)]
    pub fn add(self, index: usize, value: u64) {
        if index >= N {
            return;
        }
        // SAFETY: By the type invariant this is a per-CPU pointer to one of the `N` numbers. It is
        // not an address, so it is computed with `wrapping_add()`.
        unsafe { raw::rtrs_helper_this_cpu_add(self.now.as_ptr().wrapping_add(index), value) };
    }
}
