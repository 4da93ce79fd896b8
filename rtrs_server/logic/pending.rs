// SPDX-License-Identifier: GPL-2.0

//! How many connection requests wait for their decision: all together, and of each source.
//!
//! A request costs memory and a turn before the server knows its client, so both have a maximum: one
//! source must not take the room of all.

use crate::atomic::{
    Acquire,
    Atomic,
    Full,
    Relaxed, //
};

/// The most requests that may wait.
#[derive(Clone, Copy)]
pub struct Room {
    /// All together.
    pub all: u32,
    /// Of one source.
    pub of_source: u32,
}

/// The reason why a request may not wait. It is not counted any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooMany {
    /// As many of its source wait already.
    OfSource(u32),
    /// As many of all sources.
    InAll(u32),
}

/// Counts of the requests that wait, for sources in `PLACES` places. Two sources may share one.
///
/// May be used from any context, by any number of CPUs.
pub struct Pending<const PLACES: usize> {
    room: Room,
    all: Atomic<u32>,
    of: [Atomic<u32>; PLACES],
}

impl<const PLACES: usize> Pending<PLACES> {
    /// No request waits.
    pub fn new(room: Room) -> Self {
        Self {
            room,
            all: Atomic::<u32>::new(0),
            of: core::array::from_fn(|_| Atomic::<u32>::new(0)),
        }
    }

    /// Counts a request of the source in `place`. Orders what follows after the count.
    ///
    /// # Errors
    ///
    /// [`TooMany`]. With [`TooMany::InAll`] the request was counted meanwhile, so
    /// [`is_empty`](Self::is_empty) may have become true since.
    pub fn take(&self, place: usize) -> Result<(), TooMany> {
        let of_source = self.of.get(place).map_or(0, |of| of.fetch_add(1, Relaxed));
        if of_source >= self.room.of_source {
            self.leave(place);
            return Err(TooMany::OfSource(self.room.of_source));
        }
        if self.all.fetch_add(1, Full) >= self.room.all {
            self.give_back(place);
            return Err(TooMany::InAll(self.room.all));
        }
        Ok(())
    }

    /// Ends the count of a request that was taken for `place`. Orders what precedes before the end of
    /// the count of all.
    /// Returns whether no other request waits.
    pub fn give_back(&self, place: usize) -> bool {
        self.leave(place);
        self.all.fetch_sub(1, Full) == 1
    }

    /// Whether no request waits. What precedes the end of the last one is seen after that.
    pub fn is_empty(&self) -> bool {
        self.all.load(Acquire) == 0
    }

    fn leave(&self, place: usize) {
        if let Some(of) = self.of.get(place) {
            of.fetch_sub(1, Relaxed);
        }
    }
}
