// SPDX-License-Identifier: GPL-2.0

//! Permits and requests of a session.
//!
//! # Context
//!
//! Any, except where a function is said to sleep.

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
    errno,
    loan::Callback,
    place::Left, //
};
use rtrs_core::proto::{
    DataDir,
    Room, //
};

use super::{
    paths::PathSet,
    restart::Translated,
    Session, //
};
use crate::{
    atomic::Relaxed,
    logic::{
        policy::{
            Choice,
            Paths, //
        },
        spread::Spread,
    },
    request::{
        unsent,
        Connection,
        Cons,
        Io,
        Permits,
        Turn,
        Unsent, //
    },
};

/// A session that knows its size: the handle with which users send requests.
#[derive(Clone)]
pub(crate) struct Ready {
    /// The session.
    pub(crate) session: Arc<Session>,
    /// The permits, for giving one back.
    pub(crate) permits: Arc<Permits>,
    room: Room,
    cons: Cons,
    spread: Spread,
}

/// The view of a policy for one request.
struct Candidates<'a> {
    set: &'a PathSet,
    io: &'a Io,
}

impl Paths for Candidates<'_> {
    fn len(&self) -> usize {
        self.set.all.len()
    }

    fn connected(&self, i: usize) -> bool {
        self.set.all.get(i).is_some_and(|path| path.is_connected())
    }

    fn last_resort(&self, i: usize) -> bool {
        self.set.all.get(i).is_none_or(|path| path.is_on_trial())
    }

    fn inflight(&self, i: usize) -> u64 {
        // Only of the request's connection: all of them would be a cache line of each CPU, for each
        // request.
        self.set
            .all
            .get(i)
            .map_or(u64::MAX, |path| path.inflight_beside(self.io))
    }

    fn latency_ns(&self, i: usize) -> u64 {
        self.set.all.get(i).map_or(0, |path| path.latency())
    }
}

impl Ready {
    /// Whether `permits` are those of the session.
    pub(crate) fn has(&self, permits: &Arc<Permits>) -> bool {
        Arc::ptr_eq(&self.permits, permits)
    }

    /// Takes a permit: the right to have one request in flight. Returns its number, which is also
    /// that of the server's chunk. Returns `None` if there is none, or, with `wait` (which may
    /// sleep), if the session is being closed.
    #[inline(always)]
    pub(crate) fn get_permit(&self, connection: Connection, wait: bool) -> Option<usize> {
        self.permits.get(wait, |io| {
            io.connection = connection;
            let cpu = CpuId::current().as_u32();
            io.con = self.cons.of(connection, self.spread, io, cpu);
        })
    }

    /// Gives permit `id` back. If its request is not complete, the completion gives it back.
    #[inline(always)]
    pub(crate) fn put_permit(&self, id: usize) {
        self.permits.put(id);
    }

    /// Returns the turn of the holder of permit `id`.
    ///
    /// # Errors
    ///
    /// `EBUSY` while its request is not complete, `EINVAL` if it is not held.
    #[inline(always)]
    pub(crate) fn begin(&self, id: usize) -> Result<Turn<'_>> {
        let Some(place) = self.permits.at(id) else {
            return Err(self.not_begun(id));
        };
        match place.begin() {
            Some(turn) => Ok(turn),
            None => Err(self.not_begun(id)),
        }
    }

    #[cold]
    #[inline(never)]
    fn not_begun(&self, id: usize) -> Error {
        match self.permits.at(id) {
            Some(place) if !place.is_idle() => EBUSY,
            _ => EINVAL,
        }
    }

    /// Sends the request that has `turn`, and its data in the loan there. The loan is
    /// given back when the request is complete, possibly before this returns.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` for a message or data that are too long, `ECONNABORTED` without a connected path
    /// when requests do not wait for one, `ENOMEM` if it may work later. The loan is given back
    /// without its callback then.
    #[inline(always)]
    pub(crate) fn submit(&self, mut turn: Turn<'_>, dir: DataDir, message: Message<'_>) -> Result {
        let shared = &self.session;
        let session: &Session = shared;
        if !fill_in(&self.room, &mut turn, dir, message) {
            return shared.not_sent(unsent(turn, Unsent::Request(errno::EMSGSIZE)));
        }
        // Before the request is sent, see `Epochs::begin()`.
        turn.epoch = session.epochs.of_new();
        let sent = match session.cons.polled() {
            0 => session.issue::<true>(turn),
            _ => shared.issue_new(turn),
        };
        match sent {
            Ok(()) => Ok(()),
            Err(turn) => shared.not_sent(turn),
        }
    }

    /// The same for a request that must not overtake those that wait for a path: it waits, too.
    #[cold]
    #[inline(never)]
    pub(super) fn submit_behind(
        &self,
        mut turn: Turn<'_>,
        dir: DataDir,
        message: Message<'_>,
    ) -> Result {
        let session = &self.session;
        let fits = fill_in(&self.room, &mut turn, dir, message);
        turn.epoch = session.epochs.of_new();
        let why = match fits {
            true => Unsent::NoPath,
            false => Unsent::Request(errno::EMSGSIZE),
        };
        session.not_sent(unsent(turn, why))
    }
}

/// Fills in a new request, and copies the user's message to its place. Returns `false` if message
/// or data are too long.
#[inline(always)]
pub(super) fn fill_in(room: &Room, io: &mut Io, dir: DataDir, message: Message<'_>) -> bool {
    let Some(piece) = message.only() else {
        return fill_in_pieces(room, io, dir, message);
    };
    // The caller has the turn: no other code reads the message of an earlier request any more. It
    // is copied last, so that the call finds little that it has to leave alone.
    lay_out(room, io, dir, piece.len()) && io.message.write(0, piece).is_some()
}

/// The same for a message in pieces.
#[inline(never)]
fn fill_in_pieces(room: &Room, io: &mut Io, dir: DataDir, message: Message<'_>) -> bool {
    let mut pieces = message.pieces();

    lay_out(room, io, dir, message.size())
        && pieces
            .try_fold(0, |at, piece| io.message.write(at, piece))
            .is_some()
}

/// Lays a new request out.
#[inline(always)]
fn lay_out(room: &Room, io: &mut Io, dir: DataDir, usr_len: usize) -> bool {
    // The session's limits are those of its first path. A path with narrower limits is skipped
    // later.
    io.failover = false;
    io.refused = false;
    io.renamed = false;
    io.measured = false;
    io.layout.set(room, dir, io.loan.len(), usr_len) || lay_out_measured(room, io, dir, usr_len)
}

/// The same for a request that is too long, unless its user is wrong about that.
#[cold]
#[inline(never)]
fn lay_out_measured(room: &Room, io: &mut Io, dir: DataDir, usr_len: usize) -> bool {
    let layout = &mut io.layout;

    io.measured = io.loan.correct(|len| layout.set(room, dir, len, usr_len));
    io.measured
}

impl Session {
    /// Returns the handle for requests, once a server has told the size of the session.
    pub(crate) fn ready(self: &Arc<Self>) -> Option<Ready> {
        let negotiated = self.negotiated.get()?;
        Some(Ready {
            session: self.clone(),
            permits: negotiated.permits.clone(),
            room: negotiated.room,
            cons: self.cons,
            spread: self.cons.spread(negotiated.geometry.queue_depth()),
        })
    }

    /// Sends a new request of a session with polled connections.
    #[inline(never)]
    fn issue_new<'t>(self: &Arc<Self>, mut turn: Turn<'t>) -> Result<(), Turn<'t>> {
        if turn.connection == Connection::Io {
            let queue = self.hinted_queue();
            let con = queue.and_then(|queue| self.cons.of_queue(queue));
            // The permit may have had another queue's connection before.
            let here = || self.cons.of_cpu(CpuId::current().as_u32());
            turn.con = con.unwrap_or_else(here);
        }
        self.issue_again(turn.id, turn)
    }

    /// Sends a request in the general case: one that has waited, was on another path, or has to be
    /// translated.
    #[inline(never)]
    pub(super) fn issue_again<'t>(
        self: &Arc<Self>,
        id: u16,
        mut turn: Turn<'t>,
    ) -> Result<(), Turn<'t>> {
        let polled = self.cons.is_polled(turn.con);
        while let Err(failed) = self.issue::<false>(turn) {
            if failed.unsent != Unsent::Forgotten {
                return Err(failed);
            }
            turn = match self.translate(id, failed) {
                // Unless the server was restarted once more in the meantime.
                Translated::Fits(turn) => turn,
                Translated::Over(turn, result) => {
                    self.complete(turn, result);
                    return Ok(());
                }
                Translated::Lost(turn) => return Err(turn),
            };
        }
        if polled {
            self.guard_polled();
        }
        Ok(())
    }

    /// Handles a new request that no path took.
    #[cold]
    #[inline(never)]
    fn not_sent(self: &Arc<Self>, mut turn: Turn<'_>) -> Result {
        let id = turn.id;
        if turn.unsent == Unsent::Forgotten {
            // Numbers of devices have changed, or are changing now.
            turn = match self.issue_again(id, turn) {
                Ok(()) => return Ok(()),
                Err(failed) => failed,
            };
        }
        let (e, turn) = match turn.unsent {
            // No path: the request waits for one, unless that is disabled.
            Unsent::NoPath => match self.park(id, turn) {
                Ok(()) => return Ok(()),
                Err(failed) => failed,
            },
            unsent => (unsent.error(), turn),
        };
        self.abandon(turn);
        Err(e)
    }

    /// Ends a request that will not be sent.
    #[cold]
    pub(super) fn abandon(&self, mut turn: Turn<'_>) {
        let callback = turn.loan.end();
        self.finish(turn);
        if let Some(callback) = callback {
            callback.cancel();
        }
    }

    /// Offers the request to the paths, in the order of the policy, until one takes it. It was on no
    /// other path before if `NEW` is set.
    ///
    /// # Errors
    ///
    /// Returns the turn, with the reason, if no path takes it.
    #[inline(always)]
    fn issue<'t, const NEW: bool>(&self, turn: Turn<'t>) -> Result<(), Turn<'t>> {
        let guard = rcu::read_lock();

        // Each result has an end of the section of its own: the usual one need not be kept until
        // then.
        match self.offer::<NEW>(&guard, turn) {
            Ok(()) => Ok(()),
            Err(turn) => Err(Self::not_taken(guard, turn)),
        }
    }

    /// Ends the section in which no path took the request.
    #[cold]
    #[inline(never)]
    fn not_taken(guard: rcu::Guard, turn: Turn<'_>) -> Turn<'_> {
        drop(guard);
        turn
    }

    #[inline(always)]
    fn offer<'t, const NEW: bool>(
        &self,
        guard: &rcu::Guard,
        turn: Turn<'t>,
    ) -> Result<(), Turn<'t>> {
        // Checked here, see `lost()`: no path that this section finds came after the session was
        // lost.
        if !self.epochs.is_present(turn.epoch) {
            return Err(unsent(turn, Unsent::Forgotten));
        }
        let Some(set) = self.paths.set.read(guard) else {
            return Err(unsent(turn, Unsent::NoPath));
        };
        // With one path there is no choice, so the request needs none of the state of a choice.
        let Some(path) = &set.only else {
            return self.issue_by_choice(turn, &set, guard);
        };
        let Some(link) = path.link(guard) else {
            return Err(unsent(turn, Unsent::NoPath));
        };
        let failover = !NEW && turn.failover;
        match link.issue::<NEW>(turn) {
            Ok(()) => {
                if failover {
                    path.stats.failed_over();
                }
                Ok(())
            }
            Err(turn) => Err(Self::not_on_the_only(turn)),
        }
    }

    #[cold]
    #[inline(never)]
    fn not_on_the_only(mut turn: Turn<'_>) -> Turn<'_> {
        let mut failure = Unsent::NoPath;
        turn.unsent = match Self::not_on_this(&mut turn, &mut failure) {
            Ok(()) => failure,
            Err(unsent) => unsent,
        };
        turn
    }

    /// The same for several paths.
    #[inline(never)]
    fn issue_by_choice<'t>(
        &self,
        mut turn: Turn<'t>,
        set: &PathSet,
        guard: &rcu::Guard,
    ) -> Result<(), Turn<'t>> {
        // The CPU may change: it only matters that CPUs are spread over paths.
        let last = self.paths.last.this();
        let mut choice = Choice::new(self.settings.policy(), last.load(Relaxed) as usize);
        let mut failure = Unsent::NoPath;
        let failover = turn.failover;
        while let Some(i) = choice.next(&Candidates { set, io: &turn }) {
            let Some(path) = set.all.get(i) else {
                continue;
            };
            let Some(link) = path.link(guard) else {
                continue;
            };
            turn = match link.issue::<true>(turn) {
                Ok(()) => {
                    if failover {
                        path.stats.failed_over();
                    }
                    // CAST: There are at most 128 paths.
                    last.store(i as u32, Relaxed);
                    return Ok(());
                }
                Err(mut turn) => match Self::not_on_this(&mut turn, &mut failure) {
                    Ok(()) => turn,
                    Err(why) => return Err(unsent(turn, why)),
                },
            };
        }
        Err(unsent(turn, failure))
    }

    /// A path did not take the request. Notes the reason, or returns it if no other path may be
    /// tried.
    #[cold]
    fn not_on_this(io: &mut Io, failure: &mut Unsent) -> Result<(), Unsent> {
        match io.unsent {
            Unsent::NoPath | Unsent::Forgotten => {}
            // The first refusal may be the fault of the link, the second is that of the request,
            // which must not end one path after the other.
            Unsent::Refused(e) if io.refused => return Err(Unsent::Request(e)),
            Unsent::Refused(_) => io.refused = true,
            Unsent::Full => *failure = Unsent::Full,
            // No memory for mapping: as for a full queue, a later attempt may work.
            Unsent::Request(e) if e == ENOMEM => *failure = Unsent::Full,
            // The limits of this path, not those of the session.
            Unsent::Request(e) if e == errno::EMSGSIZE => {
                if *failure == Unsent::NoPath {
                    *failure = Unsent::Request(e);
                }
            }
            Unsent::Request(e) => return Err(Unsent::Request(e)),
        }
        Ok(())
    }

    /// Takes the turn of a request that waits for a path, which ends its wait.
    pub(super) fn resume_turn(&self, id: u16) -> Option<Turn<'_>> {
        self.negotiated.get()?.permits.at(usize::from(id))?.resume()
    }

    /// A request is complete. Softirq, a task with softirqs disabled, or the owner task of a path.
    pub(crate) fn complete(&self, turn: Turn<'_>, result: i32) {
        if let Some(negotiated) = self.negotiated.get() {
            complete(&negotiated.permits, turn, result);
        }
    }

    /// Gives the place back to the permit's holder, if there is one.
    fn finish(&self, turn: Turn<'_>) {
        if let (Some(left), Some(negotiated)) = (turn.finish(), self.negotiated.get()) {
            negotiated.permits.put_left(left);
        }
    }

    /// Sends a request again that was in flight on a path that is gone, or makes it wait for a
    /// path. May sleep.
    pub(crate) fn reissue(self: &Arc<Self>, id: u16, mut turn: Turn<'_>) {
        if !turn.failover {
            self.begin_losses(id);
            // A driver had accepted it since. Only once: a request must not end one path after the
            // other.
            turn.refused = false;
        }
        turn.failover = true;
        if self.closes_device(&turn) && !self.make_harmless(&turn) {
            return self.complete(turn, errno::ECONNABORTED.to_errno());
        }
        let Err(turn) = self.issue_again(id, turn) else {
            return;
        };
        match turn.unsent {
            // A queue that is full for a moment is no reason to fail it.
            Unsent::NoPath | Unsent::Full => self.park_or_fail(id, turn),
            e => self.complete(turn, e.error().to_errno()),
        }
    }
}

/// The request of one of `permits` is complete. Softirq, a task with softirqs disabled, or the owner task
/// of a path.
#[inline(always)]
pub(crate) fn complete(permits: &Arc<Permits>, mut turn: Turn<'_>, result: i32) {
    let callback = turn.loan.end();
    // Gives the place back to the permit's holder, if there is one. Done before the user is told,
    // as the user may use the permit at once.
    if let Some(left) = turn.finish() {
        return complete_left(permits, left, callback, result);
    }
    if let Some(callback) = callback {
        callback.call(result);
    }
}

/// The same for a request that has no permit any more, as the user has dropped it. The permit is
/// given back last: closing the session waits for it, and then the user's module may go.
#[cold]
fn complete_left(permits: &Permits, left: Left<'_, Io>, callback: Option<Callback>, result: i32) {
    if let Some(callback) = callback {
        callback.call(result);
    }
    permits.put_left(left);
}
