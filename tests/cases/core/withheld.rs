// SPDX-License-Identifier: GPL-2.0

//! Receives that wait to be posted again.

use crate::parts::withheld::Withheld;

/// Like the queue does it.
pub(crate) fn complete(withheld: &Withheld, token: u32) -> Option<(u32, u32)> {
    match withheld.join(token) {
        true => None,
        false => withheld.add(token),
    }
}

pub(crate) fn withheld(receives: u32) -> Withheld {
    let withheld = Withheld::new();
    withheld.allow(receives, 16);
    withheld
}

fn each_at_once_unless_allowed() {
    let withheld = Withheld::new();
    for token in [0, 1, 2, 7, 7, 3, 0] {
        assert_eq!(complete(&withheld, token), Some((token, token)));
    }
}

fn no_more_than_a_batch() {
    assert_eq!(withheld(0).batch(), 1);
    assert_eq!(withheld(14).batch(), 15);
    assert_eq!(withheld(15).batch(), 16);
    assert_eq!(withheld(u32::MAX).batch(), 16);
    let none = Withheld::new();
    none.allow(5, 0);
    assert_eq!(none.batch(), 1);
}

fn neighbours_go_together() {
    let withheld = withheld(3);
    for token in 0..12 {
        let posted = complete(&withheld, token);
        let expected = (token % 4 == 3).then(|| (token - 3, token));
        assert_eq!(posted, expected, "{token}");
    }
}

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

cases!(
    rtrs_bindings_withheld:
    each_at_once_unless_allowed,
    no_more_than_a_batch,
    neighbours_go_together,
    a_gap_posts_what_waits,
);
