// SPDX-License-Identifier: GPL-2.0

//! A queue of a fixed size: first in, first out; no item is moved.

use core::ops::DerefMut;

/// A queue in the slots of `S`, a vector of `Option<T>`.
pub struct Ring<S> {
    slots: S,
    /// Index of the first item.
    head: usize,
    len: usize,
}

impl<T, S: DerefMut<Target = [Option<T>]>> Ring<S> {
    /// An empty queue with room for as many items as `slots` has slots, which must all be `None`.
    pub const fn new(slots: S) -> Self {
        Self {
            slots,
            head: 0,
            len: 0,
        }
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an item at the end.
    ///
    /// # Errors
    ///
    /// Returns the item if there is no room.
    pub fn push(&mut self, item: T) -> Result<(), T> {
        let room = self.slots.len();

        if self.len >= room {
            return Err(item);
        }
        // No overflow: both are at most the number of slots, and a slot has a size.
        let end = self.head.wrapping_add(self.len);
        let index = match end.checked_sub(room) {
            Some(index) => index,
            None => end,
        };
        match self.slots.get_mut(index) {
            Some(slot) => *slot = Some(item),
            None => return Err(item),
        }
        self.len = self.len.wrapping_add(1);
        Ok(())
    }

    /// Takes the first item.
    pub fn pop(&mut self) -> Option<T> {
        let item = self.slots.get_mut(self.head)?.take()?;

        self.len = self.len.wrapping_sub(1);
        // No overflow: it is the number of a slot.
        self.head = self.head.wrapping_add(1);
        if self.head == self.slots.len() {
            self.head = 0;
        }
        Some(item)
    }
}
