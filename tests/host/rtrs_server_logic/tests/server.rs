// SPDX-License-Identifier: GPL-2.0

//! Chunks, path states and quotas of the server.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use std::collections::HashMap;

use proptest::prelude::*;
use rtrs_server_logic::logic::{
    chunk_state::*,
    path_state::{Action, CloseReason, Event, ServerPathState, Transition},
    quota::*,
};

fn inc(n: u32) -> Incarnation {
    Incarnation::new(n).unwrap()
}

#[test]
fn chunk_story() {
    let chunk = ChunkState::new();
    assert!(!chunk.is_busy());
    assert_eq!(chunk.end(inc(1)), End::NotBusy);
    assert_eq!(chunk.try_begin(inc(1)), Begin::Run);
    assert_eq!(chunk.try_begin(inc(1)), Begin::Violation, "duplicate");
    assert_eq!(chunk.try_begin(inc(2)), Begin::Parked, "failed over");
    assert_eq!(chunk.try_begin(inc(2)), Begin::Violation, "duplicate");
    assert_eq!(chunk.end(inc(2)), End::NotBusy);
    assert_eq!(chunk.end(inc(1)), End::Run(inc(2)));
    assert!(chunk.is_busy());
    assert!(!chunk.cancel_parked(inc(2)), "it runs already");
    assert_eq!(chunk.end(inc(2)), End::Free);
    assert!(!chunk.is_busy());
}

#[test]
fn parked_request_is_dropped_with_its_path() {
    let chunk = ChunkState::new();
    assert_eq!(chunk.try_begin(inc(1)), Begin::Run);
    assert_eq!(chunk.try_begin(inc(u32::MAX)), Begin::Parked);
    assert!(!chunk.cancel_parked(inc(1)));
    assert!(chunk.cancel_parked(inc(u32::MAX)));
    assert!(!chunk.cancel_parked(inc(u32::MAX)));
    assert_eq!(chunk.end(inc(1)), End::Free);
}

#[test]
fn third_path_takes_the_place_of_the_second() {
    let chunk = ChunkState::new();
    assert_eq!(chunk.try_begin(inc(1)), Begin::Run);
    assert_eq!(chunk.try_begin(inc(2)), Begin::Parked);
    assert_eq!(chunk.try_begin(inc(3)), Begin::Replaced(inc(2)));
    assert!(!chunk.cancel_parked(inc(2)));
    assert_eq!(chunk.end(inc(1)), End::Run(inc(3)));
    assert_eq!(chunk.end(inc(3)), End::Free);
}

proptest! {
    // Each request that was accepted ends in exactly one way: run, dropped or replaced.
    #[test]
    fn each_request_has_one_fate(ops in proptest::collection::vec((0u8..3, 1u32..5), 0..300)) {
        let chunk = ChunkState::new();
        let mut running: Option<u32> = None;
        let mut parked: Option<u32> = None;
        for (op, n) in ops {
            match op {
                0 => {
                    let want = if running.is_none() {
                        running = Some(n);
                        Begin::Run
                    } else if running == Some(n) || parked == Some(n) {
                        Begin::Violation
                    } else {
                        parked.replace(n).map_or(Begin::Parked, |old| Begin::Replaced(inc(old)))
                    };
                    prop_assert_eq!(chunk.try_begin(inc(n)), want);
                }
                1 => {
                    let want = if running != Some(n) {
                        End::NotBusy
                    } else {
                        running = parked.take();
                        running.map_or(End::Free, |n| End::Run(inc(n)))
                    };
                    prop_assert_eq!(chunk.end(inc(n)), want);
                }
                _ => {
                    let want = parked == Some(n);
                    if want {
                        parked = None;
                    }
                    prop_assert_eq!(chunk.cancel_parked(inc(n)), want);
                }
            }
            prop_assert_eq!(chunk.is_busy(), running.is_some());
        }
    }
}

const REASONS: [CloseReason; 10] = [
    CloseReason::Peer,
    CloseReason::Violation,
    CloseReason::ConnError,
    CloseReason::Heartbeat,
    CloseReason::Deadline,
    CloseReason::TakeOver,
    CloseReason::Refused,
    CloseReason::Operator,
    CloseReason::DeviceGone,
    CloseReason::Shutdown,
];

fn run(events: &[Event]) -> (ServerPathState, Vec<Action>) {
    let mut state = ServerPathState::Handshaking;
    let mut actions = Vec::new();
    for &event in events {
        let Transition {
            state: next,
            action,
        } = state.next(event);
        if action != Action::None {
            actions.push(action);
        }
        state = next;
    }
    (state, actions)
}

#[test]
fn a_good_life() {
    let (state, actions) = run(&[
        Event::ConAccepted { missing: 2 },
        Event::ConAccepted { missing: 1 },
        Event::ConAccepted { missing: 0 },
        Event::InfoReceived,
        Event::Deadline,
        Event::Ready,
        Event::Deadline,
        Event::Close(CloseReason::Peer),
        Event::Close(CloseReason::ConnError),
        Event::CloseDone,
    ]);
    assert_eq!(state, ServerPathState::Closed(CloseReason::Peer));
    let close = Action::Close {
        was_up: true,
        was_starting: false,
    };
    assert_eq!(
        actions,
        [Action::Prepare, Action::Serve, close, Action::Release]
    );
}

#[test]
fn bad_lives() {
    let all = Event::ConAccepted { missing: 0 };
    for (events, reason, starting) in [
        (&[Event::Deadline][..], CloseReason::Deadline, false),
        (&[all, Event::Deadline], CloseReason::Deadline, false),
        (&[Event::InfoReceived], CloseReason::Violation, false),
        (&[all, all], CloseReason::Violation, false),
        (
            &[all, Event::InfoReceived, Event::InfoReceived],
            CloseReason::Violation,
            true,
        ),
        (
            &[
                all,
                Event::InfoReceived,
                Event::Close(CloseReason::Refused),
                Event::Ready,
            ],
            CloseReason::Refused,
            true,
        ),
    ] {
        let (state, actions) = run(events);
        assert_eq!(state, ServerPathState::Closing(reason));
        let close = Action::Close {
            was_up: false,
            was_starting: starting,
        };
        assert_eq!(actions.last(), Some(&close));
        assert!(!actions.contains(&Action::Serve));
    }
    let (state, actions) = run(&[Event::CloseDone, Event::Ready]);
    assert_eq!(state, ServerPathState::Handshaking);
    assert!(actions.is_empty());
    assert!(state.accepts_cons() && state.in_handshake());
    assert_eq!(state.to_string(), "handshaking");
}

proptest! {
    #[test]
    fn any_life(events in proptest::collection::vec((0u8..7, 0u16..3, 0usize..10), 0..60)) {
        let mut state = ServerPathState::Handshaking;
        let mut counts = HashMap::new();
        let mut closing = false;
        for (kind, missing, reason) in events {
            let event = match kind {
                0 | 1 => Event::ConAccepted { missing },
                2 => Event::InfoReceived,
                3 => Event::Ready,
                4 => Event::Deadline,
                5 => Event::Close(REASONS[reason]),
                _ => Event::CloseDone,
            };
            let Transition { state: next, action } = state.next(event);
            let name = match action {
                Action::None => continue_with(&mut state, next),
                Action::Prepare => "prepare",
                Action::Serve => "serve",
                Action::Close { was_up, was_starting } => {
                    prop_assert!(!closing);
                    prop_assert_eq!(was_up, state == ServerPathState::Connected);
                    prop_assert_eq!(was_starting, state == ServerPathState::Starting);
                    closing = true;
                    "close"
                }
                Action::Release => {
                    prop_assert!(closing);
                    "release"
                }
            };
            state = next;
            let is_closing = matches!(
                state, ServerPathState::Closing(_) | ServerPathState::Closed(_));
            prop_assert_eq!(closing, is_closing);
            if !name.is_empty() {
                let count = counts.entry(name).or_insert(0);
                *count += 1;
                prop_assert_eq!(*count, 1, "{}", name);
            }
        }
    }
}

fn continue_with(state: &mut ServerPathState, next: ServerPathState) -> &'static str {
    *state = next;
    ""
}

#[test]
fn quota_story() {
    let quota = Quota::new(Resource::Bytes, 100);
    assert_eq!(quota.take(100), Ok(()));
    let over = quota.take(1).unwrap_err();
    assert_eq!(over.to_string(), "quota of 100 pinned memory used up");
    assert!(quota.take(u64::MAX).is_err());
    assert_eq!(quota.take(0), Ok(()));
    quota.set_max(50);
    assert!(quota.take(1).is_err());
    assert!(quota.give_back(60));
    assert_eq!((quota.current(), quota.max()), (40, 50));
    assert_eq!(quota.take(10), Ok(()));
    assert!(!quota.give_back(51));
    assert_eq!(quota.current(), 0);
}

proptest! {
    #[test]
    fn quota_never_exceeded(max in 0u64..50, ops in proptest::collection::vec((any::<bool>(), 0u64..30), 0..100)) {
        let quota = Quota::new(Resource::Paths, max);
        let mut taken = Vec::new();
        for (take, n) in ops {
            if take {
                if quota.take(n).is_ok() {
                    taken.push(n);
                }
            } else if let Some(n) = taken.pop() {
                prop_assert!(quota.give_back(n));
            }
            let sum: u64 = taken.iter().sum();
            prop_assert_eq!(quota.current(), sum);
            prop_assert!(sum <= max);
        }
    }

    #[test]
    fn sources_are_counted(
        ops in proptest::collection::vec((any::<bool>(), 0u8..6), 0..200),
        max in 1u32..4,
        slots in 0usize..6,
    ) {
        let mut sources = Sources::new(vec![SourceSlot::default(); slots]);
        let mut model: HashMap<u8, u32> = HashMap::new();
        for (take, n) in ops {
            let addr = [n; 16];
            let has = model.get(&n).copied().unwrap_or(0);
            if take {
                let room = has != 0 || model.values().filter(|&&c| c != 0).count() < slots;
                prop_assert_eq!(sources.take(&addr, max).is_ok(), room && has < max);
                if room && has < max {
                    *model.entry(n).or_insert(0) += 1;
                }
            } else {
                prop_assert_eq!(sources.give_back(&addr), has != 0);
                if has != 0 {
                    *model.entry(n).or_insert(0) -= 1;
                }
            }
            prop_assert_eq!(sources.current(&addr), model.get(&n).copied().unwrap_or(0));
        }
    }
}
