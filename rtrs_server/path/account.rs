// SPDX-License-Identifier: GPL-2.0

//! The resources of a path that quotas count.
//!
//! The numbers are atomic and may be read in any context. The share of the total of handshakes is
//! behind the spinlock `handshake`. The owner task gives it back when the handshake is over, and
//! the registry gives it back when the path gives way to a newcomer. The first of the two decides
//! whether the path is started or closed.

use kernel::sync::{
    atomic::Relaxed,
    Arc, //
};

use super::Path;
use crate::logic::{
    path_state::CloseReason,
    source::Source, //
};

impl Path {
    /// The source of the client, by which shares are counted.
    pub(crate) fn source(&self) -> Source {
        self.source
    }

    /// Returns the place of its source in the log's limits. Any context.
    pub(super) fn log_place(&self) -> usize {
        self.session.context().registry().log_place(self.source)
    }

    /// Returns the bytes that count for its source: queues of all announced connections, and
    /// existing chunks. Any context.
    pub(crate) fn counted_memory(&self) -> u64 {
        let queues = if self.drained.load(Relaxed) {
            0
        } else {
            self.queue_memory
        };
        queues.saturating_add(self.chunk_memory.load(Relaxed))
    }

    /// Notes bytes that were taken from the quota for its chunks. The registry is locked.
    pub(crate) fn set_chunk_memory(&self, bytes: u64) {
        self.chunk_memory.store(bytes, Relaxed);
    }

    /// Whether it counts as one that is in its handshake. Any context.
    pub(crate) fn is_in_handshake(&self) -> bool {
        self.in_handshake.load(Relaxed)
    }

    /// End of the handshake time, which is also the order in which paths came.
    pub(crate) fn deadline(&self) -> u64 {
        self.deadline
    }

    /// The handshake is over: from now on the path does not give way. Any context.
    pub(super) fn end_handshake(&self) {
        self.in_handshake.store(false, Relaxed);
        let share = self.handshake.lock().take();
        drop(share);
    }

    /// Closes the path in favour of a newcomer, unless its handshake is over. Its shares of the
    /// totals are given back at once, not when the path is gone, so the newcomer finds room when
    /// this returns. The registry is locked.
    pub(crate) fn give_way(self: &Arc<Self>) {
        let share = {
            let mut handshake = self.handshake.lock();
            let share = handshake.take();
            // With the lock held: the owner checks this after it has ended the handshake.
            if share.is_some() {
                self.close(CloseReason::GaveWay);
            }
            share
        };
        let gone = share.is_some();
        drop(share);
        let session = &self.session;
        if gone && !session.is_kept() && session.count(|p| !p.is_closing()) == 0 {
            session.set_share(None);
        }
    }
}
