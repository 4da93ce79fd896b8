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
    wr::Remote,
};
use crate::{
    handoff::HandoffCell,
    raw, //
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
        // CAST: small flags.
        self.0 as i32
    }
}

/// What a region is mapped to.
struct Mapping {
    key: u8,
    len: u32,
    iova: u64,
}

/// A memory region for fast registration.
///
/// It has one user at a time, who changes its mapping and posts its
/// registration; a second one is refused with `EBUSY`.
///
/// The region itself stays as long as its domain: a driver may look at it when it gets to
/// a registration that was posted, which the queue pair, and so the domain, outlives.
///
/// # Invariants
///
/// `raw` was allocated in the PD of `domain`, which owns it, and is changed by the holder of
/// `next` only.
pub struct Mr {
    raw: NonNull<raw::ib_mr>,
    /// What the next registration will be; the holder may change the region.
    next: HandoffCell<Mapping>,
    domain: Arc<Domain>,
}

// SAFETY: a region may be used from any thread.
unsafe impl Send for Mr {}
// SAFETY: `next` has one holder at a time.
unsafe impl Sync for Mr {}

impl Mr {
    /// Allocates a region for up to `pages` pages. May sleep.
    pub fn new(domain: &Arc<Domain>, pages: u32) -> Result<Self> {
        let raw = domain.alloc_mr(pages)?;
        // SAFETY: the region is valid.
        // CAST: the low byte is the part that consumers choose.
        let key = unsafe { raw::rtrs_helper_ib_mr_rkey(raw.as_ptr()) } as u8;
        // INVARIANT: just allocated there.
        Ok(Self {
            raw,
            next: HandoffCell::new(Mapping {
                key,
                len: 0,
                iova: 0,
            }),
            domain: domain.clone(),
        })
    }

    /// The current key.
    #[inline]
    pub fn rkey(&self) -> u32 {
        // SAFETY: the region is valid.
        unsafe { raw::rtrs_helper_ib_mr_rkey(self.raw.as_ptr()) }
    }

    /// Gives the region a key it did not have just before, for its next
    /// registration: who knows the old one can do nothing with it.
    ///
    /// # Errors
    ///
    /// `EBUSY` when somebody else is using the region.
    #[inline]
    pub fn next_rkey(&self) -> Result<u32> {
        let mut next = self.next.try_take().ok_or(EBUSY)?;
        self.bump(&mut next);
        Ok(self.rkey())
    }

    fn bump(&self, next: &mut Mapping) {
        next.key = next.key.wrapping_add(1);
        // SAFETY: the region is valid, and ours to change: `next` is held.
        unsafe { raw::rtrs_helper_ib_mr_set_key(self.raw.as_ptr(), next.key) };
    }

    /// What the peer has to name to write to the region as it is mapped.
    pub fn remote(&self) -> Result<Remote> {
        let next = self.next.try_take().ok_or(EBUSY)?;
        Ok(Remote {
            addr: next.iova,
            rkey: self.rkey(),
        })
    }

    /// Describes `regions`, one behind the other, to the region, in pages of `page_size` bytes. May
    /// sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` when they do not fit or belong to another domain, or for a page size that is no
    /// power of two; `EBUSY` when somebody else is using the region.
    pub fn map_regions(&self, regions: &[Region], page_size: u32) -> Result {
        let mut list: KVec<raw::scatterlist> = KVec::with_capacity(regions.len(), GFP_KERNEL)?;
        let mut total = 0u32;
        for (i, r) in regions.iter().enumerate() {
            // Of another one the memory may go before this does.
            if !Arc::ptr_eq(r.domain(), &self.domain) {
                return Err(EINVAL);
            }
            // CAST: a `Region` is far below 4 GiB.
            let len = r.len() as u32;
            total = total.checked_add(len).ok_or(EINVAL)?;
            // SAFETY: all zeroes is a valid scatterlist entry.
            let mut sg: raw::scatterlist = unsafe { core::mem::zeroed() };
            sg.length = len;
            sg.dma_address = r.dma();
            #[cfg(CONFIG_NEED_SG_DMA_LENGTH)]
            {
                sg.dma_length = len;
            }
            if i + 1 == regions.len() {
                // The marker of the last entry, `SG_END`.
                sg.page_link = raw::SG_END as usize;
            }
            list.push(sg, GFP_KERNEL)?;
        }
        // CAST: as many as there are chunks in a region, below the page limit.
        let nents = regions.len() as u32;
        // SAFETY: `list` has `nents` entries with DMA addresses of this device, as the regions are
        // of our domain; `ib_map_mr_sg()` reads nothing else of them.
        unsafe {
            let mut next = self.next.try_take().ok_or(EBUSY)?;
            next.iova = map_list(self.raw, list.as_mut_ptr(), nents, page_size)?;
            next.len = total;
        }
        Ok(())
    }

    pub(super) fn domain(&self) -> &Domain {
        &self.domain
    }

    pub(super) fn as_raw(&self) -> *mut raw::ib_mr {
        self.raw.as_ptr()
    }
}

/// Describes the list `sgl` to the region `mr`, in pages of `page_size` bytes; returns the address
/// by which it is known then. Any context; for pages that are larger than the CPU's the driver may
/// sleep.
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
) -> Result<u64> {
    // Drivers make a mask of it.
    if !page_size.is_power_of_two() {
        return Err(EINVAL);
    }
    let n = i32::try_from(nents).map_err(|_| EINVAL)?;
    // SAFETY: by the function's requirement.
    let mapped =
        unsafe { raw::ib_map_mr_sg(mr.as_ptr(), sgl, n, core::ptr::null_mut(), page_size) };
    if mapped != n {
        return Err(map_error(mapped));
    }
    // What the peer calls it says nothing about where it is. Only the offset in the first page
    // has to stay; 0 is left to those for whom it means none.
    let page_size = u64::from(page_size);
    let in_page = page_size.wrapping_sub(1);
    // SAFETY: by the function's requirement.
    unsafe {
        let first = raw::rtrs_helper_ib_mr_iova(mr.as_ptr());
        let iova = page_size | first & in_page;
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
