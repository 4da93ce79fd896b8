// SPDX-License-Identifier: GPL-2.0

//! The server's decisions, without a kernel.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use std::collections::{HashMap, VecDeque};

use proptest::prelude::*;
use rtrs_server_logic::logic::{
    admission::*,
    chunk_state::*,
    listen::*,
    path_state::{Action, CloseReason, Event, ServerPathState, Transition},
    quota::*,
    ring::Ring,
};

fn inc(n: u32) -> Incarnation {
    Incarnation::new(n).unwrap()
}

#[test]
fn chunk_story() {
    let chunk = ChunkState::new();
    assert_eq!(chunk.end(inc(1)), End::NotBusy);
    assert_eq!(chunk.try_begin(inc(1)), Begin::Run);
    assert_eq!(chunk.try_begin(inc(1)), Begin::Violation, "duplicate");
    assert_eq!(
        chunk.try_begin(inc(2)),
        Begin::Parked(inc(1)),
        "failed over"
    );
    assert_eq!(chunk.try_begin(inc(2)), Begin::Violation, "duplicate");
    assert_eq!(chunk.end(inc(2)), End::NotBusy);
    assert_eq!(chunk.end(inc(1)), End::Run(inc(2)));
    assert!(!chunk.cancel_parked(inc(2)), "it runs already");
    assert_eq!(chunk.end(inc(2)), End::Free);
    assert_eq!(chunk.try_begin(inc(3)), Begin::Run, "free");
}

#[test]
fn parked_request_is_dropped_with_its_path() {
    let chunk = ChunkState::new();
    assert_eq!(chunk.try_begin(inc(1)), Begin::Run);
    assert_eq!(chunk.try_begin(inc(u32::MAX)), Begin::Parked(inc(1)));
    assert!(!chunk.cancel_parked(inc(1)));
    assert!(chunk.cancel_parked(inc(u32::MAX)));
    assert!(!chunk.cancel_parked(inc(u32::MAX)));
    assert_eq!(chunk.end(inc(1)), End::Free);
}

#[test]
fn third_path_takes_the_place_of_the_second() {
    let chunk = ChunkState::new();
    assert_eq!(chunk.try_begin(inc(1)), Begin::Run);
    assert_eq!(chunk.try_begin(inc(2)), Begin::Parked(inc(1)));
    assert_eq!(chunk.try_begin(inc(3)), Begin::Replaced(inc(2)));
    assert!(!chunk.cancel_parked(inc(2)));
    assert_eq!(chunk.end(inc(1)), End::Run(inc(3)));
    assert_eq!(chunk.end(inc(3)), End::Free);
}

proptest! {
    // Each accepted request ends in exactly one way: it runs, is dropped or replaced.
    #[test]
    fn each_request_has_one_fate(ops in proptest::collection::vec((0u8..3, 1u32..5), 0..300)) {
        let chunk = ChunkState::new();
        let mut running: Option<u32> = None;
        let mut parked: Option<u32> = None;
        for (op, n) in ops {
            match op {
                0 => {
                    let want = match running {
                        None => {
                            running = Some(n);
                            Begin::Run
                        }
                        Some(busy) if busy == n || parked == Some(n) => Begin::Violation,
                        Some(busy) => parked
                            .replace(n)
                            .map_or(Begin::Parked(inc(busy)), |old| Begin::Replaced(inc(old))),
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
        }
        prop_assert_eq!(chunk.try_begin(inc(9)) == Begin::Run, running.is_none());
    }
}

const REASONS: [CloseReason; 11] = [
    CloseReason::Peer,
    CloseReason::Violation,
    CloseReason::ConnError,
    CloseReason::Heartbeat,
    CloseReason::Deadline,
    CloseReason::TakeOver,
    CloseReason::GaveWay,
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
        Event::AllAccepted,
        Event::InfoReceived,
        Event::Deadline,
        Event::Ready,
        Event::Deadline,
        Event::Close(CloseReason::Peer),
        Event::Close(CloseReason::ConnError),
        Event::CloseDone,
    ]);
    assert_eq!(state, ServerPathState::Closed(CloseReason::Peer));
    assert_eq!(
        actions,
        [
            Action::Prepare,
            Action::Serve,
            Action::Close,
            Action::Release
        ]
    );
}

#[test]
fn bad_lives() {
    let all = Event::AllAccepted;
    for (events, reason) in [
        (&[Event::Deadline][..], CloseReason::Deadline),
        (&[all, Event::Deadline], CloseReason::Deadline),
        (&[Event::InfoReceived], CloseReason::Violation),
        (&[all, all], CloseReason::Violation),
        (
            &[all, Event::InfoReceived, Event::InfoReceived],
            CloseReason::Violation,
        ),
        (
            &[
                all,
                Event::InfoReceived,
                Event::Close(CloseReason::Refused),
                Event::Ready,
            ],
            CloseReason::Refused,
        ),
    ] {
        let (state, actions) = run(events);
        assert_eq!(state, ServerPathState::Closing(reason));
        assert_eq!(actions.last(), Some(&Action::Close));
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
    fn any_life(events in proptest::collection::vec((0u8..6, 0usize..10), 0..60)) {
        let mut state = ServerPathState::Handshaking;
        let mut counts = HashMap::new();
        let mut closing = false;
        for (kind, reason) in events {
            let event = match kind {
                0 => Event::AllAccepted,
                1 => Event::InfoReceived,
                2 => Event::Ready,
                3 => Event::Deadline,
                4 => Event::Close(REASONS[reason]),
                _ => Event::CloseDone,
            };
            let Transition { state: next, action } = state.next(event);
            let name = match action {
                Action::None => continue_with(&mut state, next),
                Action::Prepare => "prepare",
                Action::Serve => "serve",
                Action::Close => {
                    prop_assert!(!closing);
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
    let quota = Quota::new(Resource::Cons, 100);
    assert_eq!(quota.take(100), Ok(()));
    let over = quota.take(1).unwrap_err();
    assert_eq!(over.to_string(), "over quota of 100 connections");
    assert_eq!(quota.has_room(0), Ok(()));
    assert!(quota.has_room(1).is_err());
    assert!(quota.has_room(u64::MAX).is_err());
    assert!(quota.take(u64::MAX).is_err());
    assert_eq!(quota.take(0), Ok(()));
    assert_eq!(quota.refused(), 4);
    assert_eq!((quota.missing(0), quota.missing(3)), (0, 3));
    assert!(quota.set_max(50));
    assert!(quota.take(1).is_err());
    assert_eq!(quota.missing(1), 51);
    assert!(quota.uncharge(60));
    assert_eq!((quota.current(), quota.max()), (40, 50));
    assert_eq!(
        (quota.missing(10), quota.missing(u64::MAX)),
        (0, u64::MAX - 50)
    );
    assert_eq!(quota.take(10), Ok(()));
    assert!(!quota.uncharge(51));
    assert_eq!(quota.current(), 0);
}

#[test]
fn quota_of_what_others_count() {
    let quota = Quota::new(Resource::PathsPerSession, 2);
    assert_eq!(quota.allows(2), Ok(()));
    assert_eq!(
        quota.allows(3),
        Err(OverQuota {
            resource: Resource::PathsPerSession,
            max: 2
        })
    );
    assert_eq!((quota.current(), quota.refused()), (0, 1));
    let over = OverQuota {
        resource: Resource::PathsPerSession,
        max: 4,
    };
    assert_eq!(quota.refuse(4), over);
    assert_eq!((quota.max(), quota.refused()), (2, 2));
}

#[test]
fn queues_are_estimated() {
    // A service connection, and one for IO of the default depth.
    assert_eq!(queue_memory(1043, 1027), 4096 * 256 + 4096 * 64);
    assert_eq!(queue_memory(2561, 513), 5120 * 256 + 4096 * 64);
    assert_eq!(queue_memory(1, 1), 2 * 256 + 2 * 64);
    let most = u64::from(u32::MAX) + 1;
    assert_eq!(
        queue_memory(u32::MAX, u32::MAX),
        2 * most * 256 + 2 * most * 64
    );
}

#[test]
fn maxima_are_sane() {
    for (index, resource) in Resource::ALL.into_iter().enumerate() {
        assert_eq!(resource.index(), index);
        let range = resource.range();
        assert!(*range.start() > 0);
        let quota = Quota::new(resource, *range.end());
        assert!(!quota.set_max(range.start() - 1));
        assert!(!quota.set_max(range.end() + 1));
        assert_eq!(quota.max(), *range.end());
        assert!(quota.set_max(*range.start()));
        assert_eq!(quota.max(), *range.start());
    }
}

proptest! {
    #[test]
    fn quota_never_exceeded(max in 0u64..50, ops in proptest::collection::vec((any::<bool>(), 0u64..30), 0..100)) {
        let quota = Quota::new(Resource::Sessions, max);
        let mut taken = Vec::new();
        for (take, n) in ops {
            if take {
                let room = quota.has_room(n).is_ok();
                prop_assert_eq!(quota.take(n).is_ok(), room);
                if room {
                    taken.push(n);
                }
            } else if let Some(n) = taken.pop() {
                prop_assert!(quota.uncharge(n));
            }
            let sum: u64 = taken.iter().sum();
            prop_assert_eq!(quota.current(), sum);
            prop_assert!(sum <= max);
        }
    }

    #[test]
    fn the_largest_sum_is_found(mut items in proptest::collection::vec((0u8..8, 0u64..100), 0..60)) {
        let mut model: HashMap<u8, u64> = HashMap::new();
        for &(owner, amount) in &items {
            *model.entry(owner).or_insert(0) += amount;
        }
        prop_assert_eq!(largest_sum(&mut items), model.values().copied().max().unwrap_or(0));
    }

    #[test]
    fn a_ring_is_a_queue(room in 0usize..6, ops in proptest::collection::vec(any::<bool>(), 0..100)) {
        let mut ring = Ring::new(vec![None; room]);
        let mut model = VecDeque::new();
        for (n, push) in ops.into_iter().enumerate() {
            if push {
                let fits = model.len() < room;
                prop_assert_eq!(ring.push(n), if fits { Ok(()) } else { Err(n) });
                if fits {
                    model.push_back(n);
                }
            } else {
                prop_assert_eq!(ring.pop(), model.pop_front());
            }
            prop_assert_eq!(ring.len(), model.len());
            prop_assert_eq!(ring.is_empty(), model.is_empty());
        }
    }

    #[test]
    fn only_a_later_attempt_ends_a_path(
        old in any::<u16>(),
        ahead in 1u16..0x8000,
        open in any::<bool>(),
        cons in 2u16..9,
    ) {
        let known = Known { recon_cnt: old, cid_num: 5, open, closing: false };
        let gone = Known { closing: true, open: false, ..known };
        prop_assert_eq!(join(known, old.wrapping_add(ahead), cons), Join::TakeOver);
        prop_assert_eq!(join(known, old.wrapping_sub(ahead), cons), Join::Refuse);
        prop_assert_eq!(join(gone, old.wrapping_sub(ahead), cons), Join::TakeOver);
        prop_assert_eq!(join(gone, old, cons), Join::Refuse);
        let same = if open && cons == 5 { Join::Same } else { Join::Refuse };
        prop_assert_eq!(join(known, old, cons), same);
    }

    #[test]
    fn sources_remember_the_latest(addrs in proptest::collection::vec(0u8..12, 0..60)) {
        let mut sources = Sources::<u8, 4>::new();
        let mut model: Vec<u8> = Vec::new();
        for addr in addrs {
            sources.note(addr);
            if !model.contains(&addr) {
                model.insert(0, addr);
                model.truncate(4);
            }
            for other in 0..12 {
                prop_assert_eq!(sources.contains(other), model.contains(&other));
            }
        }
    }

    #[test]
    fn no_text_of_listen_confuses(text in "[0-9a-zN:=,_ -]{0,40}") {
        for entry in ports(&text) {
            if entry.is_err() {
                break;
            }
        }
    }
}

#[test]
fn listen_says_what_is_different() {
    let text = "1234:always_invalidate=N:sess_queue_depth=64,1300:max_chunk_size=65536\n";
    let first = overrides(text, 1234).unwrap();
    assert_eq!(
        first,
        Overrides {
            queue_depth: Some(64),
            chunk_size: None,
            always_invalidate: Some(false)
        }
    );
    assert_eq!(overrides(text, 1300).unwrap().chunk_size, Some(65536));
    assert_eq!(overrides(text, 1301), Ok(Overrides::default()));
    assert_eq!(overrides("", 1234), Ok(Overrides::default()));
    assert_eq!(overrides("1300", 1300), Ok(Overrides::default()));
    for (text, error) in [
        ("x", ListenError::Port),
        ("0", ListenError::Port),
        ("70000", ListenError::Port),
        ("1,", ListenError::Port),
        ("1:", ListenError::Key),
        ("1:x", ListenError::Key),
        ("1:x=1", ListenError::Key),
        ("1:sess_queue_depth=", ListenError::Value),
        ("1:sess_queue_depth=1x", ListenError::Value),
        ("1:max_chunk_size=99999999999", ListenError::Value),
        ("1:always_invalidate=maybe", ListenError::Value),
        ("1:always_invalidate=Y,2,1", ListenError::Twice),
    ] {
        let found = ports(text).find_map(Result::err);
        assert_eq!(found, Some(error), "{text}");
    }
}
