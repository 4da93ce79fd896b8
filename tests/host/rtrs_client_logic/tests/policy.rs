// SPDX-License-Identifier: GPL-2.0

//! Path choice.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::{cell::RefCell, collections::HashSet};

use proptest::prelude::*;
use rtrs_client_logic::logic::policy::*;

#[derive(Clone, Debug)]
struct Path {
    connected: bool,
    last_resort: bool,
    inflight: u64,
    latency_ns: u64,
}

struct Set(Vec<Path>);

impl Paths for Set {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn connected(&self, i: usize) -> bool {
        self.0[i].connected
    }
    fn last_resort(&self, i: usize) -> bool {
        self.0[i].last_resort
    }
    fn inflight(&self, i: usize) -> u64 {
        self.0[i].inflight
    }
    fn latency_ns(&self, i: usize) -> u64 {
        self.0[i].latency_ns
    }
}

fn set(paths: &[(bool, u64, u64)]) -> Set {
    Set(paths
        .iter()
        .map(|&(connected, inflight, latency_ns)| Path {
            connected,
            last_resort: false,
            inflight,
            latency_ns,
        })
        .collect())
}

fn order(policy: Policy, last: usize, paths: &Set) -> Vec<usize> {
    let mut choice = Choice::new(policy, last);
    core::iter::from_fn(|| choice.next(paths)).collect()
}

#[test]
fn orders() {
    let paths = set(&[(true, 5, 100), (true, 1, 0), (false, 0, 1), (true, 3, 50)]);
    assert_eq!(order(Policy::RoundRobin, 0, &paths), [1, 3, 0]);
    assert_eq!(order(Policy::RoundRobin, 3, &paths), [0, 1, 3]);
    assert_eq!(order(Policy::RoundRobin, usize::MAX, &paths), [0, 1, 3]);
    assert_eq!(order(Policy::MinInflight, 0, &paths), [1, 3, 0]);
    assert_eq!(
        order(Policy::MinLatency, 0, &paths),
        [3, 0, 1],
        "a path without a measurement is the last resort"
    );
}

#[test]
fn equal_paths_take_turns() {
    let paths = set(&[(true, 0, 9), (true, 0, 9), (true, 0, 9)]);
    for policy in [Policy::RoundRobin, Policy::MinInflight, Policy::MinLatency] {
        let mut last = 0;
        let mut counts = [0; 3];
        for _ in 0..300 {
            last = Choice::new(policy, last).next(&paths).unwrap();
            counts[last] += 1;
        }
        assert_eq!(counts, [100; 3], "{policy:?}");
    }
}

#[test]
fn last_resorts_come_last() {
    let mut paths = set(&[(true, 0, 1), (true, 9, 900), (true, 5, 500), (true, 1, 2)]);
    paths.0[0].last_resort = true;
    paths.0[3].last_resort = true;
    assert_eq!(order(Policy::RoundRobin, 2, &paths), [1, 2, 3, 0]);
    assert_eq!(order(Policy::MinInflight, 2, &paths), [2, 1, 0, 3]);
    assert_eq!(order(Policy::MinLatency, 2, &paths), [2, 1, 0, 3]);
    // If no other path is left they are as good as any.
    paths.0[1].connected = false;
    paths.0[2].connected = false;
    assert_eq!(order(Policy::MinInflight, 2, &paths), [0, 3]);
}

#[test]
fn no_paths() {
    for policy in [Policy::RoundRobin, Policy::MinInflight, Policy::MinLatency] {
        assert!(order(policy, 0, &set(&[])).is_empty());
        assert!(order(policy, 7, &set(&[(false, 0, 0); 3])).is_empty());
        let many = set(&[(true, 0, 0); 200]);
        assert_eq!(order(policy, 5, &many).len(), MAX_PATHS);
    }
}

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
        let tried = order(policy, last, &set(&paths));
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
fn policy_texts() {
    for (text, want) in [
        ("0", Policy::RoundRobin),
        ("1\n", Policy::MinInflight),
        ("+2", Policy::MinLatency),
        ("002", Policy::MinLatency),
        ("-0", Policy::RoundRobin),
        ("rr", Policy::RoundRobin),
        ("mI\n", Policy::MinInflight),
        ("ML", Policy::MinLatency),
        ("round-robin\n", Policy::RoundRobin),
        ("MIN-INFLIGHT", Policy::MinInflight),
        ("min-latencyXYZ", Policy::MinLatency),
        ("round-robin (RR: 0)\n", Policy::RoundRobin),
    ] {
        assert_eq!(Policy::parse(text.as_bytes()), Ok(want), "{text:?}");
    }
    for text in [
        "",
        "\n",
        "3",
        "-1",
        "rr ",
        "rrx",
        " rr",
        "r",
        "min",
        "min-latenc",
        "0x1",
        "1\n\n",
        "round robin",
        "4294967296",
        "\0",
        "+",
        "1 ",
    ] {
        assert_eq!(
            Policy::parse(text.as_bytes()),
            Err(UnknownPolicy),
            "{text:?}"
        );
    }
    assert_eq!(Policy::RoundRobin.to_string(), "round-robin (RR: 0)");
    assert_eq!(Policy::MinInflight.to_string(), "min-inflight (MI: 1)");
    assert_eq!(Policy::MinLatency.to_string(), "min-latency (ML: 2)");
    assert_eq!(Policy::default(), Policy::MinInflight);
}
