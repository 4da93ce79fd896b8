// SPDX-License-Identifier: GPL-2.0

//! Permits and requests of a session.
//!
//! # Context
//!
//! Any, except where a function says that it sleeps.

use kernel::{
    prelude::*,
    sync::{
        rcu,
        Arc, //
    },
};
use rtrs_bindings::{
    callback::{
        Callback,
        Message, //
    },
    errno,
    handoff::HandoffCell,
    ib::SgList,
    percpu,
    sbitmap::Tag, //
};
use rtrs_core::proto::{
    Dir,
    Layout,
    MAX_SEGMENTS, //
};

use super::{
    PathSet,
    Session, //
};
use crate::{
    atomic::{
        Atomic,
        Full,
        Relaxed,
        Release, //
    },
    link::IssueError,
    logic::policy::{
        Choice,
        Paths, //
    },
};

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

/// The right to have one request in flight. Given back with
/// [`Session::put_permit`].
#[must_use]
pub(crate) struct Permit {
    tag: Tag,
    cpu: u32,
    connection: Connection,
}

impl Permit {
    /// Its number, which is also that of the server's chunk.
    pub(crate) fn id(&self) -> u16 {
        // CAST: less than the queue depth.
        self.tag.index() as u16
    }

    /// The CPU it was taken on.
    pub(crate) fn cpu(&self) -> u32 {
        self.cpu
    }

    /// What a request needs to know of it.
    pub(crate) fn key(&self) -> PermitKey {
        PermitKey {
            id: self.id(),
            cpu: self.cpu,
            connection: self.connection,
        }
    }
}

/// A permit somebody holds, as a request names it.
#[derive(Clone, Copy)]
pub(crate) struct PermitKey {
    id: u16,
    cpu: u32,
    connection: Connection,
}

/// A request, as it has to be known to send it, and to send it again.
#[derive(Clone, Copy)]
pub(crate) struct Io {
    pub(crate) dir: Dir,
    /// For the service connection.
    pub(crate) admin: bool,
    /// CPU whose connection it goes out on.
    pub(crate) cpu: u32,
    /// Or the polled queue.
    pub(crate) polled: Option<u16>,
    pub(crate) sg: SgList,
    pub(crate) data_len: usize,
    pub(crate) usr_len: usize,
    /// Another path had it before.
    pub(crate) failover: bool,
    /// The driver of a path refused it.
    pub(crate) refused: bool,
    /// Of the session as the server knew it when the request was made.
    epoch: u32,
}

impl Io {
    /// Of no request.
    const NONE: Self = Self {
        dir: Dir::Read,
        admin: false,
        cpu: 0,
        polled: None,
        sg: SgList::EMPTY,
        data_len: 0,
        usr_len: 0,
        failover: false,
        refused: false,
        epoch: 0,
    };
}

/// A request, and who wants to know that it is complete; `None` if it is.
struct Slot {
    io: Io,
    done: Option<Callback>,
}

/// The place of a permit's request.
///
/// The request is whose turn it is: the submitter's, then that of who completes it or sends it
/// again, of which there is one at a time. `busy` keeps out who submits a second one meanwhile.
pub(super) struct IoSlot {
    busy: Atomic<bool>,
    slot: HandoffCell<Slot>,
}

impl IoSlot {
    /// Of no request.
    pub(super) fn new() -> Self {
        Self {
            busy: Atomic::new(false),
            slot: HandoffCell::new(Slot {
                io: Io::NONE,
                done: None,
            }),
        }
    }
}

/// Why no path took a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unsent {
    /// None is connected.
    NoPath,
    /// Those that are have no room, or no memory to map it, for the moment.
    Full,
    /// The server has forgotten the session since.
    Forgotten,
    /// It is the request's fault.
    Request(Error),
}

impl Unsent {
    /// For the user.
    pub(super) fn error(self) -> Error {
        match self {
            Self::NoPath | Self::Forgotten => errno::ECONNABORTED,
            Self::Full => ENOMEM,
            Self::Request(e) => e,
        }
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
    pub(crate) const SIZE: usize = 4096;
    /// Slots in one region: small enough to be had on a fragmented machine.
    const PER_REGION: usize = 8;
    /// Bytes of a region.
    pub(super) const REGION_SIZE: usize = Self::SIZE * Self::PER_REGION;

    /// Regions for so many permits.
    pub(super) fn regions(depth: u16) -> usize {
        usize::from(depth).div_ceil(Self::PER_REGION)
    }

    /// The slot of permit `id`.
    pub(crate) fn of(id: u16) -> Self {
        let id = usize::from(id);
        Self {
            region: id / Self::PER_REGION,
            offset: id % Self::PER_REGION * Self::SIZE,
        }
    }
}

/// What a policy sees for one request.
struct Candidates<'a> {
    set: &'a PathSet,
    io: &'a Io,
}

impl Paths for Candidates<'_> {
    fn len(&self) -> usize {
        self.set.0.len()
    }

    fn connected(&self, i: usize) -> bool {
        self.set.0.get(i).is_some_and(|path| path.is_connected())
    }

    fn inflight(&self, i: usize) -> u64 {
        // Of all connections it would be a cache line of each CPU, for each request.
        self.set
            .0
            .get(i)
            .map_or(u64::MAX, |path| path.inflight_beside(self.io))
    }

    fn latency_ns(&self, i: usize) -> u64 {
        self.set.0.get(i).map_or(0, |path| path.latency())
    }
}

impl Session {
    /// Takes a permit; `None` if there is none, or, when told to wait (which
    /// sleeps), if the session is being closed.
    pub(crate) fn get_permit(&self, connection: Connection, wait: bool) -> Option<Permit> {
        let permits = &self.tables.as_ref()?.permits;
        let tag = if wait {
            permits.get()
        } else {
            permits.try_get()
        }?;
        Some(Permit {
            tag,
            cpu: percpu::current_cpu(),
            connection,
        })
    }

    /// Gives a permit back.
    pub(crate) fn put_permit(&self, permit: Permit) {
        if let Some(tables) = self.tables.as_ref() {
            tables.permits.put(permit.tag);
        }
    }

    /// Sends a request. `done` is called once it is complete, possibly before this
    /// returns.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` for too much of message or data, `ECONNABORTED` without a
    /// connected path when requests do not wait for one, `ENOMEM` if it may work
    /// later. `done` is not called then.
    pub(crate) fn submit(
        self: &Arc<Self>,
        permit: PermitKey,
        dir: Dir,
        message: Message<'_>,
        sg: SgList,
        data_len: usize,
        done: Callback,
    ) -> Result<(), (Error, Callback)> {
        let usr_len = match self.check_size(dir, &message, data_len) {
            Ok(len) => len,
            Err(e) => return Err((e, done)),
        };
        let io = Io {
            dir,
            admin: permit.connection == Connection::Admin,
            cpu: permit.cpu,
            polled: match permit.connection {
                Connection::Admin => None,
                Connection::Io => self.hinted_queue(),
                Connection::Polled(queue) => Some(queue),
            },
            sg: if data_len == 0 { SgList::EMPTY } else { sg },
            data_len,
            usr_len,
            failover: false,
            refused: false,
            epoch: self.epoch.load(Relaxed),
        };
        let id = permit.id;
        if let Err(done) = self.set_io(id, &io, done) {
            return Err((EBUSY, done));
        }
        // The slot is ours: nobody reads the message of an earlier request any more.
        let sent = match self
            .store_message(id, message)
            .map_err(Unsent::Request)
            .and_then(|()| self.issue(id, &io))
        {
            // No path: wait for one, unless that is not wanted.
            Err(Unsent::NoPath) => self.park(id),
            sent => sent.map_err(Unsent::error),
        };
        match sent {
            Ok(()) => Ok(()),
            // Nobody has the request now but us, unless a server answered what
            // it never got.
            Err(e) => match self.take_io(id) {
                Some(done) => Err((e, done)),
                None => Ok(()),
            },
        }
    }

    /// Checks the size of a request; returns the length of the user's message.
    fn check_size(&self, dir: Dir, message: &Message<'_>, data_len: usize) -> Result<usize> {
        let tables = self.tables.as_ref().ok_or(errno::ECONNABORTED)?;
        let usr_len = message.size().ok_or(errno::EMSGSIZE)?;
        // The session's limits, those of its first path; a path whose own are
        // narrower is passed over later.
        let layout = Layout::new(&tables.geometry, dir, data_len, usr_len)
            .map_err(|e| Error::from_errno(e.to_errno()))?;
        // More data may fit the chunk, but not our registrations.
        if layout.header_len() as usize > MessageSlot::SIZE
            || layout.data_len() > tables.geometry.client_io_size(MAX_SEGMENTS)
        {
            return Err(errno::EMSGSIZE);
        }
        Ok(usr_len)
    }

    /// Copies the user's message to the slot of permit `id`, whose size was checked.
    fn store_message(&self, id: u16, message: Message<'_>) -> Result {
        let tables = self.tables.as_ref().ok_or(errno::ECONNABORTED)?;
        let slot = MessageSlot::of(id);
        let pages = tables.messages.get(slot.region).ok_or(EINVAL)?;
        let mut offset = slot.offset;
        for piece in message.pieces() {
            pages.write(offset, piece)?;
            // No overflow: the sum was checked.
            offset += piece.len();
        }
        Ok(())
    }

    fn set_io(&self, id: u16, io: &Io, done: Callback) -> Result<(), Callback> {
        let Some(place) = self.io_slot(id) else {
            return Err(done);
        };
        if place.busy.xchg(true, Full) {
            return Err(done);
        }
        match place.slot.try_take() {
            Some(mut held) => {
                // One by one: nothing is built to be copied.
                held.io = *io;
                held.done = Some(done);
                Ok(())
            }
            // Nobody has it while it is idle.
            None => {
                place.busy.store(false, Release);
                Err(done)
            }
        }
    }

    fn io_slot(&self, id: u16) -> Option<&IoSlot> {
        self.tables.as_ref()?.ios.get(usize::from(id))
    }

    fn take_io(&self, id: u16) -> Option<Callback> {
        let place = self.io_slot(id)?;
        let done = place.slot.try_take()?.done.take()?;
        place.busy.store(false, Release);
        Some(done)
    }

    pub(super) fn peek_io(&self, id: u16) -> Option<Io> {
        let held = self.io_slot(id)?.slot.try_take()?;
        held.done.is_some().then_some(held.io)
    }

    /// Notes that a path had the request and lost it.
    fn mark_failover(&self, id: u16) -> Option<Io> {
        self.change_io(id, |io| io.failover = true)
    }

    fn change_io(&self, id: u16, change: impl FnOnce(&mut Io)) -> Option<Io> {
        let mut held = self.io_slot(id)?.slot.try_take()?;
        held.done.as_ref()?;
        change(&mut held.io);
        Some(held.io)
    }

    /// Offers the request to the paths, in the order of the policy, until one
    /// takes it.
    pub(super) fn issue(self: &Arc<Self>, id: u16, io: &Io) -> Result<(), Unsent> {
        let guard = rcu::read_lock();
        // Here, see `lost()`: no path that this section finds came after the session was lost.
        if io.epoch != self.epoch.load(Relaxed) {
            return Err(Unsent::Forgotten);
        }
        let set = self.paths.read(&guard).ok_or(Unsent::NoPath)?;
        // One path leaves no choice, and its request none of the state of one.
        let [path] = &*set.0 else {
            return self.issue_by_choice(id, io, &set, &guard);
        };
        let link = path.link(&guard).ok_or(Unsent::NoPath)?;
        match link.issue(id, io) {
            Ok(()) => {
                self.went_out(io);
                Ok(())
            }
            Err(e) => {
                let (mut refused, mut failure) = (io.refused, Unsent::NoPath);
                self.not_on_this(id, e, &mut refused, &mut failure)?;
                Err(failure)
            }
        }
    }

    /// The same for several paths.
    #[inline(never)]
    fn issue_by_choice(
        self: &Arc<Self>,
        id: u16,
        io: &Io,
        set: &PathSet,
        guard: &rcu::Guard,
    ) -> Result<(), Unsent> {
        // Where this runs does not matter, only that CPUs spread.
        let last = self.last_path.this();
        let candidates = Candidates { set, io };
        let mut choice = Choice::new(self.policy(), last.load(Relaxed) as usize);
        let mut failure = Unsent::NoPath;
        let mut refused = io.refused;
        while let Some(i) = choice.next(&candidates) {
            let Some(link) = set.0.get(i).and_then(|path| path.link(guard)) else {
                continue;
            };
            match link.issue(id, io) {
                Ok(()) => {
                    // CAST: at most 128 paths.
                    last.store(i as u32, Relaxed);
                    self.went_out(io);
                    return Ok(());
                }
                Err(e) => self.not_on_this(id, e, &mut refused, &mut failure)?,
            }
        }
        Err(failure)
    }

    #[inline]
    fn went_out(self: &Arc<Self>, io: &Io) {
        if io.polled.is_some() {
            self.guard_polled();
        }
    }

    /// A path did not take request `id`. Notes why, or returns why no other one is to be tried.
    #[cold]
    fn not_on_this(
        &self,
        id: u16,
        e: IssueError,
        refused: &mut bool,
        failure: &mut Unsent,
    ) -> Result<(), Unsent> {
        match e {
            IssueError::Link => {}
            // Once may be the fault of the link, twice it is the request's: it
            // is not to take down one path after the other.
            IssueError::Refused(e) if *refused => return Err(Unsent::Request(e)),
            IssueError::Refused(_) => {
                *refused = true;
                self.change_io(id, |io| io.refused = true);
            }
            IssueError::Full => *failure = Unsent::Full,
            // Of what mapping takes: as for the queue, it may do in a moment.
            IssueError::Request(e) if e == ENOMEM => *failure = Unsent::Full,
            // This path's limits, not the session's.
            IssueError::Request(e) if e == errno::EMSGSIZE => {
                if *failure == Unsent::NoPath {
                    *failure = Unsent::Request(e);
                }
            }
            IssueError::Request(e) => return Err(Unsent::Request(e)),
        }
        Ok(())
    }

    /// A request is complete. Softirq, or the owner task of a path.
    pub(crate) fn complete(&self, id: u16, result: i32) {
        // Taken once: who completes a request a second time finds nothing.
        if let Some(done) = self.take_io(id) {
            done.call(result);
        }
    }

    /// Sends a request again that was in flight on a path that is gone, or has it
    /// wait for one. Sleeps.
    pub(crate) fn reissue(self: &Arc<Self>, id: u16) {
        let Some(io) = self.mark_failover(id) else {
            return;
        };
        match self.issue(id, &io) {
            Ok(()) => {}
            // Queues that are full for a moment are no reason to fail it.
            Err(Unsent::NoPath | Unsent::Full) => self.park_or_fail(id),
            Err(e) => self.complete(id, e.error().to_errno()),
        }
    }
}
