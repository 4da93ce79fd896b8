// SPDX-License-Identifier: GPL-2.0

//! Exact accounting of a send queue.
//!
//! A queue pair accepts as many work requests as it was created with; how many
//! it still holds is known from completions only, and only signalled requests
//! complete. The ledger counts what is posted, remembers at each signalled
//! request how far the queue was, and gives the entries back when that request
//! completes. A chain without a token of its own is signalled now and then, so
//! that the queue can always be emptied.
//!
//! [`Ledger`] is the producer, used under the send queue's lock; [`Retired`] is
//! shared with the consumer, the completion context, of which there is one at a
//! time. Positions are counters modulo 2^32.
//!
//! This file needs no kernel: it is also compiled into the host tests, which
//! run it under loom.

use core::ops::Deref;

use crate::atomic::{
    Acquire,
    Atomic,
    Relaxed,
    Release, //
};

/// A chain that was counted.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reserved {
    /// The last request of the chain must be signalled.
    pub signal: bool,
    n: u32,
    unsignalled: u32,
}

/// What the completion context tells the posters. `R` is the storage of the
/// ring, [`Ledger::ring_len`] words.
pub struct Retired<R> {
    /// Where the queue stood at each signalled request, in order.
    ring: R,
    /// Position up to which everything is retired.
    position: Atomic<u32>,
    /// Signalled requests that have completed. Written by the consumer only.
    head: Atomic<u32>,
}

impl<R: Deref<Target = [Atomic<u32>]>> Retired<R> {
    /// For a queue of which nothing has been posted yet.
    pub fn new(ring: R) -> Self {
        Self {
            ring,
            position: Atomic::new(0),
            head: Atomic::new(0),
        }
    }

    fn slot(&self, index: u32) -> Option<&Atomic<u32>> {
        // The length is a power of two.
        self.ring
            .get(index as usize & self.ring.len().wrapping_sub(1))
    }

    /// A signalled request completed without error. For the completion context
    /// only, once for each such request, in their order.
    #[inline]
    pub fn retire(&self) {
        let head = self.head.load(Relaxed);
        if let Some(slot) = self.slot(head) {
            // ORDERING: pairs with `reserve()`, which must see the position
            // before it reuses the entries, and our use of the slot before it
            // overwrites that.
            self.position.store(slot.load(Acquire), Release);
        }
        self.head.store(head.wrapping_add(1), Relaxed);
    }
}

/// The posters' side; the lock of the send queue protects it.
#[derive(Debug)]
pub struct Ledger {
    depth: u32,
    interval: u32,
    posted: u32,
    /// Requests since the last signalled one.
    unsignalled: u32,
    /// Signalled requests posted.
    tail: u32,
}

impl Ledger {
    /// For a queue of `depth` entries.
    pub const fn new(depth: u32) -> Self {
        // Often enough that a queue whose requests are short never waits,
        // seldom enough that it costs nothing.
        let interval = match depth / 4 {
            0 => 1,
            n if n > 64 => 64,
            n => n,
        };
        Self {
            depth,
            interval,
            posted: 0,
            unsignalled: 0,
            tail: 0,
        }
    }

    /// Words of the ring that goes with a queue of `depth` entries: each of
    /// them may be a signalled request.
    pub const fn ring_len(depth: u32) -> usize {
        (depth as usize).next_power_of_two()
    }

    /// Entries in use, as far as is known.
    pub fn used<R: Deref<Target = [Atomic<u32>]>>(&self, retired: &Retired<R>) -> u32 {
        self.posted.wrapping_sub(retired.position.load(Acquire))
    }

    /// Counts a chain of `n` requests that is about to be posted, the last one
    /// signalled if `signal`, or if it is time for it. `None` if there is no
    /// room, or `n` is 0.
    #[inline]
    pub fn reserve<R: Deref<Target = [Atomic<u32>]>>(
        &mut self,
        n: u32,
        signal: bool,
        retired: &Retired<R>,
    ) -> Option<Reserved> {
        let free = self.depth.checked_sub(self.used(retired))?;
        if n == 0 || n > free {
            return None;
        }
        let unsignalled = self.unsignalled;
        let signal = signal || unsignalled.saturating_add(n) >= self.interval;
        self.posted = self.posted.wrapping_add(n);
        if signal {
            // ORDERING: pairs with `retire()`.
            retired.slot(self.tail)?.store(self.posted, Release);
            self.tail = self.tail.wrapping_add(1);
            self.unsignalled = 0;
        } else {
            self.unsignalled = unsignalled.saturating_add(n);
        }
        Some(Reserved {
            signal,
            n,
            unsignalled,
        })
    }

    /// Takes back the last reservation: its chain was not posted. The lock has
    /// been held since.
    pub fn cancel(&mut self, reserved: Reserved) {
        self.posted = self.posted.wrapping_sub(reserved.n);
        self.unsignalled = reserved.unsignalled;
        if reserved.signal {
            self.tail = self.tail.wrapping_sub(1);
        }
    }
}
