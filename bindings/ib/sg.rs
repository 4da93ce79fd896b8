// SPDX-License-Identifier: GPL-2.0

//! Scatter lists of users in Rust.

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
    noio::Gfp,
    pages::Pages,
    raw, //
};

/// A scatter list and the memory it describes.
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
    pages: Arc<Pages>,
    offset: usize,
    len: usize,
}

// SAFETY: Owns its memory.
unsafe impl Send for SgBuffer {}
// SAFETY: The segments are only read, their memory is copied from and to. What
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
        let mut lent = KVVec::with_capacity(segments.len(), GFP_KERNEL)?;
        for (offset, len) in segments {
            let end = offset.checked_add(len).ok_or(EINVAL)?;
            let pages = Pages::new(Pages::order_of(end), -1, Gfp::KERNEL)?;
            lent.push((Arc::new(pages, GFP_KERNEL)?, offset, len), GFP_KERNEL)?;
        }
        Self::of_pages(lent.into_iter())
    }

    /// Segments in pages of the caller's, nothing of which is copied: `len` bytes at `offset` for
    /// each `(pages, offset, len)`. They stay as long as this, and so for as long as a request uses
    /// it. Sleeps.
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
            // SAFETY: All zeroes is a valid entry, to be initialised below.
            this.list.push(unsafe { core::mem::zeroed() }, GFP_KERNEL)?;
            this.segments
                .push(Segment { pages, offset, len }, GFP_KERNEL)?;
        }
        // What was counted, not what the iterator announced.
        let nr = u32::try_from(this.list.len())?;
        if nr != 0 {
            // SAFETY: There are `nr` entries.
            unsafe { raw::rtrs_helper_sg_init_table(this.list.as_mut_ptr(), nr) };
        }
        for (entry, segment) in this.list.iter_mut().zip(this.segments.iter()) {
            // SAFETY: Inside the segment's memory, which is lowmem.
            // CAST: Checked above.
            unsafe {
                let start = segment.pages.as_ptr().add(segment.offset);
                raw::rtrs_helper_sg_set_buf(entry, start.cast(), segment.len as u32);
            }
        }
        // INVARIANT: Made so above.
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
    pub(crate) unsafe fn lend(&self) -> Result<(*mut raw::scatterlist, u32)> {
        // What was done with the list before is done: pairs with `give_back`.
        self.lent.cmpxchg(false, true, Acquire).map_err(|_| EBUSY)?;
        // CAST: Was checked in `new()`.
        Ok((self.list.as_ptr().cast_mut(), self.list.len() as u32))
    }

    /// The list can be lent again. Any context.
    ///
    /// # Safety
    ///
    /// The caller must have it by [`lend`](Self::lend), and nothing use it any
    /// more.
    pub(crate) unsafe fn give_back(&self) {
        // INVARIANT: By the function's requirement nobody has it.
        self.lent.store(false, Release);
    }
}
