// SPDX-License-Identifier: GPL-2.0

//! Memory regions registered by work request.

use core::ptr::NonNull;
use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    domain::{
        DmaDirection,
        DmaPages,
        Domain, //
    },
    hidden::{
        self,
        KeySteps, //
    },
    page_size,
    wr::Remote, //
};
use crate::{
    atomic::{
        Atomic,
        Relaxed, //
    },
    raw,
    time::random_u64, //
};

/// The access that a registration allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access(u32);

impl Access {
    /// The device may read.
    pub const LOCAL_READ: Self = Self(0);

    /// The peer may write, and so may the device.
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
/// The described memory never changes: drivers read the description when they process a posted
/// registration, and the peer's key may be valid at any time.
///
/// The region itself stays as long as its domain: a driver may read it when it processes a posted
/// registration, and the queue pair, and so the domain, outlives that. Dropping an `Mr` may sleep, as
/// it may have the last reference to the domain.
///
/// # Invariants
///
/// `raw` was allocated in the PD of `domain`, which owns it, and describes `iova`. In this crate
/// only the holder of the [`KeyRight`] with `id` looks at the key in `raw`, and changes it and `rkey`. A
/// driver may look at it as well when it is given a registration, and only at the part that never
/// changes, or store the whole key there, which the work request has (rdmavt).
pub struct Mr {
    raw: NonNull<raw::ib_mr>,
    /// The address that the peer uses for the start of the described memory; it is random.
    iova: u64,
    /// Not 0. No other region has or had the same.
    id: u64,
    /// The key in `raw`, for tasks that may look at it while another one changes it.
    rkey: Atomic<u32>,
    domain: Arc<Domain>,
}

/// The right to change the key of a region. The task that has it changes the key without a lock, and is
/// the only one.
///
/// # Invariants
///
/// There is one right, at most, with the `id` of a region.
pub struct KeyRight {
    /// 0 for that of none.
    id: u64,
    steps: KeySteps,
}

/// The number of regions that were made. At one each nanosecond it would last for centuries.
static REGIONS: Atomic<u64> = Atomic::new(0);

impl KeyRight {
    /// The right to change no key.
    pub fn none() -> Self {
        // INVARIANT: No region has this number.
        Self {
            id: 0,
            steps: KeySteps::new(0),
        }
    }
}

// SAFETY: A region may be used from any thread.
unsafe impl Send for Mr {}
// SAFETY: In this crate the key in `raw` is looked at by the holder of the right to change it alone, and
// there is one at most. Drivers look at it in C, or store it, whenever they are given a registration, as
// they do for all users of `ib_update_fast_reg_key()`. Nothing else in there changes.
unsafe impl Sync for Mr {}

impl Mr {
    /// Makes a memory region that describes `mapped`, one after the other, all of the same length:
    /// a power of two. The peer can access it once it is registered, for as long as its key is
    /// valid. Its key does not change. May sleep.
    ///
    /// # Errors
    ///
    /// As for [`with_right`](Self::with_right).
    pub fn of(domain: &Arc<Domain>, mapped: &[DmaPages]) -> Result<Self> {
        let (mr, _) = Self::with_right(domain, mapped)?;

        Ok(mr)
    }

    /// The same, with the right to change its key.
    ///
    /// # Errors
    ///
    /// `EINVAL` for no pages, too many, or some of another domain or length, or mapped [to the
    /// device](DmaDirection::ToDevice) only; `EOPNOTSUPP` if the device supports no page size in which
    /// they can be described.
    pub fn with_right(domain: &Arc<Domain>, mapped: &[DmaPages]) -> Result<(Self, KeyRight)> {
        let len = mapped.first().ok_or(EINVAL)?.len();
        let bytes = u32::try_from(len)?;
        let page_size = Self::page_size(domain, mapped)?;
        let count = u32::try_from(mapped.len())?;
        let mut list: KVec<raw::scatterlist> = KVec::with_capacity(mapped.len(), GFP_KERNEL)?;
        for (i, r) in mapped.iter().enumerate() {
            // Memory of another domain may be freed before this region.
            if !Arc::ptr_eq(r.domain(), domain) || r.len() != len {
                return Err(EINVAL);
            }
            // The peer may write to it.
            if r.direction() == DmaDirection::ToDevice {
                return Err(EINVAL);
            }
            // SAFETY: All zeroes is a valid scatterlist entry.
            let mut sg: raw::scatterlist = unsafe { core::mem::zeroed() };
            sg.length = bytes;
            sg.dma_address = r.dma();
            #[cfg(CONFIG_NEED_SG_DMA_LENGTH)]
            {
                sg.dma_length = bytes;
            }
            if i + 1 == mapped.len() {
                // The marker of the last entry, `SG_END`.
                sg.page_link = raw::SG_END as usize;
            }
            list.push(sg, GFP_KERNEL)?;
        }
        let pages = bytes
            .checked_div(page_size)
            .and_then(|n| n.checked_mul(count))
            .ok_or(EINVAL)?;
        let raw = domain.alloc_mr(pages)?;
        // SAFETY: `list` has `count` entries with DMA addresses of this device, as the pages are
        // of its domain; `ib_map_mr_sg()` reads nothing else of them. The device has this page
        // size. The region was just allocated, so it is not registered.
        let iova = unsafe {
            let base = hidden::address(random_u64(), page_size);
            map_list(raw, list.as_mut_ptr(), count, page_size, Some(base))
        }?;
        // CAST: The low byte, which consumers choose.
        let byte = random_u64() as u8;
        // SAFETY: The region is valid, not registered, and not shared yet.
        unsafe { raw::rtrs_helper_ib_mr_set_key(raw.as_ptr(), byte) };
        // SAFETY: As above.
        let rkey = unsafe { raw::rtrs_helper_ib_mr_rkey(raw.as_ptr()) };
        // ORDERING: Relaxed: it is a number.
        let id = REGIONS.fetch_add(1, Relaxed).wrapping_add(1);
        // INVARIANT: The region was just allocated in the PD, and describes `iova`. No other one had the
        // number before.
        let mr = Self {
            raw,
            iova,
            id,
            rkey: Atomic::new(rkey),
            domain: domain.clone(),
        };
        // INVARIANT: This is the one right with that number.
        let right = KeyRight {
            id,
            steps: KeySteps::new(random_u64()),
        };
        Ok((mr, right))
    }

    /// Returns how many of `mapped`, which are all of the same length, one memory region can
    /// describe, whichever these are.
    pub fn most_of(domain: &Domain, mapped: &[DmaPages]) -> u32 {
        let pages = domain.most_pages();
        let len = mapped.first().map_or(0, DmaPages::len);
        Self::page_size(domain, mapped)
            .ok()
            .and_then(|size| u32::try_from(len).ok()?.checked_div(size))
            .and_then(|n| pages.checked_div(n))
            .unwrap_or(0)
    }

    /// Returns the largest page size of the device in which all of `mapped` can be described. With
    /// other sizes a driver may register more memory than there is, or refuse to.
    fn page_size(domain: &Domain, mapped: &[DmaPages]) -> Result<u32> {
        let len = mapped.first().map_or(0, DmaPages::len);
        if !len.is_power_of_two() {
            return Err(EINVAL);
        }
        // CAST: `usize` has at most 64 bits.
        let bits = mapped.iter().fold(len as u64, |bits, one| bits | one.dma());
        let sizes = domain.device().attrs().page_sizes;
        page_size::largest(sizes, bits).ok_or(crate::errno::EOPNOTSUPP)
    }

    /// The current key.
    #[inline]
    pub fn rkey(&self) -> u32 {
        self.rkey.load(Relaxed)
    }

    /// See [`Reply::change_key`](super::Reply::change_key). Returns `None` for the right to another key.
    #[inline(always)]
    pub(super) fn change_rkey(&self, right: &mut KeyRight) -> Option<u32> {
        let step = right.steps.next(random_u64);
        self.set_rkey(right, self.rkey() ^ step)
    }

    /// See [`Reply::count_key`](super::Reply::count_key). Returns `None` for the right to another key.
    #[inline(always)]
    pub(super) fn count_rkey(&self, right: &mut KeyRight) -> Option<u32> {
        self.set_rkey(right, hidden::next_key(self.rkey()))
    }

    /// Sets the key to `rkey`, of which the part that consumers choose may be another one.
    #[inline(always)]
    fn set_rkey(&self, right: &mut KeyRight, rkey: u32) -> Option<u32> {
        if right.id != self.id {
            return None;
        }
        // SAFETY: The region is valid. By the type invariants no other thread of this crate looks at its
        // key, as this one has the right, and a driver that does looks at the part that stays.
        // CAST: The part that consumers choose.
        unsafe { raw::rtrs_helper_ib_mr_set_key(self.raw.as_ptr(), rkey as u8) };
        self.rkey.store(rkey, Relaxed);
        Some(rkey)
    }

    /// The address and key with which the peer writes to the region.
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

/// Whether regions of `domain` can be described in pages of `size` bytes. With a size that a device
/// does not have, a driver may register other memory than that of the list.
pub(super) fn has_page_size(domain: &Domain, size: u32) -> bool {
    page_size::has(domain.device().attrs().page_sizes, size)
}

/// Describes the list `sgl` to the region `mr`, in pages of `page_size` bytes; returns its
/// resulting address. For a region that a peer uses, that is `base`, a multiple of `page_size` that
/// is not 0, plus the offset in the first page. Without a `base` it is the driver's choice, for a
/// region that only this side uses: rdmavt compares local addresses with its own
/// (`rvt_lkey_ok()`). Any context; for pages that are larger than the CPU's the driver may sleep,
/// and hns always may.
///
/// # Errors
///
/// `EINVAL` when the list does not fit or has gaps within pages.
///
/// # Safety
///
/// `sgl` must have `nents` entries with DMA addresses of the device of `mr`, which must have this
/// page size. `mr` must be valid, and neither registered nor about to be; the caller must be
/// allowed to change it.
#[inline(always)]
pub(super) unsafe fn map_list(
    mr: NonNull<raw::ib_mr>,
    sgl: *mut raw::scatterlist,
    nents: u32,
    page_size: u32,
    base: Option<u64>,
) -> Result<u64> {
    let n = i32::try_from(nents).map_err(|_| EINVAL)?;
    // SAFETY: By the safety requirements of this function, list and region are valid.
    let mapped =
        unsafe { raw::ib_map_mr_sg(mr.as_ptr(), sgl, n, core::ptr::null_mut(), page_size) };
    if mapped != n {
        return Err(map_error(mapped));
    }
    // The address for the peer does not reveal the DMA address. Only the offset in the first page
    // must be kept.
    let in_page = u64::from(page_size).wrapping_sub(1);
    // SAFETY: By the safety requirements of this function, the region is valid and may be changed.
    unsafe {
        let first = raw::rtrs_helper_ib_mr_iova(mr.as_ptr());
        let Some(base) = base else { return Ok(first) };
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
