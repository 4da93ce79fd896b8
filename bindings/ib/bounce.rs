// SPDX-License-Identifier: GPL-2.0

//! Bounce buffers: memory of ours that small data goes through.
//!
//! To map a page for a device, to register it, and to take both back, costs more than to copy it.
//! [`Bounce`] has a place for each of a number of requests, mapped and registered for good. The
//! peer may write to it at any time, so that it is only copied from and to.
//!
//! # Context
//!
//! Creating may sleep.

use core::ptr::NonNull;
use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    domain::{
        Direction,
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

/// Bytes that are allocated at a time: what is to be had on a fragmented machine.
const REGION_SIZE: usize = 32 << 10;

/// Places for the data of requests, all of the same size.
pub struct Bounce {
    /// All of the same length, a multiple of `room`.
    regions: KVec<Region>,
    mrs: KVec<Mr>,
    /// Regions that one of `mrs` describes.
    per_mr: usize,
    room: u32,
}

/// One place.
pub(super) struct BouncePlace {
    /// In pages of which nobody has a reference.
    pub(super) at: NonNull<u8>,
    pub(super) dma: u64,
    /// What the peer has to name.
    pub(super) remote: Remote,
}

impl Bounce {
    /// Places of `room` bytes, a power of two, for up to `n` requests: fewer if more than `most`
    /// memory regions were needed. May sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` for another size, `ENOMEM`, or what the driver says.
    pub fn new(domain: &Arc<Domain>, n: u16, room: u32, most: usize) -> Result<Self> {
        if !room.is_power_of_two() {
            return Err(EINVAL);
        }
        // CAST: `usize` has at least 32 bits.
        let size = REGION_SIZE.max(room as usize);
        let size = size.min((room as usize).saturating_mul(usize::from(n).next_power_of_two()));
        let order = Pages::order_of(size);
        let mut this = Self {
            regions: KVec::new(),
            mrs: KVec::new(),
            per_mr: 0,
            room,
        };
        let node = domain.device().numa_node();
        while this.places() < usize::from(n) {
            let pages = Pages::new(order, node, Gfp::NOIO)?;
            if this.per_mr == 0 {
                // CAST: as above.
                let len = u32::try_from(pages.len())?;
                this.per_mr = Mr::max_regions(domain, len) as usize;
            }
            let full = this.per_mr.saturating_mul(most);
            if this.regions.len() >= full {
                break;
            }
            let region = domain.map(Arc::new(pages, GFP_KERNEL)?, Direction::Bidirectional)?;
            this.regions.push(region, GFP_KERNEL)?;
        }
        if let Some(per_mr) = core::num::NonZeroUsize::new(this.per_mr) {
            for regions in this.regions.chunks(per_mr.get()) {
                this.mrs.push(Mr::of(domain, regions)?, GFP_KERNEL)?;
            }
        }
        Ok(this)
    }

    /// What has to be registered, for the peer to write to, before the first use.
    pub fn mrs(&self) -> &[Mr] {
        &self.mrs
    }

    /// Bytes of a place.
    pub fn room(&self) -> u32 {
        self.room
    }

    /// Places of a region.
    fn per_region(&self) -> usize {
        let len = self.regions.first().map_or(0, Region::len);
        len.checked_div(self.room as usize).unwrap_or(0)
    }

    fn places(&self) -> usize {
        self.regions.len().saturating_mul(self.per_region())
    }

    /// Whether the places are mapped in `domain`.
    pub(super) fn is_of(&self, domain: &Arc<Domain>) -> bool {
        let mut regions = self.regions.iter();
        regions.all(|region| Arc::ptr_eq(region.domain(), domain))
    }

    /// Place `index`, if there are so many.
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
        // CAST: `usize` has at most 64 bits.
        Some(BouncePlace {
            at,
            dma: region.dma() + offset as u64,
            remote: Remote {
                addr: remote.addr + (before + offset) as u64,
                rkey: remote.rkey,
            },
        })
    }
}
