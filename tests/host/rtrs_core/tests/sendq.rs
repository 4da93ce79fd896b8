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

/// A queue as the device sees it: for each work request whether it is signaled.
struct Device {
    depth: usize,
    queue: VecDeque<bool>,
}

impl Device {
    fn post(&mut self, ticket: &Ticket) {
        for i in 1..=ticket.count() {
            self.queue.push_back(ticket.signal() && i == ticket.count());
        }
        assert!(self.queue.len() <= self.depth, "the queue overflowed");
    }

    /// Completes up to the next signaled one; how many came free.
    fn complete(&mut self) -> Option<u32> {
        let len = self.queue.iter().position(|&signaled| signaled)? + 1;
        self.queue.drain(..len);
        Some(len as u32)
    }
}

proptest! {
    #[test]
    fn never_overflows_never_hangs(
        depth in 1u32..200,
        ring_len in 1usize..300,
        start in any::<u32>(),
        ops in proptest::collection::vec((any::<bool>(), 1u32..40, any::<bool>(), any::<bool>()), 1..400),
    ) {
        let (ledger, mut producer) = SqLedger::new(depth, ring(ring_len)).unwrap();
        let mut device = Device { depth: depth as usize, queue: VecDeque::new() };
        let _ = start;
        for (post, count, signal, fail) in ops {
            if !post {
                prop_assert_eq!(ledger.retire(), device.complete());
                continue;
            }
            match producer.reserve(&ledger, count, signal) {
                Ok(ticket) if fail => producer.undo(&ledger, ticket),
                Ok(ticket) => {
                    prop_assert!(ticket.signal() || !signal);
                    device.post(&ticket);
                }
                Err(SqError::TooLong) => prop_assert!(count > ledger.max_chain()),
                // There must be something to wait for.
                Err(SqError::Full) => {
                    prop_assert!(device.queue.iter().any(|&signaled| signaled));
                    prop_assert!(ledger.outstanding() > 0);
                }
            }
            prop_assert_eq!(
                ledger.available(&producer) as usize,
                depth as usize - device.queue.len()
            );
        }
        // All that is signaled comes back, and then the longest chain fits.
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
