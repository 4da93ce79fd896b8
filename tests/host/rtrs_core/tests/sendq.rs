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
