// SPDX-License-Identifier: GPL-2.0

//! Turns: never more than allowed, no member is forgotten, the one that waits longest is next.

use proptest::prelude::*;
use rtrs_server_logic::logic::turn::{Event, Stand, Step};
use std::collections::VecDeque;

const MAX: usize = 3;

const MEMBERS: usize = 8;

/// Does what the kernel code does with the steps, and plays the members.
struct Desk {
    stands: [Stand; MEMBERS],
    /// Number of pieces of work that were added and not yet taken.
    work: [u32; MEMBERS],
    line: VecDeque<usize>,
    turns: usize,
}

impl Desk {
    fn new() -> Self {
        Self {
            stands: [Stand::Idle; MEMBERS],
            work: [0; MEMBERS],
            line: VecDeque::new(),
            turns: 0,
        }
    }

    fn happens(&mut self, who: usize, event: Event) -> Step {
        let (stand, step) = self.stands[who].next(event).expect("cannot happen");
        self.stands[who] = stand;
        step
    }

    fn wanted(&mut self, who: usize) {
        self.work[who] += 1;
        let free = self.turns < MAX;
        match self.happens(who, Event::Wanted { free }) {
            Step::Call => self.turns += 1,
            Step::Line => self.line.push_back(who),
            step => assert_eq!(step, Step::None),
        }
    }

    /// Completes at most `most` pieces. For a user that sleeps this is not called.
    fn end(&mut self, who: usize, most: u32) {
        self.work[who] = self.work[who].saturating_sub(most);
        let more = self.work[who] != 0;
        match self.happens(who, Event::Ended { more }) {
            Step::Pass => (),
            Step::LineAndPass => self.line.push_back(who),
            step => panic!("{step:?}"),
        }
        match self.line.pop_front() {
            Some(next) => assert_eq!(self.happens(next, Event::Called), Step::Call),
            None => self.turns -= 1,
        }
    }

    fn left(&mut self, who: usize) {
        if self.happens(who, Event::Left) == Step::Remove {
            self.line.retain(|&other| other != who);
            self.work[who] = 0;
        }
    }

    fn check(&self) {
        let busy = |s: &Stand| !matches!(s, Stand::Idle | Stand::Waiting);
        assert_eq!(self.stands.iter().filter(|s| busy(s)).count(), self.turns);
        assert!(self.turns <= MAX);
        // A turn is not withheld from waiting members.
        assert!(self.line.is_empty() || self.turns == MAX);
        for who in 0..MEMBERS {
            let times = self.line.iter().filter(|&&other| other == who).count();
            assert_eq!(times, usize::from(self.stands[who] == Stand::Waiting));
            assert!(self.work[who] == 0 || self.stands[who] != Stand::Idle);
        }
    }
}

proptest! {
    #[test]
    fn all_work_gets_done(
        steps in proptest::collection::vec((0..5u8, 0..MEMBERS, 1..3u32), 1..200),
    ) {
        let mut desk = Desk::new();
        for (what, who, most) in steps {
            match (what, desk.stands[who]) {
                (0 | 1, _) => desk.wanted(who),
                (2, _) => desk.left(who),
                (_, Stand::Called) => {
                    prop_assert_eq!(desk.happens(who, Event::Begun), Step::None);
                }
                (_, Stand::Working | Stand::Wanted) => desk.end(who, most),
                _ => (),
            }
            desk.check();
        }
        // When all go on, all work gets done.
        for _ in 0..100_000 {
            let Some(who) = (0..MEMBERS).find(|&who| {
                !matches!(desk.stands[who], Stand::Idle | Stand::Waiting)
            }) else {
                break;
            };
            if desk.stands[who] == Stand::Called {
                desk.happens(who, Event::Begun);
            }
            desk.end(who, 1);
            desk.check();
        }
        prop_assert_eq!(desk.work, [0; MEMBERS]);
        prop_assert_eq!(desk.turns, 0);
    }
}

#[test]
fn who_waits_longest_is_next() {
    let mut desk = Desk::new();
    (0..6).for_each(|who| desk.wanted(who));
    assert_eq!(desk.line, [3, 4, 5]);
    desk.happens(1, Event::Begun);
    desk.wanted(1);
    desk.end(1, 1);
    // It goes after those that came before.
    assert_eq!(desk.line, [4, 5, 1]);
    assert_eq!(desk.stands[3], Stand::Called);
    desk.left(5);
    assert_eq!(desk.line, [4, 1]);
    desk.happens(0, Event::Begun);
    desk.end(0, 1);
    assert_eq!(desk.stands[4], Stand::Called);
    assert_eq!(desk.stands[0], Stand::Idle);
}
