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
        Domain,
        Region, //
    },
    mr::Mr,
    wr::Remote, //
};
use crate::{
    noio::Gfp,
    pages::Pages, //
};

/// Number of bytes that are allocated at a time: small enough for fragmented memory.
const REGION_SIZE: usize = 32 << 10;

/// Places for the data of requests, all of the same size.
pub struct Bounce {
    /// The regions have the same length, a multiple of `room`.
    regions: KVec<Region>,
    mrs: KVec<Mr>,
    /// Number of regions that each of `mrs` describes.
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
        let len = PAGE_SIZE << order;
        let per_mr = Mr::max_regions(domain, u32::try_from(len)?) as usize;
        let count = n.div_ceil(len / place).min(per_mr.saturating_mul(most));

        let node = domain.device().numa_node();
        let mut regions = KVec::with_capacity(count, GFP_KERNEL)?;
        for _ in 0..count {
            let pages = Pages::new(order, node, Gfp::NOIO)?;
            let region = domain.map(Arc::new(pages, GFP_KERNEL)?, DmaDirection::Bidirectional)?;
            regions.push(region, GFP_KERNEL)?;
        }
        let mut mrs = KVec::new();
        for regions in regions.chunks(per_mr.max(1)) {
            mrs.push(Mr::of(domain, regions)?, GFP_KERNEL)?;
        }
        Ok(Self {
            regions,
            mrs,
            per_mr,
            room,
        })
    }

    /// The memory regions that must be registered, for the peer to write to, before the first use.
    pub fn mrs(&self) -> &[Mr] {
        &self.mrs
    }

    /// Size of a place in bytes.
    pub fn room(&self) -> u32 {
        self.room
    }

    /// Number of places in a region.
    fn per_region(&self) -> usize {
        let len = self.regions.first().map_or(0, Region::len);
        len.checked_div(self.room as usize).unwrap_or(0)
    }

    /// Whether the places are mapped in `domain`.
    pub(super) fn is_of(&self, domain: &Arc<Domain>) -> bool {
        let mut regions = self.regions.iter();
        regions.all(|region| Arc::ptr_eq(region.domain(), domain))
    }

    /// Returns place `index`, if it exists.
    pub(super) fn place(&self, index: u16) -> Option<BouncePlace> {
        let index = usize::from(index);
        let per_region = self.per_region();
        let number = index.checked_div(per_region)?;
        let region = self.regions.get(number)?;
        // No overflow: inside the region.
        let offset = (index % per_region) * self.room as usize;
        let mr = self.mrs.get(number.checked_div(self.per_mr)?)?;
        let before = (number % self.per_mr).checked_mul(region.len())?;
        let at = NonNull::new(region.pages().as_ptr().wrapping_add(offset))?;
        let remote = mr.remote();
        // No overflow: inside what the region describes.
        // CAST: `usize` has at most 64 bits.
        Some(BouncePlace {
            at,
            dma: region.dma() + offset as u64,
            needs_sync: region.needs_sync(),
            remote: Remote {
                addr: remote.addr + (before + offset) as u64,
                rkey: remote.rkey,
            },
        })
    }
}
