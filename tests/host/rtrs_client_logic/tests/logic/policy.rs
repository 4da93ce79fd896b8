// SPDX-License-Identifier: GPL-2.0

//! Path choice.

use crate::cases::policy::{order, path, Set};
use proptest::prelude::*;
use rtrs_client_logic::logic::policy::*;
use std::{cell::RefCell, collections::HashSet};

/// Paths that come and go during the choice.
struct Flapping(RefCell<(Vec<bool>, u64)>);

impl Paths for Flapping {
    fn len(&self) -> usize {
        self.0.borrow().0.len()
    }
    fn connected(&self, i: usize) -> bool {
        let (up, seed) = &mut *self.0.borrow_mut();
        *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
        let flip = (*seed >> 33) as usize % up.len();
        // Path 0 is always there.
        if flip != 0 {
            up[flip] = !up[flip];
        }
        up[i]
    }
    fn last_resort(&self, i: usize) -> bool {
        i % 5 == 3
    }
    fn inflight(&self, i: usize) -> u64 {
        i as u64 * 3 % 7
    }
    fn latency_ns(&self, i: usize) -> u64 {
        i as u64 * 5 % 11
    }
}

proptest! {
    #[test]
    fn all_connected_are_tried_once(
        paths in proptest::collection::vec((any::<bool>(), 0u64..4, 0u64..4), 0..129),
        last: usize,
        policy in 0u32..3,
    ) {
        let policy = Policy::from_number(policy).unwrap();
        let set = Set(paths.iter().copied().map(path).collect::<Vec<_>>());
        let tried: Vec<_> = order(policy, last, &set).collect();
        let want: HashSet<_> = (0..paths.len()).filter(|&i| paths[i].0).collect();
        prop_assert_eq!(tried.len(), want.len());
        prop_assert_eq!(tried.iter().copied().collect::<HashSet<_>>(), want);
        let cost = |i: &usize| match policy {
            Policy::RoundRobin => (i + paths.len() * 2 - 1 - last % paths.len()) as u64 % paths.len() as u64,
            Policy::MinInflight => paths[*i].1,
            Policy::MinLatency => paths[*i].2.wrapping_sub(1),
        };
        prop_assert!(tried.is_sorted_by_key(cost));
    }

    #[test]
    fn healthy_path_is_found_among_flapping_ones(count in 1usize..40, seed: u64, policy in 0u32..3) {
        let paths = Flapping(RefCell::new((vec![true; count], seed)));
        let mut choice = Choice::new(Policy::from_number(policy).unwrap(), seed as usize);
        let tried: Vec<_> = core::iter::from_fn(|| choice.next(&paths)).collect();
        prop_assert!(tried.contains(&0));
        prop_assert_eq!(tried.iter().collect::<HashSet<_>>().len(), tried.len());
    }

    #[test]
    fn any_policy_text(text in proptest::collection::vec(any::<u8>(), 0..40)) {
        let _ = Policy::parse(&text);
    }
}

#[test]
fn policies_are_shown_as_sysfs_does() {
    assert_eq!(Policy::RoundRobin.to_string(), "round-robin (RR: 0)");
    assert_eq!(Policy::MinInflight.to_string(), "min-inflight (MI: 1)");
    assert_eq!(Policy::MinLatency.to_string(), "min-latency (ML: 2)");
}
