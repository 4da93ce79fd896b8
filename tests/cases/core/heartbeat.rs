// SPDX-License-Identifier: GPL-2.0

//! Heartbeats: which path is dead, and when.

use rtrs_core::proto::heartbeat::*;

const NONE: HbRx = HbRx {
    service: false,
    io: false,
};

const IO: HbRx = HbRx {
    service: false,
    io: true,
};

const SERVICE: HbRx = HbRx {
    service: true,
    io: false,
};

/// Runs ticks with the same reception until the path is dead; returns the number of ticks.
fn ticks_to_death(hb: &mut Heartbeat, probe: &HbProbe, rx: HbRx, limit: u32) -> Option<u32> {
    (1..1000).find(|&now| match hb.tick(rx, probe.state(), limit) {
        HbAction::SendHb => {
            assert!(probe.begin(now.into()));
            false
        }
        HbAction::Nothing => false,
        HbAction::Dead => true,
    })
}

fn silent_peer_dies_in_bounded_time() {
    for limit in 0..20u32 {
        let (mut hb, probe) = (Heartbeat::new(), HbProbe::new());
        // One tick to send the probe, then `limit` silent intervals.
        assert_eq!(
            ticks_to_death(&mut hb, &probe, NONE, limit),
            Some(limit.max(1) + 1)
        );
    }
}

fn io_cannot_mask_a_dead_service_connection_for_ever() {
    let (mut hb, probe) = (Heartbeat::new(), HbProbe::new());
    assert_eq!(
        ticks_to_death(&mut hb, &probe, IO, 5),
        Some(5 * SERVICE_FACTOR + 1)
    );
}

fn living_peer_is_probed_every_interval() {
    let (mut hb, probe) = (Heartbeat::new(), HbProbe::new());
    for now in 1..100 {
        assert_eq!(hb.tick(SERVICE, probe.state(), 1), HbAction::SendHb);
        assert!(probe.begin(now * 1000));
        assert_eq!(probe.ack(now * 1000 + 7), Some(7));
    }
    assert_eq!(hb.missed(), 0);
}

fn unsolicited_answers_are_ignored() {
    let probe = HbProbe::new();
    assert_eq!(probe.ack(5), None);
    assert!(probe.begin(0));
    assert!(probe.outstanding());
    assert!(!probe.begin(5), "one at a time");
    assert_eq!(probe.ack(10), Some(9));
    assert_eq!(probe.ack(11), None);
    assert!(probe.begin(20));
    probe.take_back(Asked::First);
    assert_eq!(probe.ack(21), None);
    assert!(probe.begin(30));
    assert_eq!(probe.ack(29), Some(0), "clocks may disagree a little");
}

fn answers_are_bounded() {
    let live = Liveness::new();

    (0..ANSWERS).for_each(|_| assert!(live.begin_ack()));
    for _ in 0..10 {
        assert!(!live.begin_ack());
    }
    live.end_ack();
    assert!(live.begin_ack());
    assert!(!live.begin_ack());
}

fn a_heartbeat_may_be_asked_again() {
    let probe = HbProbe::new();
    // The same as a first question, if none is in flight.
    assert_eq!(probe.begin_again(10), Asked::First);
    assert_eq!(probe.ack(15), Some(5));
    for _ in 0..3 {
        assert!(probe.begin(20));
        for n in 0..10 {
            let asked = if n < REPEATS.into() {
                Asked::Again
            } else {
                Asked::No
            };
            assert_eq!(probe.begin_again(30 + n), asked);
            assert!(probe.outstanding() && !probe.begin(40));
        }
        // It is not known which question the answer is for, nor how long it took.
        assert_eq!(probe.ack(50), None);
        assert!(!probe.outstanding());
        for _ in 0..REPEATS {
            assert_eq!(probe.ack(51), None, "answers to the others");
        }
    }
    assert!(probe.begin(60));
    assert_eq!(probe.ack(67), Some(7));
    assert!(ANSWERS > REPEATS, "each of them is answered");
}

fn a_late_answer_to_a_repeat_tells_no_latency() {
    let probe = HbProbe::new();

    assert!(probe.begin(10));
    assert_eq!(probe.begin_again(20), Asked::Again);
    assert_eq!(probe.ack(30), None);
    assert!(probe.begin(40));
    assert_eq!(probe.ack(41), None, "to the repeat");
    assert!(!probe.outstanding(), "the peer lives");
    assert_eq!(probe.ack(60), None, "to what counts as answered");
    assert!(probe.begin(70));
    assert_eq!(probe.ack(75), Some(5));
}

fn a_repeat_that_cannot_be_posted_leaves_the_heartbeat_on_its_way() {
    let (mut hb, probe) = (Heartbeat::new(), HbProbe::new());

    assert!(probe.begin(10));
    for _ in 0..10 {
        let asked = probe.begin_again(20);
        assert_eq!(asked, Asked::Again);
        probe.take_back(asked);
        assert!(probe.outstanding());
    }
    // A silent peer is then found.
    assert_eq!(ticks_to_death(&mut hb, &probe, NONE, 3), Some(3));
    assert_eq!(probe.ack(30), None);
    assert!(probe.begin(40));
    assert_eq!(probe.ack(45), Some(5), "no repeat is owed");
}

fn a_heartbeat_without_room_counts_as_not_answered() {
    let (mut hb, probe) = (Heartbeat::new(), HbProbe::new());
    assert_eq!(hb.tick(NONE, probe.state(), 3), HbAction::SendHb);

    // Each tick tries again, and a peer that is heard is not dead.
    for rx in [SERVICE, NONE, NONE, SERVICE, NONE, NONE] {
        assert!(probe.begin(10));
        probe.take_back(Asked::First);
        assert!(!probe.outstanding());
        assert_eq!(hb.tick(rx, probe.state(), 3), HbAction::SendHb);
    }
    // One that is not heard is.
    assert_eq!(hb.tick(NONE, probe.state(), 3), HbAction::Dead);

    // When there is room again, all is as before.
    assert!(probe.begin(20));
    assert_eq!(probe.state(), Probe::Outstanding);
    assert_eq!(probe.ack(25), Some(5));
    assert_eq!(probe.state(), Probe::Answered);
}

fn what_was_received_counts_once() {
    let (live, mut hb) = (Liveness::new(), Heartbeat::new());
    let (mut now, mut last) = ([0; 8], HbCounts::default());
    let mut tick = |cid: Option<usize>| {
        if let Some(cid) = cid {
            now[cid] += 1;
        }
        let action = live.tick(&mut hb, last.take(HbCounts::of(now)), 2);
        (action, hb.missed())
    };

    assert_eq!(tick(None).0, HbAction::SendHb);
    assert!(live.probe().begin(1));
    // IO alone keeps the path, and so does anything on the service connection.
    for cid in [1, 7, 0, 1, 0] {
        assert_eq!(tick(Some(cid)), (HbAction::Nothing, 0));
    }
    assert_eq!(tick(None), (HbAction::Nothing, 1));
    assert_eq!(tick(None).0, HbAction::Dead);
}

fn looking_more_often_takes_nothing_away() {
    let (live, mut hb) = (Liveness::new(), Heartbeat::new());
    let (asked, mut last) = (HbAsked::new(), HbCounts::default());
    let now = |service, io| HbCounts { service, io };

    assert!(!asked.ask(0));
    assert!(live.probe().begin(1));
    assert!(asked.ask(now(0, 1).total()));
    assert!(!asked.ask(now(0, 1).total()));
    let mut tick = |now| live.tick(&mut hb, last.take(now), 1);
    assert_eq!(tick(now(0, 1)), HbAction::Nothing);
    assert_eq!(tick(now(1, 1)), HbAction::Nothing);
    assert!(asked.ask(now(1, 1).total()));
    assert_eq!(tick(now(1, 1)), HbAction::Dead);
}

fn counts_tell_where_something_came() {
    let counts = |service, io| HbCounts { service, io };
    let mut last = HbCounts::default();
    let rx = |service, io| HbRx { service, io };

    assert_eq!(last.take(counts(0, 0)), rx(false, false));
    assert_eq!(last.take(counts(1, 0)), rx(true, false));
    assert_eq!(last.take(counts(1, 0)), rx(false, false));
    assert_eq!(last.take(counts(1, 7)), rx(false, true));
    assert_eq!(last.take(counts(2, 8)), rx(true, true));
    assert_eq!(last.take(counts(2, 8)), rx(false, false));
    assert_eq!(counts(2, 8).total(), 10);

    assert_eq!(HbCounts::of([]), counts(0, 0));
    assert_eq!(HbCounts::of([4]), counts(4, 0));
    assert_eq!(HbCounts::of([4, 1, 0, 5]), counts(4, 6));
}

fn only_later_messages_answer() {
    let asked = HbAsked::new();

    assert!(!asked.was_heard(0));
    assert!(asked.was_heard(1));
    assert!(asked.ask(5));
    assert!(!asked.was_heard(5));
    assert!(asked.was_heard(6));
    // The answer counts before the other question, but is reported after it.
    assert!(!asked.ask(3));
    assert!(!asked.was_heard(4));
    assert!(!asked.was_heard(5));
    assert!(asked.was_heard(6));
}

cases!(
    rtrs_core_heartbeat:
    silent_peer_dies_in_bounded_time,
    io_cannot_mask_a_dead_service_connection_for_ever,
    living_peer_is_probed_every_interval,
    unsolicited_answers_are_ignored,
    answers_are_bounded,
    a_heartbeat_may_be_asked_again,
    a_late_answer_to_a_repeat_tells_no_latency,
    a_repeat_that_cannot_be_posted_leaves_the_heartbeat_on_its_way,
    a_heartbeat_without_room_counts_as_not_answered,
    what_was_received_counts_once,
    looking_more_often_takes_nothing_away,
    counts_tell_where_something_came,
    only_later_messages_answer,
);
