// SPDX-License-Identifier: GPL-2.0

//! Permits and requests of a session.
//!
//! # Context
//!
//! Any, except where a function says that it sleeps.

use kernel::{
    cpu::CpuId,
    prelude::*,
    sync::{
        rcu,
        Arc, //
    },
};
use rtrs_bindings::{
    callback::Message,
    errno, //
};
use rtrs_core::proto::{
    Dir,
    Layout, //
};

use super::{
    PathSet,
    Session,
    Tables, //
};
use crate::{
    atomic::Relaxed,
    logic::policy::{
        Choice,
        Paths, //
    },
    request::{
        Connection,
        Io,
        IssueError,
        MessageSlot,
        Pending,
        Turn, //
    },
};

/// The right to have one request in flight. Given back with
/// [`Session::put_permit`].
#[must_use]
pub(crate) struct Permit {
    id: u16,
    cpu: u32,
}

impl Permit {
    /// Its number, which is also that of the server's chunk.
    #[inline(always)]
    pub(crate) fn id(&self) -> u16 {
        self.id
    }

    /// The CPU it was taken on.
    #[inline(always)]
    pub(crate) fn cpu(&self) -> u32 {
        self.cpu
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

    fn last_resort(&self, i: usize) -> bool {
        self.set.0.get(i).is_none_or(|path| path.is_on_trial())
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
    #[inline(always)]
    pub(crate) fn get_permit(&self, connection: Connection, wait: bool) -> Option<Permit> {
        let tables = self.tables.as_ref()?;
        let permits = &tables.permits;
        let tag = if wait {
            permits.get()
        } else {
            permits.try_get()
        }?;
        // CAST: less than the queue depth.
        let id = tag.index() as u16;
        let cpu = CpuId::current().as_u32();
        // Who has the tag is the only one: nobody holds the place.
        let mut turn = tables.requests.get(usize::from(id))?.claim()?;
        turn.tag = Some(tag);
        turn.connection = connection;
        turn.cpu = cpu;
        // Nobody else has a place that is just being claimed.
        let _ = turn.finish();
        Some(Permit { id, cpu })
    }

    /// Gives permit `id` back. If its request is not complete then that is what gives it back.
    #[inline(always)]
    pub(crate) fn put_permit(&self, id: u16) {
        if let Some(turn) = self.pending(id).and_then(|pending| pending.give_up()) {
            self.release(turn);
        }
    }

    /// Nobody holds the permit any more, whose last turn this is.
    #[inline(always)]
    fn release(&self, mut turn: Turn<'_>) {
        let tag = turn.tag.take();
        turn.leave();
        if let (Some(tag), Some(tables)) = (tag, self.tables.as_ref()) {
            tables.permits.put(tag);
        }
    }

    /// The request of permit `id`.
    #[inline(always)]
    pub(crate) fn pending(&self, id: u16) -> Option<&Pending> {
        self.tables.as_ref()?.requests.get(usize::from(id))
    }

    /// The turn of the holder of permit `id`.
    ///
    /// # Errors
    ///
    /// `EBUSY` while its request is not complete, `EINVAL` if nobody holds it.
    #[inline(always)]
    pub(crate) fn begin(&self, id: u16) -> Result<Turn<'_>> {
        let pending = self.pending(id).ok_or(EINVAL)?;
        match pending.begin() {
            Some(turn) => Ok(turn),
            None if pending.is_idle() => Err(EINVAL),
            None => Err(EBUSY),
        }
    }

    /// Sends the request of permit `id`, whose data is the loan in `turn`. The loan is given back
    /// once it is complete, possibly before this returns.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` for too much of message or data, `ECONNABORTED` without a
    /// connected path when requests do not wait for one, `ENOMEM` if it may work
    /// later. The loan is given back without the call then.
    #[inline(always)]
    pub(crate) fn submit(
        self: &Arc<Self>,
        id: u16,
        mut turn: Turn<'_>,
        dir: Dir,
        message: Message<'_>,
    ) -> Result {
        let sent = match self.fill_in(id, &mut turn, dir, message) {
            Ok(()) => self.issue(id, turn),
            Err(e) => Err((Unsent::Request(e), turn)),
        };
        match sent {
            Ok(()) => Ok(()),
            Err((unsent, turn)) => self.not_sent(id, unsent, turn),
        }
    }

    /// No path took a new request.
    #[cold]
    fn not_sent(self: &Arc<Self>, id: u16, unsent: Unsent, turn: Turn<'_>) -> Result {
        let (e, mut turn) = match unsent {
            // No path: wait for one, unless that is not wanted.
            Unsent::NoPath => match self.park(id, turn) {
                Ok(()) => return Ok(()),
                Err(failed) => failed,
            },
            unsent => (unsent.error(), turn),
        };
        let callback = turn.loan.end();
        self.finish(turn);
        if let Some(callback) = callback {
            callback.cancel();
        }
        Err(e)
    }

    /// Fills in what is known of a new request, and copies the user's message to its place.
    #[inline(always)]
    fn fill_in(&self, id: u16, io: &mut Io, dir: Dir, message: Message<'_>) -> Result {
        let tables = self.tables.as_ref().ok_or(errno::ECONNABORTED)?;
        let usr_len = message.size();
        // The session's limits, those of its first path; a path whose own are narrower is passed
        // over later.
        if Layout::new(&tables.room, dir, io.loan.len(), usr_len).is_err() {
            return Err(errno::EMSGSIZE);
        }
        io.dir = dir;
        io.polled = match io.connection {
            Connection::Admin => None,
            Connection::Io => self.hinted_queue(),
            Connection::Polled(queue) => Some(queue),
        };
        io.usr_len = usr_len;
        io.failover = false;
        io.refused = false;
        io.epoch = self.epoch.load(Relaxed);
        // The turn is ours: nobody reads the message of an earlier request any more.
        self.store_message(tables, id, message)
    }

    /// Copies the user's message to the slot of permit `id`, whose size was checked.
    #[inline(always)]
    fn store_message(&self, tables: &Tables, id: u16, message: Message<'_>) -> Result {
        let slot = MessageSlot::of(id);
        let pages = tables.messages.get(slot.region).ok_or(EINVAL)?;
        let mut offset = slot.offset;
        for piece in message.pieces() {
            pages.write(offset, piece)?;
            // No overflow: the sum was checked.
            offset = offset.wrapping_add(piece.len());
        }
        Ok(())
    }

    /// Offers the request to the paths, in the order of the policy, until one
    /// takes it.
    ///
    /// # Errors
    ///
    /// Why none does, and the turn.
    #[inline(always)]
    fn issue<'t>(self: &Arc<Self>, id: u16, turn: Turn<'t>) -> Result<(), (Unsent, Turn<'t>)> {
        let polled = turn.polled.is_some();
        let guard = rcu::read_lock();
        // Here, see `lost()`: no path that this section finds came after the session was lost.
        if turn.epoch != self.epoch.load(Relaxed) {
            return Err((Unsent::Forgotten, turn));
        }
        let Some(set) = self.paths.read(&guard) else {
            return Err((Unsent::NoPath, turn));
        };
        // One path leaves no choice, and its request none of the state of one.
        match &*set.0 {
            [path] => {
                let Some(link) = path.link(&guard) else {
                    return Err((Unsent::NoPath, turn));
                };
                link.issue(id, turn)
                    .map_err(|(e, turn)| Self::not_on_the_only(e, turn))?;
            }
            _ => self.issue_by_choice(id, turn, &set, &guard)?,
        }
        if polled {
            self.guard_polled();
        }
        Ok(())
    }

    /// The same for a request that has waited, or was on another path.
    #[inline(never)]
    pub(super) fn issue_again<'t>(
        self: &Arc<Self>,
        id: u16,
        turn: Turn<'t>,
    ) -> Result<(), (Unsent, Turn<'t>)> {
        self.issue(id, turn)
    }

    #[cold]
    fn not_on_the_only(e: IssueError, mut turn: Turn<'_>) -> (Unsent, Turn<'_>) {
        let mut failure = Unsent::NoPath;
        match Self::not_on_this(&mut turn, e, &mut failure) {
            Ok(()) => (failure, turn),
            Err(unsent) => (unsent, turn),
        }
    }

    /// The same for several paths.
    #[inline(never)]
    fn issue_by_choice<'t>(
        self: &Arc<Self>,
        id: u16,
        mut turn: Turn<'t>,
        set: &PathSet,
        guard: &rcu::Guard,
    ) -> Result<(), (Unsent, Turn<'t>)> {
        // Where this runs does not matter, only that CPUs spread.
        let last = self.last_path.this();
        let mut choice = Choice::new(self.policy(), last.load(Relaxed) as usize);
        let mut failure = Unsent::NoPath;
        while let Some(i) = choice.next(&Candidates { set, io: &turn }) {
            let Some(link) = set.0.get(i).and_then(|path| path.link(guard)) else {
                continue;
            };
            turn = match link.issue(id, turn) {
                Ok(()) => {
                    // CAST: at most 128 paths.
                    last.store(i as u32, Relaxed);
                    return Ok(());
                }
                Err((e, mut turn)) => match Self::not_on_this(&mut turn, e, &mut failure) {
                    Ok(()) => turn,
                    Err(unsent) => return Err((unsent, turn)),
                },
            };
        }
        Err((failure, turn))
    }

    /// A path did not take the request. Notes why, or returns why no other one is to be tried.
    #[cold]
    fn not_on_this(io: &mut Io, e: IssueError, failure: &mut Unsent) -> Result<(), Unsent> {
        match e {
            IssueError::Link => {}
            // Once may be the fault of the link, twice it is the request's: it
            // is not to take down one path after the other.
            IssueError::Refused(e) if io.refused => return Err(Unsent::Request(e)),
            IssueError::Refused(_) => io.refused = true,
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

    /// The turn of a request that was lent to a link or to those that wait: it is over there.
    #[inline(always)]
    pub(crate) fn resume_turn(&self, id: u16) -> Option<Turn<'_>> {
        self.pending(id)?.resume()
    }

    /// A request is complete. Softirq, or the owner task of a path.
    #[inline(always)]
    pub(crate) fn complete(&self, mut turn: Turn<'_>, result: i32) {
        let callback = turn.loan.end();
        self.finish(turn);
        if let Some(callback) = callback {
            callback.call(result);
        }
    }

    /// The permit's holder has the place again, or nobody.
    #[inline(always)]
    fn finish(&self, turn: Turn<'_>) {
        if let Some(last) = turn.finish() {
            self.release(last);
        }
    }

    /// Sends a request again that was in flight on a path that is gone, or has it
    /// wait for one. Sleeps.
    pub(crate) fn reissue(self: &Arc<Self>, id: u16, mut turn: Turn<'_>) {
        turn.failover = true;
        match self.issue_again(id, turn) {
            Ok(()) => {}
            // Queues that are full for a moment are no reason to fail it.
            Err((Unsent::NoPath | Unsent::Full, turn)) => self.park_or_fail(id, turn),
            Err((e, turn)) => self.complete(turn, e.error().to_errno()),
        }
    }
}
