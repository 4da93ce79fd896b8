// SPDX-License-Identifier: GPL-2.0

//! The send queue ledger under all interleavings of posting and completing.

#![cfg(loom)]
#![allow(clippy::unwrap_used)]

use loom::sync::{
    atomic::{AtomicUsize, Ordering},
    Arc, Mutex,
};
use rtrs_core::atomic::Atomic;
use rtrs_core::sendq::*;

#[path = "../../shim/explore.rs"]
mod explore;
use explore::explore;

type Ledger = SqLedger<Vec<Atomic<u32>>>;

fn queue(depth: u32, ring: usize) -> (Arc<Ledger>, SqProducer) {
    let ring = (0..ring).map(|_| Atomic::<u32>::new(0)).collect();
    let (ledger, producer) = SqLedger::new(depth, ring).unwrap();
    (Arc::new(ledger), producer)
}

/// The device counts signaled work requests posted. Only the queue's doorbell orders posting before
/// completing.
fn post(device: &AtomicUsize, ticket: &Ticket) {
    if ticket.signal() {
        device.fetch_add(1, Ordering::Release);
    }
}

#[test]
fn one_producer_one_consumer() {
    explore(|| {
        let (ledger, mut producer) = queue(4, 2);
        let device = Arc::new(AtomicUsize::new(0));

        let consumer = {
            let (ledger, device) = (ledger.clone(), device.clone());
            loom::thread::spawn(move || {
                let mut freed = 0;
                let mut done = 0;
                for _ in 0..3 {
                    if device.load(Ordering::Acquire) > done {
                        done += 1;
                        freed += ledger.retire().expect("signaled");
                    }
                    loom::thread::yield_now();
                }
                (done, freed)
            })
        };

        let mut posted = 0;
        for _ in 0..3 {
            if let Ok(ticket) = producer.reserve(&ledger, 2, true) {
                posted += ticket.count();
                post(&device, &ticket);
            }
            assert!(ledger.available(&producer) <= 4);
            loom::thread::yield_now();
        }

        let (mut done, mut freed) = consumer.join().unwrap();
        while done < device.load(Ordering::Acquire) {
            done += 1;
            freed += ledger.retire().expect("signaled");
        }
        assert_eq!(freed, posted);
        assert_eq!(ledger.available(&producer), 4);
        assert_eq!(ledger.retire(), None);
    });
}

#[test]
fn two_producers_behind_a_lock() {
    explore(|| {
        let (ledger, producer) = queue(2, 2);
        let producer = Arc::new(Mutex::new(producer));
        let device = Arc::new(AtomicUsize::new(0));

        let posters: Vec<_> = (0..2)
            .map(|_| {
                let (ledger, producer, device) = (ledger.clone(), producer.clone(), device.clone());
                loom::thread::spawn(move || {
                    let mut producer = producer.lock().unwrap();
                    match producer.reserve(&ledger, 2, true) {
                        Ok(ticket) => {
                            post(&device, &ticket);
                            1
                        }
                        Err(SqError::Full) => 0,
                        Err(SqError::TooLong) => unreachable!(),
                    }
                })
            })
            .collect();

        let mut done = 0;
        if device.load(Ordering::Acquire) > done {
            done += 1;
            assert_eq!(ledger.retire(), Some(2));
        }
        let posted: usize = posters.into_iter().map(|p| p.join().unwrap()).sum();
        assert!(posted >= 1);
        while done < posted {
            done += 1;
            assert_eq!(ledger.retire(), Some(2));
        }
        assert_eq!(ledger.available(&producer.lock().unwrap()), 2);
    });
}

#[test]
fn heartbeat_answer_is_matched_once() {
    explore(|| {
        use rtrs_core::proto::heartbeat::HbProbe;

        let probe = Arc::new(HbProbe::new());
        assert!(probe.begin(1));
        let answers: Vec<_> = (0..2)
            .map(|_| {
                let probe = probe.clone();
                loom::thread::spawn(move || probe.ack(3).is_some())
            })
            .collect();
        let matched = answers
            .into_iter()
            .filter(|_| true)
            .map(|a| a.join().unwrap())
            .filter(|&m| m)
            .count();
        assert_eq!(matched, 1);
    });
}
