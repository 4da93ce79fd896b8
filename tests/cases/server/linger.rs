// SPDX-License-Identifier: GPL-2.0

//! How long the server keeps a session without a path.

use rtrs_core::proto::PathWait;
use rtrs_server::logic::linger::{Linger, GRACE_SECS};

const LINGER: Linger = Linger {
    secs: 30,
    max_secs: 3600,
};

fn as_long_as_the_client_waits() {
    assert_eq!(LINGER.of(PathWait::Unsaid), 30);
    assert_eq!(LINGER.of(PathWait::from_secs(0)), 30);
    assert_eq!(LINGER.of(PathWait::from_secs(1)), 1 + GRACE_SECS);
    assert_eq!(LINGER.of(PathWait::from_secs(600)), 600 + GRACE_SECS);
    assert_eq!(LINGER.of(PathWait::from_secs(86_400)), 3600);
    assert_eq!(LINGER.of(PathWait::Forever), 3600);
}

cases!(
    rtrs_server_linger:
    as_long_as_the_client_waits,
);
