// SPDX-License-Identifier: GPL-2.0

//! Receives that wait to be posted again.

use crate::cases::withheld::{complete, withheld};

/// In any order each receive is posted once, and no more wait than are allowed.
#[test]
fn none_is_lost() {
    for (count, allowed) in [(5, 1), (7, 3), (64, 15), (64, 16), (13, 0)] {
        let withheld = withheld(allowed);
        let (mut outstanding, mut seed) = ((0..count).collect::<Vec<u32>>(), 1u32);
        for round in 0..5000 {
            // In order for a while, then not.
            seed = seed.wrapping_mul(1_103_515_245).wrapping_add(12345);
            let at = match round / 500 % 2 {
                0 => 0,
                _ => (seed >> 16) as usize % outstanding.len(),
            };
            let token = outstanding.remove(at);
            if let Some((first, last)) = complete(&withheld, token) {
                assert!(first <= last && last < count);
                assert!(last - first < withheld.batch());
                for token in first..=last {
                    assert!(!outstanding.contains(&token), "{token} posted twice");
                    outstanding.push(token);
                }
            }
            assert!(count as usize - outstanding.len() < withheld.batch() as usize);
            if outstanding.is_empty() {
                break;
            }
        }
    }
}
