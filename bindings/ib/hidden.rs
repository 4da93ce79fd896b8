// SPDX-License-Identifier: GPL-2.0

//! Addresses and keys of memory regions that a peer cannot guess from those that it was told.
//!
//! The address by which a peer knows a region is ours to choose, as is a byte of its key. Both are
//! random: the address when the region is made, the byte with each registration.

/// The highest bit of an address. It is as long as a DMA address may be, which every driver takes,
/// so that no region reaches the end of the 64 bits; and it is set, so that no address is 0, which
/// for some means none.
const TOP: u64 = 1 << 51;

/// An address that follows from `random` alone, for a region that is described in pages of
/// `page_size` bytes, a power of two.
pub fn address(random: u64, page_size: u32) -> u64 {
    let in_page = u64::from(page_size.saturating_sub(1));

    (TOP | random & (TOP - 1)) & !in_page
}

/// The part of a key that consumers choose.
pub struct KeyByte {
    key: u8,
    /// Random bytes, below a bit that says where they end.
    stock: u64,
}

/// No byte is left.
const EMPTY: u64 = 1;

impl KeyByte {
    /// One that follows from `random`.
    pub fn new(random: u64) -> Self {
        let mut this = Self {
            key: 0,
            stock: EMPTY,
        };

        this.key = this.byte(|| random);
        this
    }

    /// The current one.
    pub fn get(&self) -> u8 {
        self.key
    }

    /// Makes it another one than it was. `random` is called for one in seven.
    #[inline]
    pub fn change(&mut self, random: impl FnOnce() -> u64) -> u8 {
        // No step is none: 1 takes its part as well.
        let step = self.byte(random).max(1);

        self.key = self.key.wrapping_add(step);
        self.key
    }

    #[inline]
    fn byte(&mut self, random: impl FnOnce() -> u64) -> u8 {
        if self.stock <= EMPTY {
            // Seven bytes.
            self.stock = random() >> 8 | EMPTY << 56;
        }
        // CAST: The lowest of them.
        let byte = self.stock as u8;
        self.stock >>= 8;
        byte
    }
}
