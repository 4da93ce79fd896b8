// SPDX-License-Identifier: GPL-2.0

//! Receives of a connection.

use proptest::prelude::*;
use rtrs_core::proto::MostSent;
use rtrs_server_logic::logic::receives::counted_on;

proptest! {
    // A client that spreads its requests gets as many receives as it has requests, and all connections
    // together do not get many more.
    #[test]
    fn enough_and_not_too_many(depth: u16, io in 1u16..=4095) {
        const WORD: u32 = 64;
        let depth = depth.max(1);
        let words = u32::from(depth).div_ceil(WORD);
        let needed = (words.div_ceil(io.into()) * WORD).min(depth.into());
        let got = counted_on(depth, io, MostSent::of(needed));
        prop_assert!(got >= needed);
        // Whatever it asks for.
        let all = counted_on(depth, io, MostSent::of(u32::MAX)) * u32::from(io);
        prop_assert!(all < u32::from(depth) + WORD * u32::from(io));
    }
}
