// SPDX-License-Identifier: GPL-2.0

//! Chunks that wait for one who works them off, in the order in which they came.
//!
//! Anybody lays the number of a chunk on the pile, by one compare-exchange; one worker takes all of
//! it at once. The links between them are with the chunks: laying something down takes no memory,
//! and a chunk is on one pile at a time.
//!
//! A chunk whose number is here need not be there any more when its turn comes.

use crate::atomic::{
    Atomic,
    Full,
    Relaxed, //
};

/// The end of a list. Chunks are counted from 0, with 16 bits.
const END: u32 = u32::MAX;

/// With a chunk: the one that comes next.
pub struct Link(Atomic<u32>);

impl Link {
    /// On no pile.
    pub fn new() -> Self {
        Self(Atomic::<u32>::new(END))
    }
}

impl AsRef<Link> for Link {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl Default for Link {
    fn default() -> Self {
        Self::new()
    }
}

/// Numbers of chunks.
pub struct Pile {
    /// The last one that came.
    top: Atomic<u32>,
    /// What the worker has left of a [`Batch`].
    rest: Atomic<u32>,
}

/// Numbers that were taken from a pile, the first one first. The worker's.
#[must_use = "what is in it waits"]
pub struct Batch {
    next: u32,
}

impl Batch {
    /// Nothing.
    pub fn none() -> Self {
        Self { next: END }
    }

    /// Whether there is none.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.next == END
    }

    /// Takes the next one; `find` finds what has a number. The link is read before anybody can have
    /// what is found.
    #[inline(always)]
    pub fn pop<'a, T: AsRef<Link>>(
        &mut self,
        find: impl FnOnce(u32) -> Option<&'a T>,
    ) -> Option<&'a T> {
        // There is none with the number of the end.
        let found = find(self.next)?;
        self.next = found.as_ref().0.load(Relaxed);
        Some(found)
    }
}

impl Pile {
    /// An empty one.
    pub fn new() -> Self {
        Self {
            top: Atomic::<u32>::new(END),
            rest: Atomic::<u32>::new(END),
        }
    }

    /// Lays down `number`, whose link is `link`. Returns whether the worker has to be told: nothing
    /// was here that it has not taken.
    ///
    /// What was done before is seen by the worker when it has the number.
    #[inline(always)]
    pub fn push(&self, number: u16, link: &Link) -> bool {
        let mut top = self.top.load(Relaxed);
        loop {
            link.0.store(top, Relaxed);
            match self.top.cmpxchg(top, u32::from(number), Full) {
                Ok(_) => return top == END,
                Err(now) => top = now,
            }
        }
    }

    /// Takes all that came, in its order, for the worker; `find` finds what has a number. Whoever
    /// lays something down after that tells the worker.
    #[inline(always)]
    pub fn take<'a, T: AsRef<Link> + 'a>(&self, find: impl Fn(u32) -> Option<&'a T>) -> Batch {
        let mut next = self.top.xchg(END, Full);
        let mut first = END;
        // Turns it round. There is none with the number of the end.
        while let Some(found) = find(next) {
            let link = found.as_ref();
            let after = link.0.load(Relaxed);
            link.0.store(first, Relaxed);
            first = next;
            next = after;
        }
        Batch { next: first }
    }

    /// Leaves what the worker has not got to for another time, when it is to be told.
    pub fn leave(&self, batch: Batch) {
        self.rest.store(batch.next, Relaxed);
    }

    /// What was left. For the worker.
    #[inline(always)]
    pub fn rest(&self) -> Batch {
        let next = self.rest.load(Relaxed);
        if next != END {
            self.rest.store(END, Relaxed);
        }
        Batch { next }
    }
}

impl Default for Pile {
    fn default() -> Self {
        Self::new()
    }
}
