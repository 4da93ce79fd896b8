// SPDX-License-Identifier: GPL-2.0

//! The resources of a path that quotas count.
//!
//! The numbers are atomic and may be read in any context. The owner task gives up the place among
//! the handshakes when the handshake is over, and the registry when the path gives way to a
//! newcomer; see [`Stage`]. It is also given up when the user gets the session by another path, and
//! when the path is added to a session that the user has.
//!
//! # Locking
//!
//! * `handshake` (spinlock, interrupts off): the place. `shares` and the closing of the path nest
//!   inside. May be taken with the session's list of paths locked.
//! * `shares` (spinlock, interrupts off): a leaf.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
};
use rtrs_bindings::lock::{
    new_spinlock_irq,
    SpinLockIrq, //
};

use super::Path;
use crate::{
    limits::{
        Charge,
        Limits,
        Refusal, //
    },
    logic::{
        admission::Standing,
        path_state::CloseReason,
        quota::{
            OverQuota,
            Resource, //
        },
        stage::Stage, //
    }, //
};

/// The place of a path among the handshakes.
struct HandshakePlace {
    stage: Stage,
    /// The share of the total of handshakes, if the path counts there.
    share: Option<Charge>,
}

/// Shares of totals for the connections of a path.
#[derive(Default)]
pub(super) struct Shares {
    /// No more is taken.
    closed: bool,
    /// Of the connections that exist.
    cons: Option<Charge>,
    /// Of the memory for their queues.
    queues: Option<Charge>,
}

impl Shares {
    fn one_less(&mut self, queues: u64) {
        if let Some(cons) = &mut self.cons {
            cons.fewer(1);
        }
        if let Some(share) = &mut self.queues {
            share.fewer(queues);
        }
    }
}

/// What is counted of a path.
#[pin_data]
pub(super) struct Account {
    /// Bytes that are counted for the queues of all its connections.
    queue_memory: u64,
    /// Bytes that were taken from the quota for its chunks. Set with the registry locked; cleared
    /// when a start fails, and by the end of the last operation.
    chunk_memory: Atomic<u64>,
    /// Bytes of the queues that it has when it gives way, and that do not count any more.
    leaving: Atomic<u64>,
    /// Its [`Standing`] since its client has asked for a name.
    standing: Atomic<u32>,
    #[pin]
    handshake: SpinLockIrq<HandshakePlace>,
    #[pin]
    shares: SpinLockIrq<Shares>,
}

impl Account {
    /// Of a path without connections. Its queues will take `queues` bytes, and `share` counts its
    /// handshake.
    pub(super) fn new(queues: u64, share: Option<Charge>) -> impl PinInit<Self> {
        let place = HandshakePlace {
            stage: Stage::Open,
            share,
        };
        pin_init!(Self {
            queue_memory: queues,
            chunk_memory: Atomic::new(0),
            leaving: Atomic::new(0),
            standing: Atomic::new(Standing::Finished as u32),
            handshake <- new_spinlock_irq!(place, "rtrs_srv_handshake"),
            shares <- new_spinlock_irq!(Shares::default(), "rtrs_srv_shares"),
        })
    }
}

/// Takes `count` more units of a total.
fn take_more(
    share: &mut Option<Charge>,
    limits: &Arc<Limits>,
    resource: Resource,
    count: u64,
) -> Result<(), OverQuota> {
    match share {
        Some(share) => share.more(count)?,
        None => *share = Some(limits.take(resource, count)?),
    }
    Ok(())
}

impl Path {
    /// Returns the place of its source in the log's limits. Any context.
    pub(super) fn log_place(&self) -> usize {
        self.session.ctx.registry.log_place(self.source)
    }

    /// Returns the bytes that count for its source: queues of all announced connections, and
    /// existing chunks. Any context.
    pub(crate) fn counted_memory(&self) -> u64 {
        let queues = if self.drained.load(Relaxed) {
            0
        } else {
            self.account.queue_memory
        };
        queues.saturating_add(self.account.chunk_memory.load(Relaxed))
    }

    /// Notes bytes that were taken from the quota for its chunks. The registry is locked.
    pub(crate) fn set_chunk_memory(&self, bytes: u64) {
        self.account.chunk_memory.store(bytes, Relaxed);
    }

    /// The chunks are gone, with their last operation. Any context.
    pub(super) fn end_chunk_memory(&self) {
        self.account.chunk_memory.store(0, Relaxed);
    }

    /// Sets its standing, as its client has asked for a name. Owner task.
    pub(super) fn set_standing(&self, standing: Standing) {
        // CAST: The discriminant.
        self.account.standing.store(standing as u32, Relaxed);
    }

    /// Its standing among handshakes. Until its owner has looked, a path that has asked counts as
    /// finished. Any context.
    fn standing(&self) -> Standing {
        match self.has_asked() {
            true => Standing::from_u32(self.account.standing.load(Relaxed)),
            false => Standing::Unfinished,
        }
    }

    /// Whether it counts as one that is in its handshake. Any context.
    pub(crate) fn is_in_handshake(&self) -> bool {
        self.account.handshake.lock().stage.is_in_handshake()
    }

    /// Whether it may be just about to tell the user of its session. Any context.
    pub(crate) fn is_starting(&self) -> bool {
        self.account.handshake.lock().stage.is_starting()
    }

    /// Whether the user of its session may still come to know that by it. Any context.
    fn may_tell(&self) -> bool {
        let place = self.account.handshake.lock();
        // With the lock held: if it closes now, the owner finds that when it has started the path.
        place.stage.may_tell(self.is_closing())
    }

    /// Returns the place of the path in the order in which paths give way; see [`Standing::rank`].
    /// Any context.
    pub(crate) fn rank(&self) -> u64 {
        self.ranks().0
    }

    /// The same, and [that for the time](Standing::rank_of_lateness) at which it begins to take too
    /// long, of the same moment.
    pub(crate) fn ranks(&self) -> (u64, u64) {
        let standing = self.standing();

        (
            standing.rank(self.deadline),
            standing.rank_of_lateness(self.deadline),
        )
    }

    /// Whether its client has sent the info request. Any context.
    pub(crate) fn has_asked(&self) -> bool {
        self.info.lock().name.is_some()
    }

    /// Whether it has a place among the handshakes that another path could have: only a path that
    /// is in its handshake has one. Any context.
    pub(crate) fn has_place(&self) -> bool {
        self.account.handshake.lock().share.is_some()
    }

    /// The user has its session: it does not give way, so it must not hold a place that others
    /// could have. Any context.
    pub(crate) fn leave_place(&self) {
        let share = self.account.handshake.lock().share.take();
        drop(share);
    }

    /// Counts one more connection, and `queues` bytes of queues. Any context.
    pub(super) fn take_shares(&self, queues: u64) -> Result<(), Refusal> {
        let limits = &self.session.ctx.registry.limits;
        let mut shares = self.account.shares.lock();

        if shares.closed {
            return Err(Refusal::RESET);
        }
        take_more(&mut shares.cons, limits, Resource::Cons, 1)?;
        take_more(&mut shares.queues, limits, Resource::Memory, queues)
            .inspect_err(|_| shares.one_less(0))?;
        Ok(())
    }

    /// Gives back what [`Path::take_shares`] took. Any context.
    pub(super) fn one_less(&self, queues: u64) {
        self.account.shares.lock().one_less(queues);
    }

    /// Returns the shares of its connections; no more are taken. Any context.
    pub(super) fn end_shares(&self) -> Shares {
        let closed = Shares {
            closed: true,
            ..Shares::default()
        };

        core::mem::replace(&mut *self.account.shares.lock(), closed)
    }

    /// Returns the connections that it has, and the bytes of their queues, as far as they count in
    /// the totals. Any context.
    pub(crate) fn taken(&self) -> (u64, u64) {
        let shares = self.account.shares.lock();
        let count = |share: &Option<Charge>| share.as_ref().map_or(0, Charge::count);

        (count(&shares.cons), count(&shares.queues))
    }

    /// Returns the bytes of queues that it has, and that do not count any more since it gave way.
    /// Any context.
    pub(crate) fn leaving(&self) -> u64 {
        if self.drained.load(Acquire) {
            0
        } else {
            self.account.leaving.load(Relaxed)
        }
    }

    /// The handshake is over, and the path is started: from now on it does not give way. Returns
    /// `false` if it gave way before. Any context.
    pub(super) fn begin_start(&self) -> bool {
        let (starts, share) = {
            let mut place = self.account.handshake.lock();
            (place.stage.start(), place.share.take())
        };
        drop(share);
        starts
    }

    /// The path was started, or is not going to be. Any context.
    pub(super) fn end_handshake(&self) {
        let share = {
            let mut place = self.account.handshake.lock();
            place.stage.end();
            place.share.take()
        };
        drop(share);
    }

    /// Closes the path in favour of a newcomer, unless its handshake is over. Its shares of the
    /// totals are given back at once, not when the path is gone, so the newcomer finds room when
    /// this returns. The registry is locked.
    pub(crate) fn give_way(self: &Arc<Self>) {
        let shares = {
            let mut place = self.account.handshake.lock();
            if !place.stage.give_way() {
                return;
            }
            // Before the path is closed: its owner takes what is there, and gives it back late.
            let shares = self.end_shares();
            let queues = shares.queues.as_ref().map_or(0, Charge::count);
            self.account.leaving.store(queues, Relaxed);
            self.close(CloseReason::GaveWay);
            (place.share.take(), shares)
        };
        drop(shares);
        let session = &self.session;
        // Looked at in this order: a path that has told the user does not tell any more.
        if session.count(Self::may_tell) == 0 && !session.is_kept() {
            session.set_share(None);
        }
    }
}
