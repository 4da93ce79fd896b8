// SPDX-License-Identifier: GPL-2.0

//! A request, independent of its owner.
//!
//! Each permit of a session has an [`Io`]: all that is needed to send its request, and to send it
//! again over another path. The owner of the [`Turn`] may change it. Before the request is posted,
//! that is the holder of the permit. After that it is the code that has landed the request, found
//! it waiting for a path, or collected it from a link that has ended.
//!
//! This module does not know sessions, paths or links.
//!
//! # Context
//!
//! Any.

use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};
use rtrs_bindings::{
    errno,
    ib::PostError,
    loan::Loan,
    pages::Part,
    place,
    places::Places, //
};
use rtrs_core::proto::Layout;

use crate::logic::spread::Spread;

/// Which connection of a path a request uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    /// The service connection: for messages that must not queue behind IO.
    Admin,
    /// The connection of the CPU the permit is taken on, or of another one if the CPU has used up its
    /// share of the permits. If the session has polled connections: one
    /// of those if a task polls for it on the CPU the request is submitted on, otherwise that of
    /// this CPU.
    Io,
    /// The polled connection of this queue, modulo the number of polled ones; if there are none,
    /// the same as [`Connection::Io`].
    Polled(u16),
}

/// Connections of a path, the same for all paths of a session: the service connection, those of
/// CPUs, and the polled ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cons {
    io: u16,
    polled: u16,
}

impl Cons {
    /// With so many connections besides the service connection.
    pub(crate) fn new(io: u16, polled: u16) -> Self {
        Self { io, polled }
    }

    /// Number of all connections.
    pub(crate) fn count(self) -> u16 {
        self.io.saturating_add(self.polled).saturating_add(1)
    }

    /// Number of polled connections.
    pub(crate) fn polled(self) -> u16 {
        self.polled
    }

    /// Whether connection `con` is polled.
    pub(crate) fn is_polled(self, con: u16) -> bool {
        con > self.io
    }

    /// The connection of a polled queue.
    pub(crate) fn of_queue(self, queue: u16) -> Option<u16> {
        let nth = queue.checked_rem(self.polled)?;
        Some(self.io.saturating_add(1).saturating_add(nth))
    }

    /// The connection for requests of CPU `cpu`.
    #[inline(always)]
    pub(crate) fn of_cpu(self, cpu: u32) -> u16 {
        let io = u32::from(self.io);
        let nth = match cpu < io {
            true => Some(cpu),
            // Not a function: a call here would make each caller save its registers.
            false => cpu.checked_rem(io),
        };
        // CAST: Less than a `u16`.
        nth.map_or(0, |nth| nth as u16 + 1)
    }

    /// The connections for requests of each of `depth` permits, if they are not polled for.
    pub(crate) fn spread(self, depth: u16) -> Spread {
        Spread::new(self.io, depth)
    }

    /// The connection for the request of `io`, the permit of which was taken on CPU `cpu`. `spread` is
    /// that of [`spread`](Self::spread).
    #[inline(always)]
    pub(crate) fn of(self, connection: Connection, spread: Spread, io: &Io, cpu: u32) -> u16 {
        let con = || spread.con(io.own, io.id, cpu);
        match connection {
            Connection::Admin => 0,
            Connection::Io => con(),
            Connection::Polled(queue) => self.of_queue(queue).unwrap_or_else(con),
        }
    }
}

/// Bytes for the user's message and the protocol's.
const SLOT_SIZE: usize = MessageSlot::SIZE as usize;

/// All that is needed to send a request, and to send it again.
pub(crate) struct Io {
    /// The permit, which does not change.
    pub(crate) id: u16,
    /// The [connection](Spread::own) of the CPU that has the permit's word, which does not change.
    own: u16,
    /// The data, and the call that ends the request.
    pub(crate) loan: Loan,
    /// The kind of connection the permit was taken for.
    pub(crate) connection: Connection,
    /// Direction and lengths, by the limits of the session.
    pub(crate) layout: Layout,
    /// The connection of a path on which it is sent.
    pub(crate) con: u16,
    /// Another path had it before.
    pub(crate) failover: bool,
    /// The driver of a path refused it.
    pub(crate) refused: bool,
    /// The message has the server's number of a device in place of the user's.
    pub(crate) renamed: bool,
    /// The data was measured: its length is known, not only said by the user.
    pub(crate) measured: bool,
    /// The epoch of the session in which the request was made.
    pub(crate) epoch: u32,
    /// The reason why it was not sent.
    pub(crate) unsent: Unsent,
    /// The user's message, and the protocol's behind it.
    pub(crate) message: Part<SLOT_SIZE>,
}

impl Io {
    /// The state of permit `id`, which is not held.
    pub(crate) fn new(id: u16, spread: Spread, layout: Layout, message: Part<SLOT_SIZE>) -> Self {
        Self {
            id,
            own: spread.own(id),
            loan: Loan::NONE,
            connection: Connection::Io,
            layout,
            con: 0,
            failover: false,
            refused: false,
            renamed: false,
            measured: false,
            epoch: 0,
            unsent: Unsent::NoPath,
            message,
        }
    }
}

/// The requests of a session, by permit.
pub(crate) type Permits = Places<Io>;

/// The right to a request.
pub(crate) type Turn<'a> = place::Turn<'a, Io>;

/// The reason why a link, or all paths, did not take a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsent {
    /// No path is connected, or this link has failed and another one may work.
    NoPath,
    /// There is no room, or no memory to map it, at the moment.
    Full,
    /// The server has forgotten the session since.
    Forgotten,
    /// The driver refused it. This ends the link, and also the request, if the driver of another
    /// link refuses it too.
    Refused(Error),
    /// The request is invalid, or cannot be sent now: the caller gets this error.
    Request(Error),
}

impl Unsent {
    /// Returns the error for the user.
    pub(crate) fn error(self) -> Error {
        match self {
            Self::NoPath | Self::Forgotten => errno::ECONNABORTED,
            Self::Full => ENOMEM,
            Self::Refused(e) | Self::Request(e) => e,
        }
    }
}

/// Notes why a request was not sent. Out of line, away from the code of each request.
#[cold]
#[inline(never)]
pub(crate) fn unsent(mut turn: Turn<'_>, why: Unsent) -> Turn<'_> {
    turn.unsent = why;
    turn
}

impl From<PostError> for Unsent {
    fn from(e: PostError) -> Self {
        match e {
            PostError::Refused(e) if e == ENOMEM.to_errno() => Self::Full,
            // A device that is broken: the request does not matter.
            PostError::Refused(e) if e == EIO.to_errno() || e == ENODEV.to_errno() => Self::NoPath,
            PostError::Refused(e) => Self::Refused(Error::from_errno(e)),
            PostError::Closed | PostError::Partial(_) => Self::NoPath,
            PostError::Full => Self::Full,
            PostError::Invalid => Self::Request(EINVAL),
        }
    }
}

/// Where the messages of permits are kept.
pub(crate) struct MessageSlot;

impl MessageSlot {
    /// Bytes for the user's message and the protocol's.
    pub(crate) const SIZE: u32 = 4096;
    /// Bytes of a region: small, so that it can be allocated in fragmented memory, but not less than
    /// a page.
    pub(crate) const REGION_SIZE: usize = match PAGE_SIZE {
        ..32768 => 32768,
        page_size => page_size,
    };
    /// Slots in one region. All of it is slots: a link gives its flights their places by the length
    /// of the region.
    const PER_REGION: usize = Self::REGION_SIZE / SLOT_SIZE;

    /// Returns the number of regions for `depth` permits.
    pub(crate) fn regions(depth: u16) -> usize {
        usize::from(depth).div_ceil(Self::PER_REGION)
    }

    /// Returns the region of permit `id`, and the offset of its slot in it, in bytes.
    pub(crate) fn of(id: u16) -> (usize, usize) {
        let id = usize::from(id);
        (
            id / Self::PER_REGION,
            id % Self::PER_REGION * Self::SIZE as usize,
        )
    }
}
