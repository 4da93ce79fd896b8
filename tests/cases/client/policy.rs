// SPDX-License-Identifier: GPL-2.0

//! Path choice.

use rtrs_client::logic::policy::*;

#[derive(Clone, Debug)]
pub(crate) struct Path {
    connected: bool,
    last_resort: bool,
    inflight: u64,
    latency_ns: u64,
}

pub(crate) struct Set<T>(pub(crate) T);

impl<T: AsRef<[Path]>> Paths for Set<T> {
    fn len(&self) -> usize {
        self.0.as_ref().len()
    }
    fn connected(&self, i: usize) -> bool {
        self.0.as_ref()[i].connected
    }
    fn last_resort(&self, i: usize) -> bool {
        self.0.as_ref()[i].last_resort
    }
    fn inflight(&self, i: usize) -> u64 {
        self.0.as_ref()[i].inflight
    }
    fn latency_ns(&self, i: usize) -> u64 {
        self.0.as_ref()[i].latency_ns
    }
}

pub(crate) fn path((connected, inflight, latency_ns): (bool, u64, u64)) -> Path {
    Path {
        connected,
        last_resort: false,
        inflight,
        latency_ns,
    }
}

pub(crate) fn set<const N: usize>(paths: [(bool, u64, u64); N]) -> Set<[Path; N]> {
    Set(paths.map(path))
}

pub(crate) fn order(
    policy: Policy,
    last: usize,
    paths: &impl Paths,
) -> impl Iterator<Item = usize> + '_ {
    let mut choice = Choice::new(policy, last);
    core::iter::from_fn(move || choice.next(paths))
}

/// The first five of the order, which is one more than there are.
fn first(policy: Policy, last: usize, paths: &impl Paths) -> [Option<usize>; 5] {
    let mut order = order(policy, last, paths);
    core::array::from_fn(|_| order.next())
}

fn orders() {
    let paths = set([(true, 5, 100), (true, 1, 0), (false, 0, 1), (true, 3, 50)]);
    assert_eq!(
        first(Policy::RoundRobin, 0, &paths),
        [Some(1), Some(3), Some(0), None, None]
    );
    assert_eq!(
        first(Policy::RoundRobin, 3, &paths),
        [Some(0), Some(1), Some(3), None, None]
    );
    assert_eq!(
        first(Policy::RoundRobin, usize::MAX, &paths),
        [Some(0), Some(1), Some(3), None, None]
    );
    assert_eq!(
        first(Policy::MinInflight, 0, &paths),
        [Some(1), Some(3), Some(0), None, None]
    );
    assert_eq!(
        first(Policy::MinLatency, 0, &paths),
        [Some(3), Some(0), Some(1), None, None],
        "a path without a measurement is the last resort"
    );
}

fn equal_paths_take_turns() {
    let paths = set([(true, 0, 9), (true, 0, 9), (true, 0, 9)]);
    for policy in [Policy::RoundRobin, Policy::MinInflight, Policy::MinLatency] {
        let mut last = 0;
        let mut counts = [0; 3];
        for _ in 0..300 {
            last = must!(Choice::new(policy, last).next(&paths));
            counts[last] += 1;
        }
        assert_eq!(counts, [100; 3], "{policy:?}");
    }
}

fn last_resorts_come_last() {
    let mut paths = set([(true, 0, 1), (true, 9, 900), (true, 5, 500), (true, 1, 2)]);
    paths.0[0].last_resort = true;
    paths.0[3].last_resort = true;
    assert_eq!(
        first(Policy::RoundRobin, 2, &paths),
        [Some(1), Some(2), Some(3), Some(0), None]
    );
    assert_eq!(
        first(Policy::MinInflight, 2, &paths),
        [Some(2), Some(1), Some(0), Some(3), None]
    );
    assert_eq!(
        first(Policy::MinLatency, 2, &paths),
        [Some(2), Some(1), Some(0), Some(3), None]
    );
    // If no other path is left they are as good as any.
    paths.0[1].connected = false;
    paths.0[2].connected = false;
    assert_eq!(
        first(Policy::MinInflight, 2, &paths),
        [Some(0), Some(3), None, None, None]
    );
}

fn no_paths() {
    for policy in [Policy::RoundRobin, Policy::MinInflight, Policy::MinLatency] {
        assert_eq!(order(policy, 0, &set([])).next(), None);
        assert_eq!(order(policy, 7, &set([(false, 0, 0); 3])).next(), None);
        let many = set([(true, 0, 0); MAX_PATHS + 1]);
        assert_eq!(order(policy, 5, &many).count(), MAX_PATHS);
    }
}

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
    assert_eq!(Policy::default(), Policy::MinInflight);
}

cases!(
    rtrs_client_policy:
    orders,
    equal_paths_take_turns,
    last_resorts_come_last,
    no_paths,
    policy_texts,
);
