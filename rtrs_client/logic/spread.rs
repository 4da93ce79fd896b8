// SPDX-License-Identifier: GPL-2.0

//! Which connection the request of a permit uses.
//!
//! Each CPU has a connection and a word of permits, and takes permits of that word first. If there
//! are more CPUs than words, several CPUs share a word. When a word has no permit left, its CPUs take
//! permits of other words, and the requests of those permits use the connections of these other
//! words. A connection therefore never has more requests in flight than it has permits, whichever
//! CPU submits them, and the server needs no more receives than that.

/// Number of bits that a permit's number has in its word.
const SHIFT: u32 = usize::BITS.trailing_zeros();

/// The connections of the CPUs, and the words of permits. Connection 0 is none of them.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// Number of connections.
    io: u16,
    /// Number of words.
    words: u16,
}

impl Spread {
    /// For `depth` permits, of which each word has as many as it has bits, and `io` connections.
    pub fn new(io: u16, depth: u16) -> Self {
        Self {
            io: io.max(1),
            // CAST: No more than the depth.
            words: u32::from(depth).div_ceil(usize::BITS).max(1) as u16,
        }
    }

    /// The connection of permit `id` if it was taken on the CPU that has the number of its word; 0 if
    /// there is no such CPU, or it has no connection of its own.
    pub fn own(self, id: u16) -> u16 {
        let word = id >> SHIFT;

        match word < self.io {
            // No overflow: see above.
            true => word.wrapping_add(1),
            false => 0,
        }
    }

    /// The connection of permit `id` that was taken on `cpu`; [`own`](Self::own) is that of its own CPU.
    #[inline(always)]
    pub fn con(self, own: u16, id: u16, cpu: u32) -> u16 {
        match u32::from(own) == cpu.wrapping_add(1) {
            true => own,
            false => self.con_of_other(id, cpu),
        }
    }

    /// The same on a CPU that does not have the number of the word.
    #[cold]
    #[inline(never)]
    fn con_of_other(self, id: u16, cpu: u32) -> u16 {
        let (word, io) = (u32::from(id >> SHIFT), u32::from(self.io));
        let is_home = cpu.checked_rem(self.words.into()) == Some(word);
        let nth = match cpu < io && is_home {
            true => cpu,
            false => word.checked_rem(io).unwrap_or(0),
        };
        // CAST: Less than a `u16`.
        nth as u16 + 1
    }

    /// The most permits that any of the connections has.
    pub fn most(self) -> u32 {
        let words = u32::from(self.words.div_ceil(self.io));

        // A connection that has no number of a word has the permits of its CPU's word.
        words << SHIFT
    }
}
