// SPDX-License-Identifier: GPL-2.0

//! Contents that follow from a seed, so that both sides know every byte.

/// An endless sequence of bytes.
#[derive(Clone, Copy)]
pub(crate) struct Pattern(u64);

/// Number of bytes that are made at a time.
const WORD: usize = size_of::<u64>();

impl Pattern {
    /// The data of the request with this seed.
    pub(crate) const fn of_data(seed: u64) -> Self {
        Self(seed)
    }

    /// The user message of the request with this seed.
    pub(crate) const fn of_message(seed: u64) -> Self {
        Self(seed ^ 0x6d65_7373_6167_6521)
    }

    /// Eight bytes. A change of any bit of seed or place changes half of them (splitmix64).
    fn word(self, index: usize) -> [u8; WORD] {
        // CAST: Widening.
        let place = (index as u64).wrapping_add(1);
        let mut z = self
            .0
            .wrapping_add(place.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)).to_le_bytes()
    }

    /// Fills `buf` with the bytes from `start`, which is a multiple of 8.
    pub(crate) fn fill(self, start: usize, buf: &mut [u8]) {
        for (i, to) in buf.chunks_mut(WORD).enumerate() {
            let word = self.word(start / WORD + i);
            to.iter_mut().zip(word).for_each(|(to, from)| *to = from);
        }
    }

    /// The first position where `buf` differs from the bytes from `start`, which is a multiple of
    /// 8.
    pub(crate) fn mismatch(self, start: usize, buf: &[u8]) -> Option<usize> {
        for (i, got) in buf.chunks(WORD).enumerate() {
            let word = self.word(start / WORD + i);
            if let Some(at) = got.iter().zip(word).position(|(got, want)| *got != want) {
                return Some(start + i * WORD + at);
            }
        }
        None
    }
}
