// SPDX-License-Identifier: GPL-2.0

//! Exact accounting of a send queue.
//!
//! Most work requests are posted unsignaled; the completion of a later, signaled one says that all
//! before it are done. So the room in a queue is known only if somebody remembers which work
//! requests each signaled completion stands for, and a completion is asked for often enough.
//!
//! The work is split along the two sides of a queue:
//!
//! * [`SqProducer`] lives inside the lock that serializes posting. It reserves room for a whole
//!   chain before any of it is posted, decides whether its last work request has to be signaled,
//!   and notes what that completion will retire.
//! * [`SqLedger`] is shared. The completion handler of the queue, of which there is only one at a
//!   time, calls [`SqLedger::retire`] without a lock, once for each signaled work request that
//!   completed **successfully**. The first failed completion means that the queue is dead: it will
//!   be drained and destroyed, and nothing is accounted any more.
//!
//! Neither side allocates, sleeps or spins.

use crate::atomic::{
    Acquire,
    Atomic,
    Relaxed,
    Release, //
};

/// Longest run of unsignaled work requests, however deep the queue.
const MAX_INTERVAL: u32 = 64;

/// The queue as both sides see it. `S` is the storage of the ring of notes.
///
/// All positions count work requests, or notes, since the queue was made, modulo 2^32; differences
/// of them are at most the depth.
pub struct SqLedger<S> {
    /// Work requests the queue holds.
    depth: u32,
    /// See [`interval`](Self::interval).
    interval: u32,
    /// See [`max_chain`](Self::max_chain).
    max_chain: u32,
    /// Number of usable entries of `ring`, a power of two, minus one.
    mask: u32,
    /// Work requests retired. Written by the consumer.
    retired: Atomic<u32>,
    /// Notes taken out of `ring`. Written by the consumer.
    notes_out: Atomic<u32>,
    /// Notes put into `ring`. Written by the producer.
    notes_in: Atomic<u32>,
    /// Each entry is the position up to which one signaled completion retires.
    ring: S,
}

/// The posting side, to be kept in the lock that serializes posting.
///
/// As a rule there is room without a look at the ledger, and nothing is to be signaled: what may be
/// reserved so is one number.
pub struct SqProducer {
    /// Work requests that can be reserved without a look at the ledger, none of them signaled.
    free: u32,
    /// Work requests that are reserved when `free` is used up.
    end: u32,
    /// Less than so many work requests may follow then before one has to be signaled.
    left: u32,
}

/// Room that was reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the chain has to be posted as the ticket says"]
pub struct Ticket {
    /// Number of work requests.
    count: u32,
    signal: bool,
}

impl Ticket {
    /// A ticket again, of what one has said.
    #[inline(always)]
    pub const fn new(count: u32, signal: bool) -> Self {
        Self { count, signal }
    }

    /// Whether the last work request of the chain has to be posted signaled, and all others
    /// unsignaled.
    pub const fn signal(&self) -> bool {
        self.signal
    }

    /// Number of work requests reserved.
    pub const fn count(&self) -> u32 {
        self.count
    }
}

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SqError {
    /// Not now. A signaled completion is outstanding and will make room.
    Full,
    /// Never: the chain is empty, or longer than [`SqLedger::max_chain`].
    TooLong,
}

impl<S: AsRef<[Atomic<u32>]>> SqLedger<S> {
    /// Accounts for a queue of `depth` work requests, with its producer.
    ///
    /// `ring` needs one entry per signaled work request that may be outstanding; with fewer than
    /// `depth` entries reserving may fail with [`SqError::Full`] before the queue is full. Only a
    /// power of two of them is used. `None` if `depth` or `ring` has less than one, or `depth` more
    /// than 2^31.
    pub fn new(depth: u32, ring: S) -> Option<(Self, SqProducer)> {
        let len = u32::try_from(ring.as_ref().len()).ok()?;
        let log2 = len.checked_ilog2()?;
        if depth == 0 || depth > 1 << 31 {
            return None;
        }

        let interval = match depth / 4 {
            0 => 1,
            quarter => quarter.min(MAX_INTERVAL),
        };
        let ledger = Self {
            depth,
            interval,
            // The last `interval - 1` requests may be unsignaled, and are not retired before more
            // are posted: only the others are certain to. No overflow: a quarter at most, or 1.
            max_chain: depth - (interval - 1),
            // No overflow: the shift is below 32.
            mask: (1 << log2) - 1,
            retired: Atomic::<u32>::new(0),
            notes_out: Atomic::<u32>::new(0),
            notes_in: Atomic::<u32>::new(0),
            ring,
        };
        let mut producer = SqProducer {
            free: 0,
            end: 0,
            left: interval,
        };
        producer.set(0, depth, interval);
        Some((ledger, producer))
    }

    /// Work requests between signaled ones: a quarter of the queue, so that there are always
    /// completions on their way when it fills up.
    pub const fn interval(&self) -> u32 {
        self.interval
    }

    /// Longest chain that can ever be reserved, in work requests.
    pub const fn max_chain(&self) -> u32 {
        self.max_chain
    }

    /// Number of work requests the queue holds.
    pub const fn depth(&self) -> u32 {
        self.depth
    }

    /// Work requests that could be reserved now; may only grow while the producer does nothing.
    pub fn available(&self, producer: &SqProducer) -> u32 {
        // Pairs with the store in `retire`: what was retired is really free.
        let used = producer.reserved().wrapping_sub(self.retired.load(Acquire));

        self.depth.saturating_sub(used)
    }

    /// Accounts for one signaled work request that completed successfully.
    ///
    /// Returns the number of work requests that came free, the signaled one included; `None` if
    /// none was outstanding, which means that the caller retired something that was not signaled,
    /// or retired it twice.
    ///
    /// Only to be called by the completion handler of this queue, never by two at a time. The
    /// order between posting a work request and seeing its completion is the device's.
    #[inline(always)]
    pub fn retire(&self) -> Option<u32> {
        let out = self.notes_out.load(Relaxed);
        // Pairs with the store in `reserve`: the note is there.
        if out == self.notes_in.load(Acquire) {
            return None;
        }

        let note = self.entry(out)?.load(Relaxed);
        // Nobody else writes it.
        let freed = note.wrapping_sub(self.retired.load(Relaxed));

        // Pairs with the load in `reserve`: the entry was read before it is written again.
        self.notes_out.store(out.wrapping_add(1), Release);
        // Pairs with the load in `available`.
        self.retired.store(note, Release);
        Some(freed)
    }

    /// Signaled work requests that did not complete yet.
    pub fn outstanding(&self) -> u32 {
        let out = self.notes_out.load(Relaxed);

        self.notes_in.load(Relaxed).wrapping_sub(out)
    }

    fn entry(&self, pos: u32) -> Option<&Atomic<u32>> {
        // CAST: `usize` has at least 32 bits.
        self.ring.as_ref().get((pos & self.mask) as usize)
    }
}

impl SqProducer {
    /// Work requests reserved so far.
    fn reserved(&self) -> u32 {
        self.end.wrapping_sub(self.free)
    }

    /// So many are reserved, with room for `room` more, and less than `left` may follow before one
    /// has to be signaled.
    fn set(&mut self, reserved: u32, room: u32, left: u32) {
        let free = room.min(left.saturating_sub(1));

        self.free = free;
        self.end = reserved.wrapping_add(free);
        // No overflow: less.
        self.left = left.wrapping_sub(free);
    }

    /// [`reserve`](Self::reserve), if that takes no look at the ledger; otherwise `None`, and nothing
    /// is reserved.
    #[inline(always)]
    pub fn take(&mut self, count: u32, signal: bool) -> Option<Ticket> {
        if signal || count == 0 || count > self.free {
            return None;
        }
        // No overflow: see above.
        self.free = self.free.wrapping_sub(count);
        Some(Ticket { count, signal })
    }

    /// From now on everything takes a look at the ledger.
    pub fn stop(&mut self) {
        self.set(self.reserved(), 0, self.left.saturating_add(self.free));
    }

    /// Reserves room for a chain of `count` work requests, to be posted at once.
    ///
    /// With `signal` the last one is signaled because the caller needs its completion; otherwise
    /// it is only if the ledger does. [`Ticket::signal`] tells. In both cases the completion has
    /// to be given to [`SqLedger::retire`].
    ///
    /// # Errors
    ///
    /// [`SqError`]; nothing is reserved then.
    #[inline(always)]
    pub fn reserve<S: AsRef<[Atomic<u32>]>>(
        &mut self,
        ledger: &SqLedger<S>,
        count: u32,
        signal: bool,
    ) -> Result<Ticket, SqError> {
        match self.take(count, signal) {
            Some(ticket) => Ok(ticket),
            None => self.look(ledger, count, signal),
        }
    }

    /// The same, with a look at the ledger.
    #[inline(never)]
    fn look<S: AsRef<[Atomic<u32>]>>(
        &mut self,
        ledger: &SqLedger<S>,
        count: u32,
        signal: bool,
    ) -> Result<Ticket, SqError> {
        if count == 0 || count > ledger.max_chain() {
            return Err(SqError::TooLong);
        }
        let left = self.left.saturating_add(self.free);
        let available = ledger.available(self);
        if count > available {
            return Err(SqError::Full);
        }

        let signal = signal || count >= left;
        let reserved = self.reserved().wrapping_add(count);
        if signal {
            let pos = ledger.notes_in.load(Relaxed);
            // Pairs with the store in `retire`: the entry is not in use any more.
            if pos.wrapping_sub(ledger.notes_out.load(Acquire)) > ledger.mask {
                return Err(SqError::Full);
            }
            ledger
                .entry(pos)
                .ok_or(SqError::Full)?
                .store(reserved, Relaxed);
            // Pairs with the load in `retire`.
            ledger.notes_in.store(pos.wrapping_add(1), Release);
        }
        let left = match signal {
            true => ledger.interval(),
            // No overflow: less.
            false => left.wrapping_sub(count),
        };
        // No overflow: see above.
        self.set(reserved, available.wrapping_sub(count), left);
        Ok(Ticket { count, signal })
    }

    /// Takes back the latest reservation, after posting failed without posting any of it.
    ///
    /// Must be called under the same hold of the lock as [`SqProducer::reserve`]. If a part of the
    /// chain was posted, the queue has to be given up instead.
    pub fn undo<S: AsRef<[Atomic<u32>]>>(&mut self, ledger: &SqLedger<S>, ticket: Ticket) {
        let left = if ticket.signal {
            // The completion cannot come, since nothing was posted; the consumer is not there.
            let pos = ledger.notes_in.load(Relaxed);
            ledger.notes_in.store(pos.wrapping_sub(1), Release);
            // How many before are not covered is not known any more: the next chain is.
            0
        } else {
            let left = self.left.saturating_add(self.free);
            left.saturating_add(ticket.count)
        };
        self.set(self.reserved().wrapping_sub(ticket.count), 0, left);
    }
}
