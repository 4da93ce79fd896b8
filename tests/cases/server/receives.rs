// SPDX-License-Identifier: GPL-2.0

//! Receives of a connection.

use rtrs_core::{proto::MostSent, qp_size::RECV_BATCH};
use rtrs_server::logic::receives::{counted_on, memory, most_counted_on, Receives};

fn as_many_as_there_is_room_for() {
    let some = Receives::of(1000, 512);
    assert_eq!((some.posted, some.spare), (512 + RECV_BATCH, RECV_BATCH));
    let few = Receives::of(100, 512);
    assert_eq!((few.posted, few.spare), (100, 0));
    let between = Receives::of(520, 512);
    assert_eq!((between.posted, between.spare), (520, 8));
}

fn a_share_for_each_connection() {
    assert_eq!(most_counted_on(512, 1), 512);
    assert_eq!(most_counted_on(512, 3), 192);
    assert_eq!(most_counted_on(512, 4), 128);
    // Each may use all permits of a word.
    assert_eq!(most_counted_on(512, 64), 64);
    assert_eq!(most_counted_on(32, 64), 32);
    assert_eq!(most_counted_on(512, 0), 512);
}

fn what_is_asked_for() {
    assert_eq!(counted_on(512, 8, MostSent::of(64)), 64);
    assert_eq!(counted_on(512, 8, MostSent::of(5)), 8);
    assert_eq!(counted_on(512, 8, MostSent::of(u32::MAX)), 64);
    assert_eq!(counted_on(3, 1, MostSent::of(1)), 3);
    assert_eq!(memory(96), 96 * 4608);
}

cases!(
    rtrs_server_receives:
    as_many_as_there_is_room_for,
    a_share_for_each_connection,
    what_is_asked_for,
);
