// SPDX-License-Identifier: GPL-2.0

//! The use of a session's chunks.
//!
//! A client that lost a path sends the requests in flight again over another one, under the same
//! buffer id, while the server may still execute the first copy. Two operations on one chunk at the
//! same time would mix their data. Even without that, the older of two writes could land last. So a
//! session has one state per buffer id, an atomic word, which says on which path (more exactly: in
//! which life of which path, its *incarnation*) an operation runs. A request that comes meanwhile
//! over another path is parked, and runs when the operation is over. Neither is answered before, so
//! the client cannot use the buffer id for anything else.
//!
//! There is never more than one parked request: a client sends a request a third time only if it
//! gave the second path up too, so the latest request replaces the one before.
//!
//! Calls for one state come from any CPU and any path, in any context; each decision is one atomic
//! operation.

use core::num::NonZeroU32;

use crate::atomic::{
    Atomic,
    Full,
    Relaxed, //
};

/// The number of one life of one path, unique in a session while anything refers to it.
pub type Incarnation = NonZeroU32;

/// The decision on a received request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// Run it. [`ChunkState::end`] has to follow.
    Run,
    /// Keep it. [`ChunkState::end`] will hand it over, unless it is cancelled. It waits for an
    /// operation of this incarnation. That path should be closed, as its client has given it up:
    /// the client may be waiting for something that the path does not do any more.
    Parked(Incarnation),
    /// Keep it as above. The request that was parked by this incarnation is not parked any more,
    /// and ends with its path. That path should be closed, as its client has given it up.
    Replaced(Incarnation),
    /// The client has this request in flight on this very path. Close the path.
    Violation,
}

/// The step that follows an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The chunk is free.
    Free,
    /// The caller has to run the parked request of this incarnation now. That request uses the
    /// chunk already: if it cannot run, [`ChunkState::end`] has to be called for it.
    Run(Incarnation),
    /// The incarnation did not use the chunk: a mistake of the caller.
    NotBusy,
}

/// The state of one buffer id.
pub struct ChunkState {
    /// Incarnation of the running operation in the low half, of the parked one in the high half;
    /// 0 for none. Nothing is parked unless something runs.
    word: Atomic<u64>,
}

/// The word taken apart.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Users {
    busy: Option<Incarnation>,
    parked: Option<Incarnation>,
}

impl Users {
    fn from_word(word: u64) -> Self {
        // CAST: The low half, and the high half shifted down.
        Self {
            busy: NonZeroU32::new(word as u32),
            parked: NonZeroU32::new((word >> 32) as u32),
        }
    }

    #[inline(always)]
    fn to_word(self) -> u64 {
        let half = |user: Option<Incarnation>| user.map_or(0, |user| u64::from(user.get()));

        half(self.busy) | half(self.parked) << 32
    }
}

impl ChunkState {
    /// Bytes of memory that one takes, with its reference count.
    pub const MEMORY: usize = 16;

    /// A free chunk.
    pub fn new() -> Self {
        Self {
            word: Atomic::<u64>::new(0),
        }
    }

    /// A request for this chunk came over a path in its life `inc`.
    ///
    /// Everything that [`ChunkState::end`] needs to run the request must be in place before, as the
    /// request may be handed over before this returns.
    pub fn try_begin(&self, inc: Incarnation) -> Begin {
        match self.begin_free(inc) {
            true => Begin::Run,
            false => self.begin_in_use(inc),
        }
    }

    /// As [`ChunkState::try_begin`], if that returns [`Begin::Run`] because nothing uses the chunk;
    /// otherwise does nothing and returns `false`.
    #[inline(always)]
    pub fn begin_free(&self, inc: Incarnation) -> bool {
        let free = Users {
            busy: None,
            parked: None,
        };
        let ours = Users {
            busy: Some(inc),
            ..free
        };

        // The usual case. ORDERING: As in `update()`.
        self.word
            .cmpxchg(free.to_word(), ours.to_word(), Full)
            .is_ok()
    }

    #[cold]
    fn begin_in_use(&self, inc: Incarnation) -> Begin {
        self.update(|users| match users {
            Users { busy: None, .. } => (
                Some(Users {
                    busy: Some(inc),
                    parked: None,
                }),
                Begin::Run,
            ),
            Users { busy, parked } if busy == Some(inc) || parked == Some(inc) => {
                (None, Begin::Violation)
            }
            Users {
                busy: Some(busy),
                parked,
            } => (
                Some(Users {
                    busy: Some(busy),
                    parked: Some(inc),
                }),
                parked.map_or(Begin::Parked(busy), Begin::Replaced),
            ),
        })
    }

    /// The operation of `inc` is over: it does not touch the chunk any more.
    ///
    /// After the answer the client may send the next request for this chunk, which must not get to
    /// [`ChunkState::try_begin`] before this has returned. The server calls this when there is room
    /// for the answer, before it is posted.
    #[inline(always)]
    pub fn end(&self, inc: Incarnation) -> End {
        let ours = Users {
            busy: Some(inc),
            parked: None,
        };
        let free = Users { busy: None, ..ours };

        // The usual case. ORDERING: As in `update()`.
        match self.word.cmpxchg(ours.to_word(), free.to_word(), Full) {
            Ok(_) => End::Free,
            Err(_) => self.end_of_several(inc),
        }
    }

    #[cold]
    fn end_of_several(&self, inc: Incarnation) -> End {
        self.update(|users| match users {
            Users { busy, parked } if busy == Some(inc) => (
                Some(Users {
                    busy: parked,
                    parked: None,
                }),
                parked.map_or(End::Free, End::Run),
            ),
            _ => (None, End::NotBusy),
        })
    }

    /// The path in its life `inc` closes. Returns whether it had a request parked here; that
    /// request is not parked any more and belongs to the caller.
    ///
    /// Otherwise there was none, it was replaced, or it was handed over and is running.
    pub fn cancel_parked(&self, inc: Incarnation) -> bool {
        self.update(|users| match users {
            Users { busy, parked } if parked == Some(inc) => {
                (Some(Users { busy, parked: None }), true)
            }
            _ => (None, false),
        })
    }

    /// Replaces the users as `change` says, or leaves them if it returns `None`.
    fn update<T>(&self, change: impl Fn(Users) -> (Option<Users>, T)) -> T {
        loop {
            let old = self.word.load(Relaxed);
            let (new, result) = change(Users::from_word(old));
            let new = match new {
                Some(new) => new.to_word(),
                None => return result,
            };
            // ORDERING: Full, so that the operation that runs next sees all that the one before did
            // to the chunk, and the task that hands a parked request over sees all of it.
            if self.word.cmpxchg(old, new, Full).is_ok() {
                return result;
            }
        }
    }
}

impl Default for ChunkState {
    fn default() -> Self {
        Self::new()
    }
}
