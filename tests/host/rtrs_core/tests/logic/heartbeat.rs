// SPDX-License-Identifier: GPL-2.0

//! Heartbeats: which path is dead, and when.

use proptest::{bool::weighted, prelude::*};
use rtrs_core::proto::heartbeat::*;

proptest! {
    // With any traffic a path is dead after `limit` intervals in which nothing was received, or
    // `limit * SERVICE_FACTOR` with nothing on the service connection, not earlier and not later.
    // Intervals count from the tick after the one that sent the heartbeat.
    #[test]
    fn dead_exactly_when_silent(
        // Little traffic on the service connection and more on the others, so that either may be
        // the reason.
        traffic in proptest::collection::vec(
            (weighted(0.05), weighted(0.8), weighted(0.05)),
            0..100,
        ),
        limit in 1u32..6,
    ) {
        let (mut hb, probe) = (Heartbeat::new(), HbProbe::new());
        let (mut silent, mut service_silent) = (0, 0);
        for (service, io, answers) in traffic {
            if answers {
                let _ = probe.ack(1);
            }
            let rx = HbRx { service: service || answers, io };
            let waiting = u32::from(probe.outstanding());
            silent = if rx.service || rx.io { 0 } else { silent + waiting };
            service_silent = if rx.service { 0 } else { service_silent + waiting };
            let dead = silent >= limit || service_silent >= limit * SERVICE_FACTOR;
            let action = hb.tick(rx, probe.state(), limit);
            prop_assert_eq!(action == HbAction::Dead, dead);
            match action {
                HbAction::Dead => return Ok(()),
                HbAction::SendHb => prop_assert!(probe.begin(1)),
                HbAction::Nothing => prop_assert!(probe.outstanding()),
            }
        }
    }
}
