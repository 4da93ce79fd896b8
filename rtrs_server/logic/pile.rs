// SPDX-License-Identifier: GPL-2.0

//! Chunks that wait for a worker, in the order in which they came.
//!
//! Any CPU can put the number of a chunk on the pile, by one compare-exchange. One worker takes the
//! whole pile at once. The links between the numbers are in the chunks, so putting one down takes
//! no memory, and a chunk is on one pile at a time.
//!
//! The chunk of a number on the pile may be gone when its turn comes.

use crate::atomic::{
    Atomic,
    Full,
    Relaxed, //
};

/// The end of a list. Chunks are numbered from 0, with 16 bits.
const END: u32 = u32::MAX;

/// The link in a chunk: the number of the next one.
pub struct PileLink(Atomic<u32>);

impl PileLink {
    /// The link of a chunk that is on no pile.
    pub fn new() -> Self {
        Self(Atomic::<u32>::new(END))
    }
}

impl AsRef<PileLink> for PileLink {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl Default for PileLink {
    fn default() -> Self {
        Self::new()
    }
}

/// Numbers of chunks.
pub struct Pile {
    /// The number that came last.
    top: Atomic<u32>,
    /// The part of a [`Batch`] that the worker has left.
    left: Atomic<u32>,
}

/// Numbers that were taken from a pile, the first one first. Used by the worker.
#[must_use = "what is in it waits"]
pub struct Batch {
    next: u32,
}

impl Batch {
    /// An empty batch.
    pub fn none() -> Self {
        Self { next: END }
    }

    /// Whether the batch is empty.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.next == END
    }

    /// Takes the next one; `find` returns the object with a number. The link is read before any
    /// other task can have that object.
    #[inline(always)]
    pub fn pop<'a, T: AsRef<PileLink>>(
        &mut self,
        find: impl FnOnce(u32) -> Option<&'a T>,
    ) -> Option<&'a T> {
        // No object has the number `END`.
        let found = find(self.next)?;
        self.next = found.as_ref().0.load(Relaxed);
        Some(found)
    }
}

impl Pile {
    /// An empty pile.
    pub fn new() -> Self {
        Self {
            top: Atomic::<u32>::new(END),
            left: Atomic::<u32>::new(END),
        }
    }

    /// Puts down `number` with its link `link`. Returns whether the worker has to be told: that is
    /// so if the pile was empty, as the worker has taken all that came before.
    ///
    /// The worker that has the number sees all that the caller did before.
    #[inline(always)]
    pub fn push(&self, number: u16, link: &PileLink) -> bool {
        let mut top = self.top.load(Relaxed);
        loop {
            link.0.store(top, Relaxed);
            match self.top.cmpxchg(top, u32::from(number), Full) {
                Ok(_) => return top == END,
                Err(now) => top = now,
            }
        }
    }

    /// Takes all numbers in the order in which they came, for the worker; `find` returns the object
    /// with a number. The next call of [`Pile::push`] returns that the worker has to be told.
    #[inline(always)]
    pub fn take<'a, T: AsRef<PileLink> + 'a>(&self, find: impl Fn(u32) -> Option<&'a T>) -> Batch {
        let mut next = self.top.xchg(END, Full);
        let mut first = END;
        // Reverses the list. No object has the number `END`.
        while let Some(found) = find(next) {
            let link = found.as_ref();
            let after = link.0.load(Relaxed);
            link.0.store(first, Relaxed);
            first = next;
            next = after;
        }
        Batch { next: first }
    }

    /// Leaves the rest of a batch for a later run of the worker, which the caller has to start.
    pub fn leave(&self, batch: Batch) {
        self.left.store(batch.next, Relaxed);
    }

    /// Returns the rest that was left. For the worker.
    #[inline(always)]
    pub fn take_left(&self) -> Batch {
        let next = self.left.load(Relaxed);
        if next != END {
            self.left.store(END, Relaxed);
        }
        Batch { next }
    }
}

impl Default for Pile {
    fn default() -> Self {
        Self::new()
    }
}
