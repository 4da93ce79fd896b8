// SPDX-License-Identifier: GPL-2.0

//! The life of a flight, step by step.

use proptest::prelude::*;
use rtrs_core::flight::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    Fly(Lane, bool, bool),
    Answer(Lane, i32, bool),
    Own(bool),
    Expect(Lane),
    TakeBack,
    Collect,
}

// Lanes with the same number are different, too.
fn lanes() -> impl Strategy<Value = Lane> {
    (0u16..2, 0u16..2).prop_map(|(index, serial)| Lane::new(index, serial))
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (lanes(), any::<bool>(), any::<bool>()).prop_map(|(l, s, i)| Step::Fly(l, s, i)),
        3 => (lanes(), -20i32..1, any::<bool>()).prop_map(|(l, r, p)| Step::Answer(l, r, p)),
        4 => any::<bool>().prop_map(Step::Own),
        2 => lanes().prop_map(Step::Expect),
        1 => Just(Step::TakeBack),
        1 => Just(Step::Collect),
    ];
    proptest::collection::vec(step, 0..200)
}

/// A plain model of a flight.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Model {
    lane: Lane,
    answer: bool,
    sent: bool,
    invalidated: bool,
    expected: bool,
    result: i32,
    touched: bool,
}

impl Model {
    fn is_over(&self) -> bool {
        !self.answer && !self.sent && !self.invalidated
    }
}

proptest! {
    // Against a plain model: the missing ends, and the owner of the flight.
    #[test]
    fn exactly_one_end_per_flight(steps in steps()) {
        let word = Word::new();
        let mut model: Option<Model> = None;
        let mut flown = None;
        for step in steps {
            match step {
                Step::Fly(lane, sent, invalidated) => {
                    let free = word.build();
                    prop_assert_eq!(free, model.is_none());
                    if free {
                        let mut needs = Needs::answer();
                        if sent { needs = needs.and_sent(); }
                        if invalidated { needs = needs.and_invalidated(); }
                        flown = Some(word.fly(lane, needs));
                        model = Some(Model {
                            lane, answer: true, sent, invalidated, expected: false, result: 0,
                            touched: false,
                        });
                    }
                }
                Step::Answer(lane, result, proof) => {
                    let got = word.answered(lane, result, || proof);
                    match &mut model {
                        None => prop_assert_eq!(got, Err(Violation::NotInFlight)),
                        Some(m) if m.lane != lane => {
                            prop_assert_eq!(got, Err(Violation::WrongLane));
                        }
                        Some(m) if !m.answer => prop_assert_eq!(got, Err(Violation::Duplicate)),
                        Some(m) => {
                            m.answer = false;
                            m.touched = true;
                            m.result = result;
                            m.invalidated &= !proof;
                            if m.is_over() {
                                prop_assert_eq!(got, Ok(Answered::Over(result)));
                                model = None;
                                word.land();
                            } else {
                                let Ok(Answered::Needs(needs)) = got else {
                                    panic!("{got:?}");
                                };
                                prop_assert!(!needs.has_answer());
                                prop_assert_eq!(needs.has_sent(), m.sent);
                                prop_assert_eq!(needs.has_invalidated(), m.invalidated);
                            }
                        }
                    }
                }
                Step::Own(sent) => {
                    let got = word.completed(if sent { Own::Sent } else { Own::Invalidated });
                    let mut over = None;
                    if let Some(m) = &mut model {
                        let need = if sent { &mut m.sent } else { &mut m.invalidated };
                        if core::mem::take(need) {
                            m.touched = true;
                            over = m.is_over().then_some(Completed {
                                result: m.result,
                                expected: m.expected,
                            });
                        }
                    }
                    prop_assert_eq!(got, over);
                    if over.is_some() {
                        model = None;
                        word.land();
                    }
                }
                Step::Expect(lane) => {
                    let mut expects = false;
                    if let Some(m) = &mut model {
                        expects = m.lane == lane && !m.answer && !m.expected;
                        m.expected |= expects;
                    }
                    prop_assert_eq!(word.expect(lane), expects);
                }
                Step::TakeBack => {
                    let Some(flown) = flown else { continue };
                    let back = word.take_back(flown);
                    prop_assert_eq!(back, model.is_some_and(|m| !m.touched));
                    if back {
                        model = None;
                        word.cancel();
                    }
                }
                Step::Collect => {
                    let found = word.collect();
                    prop_assert_eq!(
                        found.map(|f| (f.lane, f.needs.has_answer(), f.result)),
                        model.map(|m| (m.lane.index(), m.answer, m.result)));
                    if model.take().is_some() {
                        word.land();
                    }
                }
            }
        }
    }
}
