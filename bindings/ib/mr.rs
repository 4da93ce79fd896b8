// SPDX-License-Identifier: GPL-2.0

//! Memory regions registered by work request.

use core::ptr::NonNull;
use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    domain::{
        Domain,
        Region, //
    },
    hidden::{
        self,
        KeyByte, //
    },
    wr::Remote,
};
use crate::{
    handoff::HandoffCell,
    raw,
    time::random_u64, //
};

/// What a registration allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access(u32);

impl Access {
    /// The device may read.
    pub const LOCAL_READ: Self = Self(0);

    /// The peer may write, which implies that the device may.
    pub const REMOTE_WRITE: Self = Self(
        raw::ib_access_flags_IB_ACCESS_LOCAL_WRITE | raw::ib_access_flags_IB_ACCESS_REMOTE_WRITE,
    );

    pub(super) fn as_raw(self) -> i32 {
        // CAST: Small flags.
        self.0 as i32
    }
}

/// A memory region for fast registration.
///
/// What it describes never changes: drivers look at it when they get to a registration that was
/// posted, and the peer's key may be good at any time.
///
/// The region itself stays as long as its domain: a driver may look at it when it gets to
/// a registration that was posted, which the queue pair, and so the domain, outlives.
///
/// # Invariants
///
/// `raw` was allocated in the PD of `domain`, which owns it, and describes `iova`. Its key is changed
/// by the holder of `key` only.
pub struct Mr {
    raw: NonNull<raw::ib_mr>,
    /// Where what it describes begins, as the peer calls it: a random address.
    iova: u64,
    /// The part of the key that consumers choose.
    key: HandoffCell<KeyByte>,
    domain: Arc<Domain>,
}

// SAFETY: A region may be used from any thread.
unsafe impl Send for Mr {}
// SAFETY: `key` has one holder at a time.
unsafe impl Sync for Mr {}

impl Mr {
    /// A region that describes `regions`, which follow each other in it, all of the same length: a
    /// power of two. It is the peer's once it is registered, for as long as its key is good. May
    /// sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` for no region, for such that are too many, of another domain or of another length,
    /// `EOPNOTSUPP` if the device has no pages that they consist of.
    pub fn of(domain: &Arc<Domain>, regions: &[Region]) -> Result<Self> {
        let len = regions.first().ok_or(EINVAL)?.len();
        let page_size = Self::page_size(domain, u32::try_from(len)?)?;
        let count = u32::try_from(regions.len())?;
        let mut list: KVec<raw::scatterlist> = KVec::with_capacity(regions.len(), GFP_KERNEL)?;
        for (i, r) in regions.iter().enumerate() {
            // Of another one the memory may go before this does.
            if !Arc::ptr_eq(r.domain(), domain) || r.len() != len {
                return Err(EINVAL);
            }
            // SAFETY: All zeroes is a valid scatterlist entry.
            let mut sg: raw::scatterlist = unsafe { core::mem::zeroed() };
            // CAST: Checked above.
            sg.length = len as u32;
            sg.dma_address = r.dma();
            #[cfg(CONFIG_NEED_SG_DMA_LENGTH)]
            {
                sg.dma_length = len as u32;
            }
            if i + 1 == regions.len() {
                // The marker of the last entry, `SG_END`.
                sg.page_link = raw::SG_END as usize;
            }
            list.push(sg, GFP_KERNEL)?;
        }
        let pages = (len as u32 / page_size).checked_mul(count).ok_or(EINVAL)?;
        let raw = domain.alloc_mr(pages)?;
        // SAFETY: `list` has `count` entries with DMA addresses of this device, as the regions are
        // of its domain; `ib_map_mr_sg()` reads nothing else of them. The region was made just now.
        let iova = unsafe {
            let base = hidden::address(random_u64(), page_size);
            map_list(raw, list.as_mut_ptr(), count, page_size, base)
        }?;
        let key = KeyByte::new(random_u64());
        // SAFETY: The region is valid, not registered, and nobody else knows it.
        unsafe { raw::rtrs_helper_ib_mr_set_key(raw.as_ptr(), key.get()) };
        // INVARIANT: Just allocated there, and described.
        Ok(Self {
            raw,
            iova,
            key: HandoffCell::new(key),
            domain: domain.clone(),
        })
    }

    /// How many regions of `len` bytes one of these can describe.
    pub fn max_regions(domain: &Domain, len: u32) -> u32 {
        let pages = domain.device().attrs().max_fast_reg_pages;
        match Self::page_size(domain, len) {
            Ok(page_size) => pages.checked_div(len / page_size).unwrap_or(0),
            Err(_) => 0,
        }
    }

    /// The largest pages of the device that `len` bytes consist of. A driver that is given others may
    /// register more than there is.
    fn page_size(domain: &Domain, len: u32) -> Result<u32> {
        if !len.is_power_of_two() {
            return Err(EINVAL);
        }
        // No overflow: not 0.
        let fit = domain.device().attrs().page_sizes & u64::from(len | (len - 1));
        let size = fit.checked_ilog2().ok_or(crate::errno::EOPNOTSUPP)?;
        // CAST: At most `len`. No overflow: below 32.
        Ok((1u64 << size) as u32)
    }

    /// The current key.
    #[inline]
    pub fn rkey(&self) -> u32 {
        // SAFETY: The region is valid.
        unsafe { raw::rtrs_helper_ib_mr_rkey(self.raw.as_ptr()) }
    }

    /// Gives the region a key it did not have just before, for its next
    /// registration: who knows the old one can do nothing with it, nor guess this one.
    /// Any context but NMI.
    ///
    /// # Errors
    ///
    /// `EBUSY` when somebody else is doing that.
    #[inline]
    pub fn next_rkey(&self) -> Result<u32> {
        let mut key = self.key.try_take().ok_or(EBUSY)?;
        let key = key.change(random_u64);
        // SAFETY: The region is valid; nobody else changes its key, as the byte is held.
        unsafe { raw::rtrs_helper_ib_mr_set_key(self.raw.as_ptr(), key) };
        Ok(self.rkey())
    }

    /// What the peer has to name to write to the region.
    pub fn remote(&self) -> Remote {
        Remote {
            addr: self.iova,
            rkey: self.rkey(),
        }
    }

    pub(super) fn domain(&self) -> &Domain {
        &self.domain
    }

    pub(super) fn as_raw(&self) -> *mut raw::ib_mr {
        self.raw.as_ptr()
    }
}

/// Describes the list `sgl` to the region `mr`, in pages of `page_size` bytes; returns the address
/// by which it is known then: `base`, a multiple of `page_size` that is not 0, and the offset in the
/// first page. Any context; for pages that are larger than the CPU's the driver may sleep.
///
/// # Errors
///
/// `EINVAL` when the list does not fit or has gaps within pages, or for a page size that is no power
/// of two.
///
/// # Safety
///
/// `sgl` must have `nents` entries with DMA addresses of the device of `mr`, which must be valid,
/// neither registered nor about to be, and the caller's to change.
#[inline(always)]
pub(super) unsafe fn map_list(
    mr: NonNull<raw::ib_mr>,
    sgl: *mut raw::scatterlist,
    nents: u32,
    page_size: u32,
    base: u64,
) -> Result<u64> {
    // Drivers make a mask of it.
    if !page_size.is_power_of_two() {
        return Err(EINVAL);
    }
    let n = i32::try_from(nents).map_err(|_| EINVAL)?;
    // SAFETY: By the function's requirement.
    let mapped =
        unsafe { raw::ib_map_mr_sg(mr.as_ptr(), sgl, n, core::ptr::null_mut(), page_size) };
    if mapped != n {
        return Err(map_error(mapped));
    }
    // What the peer calls it says nothing about where it is. Only the offset in the first page
    // has to stay.
    let in_page = u64::from(page_size).wrapping_sub(1);
    // SAFETY: By the function's requirement.
    unsafe {
        let first = raw::rtrs_helper_ib_mr_iova(mr.as_ptr());
        let iova = base | first & in_page;
        raw::rtrs_helper_ib_mr_set_iova(mr.as_ptr(), iova);
        Ok(iova)
    }
}

#[cold]
fn map_error(mapped: i32) -> Error {
    if mapped < 0 {
        Error::from_errno(mapped)
    } else {
        EINVAL
    }
}
