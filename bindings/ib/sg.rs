// SPDX-License-Identifier: GPL-2.0

//! Scatter lists for users that are written in Rust.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use crate::{
    atomic::{
        Acquire,
        Atomic,
        Release, //
    },
    pages::Pages,
    raw, //
};

/// A scatter list and the memory that it describes.
///
/// As with [`Pages`], the memory is copied from and to, never borrowed.
///
/// # Invariants
///
/// `list` is a terminated scatter list of the segments, each of which is `len` bytes at `offset` of
/// its `pages`. While `lent` is set, the list belongs to the caller that [`lend`](Self::lend) gave
/// it to, and to no other code.
pub struct SgBuffer {
    list: KVVec<raw::scatterlist>,
    segments: KVVec<Segment>,
    len: usize,
    lent: Atomic<bool>,
}

struct Segment {
    pages: Arc<Pages>,
    offset: usize,
    len: usize,
}

// SAFETY: The buffer owns its memory.
unsafe impl Send for SgBuffer {}
// SAFETY: The segments are only read, their memory is copied from and to. The list, which mapping
// it writes to, is only used by the caller that got it from `lend`.
unsafe impl Sync for SgBuffer {}

impl SgBuffer {
    /// Allocates a segment for each `(offset, len)`: `len` bytes, `offset` bytes
    /// into its first page. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an empty segment, or one too large for the page allocator.
    pub fn new(segments: impl ExactSizeIterator<Item = (usize, usize)>) -> Result<Self> {
        let mut lent = KVVec::with_capacity(segments.len(), GFP_KERNEL)?;
        for (offset, len) in segments {
            let end = offset.checked_add(len).ok_or(EINVAL)?;
            let pages = Pages::new(Pages::order_of(end), -1)?;
            lent.push((Arc::new(pages, GFP_KERNEL)?, offset, len), GFP_KERNEL)?;
        }
        Self::of_pages(lent.into_iter())
    }

    /// Uses pages of the caller, without copying, as segments: `len` bytes at `offset` for each
    /// `(pages, offset, len)`. The pages stay as long as this buffer, and so for as long as a
    /// request uses it. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an empty segment or one beyond its pages.
    pub fn of_pages(segments: impl Iterator<Item = (Arc<Pages>, usize, usize)>) -> Result<Self> {
        let mut this = Self {
            list: KVVec::new(),
            segments: KVVec::new(),
            len: 0,
            lent: Atomic::new(false),
        };
        for (pages, offset, len) in segments {
            let end = offset.checked_add(len).ok_or(EINVAL)?;
            if len == 0 || end > pages.len() || u32::try_from(len).is_err() {
                return Err(EINVAL);
            }
            this.len = this.len.checked_add(len).ok_or(EINVAL)?;
            // SAFETY: All zeroes is a valid entry. It is initialised below.
            this.list.push(unsafe { core::mem::zeroed() }, GFP_KERNEL)?;
            this.segments
                .push(Segment { pages, offset, len }, GFP_KERNEL)?;
        }
        // The real number of segments, not the number that the iterator announced.
        let nr = u32::try_from(this.list.len())?;
        if nr != 0 {
            // SAFETY: The list has `nr` entries.
            unsafe { raw::rtrs_helper_sg_init_table(this.list.as_mut_ptr(), nr) };
        }
        for (entry, segment) in this.list.iter_mut().zip(this.segments.iter()) {
            // SAFETY: The range is inside the segment's memory, which is lowmem.
            // CAST: Checked above.
            unsafe {
                let start = segment.pages.as_ptr().add(segment.offset);
                raw::rtrs_helper_sg_set_buf(entry, start.cast(), segment.len as u32);
            }
        }
        // INVARIANT: The list was made of the segments above, and is not lent.
        Ok(this)
    }

    /// Number of bytes of all segments.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no segment.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Calls `f` for the parts of the segments that make up `[0, len)`, with their range in it.
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

    /// Lends the list, to one request at a time. Any context.
    ///
    /// # Errors
    ///
    /// `EBUSY` while another request has it.
    ///
    /// # Safety
    ///
    /// `self` must stay valid, and [`give_back`](Self::give_back) must not be called, until nothing
    /// uses the result any more.
    pub(crate) unsafe fn lend(&self) -> Result<(*mut raw::scatterlist, u32)> {
        // Acquire pairs with `give_back`: all earlier accesses to the list are visible.
        self.lent.cmpxchg(false, true, Acquire).map_err(|_| EBUSY)?;
        // CAST: Checked in `of_pages()`.
        Ok((self.list.as_ptr().cast_mut(), self.list.len() as u32))
    }

    /// Gives the list back, so that it can be lent again. Any context.
    ///
    /// # Safety
    ///
    /// The caller must have the list from [`lend`](Self::lend), and nothing may use it any more.
    pub(crate) unsafe fn give_back(&self) {
        // INVARIANT: By the safety requirements of this function, nothing uses the list any more.
        self.lent.store(false, Release);
    }
}
