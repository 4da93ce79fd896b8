// SPDX-License-Identifier: GPL-2.0

//! Bounce buffers: local memory that small data is copied through.
//!
//! Mapping a page for a device, registering it, and undoing both, costs more than copying it.
//! [`Bounce`] has a place for each of a number of requests, which is permanently mapped and
//! registered. The peer may write to it at any time, so it is only copied from and to.
//!
//! # Context
//!
//! Creating may sleep.

use core::ptr::NonNull;
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};

use super::{
    domain::{
        DmaDirection,
        DmaPages,
        Domain, //
    },
    mr::Mr,
    wr::Remote, //
};
use crate::pages::Pages;

/// Number of bytes that are allocated at a time: small enough for fragmented memory.
const REGION_SIZE: usize = 32 << 10;

/// Places for the data of requests, all of the same size. Dropping it may sleep.
pub struct Bounce {
    /// They have the same length, a multiple of `room`.
    mapped: KVec<DmaPages>,
    mrs: KVec<Mr>,
    /// How many of `mapped` each of `mrs` describes.
    per_mr: usize,
    room: u32,
}

/// One place.
pub(super) struct BouncePlace {
    /// The place, in pages to which there are no Rust references.
    pub(super) at: NonNull<u8>,
    pub(super) dma: u64,
    pub(super) needs_sync: bool,
    /// The address and key for the peer.
    pub(super) remote: Remote,
}

impl Bounce {
    /// Makes places of `room` bytes, a power of two, for up to `n` requests; fewer if that would
    /// need more than `most` memory regions. May sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` for another size, `ENOMEM`, or an error of the driver.
    pub fn new(domain: &Arc<Domain>, n: u16, room: u32, most: usize) -> Result<Self> {
        if !room.is_power_of_two() {
            return Err(EINVAL);
        }
        let n = usize::from(n);
        // CAST: `usize` has at least 32 bits.
        let place = room as usize;
        let order = Pages::order_of(REGION_SIZE.min(place.saturating_mul(n)).max(place));
        let len = PAGE_SIZE.checked_shl(order).ok_or(EINVAL)?;
        let per_mapped = len.checked_div(place).filter(|&n| n != 0).ok_or(EINVAL)?;
        let count = n.div_ceil(per_mapped);

        let node = domain.device().numa_node();
        let mut mapped = KVec::with_capacity(count, GFP_KERNEL)?;
        for _ in 0..count {
            let pages = Pages::new(order, node)?;
            let dma_pages =
                domain.map(Arc::new(pages, GFP_KERNEL)?, DmaDirection::Bidirectional)?;
            mapped.push(dma_pages, GFP_KERNEL)?;
        }
        // How many a region describes depends on where they are.
        // CAST: `usize` has at least 32 bits.
        let per_mr = Mr::most_of(domain, &mapped) as usize;
        mapped.truncate(per_mr.saturating_mul(most));
        let mut mrs = KVec::new();
        for mapped in mapped.chunks(per_mr.max(1)) {
            mrs.push(Mr::of(domain, mapped)?, GFP_KERNEL)?;
        }
        Ok(Self {
            mapped,
            mrs,
            per_mr,
            room,
        })
    }

    /// The memory regions of the places.
    pub(super) fn mrs(&self) -> &[Mr] {
        &self.mrs
    }

    /// Size of a place in bytes.
    pub(super) fn room(&self) -> u32 {
        self.room
    }

    /// Number of places in each of `mapped`.
    fn per_mapped(&self) -> usize {
        let len = self.mapped.first().map_or(0, DmaPages::len);
        len.checked_div(self.room as usize).unwrap_or(0)
    }

    /// Whether the places are mapped in `domain`.
    pub(super) fn is_of(&self, domain: &Arc<Domain>) -> bool {
        let mut mapped = self.mapped.iter();
        mapped.all(|dma_pages| Arc::ptr_eq(dma_pages.domain(), domain))
    }

    /// Returns place `index`, if it exists.
    pub(super) fn place(&self, index: u16) -> Option<BouncePlace> {
        let index = usize::from(index);
        let per_mapped = self.per_mapped();
        let number = index.checked_div(per_mapped)?;
        let dma_pages = self.mapped.get(number)?;
        // No overflow: inside the pages.
        let offset = (index % per_mapped) * self.room as usize;
        let mr = self.mrs.get(number.checked_div(self.per_mr)?)?;
        let before = (number % self.per_mr).checked_mul(dma_pages.len())?;
        let at = NonNull::new(dma_pages.pages().as_ptr().wrapping_add(offset))?;
        let remote = mr.remote();
        // No overflow: inside what the region describes.
        // CAST: `usize` has at most 64 bits.
        Some(BouncePlace {
            at,
            dma: dma_pages.dma() + offset as u64,
            needs_sync: dma_pages.needs_sync(),
            remote: Remote {
                addr: remote.addr + (before + offset) as u64,
                rkey: remote.rkey,
            },
        })
    }
}
