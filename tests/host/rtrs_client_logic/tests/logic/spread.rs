// SPDX-License-Identifier: GPL-2.0

//! Which connection the request of a permit uses.

use proptest::prelude::*;
use rtrs_client_logic::logic::spread::Spread;

proptest! {
    // No connection has more permits than the server was told, whatever CPUs take them.
    #[test]
    fn no_more_than_the_most(io in 1u16..80, depth in 1u16..3000, cpus in 1u32..200) {
        let spread = Spread::new(io, depth);
        let mut of_con = vec![0u32; usize::from(io)];
        for id in 0..depth {
            let mut seen = vec![false; usize::from(io)];
            for cpu in 0..cpus {
                let con = spread.con(spread.own(id), id, cpu);
                prop_assert!((1..=io).contains(&con));
                let seen = &mut seen[usize::from(con) - 1];
                of_con[usize::from(con) - 1] += u32::from(!*seen);
                *seen = true;
            }
        }
        prop_assert!(of_con.iter().all(|&all| all <= spread.most()));
    }

    // A CPU uses its own connection for the permits of its word.
    #[test]
    fn own_connection(
        (io, cpu) in (1u16..80).prop_flat_map(|io| (Just(io), 0..u32::from(io))),
        words in 1u16..40,
        bit in 0..usize::BITS,
    ) {
        let spread = Spread::new(io, words * usize::BITS as u16);
        let id = (cpu as u16 % words) * usize::BITS as u16 + bit as u16;
        prop_assert_eq!(u32::from(spread.con(spread.own(id), id, cpu)), cpu + 1);
    }
}
