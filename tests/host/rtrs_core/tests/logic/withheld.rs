// SPDX-License-Identifier: GPL-2.0

//! Receives that wait to be posted again.

use std::collections::VecDeque;

use crate::cases::withheld::{complete, withheld};

/// Each receive is posted once, in order, and no more wait than are allowed.
#[test]
fn none_is_lost() {
    for (count, allowed) in [(5, 1), (7, 3), (64, 15), (64, 16), (13, 0), (3, 31)] {
        let withheld = withheld(allowed, count);
        let mut outstanding = (0..count).collect::<VecDeque<u32>>();
        for _ in 0..5000 {
            let Some(token) = outstanding.pop_front() else {
                // The device had less room than may wait.
                assert!(count <= allowed);
                break;
            };
            if let Some((first, last)) = complete(&withheld, token).expect("in order") {
                assert!(first <= last && last < count);
                assert!(last - first < withheld.batch());
                for token in first..=last {
                    assert!(!outstanding.contains(&token), "{token} posted twice");
                    outstanding.push_back(token);
                }
            }
            assert!(count as usize - outstanding.len() < withheld.batch() as usize);
        }
    }
}
