// SPDX-License-Identifier: GPL-2.0

//! Addresses and keys of memory regions that a peer cannot guess from those that it knows.
//!
//! This side chooses the address that a peer uses for a region, and one byte of its key: both are
//! random, and so is the step from each key to the next, which is chosen with them when the region is
//! made. So the keys of one region say nothing of those of others. Those of its own a peer can tell from
//! the first two of them, and one that counts is not even told all: a key is of use only while it is valid.

/// The highest bit of an address. Addresses are as long as DMA addresses, which every driver
/// accepts, so that no region reaches the end of the 64 bits. The bit is set so that no address is
/// 0, which some code takes for none.
const TOP: u64 = 1 << 51;

/// Makes an address from `random`, for a region that is described in pages of `page_size` bytes, a
/// power of two.
pub fn address(random: u64, page_size: u32) -> u64 {
    let in_page = u64::from(page_size.saturating_sub(1));

    (TOP | random & (TOP - 1)) & !in_page
}

/// The byte of a key that consumers choose.
const BYTE: u32 = 0xff;

/// The step from one key of a region to the next, which is the same for all of them. It is odd, so that a
/// key does not come again before 255 others, and not the one of a peer that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyStep(u8);

impl KeyStep {
    /// Makes a step from `random`.
    pub fn new(random: u64) -> Self {
        // CAST: Less than 126, so that the step is 3 to 253.
        Self(3 + 2 * (random % 126) as u8)
    }

    /// The key after `rkey`.
    #[inline(always)]
    pub fn after(self, rkey: u32) -> u32 {
        step(rkey, self.0)
    }
}

/// The key that follows `rkey`, which a peer that counts knows without being told.
#[inline(always)]
pub fn counted(rkey: u32) -> u32 {
    step(rkey, 1)
}

#[inline(always)]
fn step(rkey: u32, by: u8) -> u32 {
    // CAST: The lowest byte.
    rkey & !BYTE | u32::from((rkey as u8).wrapping_add(by))
}
