// SPDX-License-Identifier: GPL-2.0

//! Receives that wait to be posted again.

use crate::parts::withheld::Withheld;

/// Like the queue does it: what is posted after `token` has completed.
pub(crate) fn complete(withheld: &Withheld, token: u32) -> Result<Option<(u32, u32)>, u32> {
    match withheld.join() {
        true => Ok(None),
        false => withheld.add(token).map(Some).ok_or(token),
    }
}

pub(crate) fn withheld(receives: u32, tokens: u32) -> Withheld {
    let withheld = Withheld::new();
    withheld.allow(receives, 32, tokens);
    withheld
}

fn each_at_once_unless_allowed() {
    let withheld = Withheld::new();
    for token in [0, 1, 2, 7, 7, 3, 0] {
        assert_eq!(complete(&withheld, token), Ok(Some((token, token))));
    }
    // It is not known which tokens take turns.
    withheld.allow(15, 32, 0);
    for token in [0, 1, 2, 7, 7, 3, 0] {
        assert_eq!(complete(&withheld, token), Ok(Some((token, token))));
    }
}

fn no_more_than_a_batch() {
    assert_eq!(withheld(0, 99).batch(), 1);
    assert_eq!(withheld(30, 99).batch(), 31);
    assert_eq!(withheld(31, 99).batch(), 32);
    assert_eq!(withheld(u32::MAX, 99).batch(), 32);
    let none = Withheld::new();
    none.allow(5, 0, 99);
    assert_eq!(none.batch(), 1);
}

fn neighbours_go_together() {
    let withheld = withheld(3, 14);
    // Nothing was allowed when this one was posted.
    assert_eq!(complete(&withheld, 1), Ok(Some((1, 1))));
    for token in 2..14 {
        let posted = complete(&withheld, token);
        let expected = (token % 4 == 1).then(|| (token - 3, token));
        assert_eq!(posted, Ok(expected), "{token}");
    }
    // A run does not go on behind the last token.
    for token in 0..12 {
        let posted = complete(&withheld, token);
        let expected = (token % 4 == 3).then(|| (token - 3, token));
        assert_eq!(posted, Ok(expected), "{token}");
    }
    assert_eq!(complete(&withheld, 12), Ok(None));
    assert_eq!(complete(&withheld, 13), Ok(Some((12, 13))));
    assert_eq!(complete(&withheld, 0), Ok(None));
}

fn a_token_out_of_turn_is_found() {
    for last in [2, 4, 0, u32::MAX] {
        let withheld = withheld(3, 99);
        assert_eq!(complete(&withheld, 99), Ok(Some((99, 99))));
        for token in 0..3 {
            assert_eq!(complete(&withheld, token), Ok(None));
        }
        assert_eq!(complete(&withheld, last), Err(last));
        // It does not mend itself.
        assert_eq!(complete(&withheld, last), Err(last));
    }
}

fn one_token_never_waits() {
    let withheld = withheld(7, 1);
    for _ in 0..20 {
        assert_eq!(complete(&withheld, 0), Ok(Some((0, 0))));
    }
}

fn receives_that_are_alike_are_counted() {
    let withheld = withheld(3, 0);
    let complete = || (!withheld.join()).then(|| withheld.add_alike());

    assert_eq!(complete(), Some(1));
    for n in 1..20 {
        assert_eq!(complete(), (n % 4 == 0).then_some(4), "{n}");
    }
}

cases!(
    rtrs_bindings_withheld:
    each_at_once_unless_allowed,
    no_more_than_a_batch,
    neighbours_go_together,
    a_token_out_of_turn_is_found,
    one_token_never_waits,
    receives_that_are_alike_are_counted,
);
