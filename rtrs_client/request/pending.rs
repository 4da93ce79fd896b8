// SPDX-License-Identifier: GPL-2.0

//! What is known of a permit's request.
//!
//! # Context
//!
//! Any.

use core::ops::Deref;

use kernel::prelude::*;
use rtrs_bindings::{
    ib::PostError,
    loan::Loan,
    place::{
        self,
        Place, //
    },
    sbitmap::Tag, //
};
use rtrs_core::proto::Dir;

/// Which connection of a path a request uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    /// The service connection: for what must not queue behind IO.
    Admin,
    /// The connection of the CPU the permit is taken on.
    Io,
    /// The polled one of this queue, modulo the number of those; if there are none, as
    /// for [`Connection::Io`].
    Polled(u16),
}

/// A request, as it has to be known to send it, and to send it again.
pub(crate) struct Io {
    /// What keeps the permit, while it is held.
    pub(crate) tag: Option<Tag>,
    /// The permit's connection.
    pub(crate) connection: Connection,
    /// The CPU on which it was taken.
    pub(crate) cpu: u32,
    pub(crate) dir: Dir,
    /// The polled queue it goes out on.
    pub(crate) polled: Option<u16>,
    /// The data, and the call that ends the request.
    pub(crate) loan: Loan,
    /// Bytes of the user's message.
    pub(crate) usr_len: usize,
    /// Another path had it before.
    pub(crate) failover: bool,
    /// The driver of a path refused it.
    pub(crate) refused: bool,
    /// Of the session as the server knew it when the request was made.
    pub(crate) epoch: u32,
}

/// The request of a permit. A cache line of its own: neighbours belong to other CPUs.
#[repr(align(64))]
pub(crate) struct Pending(Place<Io>);

/// The right to a request.
pub(crate) type Turn<'a> = place::Turn<'a, Io>;

impl Pending {
    /// Of a permit that nobody holds.
    pub(crate) fn new() -> Self {
        Self(Place::new(Io {
            tag: None,
            connection: Connection::Io,
            cpu: 0,
            dir: Dir::Read,
            polled: None,
            loan: Loan::NONE,
            usr_len: 0,
            failover: false,
            refused: false,
            epoch: 0,
        }))
    }
}

impl Deref for Pending {
    type Target = Place<Io>;

    #[inline(always)]
    fn deref(&self) -> &Place<Io> {
        &self.0
    }
}

/// Why a request did not go out on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IssueError {
    /// This link is no use, another one may be.
    Link,
    /// The driver refused it: the end of this link, and of the request, if the driver of another
    /// link says the same.
    Refused(Error),
    /// This link's queue is full for the moment.
    Full,
    /// The request, or the moment, is no good: the caller gets this.
    Request(Error),
}

impl From<PostError> for IssueError {
    fn from(e: PostError) -> Self {
        match e {
            PostError::Refused(e) if e == ENOMEM.to_errno() => Self::Full,
            // A device that is broken, whatever it is asked.
            PostError::Refused(e) if e == EIO.to_errno() || e == ENODEV.to_errno() => Self::Link,
            PostError::Refused(e) => Self::Refused(Error::from_errno(e)),
            PostError::Closed | PostError::Partial(_) => Self::Link,
            PostError::Full => Self::Full,
            PostError::Invalid => Self::Request(EINVAL),
        }
    }
}

impl From<Error> for IssueError {
    fn from(e: Error) -> Self {
        Self::Request(e)
    }
}

/// Where the message of a permit is kept.
pub(crate) struct MessageSlot {
    /// Which region of the message store.
    pub(crate) region: usize,
    /// Where in it, in bytes.
    pub(crate) offset: usize,
}

impl MessageSlot {
    /// Bytes for the user's message and the protocol's.
    pub(crate) const SIZE: u32 = 4096;
    /// Slots in one region: small enough to be had on a fragmented machine.
    const PER_REGION: usize = 8;
    /// Bytes of a region.
    // CAST: widening.
    pub(crate) const REGION_SIZE: usize = Self::SIZE as usize * Self::PER_REGION;

    /// Regions for so many permits.
    pub(crate) fn regions(depth: u16) -> usize {
        usize::from(depth).div_ceil(Self::PER_REGION)
    }

    /// The slot of permit `id`.
    #[inline(always)]
    pub(crate) fn of(id: u16) -> Self {
        let id = usize::from(id);
        Self {
            region: id / Self::PER_REGION,
            offset: id % Self::PER_REGION * Self::SIZE as usize,
        }
    }
}
