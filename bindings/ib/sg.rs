// SPDX-License-Identifier: GPL-2.0

//! Scatter lists of callers.

use core::ptr::NonNull;
use kernel::prelude::*;

use super::domain::{
    Direction,
    Domain, //
};
use crate::{
    atomic::{
        Acquire,
        Atomic,
        Release, //
    },
    noio::Gfp,
    pages::Pages,
    raw, //
};

/// A caller's scatter list, by reference.
///
/// Copyable because the transport has to find it again when it re-issues a
/// request on another path. Whoever makes one promises how long it lives, whoever uses one that it
/// still does.
///
/// # Invariants
///
/// Either empty, or `sgl` is a valid list of at least `nents` entries until the
/// request it was made for has completed.
#[derive(Clone, Copy)]
pub struct SgList {
    sgl: *mut raw::scatterlist,
    nents: u32,
}

// SAFETY: a pointer to memory nobody else writes until the request completes,
// by the maker's promise.
unsafe impl Send for SgList {}
// SAFETY: as above; the methods that write do so through a request's owner.
unsafe impl Sync for SgList {}

impl SgList {
    /// The list without data.
    pub const EMPTY: Self = Self {
        sgl: core::ptr::null_mut(),
        nents: 0,
    };

    /// Wraps a C scatter list.
    ///
    /// # Safety
    ///
    /// Unless `nents` is 0, `sgl` must be a valid scatter list of at least
    /// `nents` entries with its pages, and stay so, not used for anything else,
    /// until the request it is given to has completed.
    pub unsafe fn from_raw(sgl: *mut core::ffi::c_void, nents: u32) -> Self {
        // INVARIANT: by the function's requirement.
        if sgl.is_null() {
            Self::EMPTY
        } else {
            Self {
                sgl: sgl.cast(),
                nents,
            }
        }
    }

    /// Entries of the list.
    pub fn nents(&self) -> u32 {
        self.nents
    }

    /// Bytes the list describes.
    ///
    /// # Safety
    ///
    /// The request that the list was made for must not have completed.
    pub unsafe fn total(&self) -> usize {
        if self.nents == 0 {
            return 0;
        }
        // SAFETY: by the type invariant.
        unsafe { raw::rtrs_helper_sg_total(self.sgl, self.nents) }
    }
}

/// A scatter list and the memory it describes, of our own.
///
/// Like [`Pages`], the memory is copied from and to, never borrowed.
///
/// # Invariants
///
/// `list` is a terminated scatter list of the segments, which lie in `pages`
/// one for one, at `offset`, `len` bytes. It belongs to whom [`lend`](Self::lend)
/// gave it while `lent` is set, and to nobody else.
pub struct SgBuffer {
    list: KVVec<raw::scatterlist>,
    segments: KVVec<Segment>,
    len: usize,
    lent: Atomic<bool>,
}

struct Segment {
    pages: Pages,
    offset: usize,
    len: usize,
}

// SAFETY: owns its memory.
unsafe impl Send for SgBuffer {}
// SAFETY: the segments are only read, their memory is copied from and to. What
// is in the list, which mapping it writes to, is left to the one who has it by
// `lend`.
unsafe impl Sync for SgBuffer {}

impl SgBuffer {
    /// Allocates a segment for each `(offset, len)`: `len` bytes, `offset` bytes
    /// into its first page. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an empty segment or one beyond the page allocator.
    pub fn new(segments: impl ExactSizeIterator<Item = (usize, usize)>) -> Result<Self> {
        let mut this = Self {
            list: KVVec::with_capacity(segments.len(), GFP_KERNEL)?,
            segments: KVVec::with_capacity(segments.len(), GFP_KERNEL)?,
            len: 0,
            lent: Atomic::new(false),
        };
        for (offset, len) in segments {
            let end = offset.checked_add(len).ok_or(EINVAL)?;
            if len == 0 || u32::try_from(end).is_err() {
                return Err(EINVAL);
            }
            let pages = Pages::new(Pages::order_of(end), -1, Gfp::KERNEL)?;
            this.len = this.len.checked_add(len).ok_or(EINVAL)?;
            // SAFETY: all zeroes is a valid entry, to be initialised below.
            this.list.push(unsafe { core::mem::zeroed() }, GFP_KERNEL)?;
            this.segments
                .push(Segment { pages, offset, len }, GFP_KERNEL)?;
        }
        // What was counted, not what the iterator announced.
        let nr = u32::try_from(this.list.len())?;
        if nr != 0 {
            // SAFETY: there are `nr` entries.
            unsafe { raw::rtrs_helper_sg_init_table(this.list.as_mut_ptr(), nr) };
        }
        for (entry, segment) in this.list.iter_mut().zip(this.segments.iter()) {
            // SAFETY: inside the segment's memory, which is lowmem.
            // CAST: checked above.
            unsafe {
                let start = segment.pages.as_ptr().add(segment.offset);
                raw::rtrs_helper_sg_set_buf(entry, start.cast(), segment.len as u32);
            }
        }
        // INVARIANT: made so above.
        Ok(this)
    }

    /// Bytes of all segments.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no segment.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Calls `f` for the parts of the segments that make up `[0, len)`, with
    /// their place in that.
    fn for_each_part(
        &self,
        len: usize,
        mut f: impl FnMut(&Pages, usize, core::ops::Range<usize>) -> Result,
    ) -> Result {
        let mut at = 0;
        for s in self.segments.iter() {
            let n = s.len.min(len - at);
            f(&s.pages, s.offset, at..at + n)?;
            at += n;
        }
        if at == len {
            Ok(())
        } else {
            Err(EINVAL)
        }
    }

    /// Copies out of the start of the buffer.
    pub fn read(&self, buf: &mut [u8]) -> Result {
        self.for_each_part(buf.len(), |pages, offset, range| {
            pages.read(offset, buf.get_mut(range).ok_or(EINVAL)?)
        })
    }

    /// Copies to the start of the buffer.
    pub fn write(&self, buf: &[u8]) -> Result {
        self.for_each_part(buf.len(), |pages, offset, range| {
            pages.write(offset, buf.get(range).ok_or(EINVAL)?)
        })
    }

    /// The list, for one request at a time. Any context.
    ///
    /// # Errors
    ///
    /// `EBUSY` while another one has it.
    ///
    /// # Safety
    ///
    /// `self` must stay, and [`give_back`](Self::give_back) must not be called,
    /// until nothing uses the result any more.
    pub(crate) unsafe fn lend(&self) -> Result<SgList> {
        // What was done with the list before is done: pairs with `give_back`.
        self.lent.cmpxchg(false, true, Acquire).map_err(|_| EBUSY)?;
        // INVARIANT: a valid list, which is the caller's alone as it was not
        // lent, and will not be before it is given back. It stays by the
        // function's requirement.
        Ok(SgList {
            sgl: self.list.as_ptr().cast_mut(),
            // CAST: was checked in `new()`.
            nents: self.list.len() as u32,
        })
    }

    /// The list can be lent again. Any context.
    ///
    /// # Safety
    ///
    /// The caller must have it by [`lend`](Self::lend), and nothing use it any
    /// more.
    pub(crate) unsafe fn give_back(&self) {
        // INVARIANT: by the function's requirement nobody has it.
        self.lent.store(false, Release);
    }
}

/// A scatter list mapped for a device.
///
/// Must be given back with [`MappedSg::unmap`]. Dropping it instead leaks the
/// mapping, which is reported: unmapping needs a device that is still there.
///
/// # Invariants
///
/// `sgl` is mapped for the device of `domain` with these arguments, into `mapped` entries, and both
/// are there.
#[must_use]
pub struct MappedSg {
    sgl: NonNull<raw::scatterlist>,
    nents: u32,
    mapped: u32,
    dir: Direction,
    domain: *const Domain,
}

// SAFETY: describes a mapping, which any thread may use or undo.
unsafe impl Send for MappedSg {}

impl MappedSg {
    /// Whether it is mapped for `domain`.
    pub(super) fn is_for(&self, domain: &Domain) -> bool {
        core::ptr::eq(self.domain, domain)
    }

    /// Maps `list` for the device of `domain`. Any context.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an empty list, `ENOMEM` when it cannot be mapped.
    ///
    /// # Safety
    ///
    /// The request that the list was made for must not have completed, and the list not be mapped
    /// now. The result has to be [unmapped](Self::unmap) before the request completes, and before
    /// the domain goes.
    pub unsafe fn map(domain: &Domain, list: SgList, dir: Direction) -> Result<Self> {
        let sgl = NonNull::new(list.sgl).ok_or(EINVAL)?;
        if list.nents == 0 || list.nents > i32::MAX as u32 {
            return Err(EINVAL);
        }
        let dev = domain.device().as_raw();
        // SAFETY: the device is valid, and the list by the invariant of `SgList` and the function's
        // requirement.
        // CAST: checked above to fit.
        let mapped = unsafe {
            raw::rtrs_helper_ib_dma_map_sg(dev, sgl.as_ptr(), list.nents as i32, dir.as_raw())
        };
        if mapped <= 0 {
            return Err(ENOMEM);
        }
        // INVARIANT: mapped just now.
        Ok(Self {
            sgl,
            nents: list.nents,
            // CAST: positive.
            mapped: mapped as u32,
            dir,
            domain,
        })
    }

    /// Undoes the mapping. Any context.
    ///
    /// # Safety
    ///
    /// No work request that names the memory may be outstanding, or be posted after this: a
    /// device that is not done writes to what is somebody else's by then.
    pub unsafe fn unmap(self) {
        // SAFETY: by the type invariant, which the requirement of `map()` upholds.
        // CAST: was checked to fit when it was mapped.
        unsafe {
            raw::rtrs_helper_ib_dma_unmap_sg(
                (*self.domain).device().as_raw(),
                self.sgl.as_ptr(),
                self.nents as i32,
                self.dir.as_raw(),
            );
        }
        core::mem::forget(self);
    }

    /// DMA segments the list was mapped into.
    pub fn segments(&self) -> u32 {
        self.mapped
    }

    /// Fills the start of `room` with the segments, for local access in `domain`; returns how many
    /// there are. `EINVAL` if they do not fit, or it was mapped for another domain.
    pub(super) fn fill(&self, domain: &Domain, room: &mut [raw::ib_sge]) -> Result<usize> {
        if !self.is_for(domain) {
            return Err(EINVAL);
        }
        let max = u32::try_from(room.len()).unwrap_or(u32::MAX);
        // SAFETY: the list is mapped, and `room` has room for `max` elements.
        // CAST: `mapped` came from an `int`.
        let found = unsafe {
            raw::rtrs_helper_ib_sg_dma_list(
                self.sgl.as_ptr(),
                self.mapped as i32,
                room.as_mut_ptr(),
                max,
                domain.lkey(),
            )
        };
        if found > max {
            return Err(EINVAL);
        }
        // CAST: `usize` has at least 32 bits.
        Ok(found as usize)
    }

    pub(super) fn as_raw(&self) -> *mut raw::scatterlist {
        self.sgl.as_ptr()
    }
}

impl Drop for MappedSg {
    fn drop(&mut self) {
        kernel::pr_warn_once!("a mapped scatter list was dropped: mapping leaked\n");
    }
}
