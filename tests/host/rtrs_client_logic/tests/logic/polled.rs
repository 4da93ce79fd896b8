// SPDX-License-Identifier: GPL-2.0

//! When a queue is polled.

use proptest::prelude::*;
use rtrs_client_logic::logic::polled::{PollHint, HOT_NS};

proptest! {
    // The time is rounded down, so a hint may end early, but never late.
    #[test]
    fn the_last_poll_counts(queue: u16, other: u16, at in 1u64 << 20..1 << 62, wait in 0..2 * HOT_NS) {
        let hint = PollHint::new();
        hint.polled(other, at - 1);
        hint.polled(queue, at);
        match hint.queue(at + wait) {
            Some(q) => prop_assert!(q == queue && wait <= HOT_NS),
            None => prop_assert!(wait + (1 << 16) > HOT_NS),
        }
    }
}
