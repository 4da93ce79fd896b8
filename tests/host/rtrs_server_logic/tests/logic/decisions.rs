// SPDX-License-Identifier: GPL-2.0

//! The server's decisions, without a kernel.

use crate::cases::decisions::inc;
use proptest::prelude::*;
use rtrs_server_logic::logic::{
    admission::*,
    chunk_state::*,
    listen::*,
    path_state::{Action, CloseReason, Event, ServerPathState, Transition},
    quota::*,
    ring::Ring,
};
use std::collections::{HashMap, VecDeque};

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

#[test]
fn states_have_names() {
    assert_eq!(ServerPathState::Handshaking.to_string(), "handshaking");
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
fn a_quota_says_what_it_is_of() {
    let over = Quota::new(Resource::Cons, 100).refuse(100);
    assert_eq!(over.to_string(), "over quota of 100 connections");
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
        ahead in 1..=MAX_AHEAD,
        far in MAX_AHEAD + 1..=u16::MAX,
        open in any::<bool>(),
        cons in 2u16..9,
    ) {
        let known = Known { recon_cnt: old, cid_num: 5, open, closing: false };
        let gone = Known { closing: true, open: false, ..known };
        prop_assert_eq!(join(known, old.wrapping_add(ahead), cons), Join::TakeOver);
        prop_assert_eq!(join(known, old.wrapping_sub(ahead), cons), Join::Refuse);
        prop_assert_eq!(join(known, old.wrapping_add(far), cons), Join::Refuse);
        prop_assert_eq!(join(gone, old.wrapping_add(far), cons), Join::TakeOver);
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
