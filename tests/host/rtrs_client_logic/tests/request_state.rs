// SPDX-License-Identifier: GPL-2.0

//! The life of a request, step by step.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use proptest::prelude::*;
use rtrs_client_logic::logic::request_state::*;

const VIOLATION: fn(Violation) -> Outcome = Outcome::Violation;

#[test]
fn answer_alone() {
    let req = RequestState::new();
    for ret in [0, -5, -511, -4095] {
        req.start(3, Needs::response()).unwrap();
        assert_eq!(req.response(3, ret), Outcome::Complete(ret));
        assert_eq!(req.response(3, ret), VIOLATION(Violation::NotInFlight));
    }
    req.start(3, Needs::response()).unwrap();
    assert_eq!(req.response(3, 17), Outcome::Complete(-5));
    req.start(3, Needs::response()).unwrap();
    assert_eq!(req.response(3, i32::MIN), Outcome::Complete(-5));
}

#[test]
fn any_order_of_answer_and_send() {
    let req = RequestState::new();
    let needs = Needs::response().and_sent();

    let gen = req.start(1, needs).unwrap();
    assert!(matches!(req.sent(gen), Outcome::Pending(n) if n.needs_response()));
    assert_eq!(req.response(1, -5), Outcome::Complete(-5));

    let gen = req.start(1, needs).unwrap();
    assert!(matches!(
        req.response(1, -7),
        Outcome::Pending(n) if !n.needs_response() && !n.needs_invalidated()
    ));
    assert_eq!(req.response(1, 0), VIOLATION(Violation::Duplicate));
    assert_eq!(req.sent(gen), Outcome::Complete(-7));
    assert_eq!(req.sent(gen), VIOLATION(Violation::NotInFlight));
}

#[test]
fn invalidation_by_the_server() {
    let req = RequestState::new();
    req.start(2, Needs::response().and_invalidated()).unwrap();
    assert_eq!(req.invalidated_by_peer(1), VIOLATION(Violation::WrongCon));
    assert!(matches!(req.invalidated_by_peer(2), Outcome::Pending(n) if n.needs_response()));
    assert_eq!(req.invalidated_by_peer(2), VIOLATION(Violation::NotAsked));
    assert_eq!(req.response(2, 0), Outcome::Complete(0));
}

#[test]
fn claimed_invalidation_is_done_again() {
    let req = RequestState::new();
    let gen = req.start(2, Needs::response().and_invalidated()).unwrap();
    match req.response(2, 0) {
        Outcome::Pending(needs) => assert!(needs.needs_invalidated() && !needs.needs_response()),
        other => panic!("{other:?}"),
    }
    // Our own invalidation is on its way: the peer's comes too late to finish the request.
    assert_eq!(req.invalidated_by_peer(2), VIOLATION(Violation::NotAsked));
    assert_eq!(req.invalidated(gen), Outcome::Complete(0));
}

#[test]
fn wrong_connection_and_late_completions() {
    let req = RequestState::new();
    assert_eq!(req.response(0, 0), VIOLATION(Violation::NotInFlight));
    let old = req.start(1, Needs::response().and_sent()).unwrap();
    assert_eq!(req.response(2, 0), VIOLATION(Violation::WrongCon));
    assert_eq!(req.abort(old), Ok(()));
    let new = req.start(1, Needs::response().and_sent()).unwrap();
    assert_ne!(old, new);
    assert_eq!(req.sent(old), VIOLATION(Violation::Stale));
    assert_eq!(req.invalidated(new), VIOLATION(Violation::Stale));
    assert_eq!(req.abort(old), Err(AlreadyOver));
    assert_eq!(Gen::from_u32(new.as_u32()), new);
    let busy = req.start(5, Needs::response()).unwrap_err();
    assert_eq!((busy.con, busy.gen), (1, new));
    assert_eq!(req.peek(), Some(busy));
}

#[test]
fn failover() {
    let req = RequestState::new();
    assert_eq!(req.take_for_failover(), None);
    req.start(9, Needs::response().and_sent()).unwrap();
    let taken = req.take_for_failover().unwrap();
    assert_eq!((taken.con, taken.result), (9, 0));
    assert!(taken.needs.needs_response());
    assert_eq!(req.take_for_failover(), None);

    req.start(9, Needs::response().and_sent()).unwrap();
    assert!(matches!(req.response(9, -5), Outcome::Pending(_)));
    let taken = req.take_for_failover().unwrap();
    assert!(!taken.needs.needs_response());
    assert_eq!(
        taken.result, -5,
        "the server has answered, it is not sent again"
    );
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Start(u16, bool, bool),
    Response(u16, i32),
    PeerInval(u16),
    Inval(bool),
    Sent(bool),
    Abort,
    Take,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0u16..2, any::<bool>(), any::<bool>()).prop_map(|(c, s, i)| Step::Start(c, s, i)),
        3 => (0u16..2, -20i32..1).prop_map(|(c, r)| Step::Response(c, r)),
        2 => (0u16..2).prop_map(Step::PeerInval),
        2 => any::<bool>().prop_map(Step::Inval),
        2 => any::<bool>().prop_map(Step::Sent),
        1 => Just(Step::Abort),
        1 => Just(Step::Take),
    ];
    proptest::collection::vec(step, 0..200)
}

proptest! {
    // Against a plain model: who owns the slot, and what is still missing.
    #[test]
    fn exactly_one_end_per_start(steps in steps()) {
        let req = RequestState::new();
        let (mut starts, mut ends) = (0, 0);
        let mut gens = [Gen::from_u32(0); 2];
        // (con, response, sent, inval, result)
        let mut model: Option<(u16, bool, bool, bool, i32)> = None;
        for step in steps {
            let late = |late: bool| gens[usize::from(late)];
            let before = model;
            let outcome = match step {
                Step::Start(con, sent, inval) => {
                    let mut needs = Needs::response();
                    if sent { needs = needs.and_sent(); }
                    if inval { needs = needs.and_invalidated(); }
                    let started = req.start(con, needs);
                    prop_assert_eq!(started.is_ok(), model.is_none());
                    if let Ok(gen) = started {
                        gens = [gen, gens[0]];
                        model = Some((con, true, sent, inval, 0));
                        starts += 1;
                    }
                    continue;
                }
                Step::Abort => {
                    prop_assert_eq!(req.abort(gens[0]).is_ok(), model.is_some());
                    ends += u32::from(model.take().is_some());
                    continue;
                }
                Step::Take => {
                    prop_assert_eq!(req.take_for_failover().is_some(), model.is_some());
                    ends += u32::from(model.take().is_some());
                    continue;
                }
                Step::Response(con, ret) => {
                    if let Some(m) = &mut model { if m.0 == con && m.1 { m.1 = false; m.4 = ret; } }
                    req.response(con, ret)
                }
                Step::PeerInval(con) => {
                    if let Some(m) = &mut model { if m.0 == con && m.1 { m.3 = false; } }
                    req.invalidated_by_peer(con)
                }
                Step::Inval(l) => {
                    if let Some(m) = &mut model { if !l { m.3 = false; } }
                    req.invalidated(late(l))
                }
                Step::Sent(l) => {
                    if let Some(m) = &mut model { if !l { m.2 = false; } }
                    req.sent(late(l))
                }
            };
            match model {
                Some((_, false, false, false, ret)) => {
                    prop_assert_eq!(outcome, Outcome::Complete(ret));
                    model = None;
                    ends += 1;
                }
                Some((_, r, _, i, _)) if model != before => match outcome {
                    Outcome::Pending(n) => prop_assert_eq!(
                        (n.needs_response(), n.needs_invalidated()), (r, i)),
                    other => prop_assert!(false, "{other:?}"),
                },
                _ => prop_assert!(matches!(outcome, Outcome::Violation(_))),
            }
        }
        prop_assert_eq!(starts, ends + u32::from(model.is_some()));
    }
}
