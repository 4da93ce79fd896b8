// SPDX-License-Identifier: GPL-2.0

//! The state of each chunk of a session, which all its paths share: one operation at a time uses a
//! chunk.
//!
//! Locking: see [`super`]. Context: any, unless stated otherwise.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::Session;
use crate::logic::{
    chunk_state::{
        ChunkState,
        End,
        Incarnation, //
    },
    path_state::CloseReason, //
};

impl Session {
    /// Returns the state of chunk `buf_id`, once the states are there.
    pub(crate) fn chunk_state(&self, buf_id: u16) -> Option<&Arc<ChunkState>> {
        self.chunk_states.as_ref()?.get(usize::from(buf_id))
    }

    /// Returns the number of chunks it has a state of.
    pub(super) fn chunk_count(&self) -> usize {
        self.chunk_states.as_ref().map_or(0, |states| states.len())
    }

    /// Makes the states of chunks, unless they are there. May sleep for as long as the user likes.
    pub(crate) fn make_chunk_states(&self) -> Result {
        // With the lock held no other task makes them.
        let _announced = self.announced.lock();

        if self.chunk_states.as_ref().is_some() {
            return Ok(());
        }
        let depth = self.queue_depth();
        let mut states = KVVec::with_capacity(usize::from(depth), GFP_KERNEL)?;
        for _ in 0..depth {
            states.push(Arc::new(ChunkState::new(), GFP_KERNEL)?, GFP_KERNEL)?;
        }
        self.chunk_states.populate(states);
        Ok(())
    }

    /// The operation of `inc` on the chunk is over. [`Session::after_end`] has to follow, without a
    /// lock held.
    fn end_use(&self, buf_id: u16, inc: Incarnation) -> End {
        match self.chunk_state(buf_id) {
            Some(state) => state.end(inc),
            None => End::NotBusy,
        }
    }

    /// Lets the chunk's operation on another path run, if there is one.
    #[inline(always)]
    pub(crate) fn after_end(&self, buf_id: u16, end: End) {
        if matches!(end, End::Run(_)) {
            self.run_parked(buf_id, end);
        }
    }

    #[cold]
    fn run_parked(&self, buf_id: u16, end: End) {
        let mut end = end;

        while let End::Run(inc) = end {
            if self.hand_over(buf_id, inc) {
                return;
            }
            // That path is gone.
            end = self.end_use(buf_id, inc);
        }
    }

    /// Calls `end_use()` and `after_end()`.
    pub(crate) fn end(&self, buf_id: u16, inc: Incarnation) {
        let end = self.end_use(buf_id, inc);
        self.after_end(buf_id, end);
    }

    fn hand_over(&self, buf_id: u16, inc: Incarnation) -> bool {
        let paths = self.paths.lock();

        paths
            .iter()
            .find(|path| path.incarnation == inc)
            .is_some_and(|path| path.unpark(buf_id))
    }

    /// The path in its life `inc` closes: its request for the chunk, if it is still parked, will
    /// not run.
    pub(crate) fn cancel_parked(&self, buf_id: u16, inc: Incarnation) {
        if let Some(state) = self.chunk_state(buf_id) {
            state.cancel_parked(inc);
        }
    }

    /// The client has used chunk `buf_id` over another path than `inc`. If it has no answer yet to
    /// its request over that path, then it has given that path up. Any context.
    pub(crate) fn superseded(&self, inc: Incarnation, buf_id: u16) {
        let paths = self.paths.lock();

        if let Some(path) = paths.iter().find(|path| path.incarnation == inc) {
            if path.is_under_way(buf_id) {
                path.close(CloseReason::ConnError);
            }
        }
    }
}
