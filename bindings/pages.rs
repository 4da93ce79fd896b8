// SPDX-License-Identifier: GPL-2.0

//! Physically contiguous memory that devices and peers may write to at any time.
//!
//! C header: [`include/linux/gfp.h`](srctree/include/linux/gfp.h)

use core::{
    ffi::c_void,
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};

use crate::raw;

/// `PAGE_SIZE << order` bytes of zeroed, physically contiguous memory.
///
/// Made for buffers that devices and, through them, other machines access at any time: references
/// to the contents are never handed out; bytes are copied in and out. A read returns some mixture
/// of the contents during the call; the caller must copy once and then check the copy.
///
/// The memory is a compound page: lower layers may take references to its parts, for example to put
/// them into network buffers.
///
/// # Invariants
///
/// `addr` is the start of `len` bytes, `PAGE_SIZE << order`, of lowmem, allocated
/// with this order and owned by this object.
pub struct Pages {
    addr: NonNull<u8>,
    order: u32,
    len: usize,
}

// SAFETY: Memory can be used and freed on every CPU.
unsafe impl Send for Pages {}
// SAFETY: All access is by copying through raw pointers, or by volatile reads; concurrent access is
// expected and yields mixed bytes. The compiler sees the copy, as helpers are inlined, but not what
// is copied: `rtrs_helper_copy()` hides it with `barrier_data()`, so that a copy is made once, and
// nothing is concluded from the contents.
unsafe impl Sync for Pages {}

impl Pages {
    /// Allocates `PAGE_SIZE << order` bytes, preferably on NUMA node `node` (negative or
    /// nonexistent: no preference).
    ///
    /// May sleep; does not invoke the OOM killer. `EINVAL` if the page allocator does not support
    /// the order.
    pub fn new(order: u32, node: i32) -> Result<Self> {
        if order > raw::RTRS_MAX_PAGE_ORDER {
            return Err(EINVAL);
        }
        // The request may come from a peer: no process is killed for it, and the caller decides
        // what is logged.
        let gfp = raw::GFP_KERNEL | raw::__GFP_ZERO | raw::RTRS_GFP_COMP | raw::RTRS_GFP_MAY_FAIL;
        // SAFETY: `order` is valid and `gfp` a combination of valid flags
        // without `__GFP_HIGHMEM`; the helper checks `node`.
        let addr = unsafe { raw::rtrs_helper_alloc_pages(node, gfp, order) };
        // INVARIANT: The memory was just allocated with this order. Without `__GFP_HIGHMEM` it is
        // lowmem.
        Ok(Self {
            addr: NonNull::new(addr.cast()).ok_or(ENOMEM)?,
            order,
            // No overflow: the allocator supports the order.
            len: PAGE_SIZE << order,
        })
    }

    /// The smallest order that holds `len` bytes.
    pub fn order_of(len: usize) -> u32 {
        len.div_ceil(PAGE_SIZE)
            .max(1)
            .next_power_of_two()
            .trailing_zeros()
    }

    /// The size in bytes.
    #[expect(clippy::len_without_is_empty)]
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The kernel address, for C code.
    #[inline(always)]
    pub fn as_ptr(&self) -> *mut u8 {
        self.addr.as_ptr()
    }

    /// Copies `buf.len()` bytes from offset `off`. `EINVAL`, without changing `buf`, if the memory
    /// is shorter.
    ///
    /// Any context.
    #[inline(always)]
    pub fn read(&self, off: usize, buf: &mut [u8]) -> Result {
        let src = self.range(off, buf.len())?;
        // SAFETY: `src` is valid for `buf.len()` bytes, and does not overlap `buf`: there cannot be
        // a `&mut` to memory that this object owns.
        unsafe { raw::rtrs_helper_copy(buf.as_mut_ptr().cast(), src, buf.len()) };
        Ok(())
    }

    /// The bytes up to `N` words behind offset `off`; `None` if the memory is shorter.
    ///
    /// Any context.
    #[inline(always)]
    pub fn around<const N: usize>(&self, off: usize) -> Option<Around<'_, N>> {
        let at = self.range(off, N.checked_mul(8)?).ok()?.cast();
        // INVARIANT: `range()` has checked that `N` words follow `off`.
        Some(Around {
            at: NonNull::new(at)?,
            off,
            _pages: PhantomData,
        })
    }

    /// Copies `buf` to offset `off`. `EINVAL`, without writing anything, if it does not fit.
    ///
    /// Any context.
    #[inline(always)]
    pub fn write(&self, off: usize, buf: &[u8]) -> Result {
        let dst = self.range(off, buf.len())?;
        // SAFETY: `dst` is valid for `buf.len()` bytes, and does not overlap `buf`: there cannot be
        // a `&` to memory that this object owns.
        unsafe { raw::rtrs_helper_copy(dst, buf.as_ptr().cast(), buf.len()) };
        Ok(())
    }

    /// The address of `len` bytes at `off`.
    #[inline(always)]
    fn range(&self, off: usize, len: usize) -> Result<*mut c_void> {
        match off.checked_add(len) {
            // SAFETY: `off` is within the memory, or just behind it.
            Some(end) if end <= self.len() => Ok(unsafe { self.as_ptr().add(off) }.cast()),
            _ => Err(EINVAL),
        }
    }
}

/// An offset in [`Pages`], with the bytes before it and `N` words behind it. One check of a length
/// is enough for all of them.
///
/// # Invariants
///
/// `off` bytes precede `at` in the memory, which stays for `'a`, and `N` words follow.
pub struct Around<'a, const N: usize> {
    at: NonNull<u8>,
    off: usize,
    _pages: PhantomData<&'a Pages>,
}

impl<const N: usize> Around<'_, N> {
    /// # Safety
    ///
    /// `off` bytes of memory must precede `at`, and `N` words follow, for as long as the result is used.
    /// It must be memory of [`Pages`].
    #[inline(always)]
    pub(crate) unsafe fn new(at: NonNull<u8>, off: usize) -> Self {
        // INVARIANT: By the safety requirements of this function.
        Self {
            at,
            off,
            _pages: PhantomData,
        }
    }

    /// Reads the words behind the offset, each once, in the byte order of this machine. They need
    /// not be aligned.
    ///
    /// Any context.
    #[inline(always)]
    pub fn words(&self) -> [[u8; 8]; N] {
        #[repr(C, packed)]
        struct Unaligned([u8; 8]);

        let src: *const Unaligned = self.at.as_ptr().cast_const().cast();
        core::array::from_fn(|i| {
            // SAFETY: By the invariant `src` is valid for `N` of these. The compiler must not read
            // them again, as a device may write to them.
            unsafe { src.add(i).read_volatile() }.0
        })
    }

    /// Copies the `buf.len()` bytes before the offset. `None`, without changing `buf`, if there are
    /// not so many.
    ///
    /// Any context.
    #[inline(always)]
    pub fn read_before(&self, buf: &mut [u8]) -> Option<()> {
        if buf.len() > self.off {
            return None;
        }
        // SAFETY: By the invariant at least `buf.len()` bytes precede `at`. They do not overlap
        // `buf`, as in `Pages::read()`.
        unsafe {
            let src = self.at.as_ptr().sub(buf.len());
            raw::rtrs_helper_copy(buf.as_mut_ptr().cast(), src.cast(), buf.len());
        }
        Some(())
    }
}

/// `N` bytes of [`Pages`], which it keeps alive.
///
/// # Invariants
///
/// `at` is the start of `N` bytes in `pages`.
pub struct Part<const N: usize> {
    at: NonNull<u8>,
    _pages: Arc<Pages>,
}

// SAFETY: As for `Pages`.
unsafe impl<const N: usize> Send for Part<N> {}
// SAFETY: As for `Pages`.
unsafe impl<const N: usize> Sync for Part<N> {}

impl<const N: usize> Part<N> {
    /// The part at `off`. `EINVAL` if the range exceeds the memory.
    pub fn new(pages: &Arc<Pages>, off: usize) -> Result<Self> {
        let at = NonNull::new(pages.range(off, N)?.cast()).ok_or(EINVAL)?;
        // INVARIANT: `range()` has checked that `N` bytes are in `pages`.
        Ok(Self {
            at,
            _pages: pages.clone(),
        })
    }

    /// Copies `bytes` to offset `off`; returns where they end. `None`, without writing anything, if
    /// they do not fit.
    ///
    /// Any context.
    #[inline(always)]
    pub fn write(&self, off: usize, bytes: &[u8]) -> Option<usize> {
        if bytes.len() > N.checked_sub(off)? {
            return None;
        }
        // SAFETY: By the invariant there are `N` bytes, which do not overlap `bytes`, as for
        // `Pages::write()`.
        unsafe {
            let to = self.at.as_ptr().add(off);
            raw::rtrs_helper_copy(to.cast(), bytes.as_ptr().cast(), bytes.len());
        }
        // No overflow: the sum is at most `N`.
        Some(off.wrapping_add(bytes.len()))
    }

    /// Copies from offset `off`. `None`, without reading anything, if there are not so many bytes.
    ///
    /// Any context.
    pub fn read(&self, off: usize, bytes: &mut [u8]) -> Option<()> {
        if bytes.len() > N.checked_sub(off)? {
            return None;
        }
        // SAFETY: By the invariant there are `N` bytes, which do not overlap `bytes`, as for
        // `Pages::read()`.
        unsafe {
            let from = self.at.as_ptr().add(off);
            raw::rtrs_helper_copy(bytes.as_mut_ptr().cast(), from.cast(), bytes.len());
        }
        Some(())
    }
}

/// One or two blocks of memory for the same data, the addresses of which are at hand.
///
/// # Invariants
///
/// `at` are the addresses of `pages`. These are two blocks with at least `both` bytes each; or it is
/// one, twice, and `both` is 0.
pub struct PagePair {
    at: [NonNull<u8>; 2],
    both: usize,
    pages: [Arc<Pages>; 2],
}

// SAFETY: As for `Pages`.
unsafe impl Send for PagePair {}
// SAFETY: As for `Pages`.
unsafe impl Sync for PagePair {}

impl PagePair {
    /// A pair of `first` and `second`, or `first` alone.
    pub fn new(first: Arc<Pages>, second: Option<Arc<Pages>>) -> Self {
        let (second, both) = match second {
            Some(second) if !Arc::ptr_eq(&first, &second) => {
                let both = first.len().min(second.len());
                (second, both)
            }
            _ => (first.clone(), 0),
        };
        // INVARIANT: Two objects own different memory.
        Self {
            at: [first.addr, second.addr],
            both,
            pages: [first, second],
        }
    }

    /// Whether there are two blocks.
    pub fn is_two(&self) -> bool {
        self.both != 0
    }

    /// The number of bytes that both blocks have; 0 if there is one.
    #[inline(always)]
    pub fn both(&self) -> usize {
        self.both
    }

    /// The first block.
    #[inline(always)]
    pub fn first(&self) -> &Arc<Pages> {
        &self.pages[0]
    }

    /// The second block if `second` is set and there is one, otherwise the first.
    pub fn get(&self, second: bool) -> &Arc<Pages> {
        // PANIC: A bool is 0 or 1.
        &self.pages[usize::from(second)]
    }

    /// The kernel address of [that block](Self::get), for C code.
    #[inline(always)]
    pub fn as_ptr(&self, second: bool) -> *mut u8 {
        // PANIC: A bool is 0 or 1.
        self.at[usize::from(second)].as_ptr()
    }

    /// Copies the first `len` bytes of the first block to the second. `EINVAL`, without writing
    /// anything, if one of the two is shorter, or if there are no two.
    ///
    /// Any context.
    #[inline(always)]
    pub fn copy_to_second(&self, len: usize) -> Result {
        if len > self.both {
            return Err(EINVAL);
        }
        let [src, dst] = self.at;
        // SAFETY: By the invariant both are valid for `len` bytes. Unless that is 0, they belong to
        // different objects, and do not overlap.
        unsafe { raw::rtrs_helper_copy(dst.as_ptr().cast(), src.as_ptr().cast(), len) };
        Ok(())
    }
}

/// Total memory of this machine that the kernel can allocate, in bytes. Any context.
pub fn total_ram() -> u64 {
    // SAFETY: The function only reads a counter.
    unsafe { raw::rtrs_helper_total_ram() }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: By the type invariant this object owns the memory, which was
        // allocated with this order.
        unsafe { raw::rtrs_helper_free_pages(self.addr.as_ptr().cast(), self.order) }
    }
}
