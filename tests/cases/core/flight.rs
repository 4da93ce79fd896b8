// SPDX-License-Identifier: GPL-2.0

//! The life of a flight, step by step.

use crate::parts::flight::*;

// Lanes, by their number.
const L1: Lane = Lane::new(1, 6);
const L2: Lane = Lane::new(2, 1);
const L3: Lane = Lane::new(3, u16::MAX);

/// Puts a word in flight.
fn fly(word: &Word, lane: Lane, needs: Needs) -> Flown {
    assert!(word.build());
    word.fly(lane, needs)
}

/// An end by a completion that was not expected.
fn ended(result: i32) -> Option<Completed> {
    Some(Completed {
        result,
        expected: false,
    })
}

fn answer_alone() {
    let word = Word::new();
    for result in [0, -5, -511, -4095] {
        fly(&word, L3, Needs::answer());
        assert_eq!(
            word.answered(L3, result, || false),
            Ok(Answered::Over(result))
        );
        assert_eq!(
            word.answered(L3, result, || false),
            Err(Violation::NotInFlight)
        );
        assert!(!word.build(), "it has not landed");
        word.land();
    }
    for nonsense in [17, i32::MIN, -4096] {
        fly(&word, L3, Needs::answer());
        assert_eq!(
            word.answered(L3, nonsense, || false),
            Ok(Answered::Over(-5))
        );
        word.land();
    }
}

fn landed_by_the_answer() {
    let word = Word::new();
    assert_eq!(
        word.succeeded(L3, || ()),
        Succeeded::Unclear,
        "nothing flies"
    );
    fly(&word, L3, Needs::answer());
    assert_eq!(
        word.succeeded(L2, || ()),
        Succeeded::Unclear,
        "on another lane"
    );
    assert!(!word.land_answered(L2), "on another lane");
    assert!(word.land_answered(L3));
    assert!(!word.land_answered(L3), "it has landed");
    assert_eq!(
        word.succeeded(L3, || ()),
        Succeeded::Unclear,
        "it has landed"
    );
    assert_eq!(word.answered(L3, 0, || true), Err(Violation::NotInFlight));
    assert!(!word.build(), "it is not idle yet");
    word.land();

    fly(&word, L3, Needs::answer());
    assert!(word.collect().is_some());
    assert_eq!(word.succeeded(L3, || ()), Succeeded::Unclear);
    word.land();
    // After all other ends the answer is still to come.
    fly(&word, L3, Needs::answer().and_sent());
    assert_eq!(word.completed(Own::Sent), None);
    assert_eq!(word.succeeded(L3, || ()), Succeeded::Over);
    word.land();
    assert!(word.build());
}

fn answered_before_the_send_is_complete() {
    let word = Word::new();
    fly(&word, L3, Needs::answer().and_sent());
    assert_eq!(
        word.succeeded(L2, || ()),
        Succeeded::Unclear,
        "on another lane"
    );
    assert_eq!(word.succeeded(L3, || ()), Succeeded::Sending);
    let left = must!(word.peek());
    assert_eq!((left.lane, left.result), (3, 0));
    assert!(left.needs.has_sent() && !left.needs.has_answer());
    assert_eq!(
        word.succeeded(L3, || ()),
        Succeeded::Unclear,
        "a second answer"
    );
    assert_eq!(word.answered(L3, 0, || true), Err(Violation::Duplicate));
    assert_eq!(word.completed(Own::Sent), ended(0));
    word.land();
    assert!(word.build());
}

fn completions_that_are_expected() {
    let word = Word::new();
    let needs = Needs::answer().and_sent().and_invalidated();

    assert!(!word.expect(L3), "nothing flies");
    fly(&word, L3, needs);
    assert!(!word.expect(L3), "it was not answered");
    assert_eq!(word.answered(L3, -7, || false).map(drop_needs), Ok(None));
    assert!(!word.expect(L2), "on another lane");
    assert!(word.expect(L3));
    assert!(!word.expect(L3), "once");
    let left = must!(word.peek());
    assert_eq!((left.lane, left.result), (3, -7));
    assert_eq!(word.answered(L3, 0, || true), Err(Violation::Duplicate));
    assert_eq!(word.completed(Own::Sent), None);
    let over = Completed {
        result: -7,
        expected: true,
    };
    assert_eq!(word.completed(Own::Invalidated), Some(over));
    assert!(!word.expect(L3), "it has landed");
    word.land();

    // The next flight begins anew.
    fly(&word, L3, Needs::answer().and_sent());
    assert_eq!(word.succeeded(L3, || ()), Succeeded::Sending);
    assert_eq!(word.completed(Own::Sent), ended(0));
    word.land();
    fly(&word, L3, Needs::answer().and_sent());
    assert_eq!(word.succeeded(L3, || ()), Succeeded::Sending);
    assert!(word.expect(L3));
    assert!(word.collect().is_some());
    assert_eq!(word.completed(Own::Sent), None, "it was collected");
    word.land();
    assert!(word.build());
}

/// The result of an answer that ended the flight.
fn drop_needs(answered: Answered) -> Option<i32> {
    match answered {
        Answered::Needs(_) => None,
        Answered::Over(result) => Some(result),
    }
}

fn answered_before_the_key_is_invalidated() {
    let word = Word::new();
    let (sent, invalidated) = (Own::Sent, Own::Invalidated);
    let needs = Needs::answer().and_invalidated();

    for (needs, before, after) in [
        (needs, None, [None, Some(invalidated)]),
        (needs.and_sent(), Some(sent), [None, Some(invalidated)]),
        (needs.and_sent(), None, [Some(sent), Some(invalidated)]),
        (needs.and_sent(), None, [Some(invalidated), Some(sent)]),
    ] {
        fly(&word, L3, needs);
        if let Some(own) = before {
            assert_eq!(word.completed(own), None);
        }
        assert_eq!(
            word.succeeded(L2, || ()),
            Succeeded::Unclear,
            "on another lane"
        );
        assert_eq!(word.succeeded(L3, || ()), Succeeded::Keyed);
        let left = must!(word.peek());
        assert_eq!((left.lane, left.result), (3, 0));
        assert!(left.needs.has_invalidated() && !left.needs.has_answer());
        assert_eq!(left.needs.has_sent(), after[0].is_some());
        assert_eq!(
            word.succeeded(L3, || ()),
            Succeeded::Unclear,
            "a second answer"
        );
        assert_eq!(word.answered(L3, 0, || true), Err(Violation::Duplicate));
        assert!(!word.land_returned(L3, || true), "it was answered");
        if let Some(own) = after[0] {
            assert_eq!(word.completed(own), None);
        }
        assert_eq!(word.completed(must!(after[1])), ended(0));
        word.land();
        assert!(word.build());
        word.cancel();
    }
}

fn landed_by_the_answer_with_proof() {
    let word = Word::new();
    let needs = Needs::answer().and_invalidated();
    let unasked = || fail!("the answer does not fit");
    assert!(!word.land_returned(L2, unasked), "nothing flies");
    fly(&word, L2, needs);
    assert!(!word.land_returned(L1, unasked), "on another lane");
    assert!(!word.land_returned(L2, || false), "without proof");
    assert!(word.peek().is_some_and(|found| found.needs == needs));
    assert!(word.land_returned(L2, || true));
    assert!(!word.land_returned(L2, unasked), "it has landed");
    assert!(!word.build(), "it is not idle yet");
    word.land();

    for needs in [Needs::answer(), needs.and_sent()] {
        fly(&word, L2, needs);
        assert!(!word.land_returned(L2, unasked), "something else is needed");
        assert!(word.peek().is_some_and(|found| found.needs == needs));
        assert!(word.collect().is_some());
        word.land();
    }
}

fn any_order_of_answer_and_send() {
    let word = Word::new();
    let needs = Needs::answer().and_sent();

    fly(&word, L1, needs);
    assert_eq!(word.completed(Own::Sent), None);
    assert_eq!(word.answered(L1, -5, || false), Ok(Answered::Over(-5)));
    word.land();

    fly(&word, L1, needs);
    let left = word.answered(L1, -7, || false);
    assert!(matches!(left, Ok(Answered::Needs(n)) if n.has_sent() && !n.has_answer()));
    assert_eq!(word.answered(L1, 0, || false), Err(Violation::Duplicate));
    assert_eq!(word.completed(Own::Sent), ended(-7));
    assert_eq!(word.completed(Own::Sent), None);
    word.land();
    assert!(word.build());
}

fn the_key_comes_back_with_the_answer_or_not_at_all() {
    let word = Word::new();
    let needs = Needs::answer().and_invalidated();

    fly(&word, L2, needs);
    assert_eq!(word.answered(L1, 0, || true), Err(Violation::WrongLane));
    assert_eq!(word.answered(L2, 0, || true), Ok(Answered::Over(0)));
    word.land();

    fly(&word, L2, needs);
    let left = word.answered(L2, 0, || false);
    assert!(matches!(left, Ok(Answered::Needs(n)) if n.has_invalidated() && !n.has_answer()));
    assert_eq!(word.completed(Own::Sent), None, "it was not needed");
    assert_eq!(word.completed(Own::Invalidated), ended(0));
    word.land();
}

fn no_proof_is_asked_for_that_is_not_needed() {
    let word = Word::new();
    fly(&word, L1, Needs::answer().and_sent());
    let asked = || fail!("no key is out");
    assert!(word.answered(L1, 0, asked).is_ok());
}

fn taken_back_unless_something_has_happened() {
    let word = Word::new();
    assert_eq!(word.answered(L1, 0, || false), Err(Violation::NotInFlight));
    let flown = fly(&word, L1, Needs::answer().and_sent());
    assert!(word.take_back(flown));
    assert!(!word.build(), "it belongs to the one that took it back");
    word.cancel();

    let flown = fly(&word, L1, Needs::answer().and_sent());
    assert!(word.answered(L1, 0, || false).is_ok());
    assert!(!word.take_back(flown));
    assert!(word.collect().is_some());
}

fn collected() {
    let word = Word::new();
    assert_eq!(word.collect(), None);
    fly(&word, L3, Needs::answer().and_sent());
    let found = must!(word.collect());
    assert_eq!((found.lane, found.result), (3, 0));
    assert!(found.needs.has_answer());
    assert_eq!(word.collect(), None);
    assert_eq!(word.peek(), None);
    word.land();

    fly(&word, L3, Needs::answer().and_sent());
    assert!(word.answered(L3, -5, || false).is_ok());
    let found = must!(word.collect());
    assert!(!found.needs.has_answer());
    assert_eq!(found.result, -5, "it was answered, and is not sent again");
}

fn lanes_of_one_number() {
    let word = Word::new();
    let other = Lane::new(3, 0);
    assert_eq!((L3.index(), other.index()), (3, 3));
    let needs = Needs::answer().and_invalidated();
    fly(&word, L3, needs);
    assert_eq!(word.succeeded(other, || ()), Succeeded::Unclear);
    assert!(!word.land_returned(other, || true));
    assert_eq!(word.answered(other, 0, || true), Err(Violation::WrongLane));
    assert!(word.land_returned(L3, || true));
    word.land();
    fly(&word, L3, Needs::answer());
    assert_eq!(word.succeeded(other, || ()), Succeeded::Unclear);
    assert_eq!(word.succeeded(L3, || ()), Succeeded::Over);
}

cases!(
    rtrs_bindings_flight:
    answer_alone,
    lanes_of_one_number,
    landed_by_the_answer,
    answered_before_the_send_is_complete,
    completions_that_are_expected,
    answered_before_the_key_is_invalidated,
    landed_by_the_answer_with_proof,
    any_order_of_answer_and_send,
    the_key_comes_back_with_the_answer_or_not_at_all,
    no_proof_is_asked_for_that_is_not_needed,
    taken_back_unless_something_has_happened,
    collected,
);
