// SPDX-License-Identifier: GPL-2.0

//! A box that is present or away, under all interleavings.

#![cfg(loom)]

use loom::{
    cell::UnsafeCell,
    sync::{
        atomic::{AtomicU32, Ordering},
        Arc,
    },
    thread, //
};
use rtrs_bindings::berth::Berth;

const IDLE: u8 = 1;
const PARKED: u8 = 2;
const QUEUED: u8 = 5;

/// A value whose accesses loom sees, and checks for an order between them.
#[repr(align(8))]
struct Watched(UnsafeCell<u32>);

impl Watched {
    fn increment(&mut self) {
        // SAFETY: There is a unique reference. Loom checks that it is unique.
        self.0.with_mut(|value| unsafe { *value += 1 });
    }
}

fn berth<const TAG: u8>() -> Arc<Berth<Watched>> {
    Arc::new(Berth::new::<TAG>(Box::new(Watched(UnsafeCell::new(0)))))
}

#[test]
fn one_has_it_at_a_time() {
    loom::model(|| {
        let berth = berth::<IDLE>();
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let berth = berth.clone();
                thread::spawn(move || {
                    if let Some(mut value) = berth.take::<IDLE>() {
                        value.increment();
                        berth.put::<IDLE>(value);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("no panic");
        }
        berth.take::<IDLE>().expect("it is back").increment();
    });
}

#[test]
fn changes_its_tag_while_it_may_be_taken() {
    loom::model(|| {
        let berth = berth::<PARKED>();
        let had = Arc::new(AtomicU32::new(0));
        let threads = [
            {
                let (berth, had) = (berth.clone(), had.clone());
                thread::spawn(move || {
                    if berth.retag::<PARKED, QUEUED>() {
                        if let Some(mut value) = berth.take::<QUEUED>() {
                            value.increment();
                            had.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                })
            },
            {
                let (berth, had) = (berth.clone(), had.clone());
                thread::spawn(move || {
                    if let Some(mut value) = berth.take_unless::<IDLE>() {
                        value.increment();
                        had.fetch_add(1, Ordering::Relaxed);
                    }
                })
            },
        ];
        for thread in threads {
            thread.join().expect("no panic");
        }
        assert_eq!(had.load(Ordering::Relaxed), 1);
    });
}

/// What tasks do beside the box is seen, too: the first one before it puts it, the second one before it
/// changes the tag.
#[test]
fn what_was_done_is_seen_behind_another_tag() {
    loom::model(|| {
        let berth = berth::<IDLE>();
        let beside: Arc<[UnsafeCell<u32>; 2]> =
            Arc::new(core::array::from_fn(|_| UnsafeCell::new(0)));
        // SAFETY: Loom checks that nothing else accesses the cell meanwhile.
        let write = |cell: &UnsafeCell<u32>| cell.with_mut(|at| unsafe { *at = 7 });
        // SAFETY: As above.
        let read = |cell: &UnsafeCell<u32>| cell.with(|at| unsafe { *at });
        let mut value = berth.take::<IDLE>().expect("it is there");
        let first = {
            let (berth, beside) = (berth.clone(), beside.clone());
            thread::spawn(move || {
                value.increment();
                write(&beside[0]);
                berth.put::<PARKED>(value);
            })
        };
        let second = {
            let (berth, beside) = (berth.clone(), beside.clone());
            thread::spawn(move || {
                write(&beside[1]);
                if berth.retag::<PARKED, QUEUED>() {
                    assert_eq!(read(&beside[0]), 7);
                }
            })
        };
        if let Some(mut value) = berth.take::<QUEUED>() {
            value.increment();
            assert_eq!((read(&beside[0]), read(&beside[1])), (7, 7));
        }
        first.join().expect("no panic");
        second.join().expect("no panic");
    });
}

#[test]
fn given_up_or_taken_once() {
    loom::model(|| {
        let berth = berth::<QUEUED>();
        let had = Arc::new(AtomicU32::new(0));
        let worker = {
            let (berth, had) = (berth.clone(), had.clone());
            thread::spawn(move || {
                if let Some(mut value) = berth.take::<QUEUED>() {
                    value.increment();
                    had.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        if let Some(mut value) = berth.take_unless::<IDLE>() {
            value.increment();
            had.fetch_add(1, Ordering::Relaxed);
        }
        worker.join().expect("no panic");
        assert_eq!(had.load(Ordering::Relaxed), 1);
    });
}

/// A caller and a parker race: exactly one of them goes on with the box, in any order.
#[test]
fn parked_or_called() {
    loom::model(|| {
        let berth = berth::<IDLE>();
        let mut value = berth.take::<IDLE>().expect("there");
        let ran = Arc::new(AtomicU32::new(0));
        let caller = {
            let (berth, ran) = (berth.clone(), ran.clone());
            thread::spawn(move || {
                for _ in 0..2 {
                    if let Some(mut value) = berth.take::<PARKED>() {
                        value.increment();
                        ran.fetch_add(1, Ordering::Relaxed);
                        return true;
                    }
                    if berth.call() {
                        return true;
                    }
                }
                false
            })
        };
        value.increment();
        if let Err(mut value) = berth.park::<PARKED>(value) {
            value.increment();
            ran.fetch_add(1, Ordering::Relaxed);
        }
        assert!(caller.join().expect("no panic"));
        assert_eq!(ran.load(Ordering::Relaxed), 1);
    });
}

/// The task that is called for the box sees what the caller did before.
#[test]
fn what_came_before_the_call() {
    loom::model(|| {
        let berth = berth::<IDLE>();
        let value = berth.take::<IDLE>().expect("there");
        let done = Arc::new(UnsafeCell::new(0));
        let caller = {
            let (berth, done) = (berth.clone(), done.clone());
            thread::spawn(move || {
                // SAFETY: Loom checks that nothing reads it meanwhile.
                done.with_mut(|done| unsafe { *done = 1 });
                berth.call()
            })
        };
        if berth.park::<PARKED>(value).is_err() {
            // SAFETY: Loom checks that nothing writes it meanwhile.
            done.with(|done| assert_eq!(unsafe { *done }, 1));
        }
        caller.join().expect("no panic");
    });
}
