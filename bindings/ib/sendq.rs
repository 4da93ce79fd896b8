// SPDX-License-Identifier: GPL-2.0

//! Exact accounting of a send queue.
//!
//! Most work requests are posted unsignaled; the completion of a later, signaled one means that all
//! before it are done. So the room in a queue is known only if it is recorded which work requests
//! each signaled completion stands for, and if completions are requested often enough.
//!
//! The work is split between the two sides of a queue:
//!
//! * [`SqProducer`] lives inside the lock that serializes posting. It reserves room for a whole
//!   chain before any of it is posted, decides whether its last work request must be signaled, and
//!   records the work requests that its completion will retire in a note.
//! * [`SqLedger`] is shared. The handler of the completions of sends, of which there is only one at a
//!   time, calls [`SqLedger::retire`] without a lock, once for each work request that completed
//!   **successfully** and was signaled because [`Ticket::signal`] said so: it has a note. Completions
//!   of requests that are signaled for another reason retire nothing, and must not be reported. The
//!   first failed completion means that the queue is dead: it will be drained and destroyed, and
//!   accounting ends.
//!
//! A producer may also measure data in *portions*: the work request with which a portion is full is
//! signaled, so that [`SqLedger::is_ahead`] can tell whether the last two portions are under way.
//!
//! Neither side allocates, sleeps or spins.

use crate::atomic::{
    Acquire,
    Atomic,
    Relaxed,
    Release, //
};

/// The longest run of unsignaled work requests, regardless of the depth of the queue.
const MAX_INTERVAL: u32 = 128;

/// The part of the queue that both sides share. `S` is the storage of the ring of notes.
///
/// All positions count work requests, or notes, since the queue was made, modulo 2^32; their
/// differences are at most the depth.
pub struct SqLedger<S> {
    /// Number of work requests that the queue holds.
    depth: u32,
    /// See [`interval`](Self::interval).
    interval: u32,
    /// See [`max_chain`](Self::max_chain).
    max_chain: u32,
    /// Number of usable entries of `ring`, a power of two, minus one.
    mask: u32,
    /// Bytes of a portion of data, less one; `u32::MAX` if there are none.
    portion: u32,
    /// The end of the last portion but one, or a later position that is retired. Written by the
    /// producer.
    behind: Atomic<u32>,
    /// Number of work requests retired. Written by the consumer.
    retired: Atomic<u32>,
    /// Number of notes taken out of `ring`. Written by the consumer.
    notes_out: Atomic<u32>,
    /// Number of notes put into `ring`. Written by the producer.
    notes_in: Atomic<u32>,
    /// Each entry is the position up to which one signaled completion retires.
    ring: S,
}

/// The posting side, to be kept in the lock that serializes posting.
///
/// Usually there is room without a look at the ledger, and no request must be signaled: one number
/// tells how many requests can be reserved in this way.
pub struct SqProducer {
    /// Number of work requests that can be reserved without a look at the ledger, none of them
    /// signaled.
    free: u32,
    /// Number of work requests that are reserved when `free` is used up.
    end: u32,
    /// Fewer than this number of work requests may follow then before one must be signaled.
    left: u32,
    /// A portion of data ends with more bytes than this.
    data_left: u32,
    /// The end of the last portion, or a later position that is retired; after one was taken back, what
    /// was reserved before.
    portion_end: u32,
}

/// Reserved room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the chain has to be posted as the ticket says"]
pub struct Ticket {
    /// Number of work requests.
    count: u32,
    signal: bool,
}

impl Ticket {
    /// Remakes a ticket from its contents.
    #[inline(always)]
    pub const fn new(count: u32, signal: bool) -> Self {
        Self { count, signal }
    }

    /// Whether the last work request of the chain must be posted signaled. All others must be
    /// unsignaled.
    pub const fn signal(&self) -> bool {
        self.signal
    }

    /// Number of work requests reserved.
    pub const fn count(&self) -> u32 {
        self.count
    }
}

/// The reason why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SqError {
    /// There is no room now. An outstanding signaled completion will make room.
    Full,
    /// There is never room: the chain is empty, or longer than [`SqLedger::max_chain`].
    TooLong,
}

impl<S: AsRef<[Atomic<u32>]>> SqLedger<S> {
    /// Accounts for a queue of `depth` work requests, with its producer.
    ///
    /// `ring` needs one entry per signaled work request that may be outstanding; with fewer than
    /// `depth` entries, reserving may fail with [`SqError::Full`] before the queue is full. The
    /// number of entries used is a power of two. `None` if `depth` is 0 or more than 2^31, or
    /// `ring` is empty.
    pub fn new(depth: u32, ring: S) -> Option<(Self, SqProducer)> {
        Self::with_portions(depth, 0, ring)
    }

    /// The same; a portion of data has `portion` bytes, or more if the last chain has more than are
    /// left. 0 for none. Data are measured for a depth of no more than 2^30.
    pub fn with_portions(depth: u32, portion: u32, ring: S) -> Option<(Self, SqProducer)> {
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
            // are posted: only the others are certain to be retired. No overflow: `interval` is at
            // most a quarter, or 1.
            max_chain: depth - (interval - 1),
            // No overflow: the shift is below 32.
            mask: (1 << log2) - 1,
            portion: portion.wrapping_sub(1),
            behind: Atomic::<u32>::new(0),
            retired: Atomic::<u32>::new(0),
            notes_out: Atomic::<u32>::new(0),
            notes_in: Atomic::<u32>::new(0),
            ring,
        };
        let mut producer = SqProducer {
            free: 0,
            end: 0,
            left: interval,
            data_left: portion.wrapping_sub(1),
            portion_end: 0,
        };
        producer.set(0, depth, interval);
        Some((ledger, producer))
    }

    /// Number of work requests between signaled ones: a quarter of the queue, so that there are
    /// always completions on their way when it fills up.
    pub const fn interval(&self) -> u32 {
        self.interval
    }

    /// Length of the longest chain that can ever be reserved, in work requests.
    pub const fn max_chain(&self) -> u32 {
        self.max_chain
    }

    /// Number of work requests that the queue holds.
    pub const fn depth(&self) -> u32 {
        self.depth
    }

    /// Number of work requests that could be reserved now; can only grow while the producer is
    /// idle.
    pub fn available(&self, producer: &SqProducer) -> u32 {
        // Pairs with the store in `retire`: retired entries are really free.
        let used = producer.reserved().wrapping_sub(self.retired.load(Acquire));

        self.depth.saturating_sub(used)
    }

    /// Whether the last two portions of data are under way: neither end is retired. Then both will be,
    /// as they are signaled. Any context.
    ///
    /// What another task reserves or retires meanwhile may be seen or not.
    #[inline(always)]
    pub fn is_ahead(&self) -> bool {
        let behind = self.behind.load(Relaxed);
        // CAST: The difference of positions that are close to each other: see `SqProducer::put_note()`.
        (self.retired.load(Relaxed).wrapping_sub(behind) as i32) < 0
    }

    /// Accounts for one work request with a note that completed successfully.
    ///
    /// Returns the number of work requests that became free, including that one; `None` if none with
    /// a note was outstanding, which means that the caller retired a request without a note, or
    /// retired one twice.
    ///
    /// Must be called by the handler of the completions of this queue only, on one thread at a time. The
    /// device orders the posting of a work request before its completion.
    #[inline(always)]
    pub fn retire(&self) -> Option<u32> {
        let out = self.notes_out.load(Relaxed);
        // Pairs with the store in `put_note`: the note is visible.
        if out == self.notes_in.load(Acquire) {
            return None;
        }

        let note = self.entry(out)?.load(Relaxed);
        // Only this function writes `retired`.
        let freed = note.wrapping_sub(self.retired.load(Relaxed));

        // Pairs with the load in `put_note`: the entry is read before it is written again.
        self.notes_out.store(out.wrapping_add(1), Release);
        // Pairs with the load in `available`.
        self.retired.store(note, Release);
        Some(freed)
    }

    /// Number of work requests with a note that did not complete yet.
    pub fn outstanding(&self) -> u32 {
        let out = self.notes_out.load(Relaxed);

        self.notes_in.load(Relaxed).wrapping_sub(out)
    }

    /// Puts a note into the ring: a signaled completion retires up to position `reserved`. Returns
    /// `false` if there is no room. Called by the producer.
    #[inline(always)]
    fn put_note(&self, reserved: u32) -> bool {
        let pos = self.notes_in.load(Relaxed);
        // Pairs with the store in `retire`: the entry is not in use any more.
        if pos.wrapping_sub(self.notes_out.load(Acquire)) > self.mask {
            return false;
        }
        let Some(entry) = self.entry(pos) else {
            return false;
        };
        entry.store(reserved, Relaxed);
        // Pairs with the load in `retire`.
        self.notes_in.store(pos.wrapping_add(1), Release);
        true
    }

    #[inline(always)]
    fn entry(&self, pos: u32) -> Option<&Atomic<u32>> {
        // CAST: `usize` has at least 32 bits.
        self.ring.as_ref().get((pos & self.mask) as usize)
    }
}

impl SqProducer {
    /// Number of work requests reserved so far.
    fn reserved(&self) -> u32 {
        self.end.wrapping_sub(self.free)
    }

    /// Sets the state: `reserved` work requests are reserved, there is room for `room` more, and
    /// fewer than `left` may follow before one must be signaled.
    fn set(&mut self, reserved: u32, room: u32, left: u32) {
        let free = room.min(left.saturating_sub(1));

        self.free = free;
        self.end = reserved.wrapping_add(free);
        // No overflow: it is less.
        self.left = left.wrapping_sub(free);
    }

    /// As [`reserve`](Self::reserve), if that needs no look at the ledger; otherwise reserves
    /// nothing and returns `None`.
    #[inline(always)]
    pub fn take(&mut self, count: u32, signal: bool) -> Option<Ticket> {
        if signal || count == 0 {
            return None;
        }
        // Stored in any case: then this is one instruction.
        let (free, short) = self.free.overflowing_sub(count);
        self.free = free;
        if short {
            self.untake(count);
            return None;
        }
        Some(Ticket { count, signal })
    }

    /// Takes back `count` that were more than there are. If it were inlined, the usual case would keep
    /// the number from before.
    #[cold]
    #[inline(never)]
    fn untake(&mut self, count: u32) {
        self.free = self.free.wrapping_add(count);
    }

    /// Makes all further reservations look at the ledger.
    pub fn stop(&mut self) {
        self.set(self.reserved(), 0, self.left.saturating_add(self.free));
    }

    /// Reserves room for a chain of `count` work requests, to be posted at once.
    ///
    /// With `signal` the last one is signaled because the caller needs its completion; otherwise
    /// only if the ledger needs it. [`Ticket::signal`] tells which. In both cases the completion
    /// must be reported to [`SqLedger::retire`].
    ///
    /// # Errors
    ///
    /// [`SqError`]; nothing is reserved.
    #[inline(always)]
    pub fn reserve<S: AsRef<[Atomic<u32>]>>(
        &mut self,
        ledger: &SqLedger<S>,
        count: u32,
        signal: bool,
    ) -> Result<Ticket, SqError> {
        if let Some(ticket) = self.take(count, signal) {
            return Ok(ticket);
        }
        if signal && self.take_signaled(ledger, count) {
            return Ok(Ticket { count, signal });
        }
        self.look(ledger, count, signal)
    }

    /// As [`take`](Self::take), for a chain with `bytes` of data, with which no portion ends.
    #[inline(always)]
    pub fn take_data(&mut self, count: u32, bytes: u32) -> Option<Ticket> {
        let left = self.data_left.checked_sub(bytes)?;
        let ticket = self.take(count, false)?;

        self.data_left = left;
        Some(ticket)
    }

    /// As [`reserve`](Self::reserve), for a chain with `bytes` of data. The last work request is
    /// signaled if a portion of data ends with it. Data are counted, also if [`undo`](Self::undo)
    /// follows.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn reserve_data<S: AsRef<[Atomic<u32>]>>(
        &mut self,
        ledger: &SqLedger<S>,
        count: u32,
        bytes: u32,
    ) -> Result<Ticket, SqError> {
        let left = match ledger.portion {
            u32::MAX => Some(u32::MAX),
            _ => self.data_left.checked_sub(bytes),
        };
        let ticket = self.reserve(ledger, count, left.is_none())?;

        self.data_left = left.unwrap_or(ledger.portion);
        if left.is_none() {
            ledger.behind.store(self.portion_end, Relaxed);
            self.portion_end = self.reserved();
        }
        Ok(ticket)
    }

    /// Puts down that a signaled completion retires up to position `reserved`. Returns `false` if there
    /// is no room.
    #[inline(always)]
    fn put_note<S: AsRef<[Atomic<u32>]>>(&mut self, ledger: &SqLedger<S>, reserved: u32) -> bool {
        // Notes are never far apart: the ends of portions stay close to the other positions, also if no
        // portion ends for long.
        let retired = ledger.retired.load(Relaxed);
        // CAST: The difference of positions that are close to each other.
        if retired.wrapping_sub(self.portion_end) as i32 > 0 {
            self.portion_end = retired;
            ledger.behind.store(retired, Relaxed);
        }
        ledger.put_note(reserved)
    }

    /// As [`take`](Self::take), with a note: the last one is signaled. Room that was seen before is
    /// still there. Returns `false` if it is not enough; nothing is reserved then.
    #[inline(always)]
    pub fn take_signaled<S: AsRef<[Atomic<u32>]>>(
        &mut self,
        ledger: &SqLedger<S>,
        count: u32,
    ) -> bool {
        if count == 0 || count > self.free {
            return false;
        }
        // No overflow: see above.
        let free = self.free.wrapping_sub(count);
        if !self.put_note(ledger, self.end.wrapping_sub(free)) {
            return false;
        }
        self.free = free;
        // No overflow: `free` is less, as it was when it was set.
        self.left = ledger.interval().wrapping_sub(free);
        true
    }

    /// As [`reserve`](Self::reserve), with a look at the ledger.
    ///
    /// # Errors
    ///
    /// As there.
    #[inline(always)]
    pub fn look<S: AsRef<[Atomic<u32>]>>(
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
        if signal && !self.put_note(ledger, reserved) {
            return Err(SqError::Full);
        }
        let left = match signal {
            true => ledger.interval(),
            // No overflow: it is less.
            false => left.wrapping_sub(count),
        };
        // No overflow: see above.
        self.set(reserved, available.wrapping_sub(count), left);
        Ok(Ticket { count, signal })
    }

    /// Takes back the latest reservation, after posting failed and no part of the chain was posted.
    ///
    /// Must be called under the same hold of the lock as [`SqProducer::reserve`]. If a part of the
    /// chain was posted, the queue must be given up instead.
    pub fn undo<S: AsRef<[Atomic<u32>]>>(&mut self, ledger: &SqLedger<S>, ticket: Ticket) {
        let left = if ticket.signal {
            // The completion cannot come, since nothing was posted, so the consumer does not access
            // the note.
            let pos = ledger.notes_in.load(Relaxed);
            ledger.notes_in.store(pos.wrapping_sub(1), Release);
            // The number of earlier requests without a note is not known any more: the next chain
            // is signaled.
            0
        } else {
            let left = self.left.saturating_add(self.free);
            left.saturating_add(ticket.count)
        };
        let reserved = self.reserved().wrapping_sub(ticket.count);
        // CAST: As in `put_note()`. No completion comes for the end of a portion that is taken back: nothing
        // may wait for one. The next portion ends later than what was posted so far.
        if self.portion_end.wrapping_sub(reserved) as i32 > 0 {
            self.portion_end = reserved;
            ledger.behind.store(ledger.retired.load(Relaxed), Relaxed);
        }
        self.set(reserved, 0, left);
    }
}
