// SPDX-License-Identifier: GPL-2.0

//! What a path counts for in quotas.
//!
//! The numbers are atomic and may be read in any context. The share of the total of handshakes is
//! behind the spinlock `handshake`: the owner task gives it back when the handshake is over, and the
//! registry when the path gives way to a newcomer. The first of the two decides: the path is
//! started, or it is closed.

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
    /// The part of the client's address by which shares are counted.
    pub(crate) fn source(&self) -> Source {
        self.source
    }

    /// Which of the log's limits is that of its source. Any context.
    pub(super) fn log_place(&self) -> usize {
        self.session.context().registry().log_place(self.source)
    }

    /// Bytes that count for its source: of queues those of all connections that were announced, of
    /// chunks those that there are. Any context.
    pub(crate) fn counted_memory(&self) -> u64 {
        let queues = if self.drained.load(Relaxed) {
            0
        } else {
            self.queue_memory
        };
        queues.saturating_add(self.chunk_memory.load(Relaxed))
    }

    /// Bytes were taken of the quota for its chunks. The registry is locked.
    pub(crate) fn set_chunk_memory(&self, bytes: u64) {
        self.chunk_memory.store(bytes, Relaxed);
    }

    /// Whether it counts as one that is in its handshake. Any context.
    pub(crate) fn is_in_handshake(&self) -> bool {
        self.in_handshake.load(Relaxed)
    }

    /// End of the time of the handshake, which is also the order in which paths came.
    pub(crate) fn deadline(&self) -> u64 {
        self.deadline
    }

    /// The handshake is over, one way or the other: from now on the path does not give way. Any
    /// context.
    pub(super) fn end_handshake(&self) {
        self.in_handshake.store(false, Relaxed);
        let share = self.handshake.lock().take();
        drop(share);
    }

    /// Ends the path in favour of a newcomer, unless its handshake is over. What it holds of the
    /// totals is given back at once, not when it is gone, so the newcomer finds room when this
    /// returns. The registry is locked.
    pub(crate) fn give_way(self: &Arc<Self>) {
        let share = {
            let mut handshake = self.handshake.lock();
            let share = handshake.take();
            // Still locked: the owner looks for this after it has ended the handshake.
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
