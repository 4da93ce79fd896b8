// SPDX-License-Identifier: GPL-2.0

//! The source of a client, for which its resources are counted.
//!
//! A host can have as many addresses as it likes, but it cannot choose its network freely. So
//! addresses of one prefix count as one source.

use core::num::NonZeroU32;

use rtrs_core::addr::Addr;

/// The number of address bits that make a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefixes {
    /// Of IPv4, at most 32.
    pub v4: u32,
    /// Of IPv6, at most 128. All bits of a link-local address count, as its prefix says nothing.
    pub v6: u32,
}

/// A source: the unit that quotas per source count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    family: u8,
    prefix: u128,
}

impl Source {
    /// Returns the source of a client at `addr`. All clients without an address are one source.
    ///
    /// A GID of InfiniBand counts as a whole: its prefix is that of the subnet.
    pub fn new(addr: Option<Addr>, prefixes: Prefixes) -> Self {
        let (family, prefix) = match addr {
            None => (0, 0),
            Some(Addr::V4(ip)) => (
                4,
                u128::from(u32::from_be_bytes(ip)) & leading(prefixes.v4, 32),
            ),
            Some(Addr::V6 { ip, .. }) => {
                let ip = u128::from_be_bytes(ip);
                (6, ip & leading(v6_bits(ip, prefixes), 128))
            }
            Some(Addr::Gid(gid)) => (1, u128::from_be_bytes(gid)),
        };
        Self { family, prefix }
    }

    /// Returns a number below `range`, always the same for the same source and `seed`.
    pub fn place(self, seed: u32, range: NonZeroU32) -> usize {
        // FNV-1a, and a last step that moves differences to the upper bits.
        let start = 0xcbf2_9ce4_8422_2325 ^ u64::from(seed);
        let bytes = self.prefix.to_be_bytes();
        let all = bytes.iter().chain(core::iter::once(&self.family));
        let hash = all.fold(start, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let hash = (hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);

        // CAST: The upper half of the hash; then a value less than `range`.
        ((u64::from((hash >> 32) as u32) * u64::from(range.get())) >> 32) as usize
    }
}

fn v6_bits(ip: u128, prefixes: Prefixes) -> u32 {
    const LINK_LOCAL: u128 = 0xfe80 << 112;

    if ip & leading(10, 128) == LINK_LOCAL {
        128
    } else {
        prefixes.v6
    }
}

/// A mask for the first `bits` of an address of `size` bits.
fn leading(bits: u32, size: u32) -> u128 {
    let rest = size.saturating_sub(bits);

    u128::MAX.checked_shl(rest).unwrap_or(0)
}
