// SPDX-License-Identifier: GPL-2.0

//! The valve of an inbox, under all interleavings: no request waits for ever.

#![cfg(loom)]
#![allow(clippy::unwrap_used)]

use loom::{
    sync::{
        atomic::{fence, AtomicU32, Ordering},
        Arc,
    },
    thread::spawn,
};
use rtrs_server_logic::logic::valve::*;

#[path = "../../shim/explore.rs"]
mod explore;
use explore::explore;

/// A connection: data under way, and requests that wait for the worker.
struct Connection {
    valve: Valve,
    under_way: AtomicU32,
    /// Number of times that the worker was started.
    starts: AtomicU32,
}

impl Connection {
    fn new(under_way: u32) -> Arc<Self> {
        Arc::new(Self {
            valve: Valve::new(),
            under_way: AtomicU32::new(under_way),
            starts: AtomicU32::new(0),
        })
    }

    fn is_ahead(&self) -> bool {
        self.under_way.load(Ordering::Relaxed) > 1
    }

    fn release(&self) {
        if self.valve.open() {
            self.starts.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// An answer is posted.
    fn hold(&self) {
        if self.is_ahead() {
            self.valve.shut();
            // In the kernel the exchange is a full barrier, in loom it is not.
            fence(Ordering::SeqCst);
            if !self.is_ahead() {
                self.release();
            }
        }
    }

    /// A completion comes.
    fn retire(&self) {
        self.under_way.fetch_sub(1, Ordering::Release);
        // As `smp_mb()`.
        fence(Ordering::SeqCst);
        if !self.valve.is_open() && !self.is_ahead() {
            self.release();
        }
    }
}

/// A task answers, completions come, and the worker has a request: when all are done, the worker has
/// handed it over, or was started again.
#[test]
fn the_worker_is_started_if_it_has_stopped() {
    explore(|| {
        let connection = Connection::new(2);
        let answers = {
            let connection = connection.clone();
            spawn(move || connection.hold())
        };
        let completions = {
            let connection = connection.clone();
            spawn(move || connection.retire())
        };
        let handed_over = connection.valve.lets_through();
        answers.join().unwrap();
        completions.join().unwrap();
        let starts = connection.starts.load(Ordering::SeqCst);
        assert!(connection.valve.is_open());
        assert!(handed_over || starts == 1);
        assert!(starts <= 1);
    });
}

/// The same with two tasks that answer, and two completions.
#[test]
fn a_valve_that_is_shut_again_is_opened_again() {
    explore(|| {
        let connection = Connection::new(3);
        let answers = {
            let connection = connection.clone();
            spawn(move || {
                connection.hold();
                connection.hold();
            })
        };
        let completions = {
            let connection = connection.clone();
            spawn(move || {
                connection.retire();
                connection.retire();
            })
        };
        let handed_over = connection.valve.lets_through();
        answers.join().unwrap();
        completions.join().unwrap();
        assert!(connection.valve.is_open());
        assert!(handed_over || connection.starts.load(Ordering::SeqCst) >= 1);
    });
}

/// While more is under way, nothing is handed over.
#[test]
fn nothing_passes_while_it_is_shut() {
    explore(|| {
        let connection = Connection::new(3);
        connection.hold();
        let completions = {
            let connection = connection.clone();
            spawn(move || connection.retire())
        };
        assert!(!connection.valve.lets_through());
        completions.join().unwrap();
        assert!(!connection.valve.lets_through());
        connection.retire();
        assert!(connection.valve.lets_through());
        assert_eq!(connection.starts.load(Ordering::SeqCst), 1);
    });
}
