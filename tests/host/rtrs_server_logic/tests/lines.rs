// SPDX-License-Identifier: GPL-2.0

//! Operations that wait for room, in a line for each connection.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::VecDeque;

use proptest::prelude::*;
use rtrs_server_logic::logic::lines::*;

const LINES: u16 = 3;
const ITEMS: u16 = 8;

fn lines() -> Lines<Vec<Line>, Vec<Option<u16>>> {
    Lines::new(
        vec![Line::EMPTY; LINES.into()],
        vec![None; usize::from(ITEMS)],
    )
}

#[test]
fn first_come_first_served() {
    let mut lines = lines();
    for item in [5, 0, 7] {
        assert!(lines.push(1, item));
    }
    assert_eq!(lines.attend(1), Some(5));
    assert_eq!(lines.succeeded(1), Some(0));
    assert!(!lines.failed(1, 0));
    assert!(lines.push(1, 5), "it waits once more");
    assert_eq!(lines.attend(1), Some(0), "still the first");
    assert_eq!(lines.succeeded(1), Some(7));
    assert_eq!(lines.succeeded(1), Some(5));
    assert_eq!(lines.succeeded(1), None);
    assert_eq!(lines.attend(1), None);
}

#[test]
fn a_full_line_holds_up_no_other() {
    let mut lines = lines();
    assert!(lines.push(0, 1));
    assert!(lines.push(2, 2));
    assert_eq!(lines.attend(0), Some(1));
    assert_eq!(lines.attend(2), Some(2), "while the other is attempted");
    assert!(!lines.failed(0, 1));
    assert_eq!(lines.succeeded(2), None);
    assert_eq!(lines.attend(1), None);
    assert_eq!(lines.attend(0), Some(1));
}

#[test]
fn an_attempt_that_room_overtakes_is_repeated() {
    let mut lines = lines();
    assert!(lines.push(0, 1));
    assert!(lines.push(0, 2));
    assert_eq!(lines.attend(0), Some(1));
    assert_eq!(lines.attend(0), None, "another task is at work");
    assert!(lines.failed(0, 1), "it may not have seen the room");
    assert!(!lines.failed(0, 1), "once");
    assert_eq!(lines.attend(0), Some(1));
    assert_eq!(lines.attend(0), None);
    assert_eq!(lines.succeeded(0), Some(2));
    assert!(!lines.failed(0, 2), "its attempt began later");
}

#[test]
fn an_item_that_comes_during_the_last_attempt_is_attempted() {
    let mut lines = lines();
    assert!(lines.push(0, 1));
    assert_eq!(lines.attend(0), Some(1));
    assert!(lines.push(0, 2));
    assert_eq!(lines.attend(0), None);
    assert_eq!(lines.succeeded(0), Some(2));
}

#[test]
fn numbers_without_a_place_are_refused() {
    let mut lines = lines();
    assert!(!lines.push(LINES, 0));
    assert!(!lines.push(0, ITEMS));
    assert_eq!(lines.attend(LINES), None);
    assert_eq!(lines.attend(0), None);
}

/// What happens next, to a line.
#[derive(Clone, Copy, Debug)]
enum Step {
    Push(u16),
    Attend,
    Succeed,
    Fail,
}

fn steps() -> impl Strategy<Value = Vec<(u16, Step)>> {
    let step = prop_oneof![
        (0..ITEMS).prop_map(Step::Push),
        Just(Step::Attend),
        Just(Step::Succeed),
        Just(Step::Fail),
    ];
    proptest::collection::vec((0..LINES, step), 0..200)
}

#[derive(Default)]
struct Model {
    waiting: VecDeque<u16>,
    attempted: Option<u16>,
    again: bool,
}

impl Model {
    fn take(&mut self) -> Option<u16> {
        self.again = false;
        self.attempted = self.waiting.pop_front();
        self.attempted
    }
}

proptest! {
    #[test]
    fn lines_are_queues(steps in steps()) {
        let mut lines = lines();
        let mut models: [Model; LINES as usize] = Default::default();
        for (line, step) in steps {
            let waits = |item| models.iter().any(|m| m.waiting.contains(&item) || m.attempted == Some(item));
            let fresh = matches!(step, Step::Push(item) if !waits(item));
            let model = &mut models[usize::from(line)];
            match (step, model.attempted) {
                (Step::Push(item), _) if fresh => {
                    prop_assert!(lines.push(line, item));
                    model.waiting.push_back(item);
                }
                (Step::Attend, Some(_)) => {
                    prop_assert_eq!(lines.attend(line), None);
                    model.again = true;
                }
                (Step::Attend, None) => prop_assert_eq!(lines.attend(line), model.take()),
                (Step::Succeed, Some(_)) => prop_assert_eq!(lines.succeeded(line), model.take()),
                (Step::Fail, Some(item)) => {
                    let again = core::mem::take(&mut model.again);
                    prop_assert_eq!(lines.failed(line, item), again);
                    if !again {
                        model.waiting.push_front(item);
                        model.attempted = None;
                    }
                }
                _ => {}
            }
        }
    }
}
