// SPDX-License-Identifier: GPL-2.0

//! Addresses and keys of memory regions that a peer cannot guess from those that it knows.
//!
//! This side chooses the address that a peer uses for a region, and one byte of its key. Both are
//! random: the address is chosen when the region is made, the byte with each registration. A peer may
//! count the keys of a region: one that it is not told follows the last one, all others are random.

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

/// Random steps from each key of a region to the next one.
pub struct KeySteps {
    /// Random bytes, the next one lowest. A 0 is none.
    bytes: u64,
}

impl KeySteps {
    /// Steps that begin with the bytes of `random`.
    pub fn new(random: u64) -> Self {
        Self { bytes: random }
    }

    /// Returns the bits that change in the part of a key that consumers choose, its low byte: it becomes
    /// any of the 255 others, each as likely. `random` is called for one step in eight, and rarely once
    /// more.
    #[inline(always)]
    pub fn next(&mut self, random: impl FnMut() -> u64) -> u32 {
        // CAST: The lowest byte.
        let step = match self.bytes as u8 {
            0 => self.missing(random),
            step => step,
        };

        self.bytes >>= 8;
        u32::from(step)
    }

    /// The step in place of a byte that is 0. If all bytes are 0, there are eight new ones, and the step
    /// is the lowest, or another random one if that is 0.
    #[cold]
    #[inline(never)]
    fn missing(&mut self, mut random: impl FnMut() -> u64) -> u8 {
        if self.bytes == 0 {
            self.bytes = random();
            // CAST: The lowest byte.
            if self.bytes as u8 != 0 {
                return self.bytes as u8;
            }
        }
        // From 1 to 255. No loop that ends by chance, and a division only here.
        // CAST: At most 255. No overflow, for the same reason.
        (random() % 255) as u8 + 1
    }
}

/// Returns the key that follows `key`, which a peer that counts knows without being told: the low byte
/// is one higher, modulo 256.
#[inline(always)]
pub fn next_key(key: u32) -> u32 {
    // CAST: The lowest byte.
    key & !0xff | u32::from((key as u8).wrapping_add(1))
}
