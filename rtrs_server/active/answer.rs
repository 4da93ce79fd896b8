// SPDX-License-Identifier: GPL-2.0

//! Answers, and operations that wait for room in a send queue.
//!
//! Locking and context: see [`super`].

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Full,
            Relaxed, //
        },
        Arc, //
    },
};

use rtrs_bindings::{
    compat::smp_mb,
    ib::{
        Endpoint,
        NotPosted,
        PostError,
        QueuePair, //
    },
};

use super::{
    Active,
    Chunk,
    Stalled, //
};
use crate::{
    chunk::{
        Attempt,
        Deferred,
        NotAnswered, //
    },
    logic::chunk_state::End,
    op::Op,
    path::Path,
    trace, //
};

impl Active {
    /// Answers the request of `op`; its chunk becomes free for the next request.
    ///
    /// An operation that cannot be answered is dropped.
    #[inline(always)]
    pub(crate) fn answer(&self, op: KBox<Op>, errno: i32) {
        let (Some(chunk), Some(ep)) = (self.chunk(op.buf_id()), self.endpoint(op.cid())) else {
            return;
        };
        let Some(qp) = ep.qp() else {
            return;
        };

        trace::answer(&op, qp, errno);
        if errno != 0 {
            return self.answer_with_care(chunk, ep.handler(), qp, op, errno);
        }
        let Some(has_data) = op.plain() else {
            return self.answer_keys(chunk, ep.handler(), qp, op);
        };
        let end = chunk.answer_plain(qp, has_data, op, |e| {
            self.not_answered(ep.handler(), chunk, e, 0);
        });
        if let Some(end @ End::Run(_)) = end {
            ep.handler().session.after_end(chunk.buf_id(), end);
        }
    }

    /// Posts an answer without an error that is not plain.
    #[inline(never)]
    fn answer_keys(&self, chunk: &Chunk, path: &Arc<Path>, qp: &QueuePair, op: KBox<Op>) {
        if !op.changes_keys() {
            return self.answer_with_care(chunk, path, qp, op, 0);
        }
        let end = chunk.answer_keys(qp, op, |e| self.not_answered(path, chunk, e, 0));
        if let Some(end @ End::Run(_)) = end {
            path.session.after_end(chunk.buf_id(), end);
        }
    }

    /// Posts an error, or an answer that changes or tells a key in a way that is not usual.
    #[inline(never)]
    fn answer_with_care(
        &self,
        chunk: &Chunk,
        path: &Arc<Path>,
        qp: &QueuePair,
        op: KBox<Op>,
        errno: i32,
    ) {
        match chunk.answer(qp, op, errno, path.client.keeps_keys, Attempt::First) {
            Ok(end) => path.session.after_end(chunk.buf_id(), end),
            Err(e) => self.not_answered(path, chunk, e, errno),
        }
    }

    #[cold]
    #[inline(never)]
    fn not_answered(&self, path: &Arc<Path>, chunk: &Chunk, e: NotAnswered<'_, Path>, errno: i32) {
        let buf_id = chunk.buf_id();

        match e {
            NotPosted::Kept(PostError::Full, answered) => {
                let op = answered.op;
                let cid = op.cid();
                self.stall(chunk, op, Deferred::Answer(errno), Stalled { buf_id, cid });
                // The room may have come between the attempt and the entry in the list, and nothing
                // may be left on the queue that would announce more.
                self.make_room(path);
            }
            e => lost(path, buf_id, e),
        }
    }

    /// Makes an operation wait for room.
    ///
    /// [`Active::make_room`] has to follow: there may be room already, and nothing may be left on
    /// the queue that would announce it.
    pub(super) fn stall(
        &self,
        chunk: &Chunk,
        mut op: KBox<Op>,
        deferred: Deferred,
        stalled: Stalled,
    ) {
        op.set_deferred(deferred);
        chunk.stall(op);
        self.stalled_len.fetch_add(1, Full);
        self.push_stalled(stalled);
    }

    fn push_stalled(&self, stalled: Stalled) {
        // There is room for every chunk, and no chunk is in the list twice.
        let _ = self.stalled.lock().push(stalled);
    }

    /// A send was retired, so there may be room in its queue.
    pub(crate) fn retired(&self, path: &Arc<Path>) {
        // ORDERING: A task that stalls an operation counts it before it tries again. Either it sees
        // the room, or this function sees the count.
        smp_mb();
        if self.is_stalled() {
            self.progress.fetch_add(1, Full);
            self.make_room(path);
        }
    }

    /// Whether something waits for room.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled_len.load(Relaxed) != 0
    }

    /// Continues stalled operations as far as there is room. On each connection the operation that
    /// waits longest is first, and a full connection does not hold up the others. Must be called
    /// without a lock held.
    pub(crate) fn make_room(&self, path: &Arc<Path>) {
        if !self.is_stalled() {
            return;
        }
        loop {
            let progress = self.progress.load(Acquire);
            // Connections without room, by the number of their bit. Higher numbers have no bit, and
            // are tried each time.
            let mut full = 0u64;
            // Each operation is taken out and put back, so the order stays.
            for _ in 0..self.stalled_len.load(Relaxed) {
                let next = self.stalled.lock().pop();
                let Some(next) = next else { break };
                let bit = 1u64.checked_shl(next.cid.into()).unwrap_or(0);
                if full & bit != 0 {
                    self.push_stalled(next);
                } else if !self.unstall(path, next) {
                    full |= bit;
                }
            }
            // If a send was retired after the attempt, then its own call of this function may not
            // have found the operation that was put back.
            smp_mb();
            if self.progress.load(Relaxed) == progress {
                return;
            }
        }
    }

    /// Tries a stalled operation again. Returns `false` if there is still no room: it is back in
    /// the list then.
    fn unstall(&self, path: &Arc<Path>, stalled: Stalled) -> bool {
        let full = match self.chunk(stalled.buf_id) {
            Some(chunk) => self.go_on(path, chunk, stalled.cid).map(|op| (chunk, op)),
            None => None,
        };

        match full {
            Some((chunk, op)) => {
                chunk.stall(op);
                self.push_stalled(stalled);
                false
            }
            None => {
                self.stalled_len.fetch_sub(1, Full);
                true
            }
        }
    }

    /// Continues a stalled operation. Returns it if there is still no room.
    fn go_on(&self, path: &Arc<Path>, chunk: &Chunk, cid: u16) -> Option<KBox<Op>> {
        let op = chunk.unstall()?;
        let buf_id = op.buf_id();

        match op.deferred() {
            Deferred::Invalidate => match chunk.mr() {
                Some(mr) => match self.post_inval(chunk, mr, cid, op) {
                    Ok(()) => None,
                    Err(e) => self.not_invalidated(path, chunk, e).err(),
                },
                // An operation without a key to invalidate does not wait for one.
                None => None,
            },
            Deferred::Answer(errno) => {
                let qp = self.endpoint(cid).and_then(Endpoint::qp)?;
                match chunk.answer(qp, op, errno, path.client.keeps_keys, Attempt::Again) {
                    Ok(end) => path.session.after_end(buf_id, end),
                    Err(NotPosted::Kept(PostError::Full, answered)) => return Some(answered.op),
                    Err(e) => lost(path, buf_id, e),
                }
                None
            }
        }
    }
}

/// Handles an answer that will not be posted.
#[cold]
fn lost(path: &Arc<Path>, buf_id: u16, e: NotAnswered<'_, Path>) {
    match e {
        NotPosted::Kept(e, answered) => {
            if e != PostError::Closed {
                path.post_failed(e);
            }
            drop(answered);
        }
        NotPosted::Given(e, end) => {
            // The chunk is free already.
            path.post_failed(e);
            path.session.after_end(buf_id, end);
        }
    }
}
