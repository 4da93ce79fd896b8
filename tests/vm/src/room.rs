// SPDX-License-Identifier: GPL-2.0

//! Chooses the test that starts next, so that the processors have enough work and not too much.
//!
//! A test in one guest takes a slot, one in two guests takes two, and one that mostly waits takes a
//! place beside the slots.

use std::sync::{Condvar, Mutex, PoisonError};

use crate::testfile::{Test, Topology};

/// Free slots and places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Free {
    slots: usize,
    waiting: usize,
}

/// The slots, and the places for tests that wait.
pub struct Room {
    all: Free,
    free: Mutex<Free>,
    changed: Condvar,
}

/// The room that a test has taken; dropping it gives that back.
pub struct Place<'a> {
    room: &'a Room,
    taken: Free,
}

impl Room {
    /// A room with this many slots, and places for tests that wait.
    pub fn new(slots: usize, waiting: usize) -> Self {
        let all = Free { slots, waiting };
        Self {
            all,
            free: Mutex::new(all),
            changed: Condvar::new(),
        }
    }

    /// Places for tests that wait.
    pub fn waiting(&self) -> usize {
        self.all.waiting
    }

    /// The first of the tests for which there is room, after waiting for room if needed; `None`
    /// once no test is left.
    pub fn next<'t>(&self, left: &Mutex<Vec<&'t Test>>) -> Option<(&'t Test, Place<'_>)> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            {
                let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
                if left.is_empty() {
                    return None;
                }
                let fits = left.iter().position(|t| self.need(t).fits(*free));
                if let Some(i) = fits {
                    let test = left.remove(i);
                    let taken = self.need(test);
                    free.slots -= taken.slots;
                    free.waiting -= taken.waiting;
                    return Some((test, Place { room: self, taken }));
                }
            }
            free = self
                .changed
                .wait(free)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn need(&self, test: &Test) -> Free {
        if test.waits && self.all.waiting > 0 {
            return Free {
                slots: 0,
                waiting: 1,
            };
        }
        let slots = match test.topology {
            Topology::Single => 1,
            Topology::Pair => 2,
        };
        Free {
            // A test never needs more than there is in all.
            slots: slots.min(self.all.slots),
            waiting: 0,
        }
    }
}

impl Free {
    fn fits(self, free: Self) -> bool {
        self.slots <= free.slots && self.waiting <= free.waiting
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut free = self
            .room
            .free
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        free.slots += self.taken.slots;
        free.waiting += self.taken.waiting;
        drop(free);
        self.room.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testfile;

    fn test(name: &str, topology: &str, waits: bool) -> Test {
        let text = format!(
            "# topology: {topology}\n# waits: {}\n",
            if waits { "yes" } else { "no" }
        );
        testfile::parse_text(&text, name.into(), std::path::Path::new(name))
            .unwrap()
            .unwrap()
    }

    #[test]
    fn a_pair_takes_two_slots_and_who_waits_takes_none() {
        let tests = [
            test("a", "single", false),
            test("pair", "pair", false),
            test("b", "single", false),
            test("w", "single", true),
        ];
        let left = Mutex::new(tests.iter().collect::<Vec<_>>());
        let room = Room::new(2, 1);
        let (a, first) = room.next(&left).unwrap();
        // There is no room for the pair, but for the test after it.
        let (b, second) = room.next(&left).unwrap();
        let (w, _third) = room.next(&left).unwrap();
        assert_eq!([&*a.name, &*b.name, &*w.name], ["a", "b", "w"]);
        drop((first, second));
        let (pair, _place) = room.next(&left).unwrap();
        assert_eq!(pair.name, "pair");
        assert!(room.next(&left).is_none());
    }

    #[test]
    fn one_slot_is_enough_for_anything() {
        let tests = [test("pair", "pair", false), test("w", "single", true)];
        let left = Mutex::new(tests.iter().collect::<Vec<_>>());
        let room = Room::new(1, 0);
        drop(room.next(&left).unwrap());
        drop(room.next(&left).unwrap());
        assert!(room.next(&left).is_none());
    }
}
