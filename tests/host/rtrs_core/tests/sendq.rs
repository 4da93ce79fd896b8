// SPDX-License-Identifier: GPL-2.0

//! The send queue ledger against a model of a queue.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;

use proptest::prelude::*;
use rtrs_core::atomic::Atomic;
use rtrs_core::sendq::*;

fn ring(len: usize) -> Vec<Atomic<u32>> {
    (0..len).map(|_| Atomic::<u32>::new(0)).collect()
}

#[test]
fn refused_sizes() {
    assert!(SqLedger::new(0, ring(4)).is_none());
    assert!(SqLedger::new(4, ring(0)).is_none());
    assert!(SqLedger::new(u32::MAX, ring(4)).is_none());
    assert!(SqLedger::new(1, ring(1)).is_some());
}

#[test]
fn undo_leaves_no_trace() {
    let (ledger, mut producer) = SqLedger::new(16, ring(16)).unwrap();
    for signal in [false, true] {
        let before = ledger.available(&producer);
        let ticket = producer.reserve(&ledger, 3, signal).unwrap();
        assert_eq!((ticket.count(), ticket.signal()), (3, signal));
        producer.undo(&ledger, ticket);
        assert_eq!(ledger.available(&producer), before);
        assert_eq!(ledger.retire(), None);
        assert_eq!(ledger.outstanding(), 0);
    }
    assert!(matches!(
        producer.reserve(&ledger, 0, true),
        Err(SqError::TooLong)
    ));
    assert!(matches!(
        producer.reserve(&ledger, ledger.max_chain() + 1, true),
        Err(SqError::TooLong)
    ));
    assert!(producer
        .reserve(&ledger, ledger.max_chain(), false)
        .unwrap()
        .signal());
}

#[test]
fn after_a_stop_nothing_is_had_without_a_look() {
    let (ledger, mut producer) = SqLedger::new(16, ring(16)).unwrap();
    assert!(producer.take(1, false).is_some());
    assert!(producer.take(1, true).is_none());
    assert!(producer.take(0, false).is_none());
    producer.stop();
    assert_eq!(ledger.available(&producer), 15);
    assert!(producer.take(1, false).is_none());
    // Work requests before the stop still count for the next signaled one.
    let signals = (0..ledger.interval() - 1).map(|_| {
        let ticket = producer.reserve(&ledger, 1, false).unwrap();
        ticket.signal()
    });
    assert_eq!(signals.filter(|&signal| signal).count(), 1);
}

/// A queue as the device sees it: the length of each chain of work requests, and whether its last
/// one is signaled.
struct Device {
    depth: u64,
    queue: VecDeque<(u32, bool)>,
}

impl Device {
    fn len(&self) -> u64 {
        self.queue.iter().map(|&(count, _)| u64::from(count)).sum()
    }

    fn post(&mut self, ticket: &Ticket) {
        self.queue.push_back((ticket.count(), ticket.signal()));
        assert!(self.len() <= self.depth, "the queue overflowed");
    }

    /// Completes up to the next signaled one; returns the number of entries that became free.
    fn complete(&mut self) -> Option<u32> {
        let chains = self.queue.iter().position(|&(_, signaled)| signaled)? + 1;
        Some(self.queue.drain(..chains).map(|(count, _)| count).sum())
    }
}

proptest! {
    #[test]
    fn never_overflows_never_hangs(
        // The deepest queues reach the point where positions wrap around.
        (depth, long) in prop_oneof![
            (1u32..200, Just(40)),
            (Just(1 << 31), Just(1 << 30)),
            (1u32..=1 << 31, Just(1 << 30)),
        ],
        ring_len in 1usize..300,
        // Number of longest chains that were completed before.
        start in 0u32..6,
        ops in proptest::collection::vec((any::<bool>(), any::<u32>(), any::<bool>(), any::<bool>()), 1..400),
    ) {
        let (ledger, mut producer) = SqLedger::new(depth, ring(ring_len)).unwrap();
        let mut device = Device { depth: depth.into(), queue: VecDeque::new() };
        for _ in 0..start {
            let ticket = producer.reserve(&ledger, ledger.max_chain(), true).unwrap();
            prop_assert_eq!(ledger.retire(), Some(ticket.count()));
        }
        for (post, count, signal, fail) in ops {
            if !post {
                prop_assert_eq!(ledger.retire(), device.complete());
                continue;
            }
            let count = 1 + count % long;
            match producer.reserve(&ledger, count, signal) {
                Ok(ticket) if fail => producer.undo(&ledger, ticket),
                Ok(ticket) => {
                    prop_assert!(ticket.signal() || !signal);
                    device.post(&ticket);
                }
                Err(SqError::TooLong) => prop_assert!(count > ledger.max_chain()),
                // A signaled work request must be in flight to wait for.
                Err(SqError::Full) => {
                    prop_assert!(device.queue.iter().any(|&(_, signaled)| signaled));
                    prop_assert!(ledger.outstanding() > 0);
                }
            }
            prop_assert_eq!(
                u64::from(ledger.available(&producer)),
                device.depth - device.len()
            );
        }
        // After all signaled work requests have completed, the longest chain fits.
        while let Some(freed) = device.complete() {
            prop_assert_eq!(ledger.retire(), Some(freed));
        }
        prop_assert_eq!(ledger.retire(), None);
        prop_assert!(producer.reserve(&ledger, ledger.max_chain(), false).is_ok());
    }
}

#[test]
fn positions_wrap_around() {
    let (ledger, mut producer) = SqLedger::new(1 << 31, ring(2)).unwrap();
    for _ in 0..20 {
        let ticket = producer.reserve(&ledger, 1 << 30, true).unwrap();
        assert_eq!(ledger.retire(), Some(ticket.count()));
    }
    assert_eq!(ledger.available(&producer), 1 << 31);
}

#[test]
fn the_end_of_a_portion_is_signaled() {
    let (ledger, mut producer) = SqLedger::with_portions(512, 100, ring(512)).unwrap();
    let mut signals = Vec::new();
    for _ in 0..10 {
        let ticket = match producer.take_data(2, 30) {
            Some(ticket) => ticket,
            None => producer.reserve_data(&ledger, 2, 30).unwrap(),
        };
        signals.push(ticket.signal());
    }
    // 30, 60, 90, 120: each fourth one.
    let ends = [
        false, false, false, true, false, false, false, true, false, false,
    ];
    assert_eq!(signals, ends);
    assert!(ledger.is_ahead());
    assert_eq!(ledger.retire(), Some(8));
    assert!(!ledger.is_ahead());
    assert_eq!(ledger.retire(), Some(8));
    assert!(!ledger.is_ahead());
}

#[test]
fn data_of_more_than_a_portion_end_it() {
    let (ledger, mut producer) = SqLedger::with_portions(512, 100, ring(512)).unwrap();
    for _ in 0..2 {
        assert!(!ledger.is_ahead());
        assert!(producer.take_data(1, 4096).is_none());
        assert!(producer.reserve_data(&ledger, 1, 4096).unwrap().signal());
    }
    assert!(ledger.is_ahead());
}

#[test]
fn without_portions_nothing_is_ahead() {
    let (ledger, mut producer) = SqLedger::new(1 << 30, ring(4)).unwrap();
    for _ in 0..100 {
        let ticket = producer.reserve_data(&ledger, 1, u32::MAX).unwrap();
        assert!(!ticket.signal());
        assert!(!ledger.is_ahead());
    }
}

/// Portions that end rarely: positions pass half of their range in between.
#[test]
fn portions_are_found_after_long_times_without_one() {
    let depth = 1 << 30;
    let (ledger, mut producer) = SqLedger::with_portions(depth, 1, ring(4)).unwrap();
    for chains in [1, 2, 3, 4, 5, 6, 7, 8] {
        for _ in 0..2 {
            assert!(!ledger.is_ahead());
            assert!(producer.reserve_data(&ledger, 1, 1).unwrap().signal());
        }
        assert!(ledger.is_ahead());
        assert_eq!(ledger.retire(), Some(1));
        assert!(!ledger.is_ahead());
        assert_eq!(ledger.retire(), Some(1));
        for _ in 0..chains {
            let n = ledger.max_chain();
            assert!(producer.reserve(&ledger, n, true).is_ok());
            assert_eq!(ledger.retire(), Some(n));
            assert!(!ledger.is_ahead());
        }
    }
}

/// The device, and the ends of portions that it has not completed: each the number of work requests
/// posted up to it.
struct Portions {
    posted: u64,
    retired: u64,
    left: i64,
    ends: [u64; 2],
}

impl Portions {
    fn post(&mut self, portion: u32, ticket: &Ticket, bytes: u32) {
        self.posted += u64::from(ticket.count());
        self.left -= i64::from(bytes);
        if self.left <= 0 {
            assert!(ticket.signal());
            self.ends = [self.ends[1], self.posted];
            self.left = portion.into();
        }
    }

    fn is_ahead(&self) -> bool {
        self.ends.iter().all(|&end| end > self.retired)
    }
}

proptest! {
    /// Whether two portions are under way is known at any time; if so, a completion is to come.
    #[test]
    fn portions_are_told(
        depth in 4u32..600,
        portion in 1u32..100_000,
        ops in proptest::collection::vec((0u8..8, 1u32..4, 0u32..60_000), 1..600),
    ) {
        let (ledger, mut producer) = SqLedger::with_portions(depth, portion, ring(1024)).unwrap();
        let mut device = Device { depth: depth.into(), queue: VecDeque::new() };
        let mut portions = Portions { posted: 0, retired: 0, left: portion.into(), ends: [0; 2] };
        for (what, count, bytes) in ops {
            let count = count.min(ledger.max_chain());
            match what {
                0..=2 => {
                    let freed = device.complete();
                    prop_assert_eq!(ledger.retire(), freed);
                    portions.retired += u64::from(freed.unwrap_or(0));
                }
                3 => {
                    if let Ok(ticket) = producer.reserve(&ledger, count, bytes & 1 == 0) {
                        device.post(&ticket);
                        portions.posted += u64::from(ticket.count());
                    }
                }
                _ => {
                    let taken = producer.take_data(count, bytes);
                    let reserved = match taken {
                        Some(ticket) => Ok(ticket),
                        None => producer.reserve_data(&ledger, count, bytes),
                    };
                    match reserved {
                        Ok(ticket) => {
                            device.post(&ticket);
                            portions.post(portion, &ticket, bytes);
                        }
                        Err(e) => prop_assert_eq!(e, SqError::Full),
                    }
                }
            }
            prop_assert_eq!(ledger.is_ahead(), portions.is_ahead());
            prop_assert!(!ledger.is_ahead() || ledger.outstanding() > 0);
        }
    }

    /// The same if the driver refuses some chains: it may be told too early that less is under way, but
    /// nothing waits for a completion that does not come.
    #[test]
    fn what_was_refused_is_not_waited_for(
        depth in 4u32..600,
        portion in 1u32..100_000,
        ops in proptest::collection::vec((0u8..8, 1u32..4, 0u32..60_000), 1..600),
    ) {
        let (ledger, mut producer) = SqLedger::with_portions(depth, portion, ring(1024)).unwrap();
        let mut device = Device { depth: depth.into(), queue: VecDeque::new() };
        for (what, count, bytes) in ops {
            let count = count.min(ledger.max_chain());
            match what {
                0..=2 => prop_assert_eq!(ledger.retire(), device.complete()),
                _ => {
                    if let Ok(ticket) = producer.reserve_data(&ledger, count, bytes) {
                        match what {
                            3 | 4 => producer.undo(&ledger, ticket),
                            _ => device.post(&ticket),
                        }
                    }
                }
            }
            prop_assert!(!ledger.is_ahead() || ledger.outstanding() > 0);
        }
    }
}
