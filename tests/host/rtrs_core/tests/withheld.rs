// SPDX-License-Identifier: GPL-2.0

//! Receives that wait to be posted again.

#![cfg(not(loom))]

use rtrs_core::withheld::Withheld;

/// Like the queue does it.
fn complete(withheld: &Withheld, token: u32) -> Option<(u32, u32)> {
    match withheld.join(token) {
        true => None,
        false => withheld.add(token),
    }
}

fn withheld(receives: u32) -> Withheld {
    let withheld = Withheld::new();
    withheld.allow(receives, 16);
    withheld
}

#[test]
fn each_at_once_unless_allowed() {
    let withheld = Withheld::new();
    for token in [0, 1, 2, 7, 7, 3, 0] {
        assert_eq!(complete(&withheld, token), Some((token, token)));
    }
}

#[test]
fn no_more_than_a_batch() {
    assert_eq!(withheld(0).batch(), 1);
    assert_eq!(withheld(14).batch(), 15);
    assert_eq!(withheld(15).batch(), 16);
    assert_eq!(withheld(u32::MAX).batch(), 16);
    let none = Withheld::new();
    none.allow(5, 0);
    assert_eq!(none.batch(), 1);
}

#[test]
fn neighbours_go_together() {
    let withheld = withheld(3);
    let posted: Vec<_> = (0..12).map(|token| complete(&withheld, token)).collect();
    for (token, posted) in (0..12).zip(posted) {
        let expected = (token % 4 == 3).then(|| (token - 3, token));
        assert_eq!(posted, expected, "{token}");
    }
}

#[test]
fn a_gap_posts_what_waits() {
    let withheld = withheld(15);
    for token in 5..9 {
        assert_eq!(complete(&withheld, token), None);
    }
    assert_eq!(complete(&withheld, 2), Some((5, 8)));
    // The same token once more follows no other.
    assert_eq!(complete(&withheld, 2), Some((2, 2)));
    assert_eq!(complete(&withheld, 3), None);
    assert_eq!(complete(&withheld, 1), Some((2, 3)));
}

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
