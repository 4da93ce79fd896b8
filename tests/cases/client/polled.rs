// SPDX-License-Identifier: GPL-2.0

//! When a queue is polled.

use rtrs_client::logic::polled::{PollHint, HOT_NS};

fn nothing_polled() {
    let hint = PollHint::new();
    assert_eq!(hint.queue(0), None);
    assert_eq!(hint.queue(u64::MAX), None);
}

fn cold_after_a_while() {
    let hint = PollHint::new();
    hint.polled(3, 1 << 40);
    assert_eq!(hint.queue(1 << 40), Some(3));
    assert_eq!(hint.queue((1 << 40) + HOT_NS), Some(3));
    assert_eq!(hint.queue((1 << 40) + HOT_NS + (1 << 16)), None);
}

cases!(
    rtrs_client_polled:
    nothing_polled,
    cold_after_a_while,
);
