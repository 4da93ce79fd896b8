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
    /// Those that were taken from there, the first one first. The worker's.
    first: Atomic<u32>,
}

impl Pile {
    /// An empty one.
    pub fn new() -> Self {
        Self {
            top: Atomic::<u32>::new(END),
            first: Atomic::<u32>::new(END),
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

    /// The next one, for the worker; `find` finds what has a number.
    #[inline(always)]
    pub fn pop<'a, T: AsRef<Link>>(&self, find: impl Fn(u16) -> Option<&'a T>) -> Option<&'a T> {
        let mut first = self.first.load(Relaxed);
        if first == END {
            first = self.take(&find)?;
        }
        // CAST: It was made from one.
        let found = find(first as u16)?;
        self.first.store(found.as_ref().0.load(Relaxed), Relaxed);
        Some(found)
    }

    /// Takes all that came, and turns it round.
    #[inline(never)]
    fn take<'a, T: AsRef<Link> + 'a>(&self, find: &impl Fn(u16) -> Option<&'a T>) -> Option<u32> {
        let mut next = self.top.xchg(END, Full);
        let mut first = END;
        while next != END {
            // CAST: It was made from one.
            let link = find(next as u16)?.as_ref();
            let after = link.0.load(Relaxed);
            link.0.store(first, Relaxed);
            first = next;
            next = after;
        }
        (first != END).then_some(first)
    }

    /// Whether the worker has taken something that it has not popped. For the worker.
    pub fn is_begun(&self) -> bool {
        self.first.load(Relaxed) != END
    }
}

impl Default for Pile {
    fn default() -> Self {
        Self::new()
    }
}
