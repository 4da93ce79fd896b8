// SPDX-License-Identifier: GPL-2.0

//! Answers, and what waits for room in a send queue.
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
        Answer,
        Endpoint,
        PostError,
        Remote,
        Source, //
    },
    lock::SpinLockIrqGuard,
};
use rtrs_core::proto::{
    Imm,
    IoErrno,
    RkeyRsp, //
};

use super::{
    slot::{
        Held,
        Place,
        Slot,
        Todo, //
    },
    Live,
    Stalled, //
};
use crate::{
    logic::chunk_state::End,
    op::Op,
    path::Path,
    trace, //
};

/// Of posting an answer.
#[derive(Clone, Copy)]
enum Attempt {
    First,
    /// There was no room before.
    Again,
}

impl Live {
    /// Answers the request of `op`; its chunk is free for the next one.
    ///
    /// An operation that cannot be answered is returned.
    pub(crate) fn answer(&self, path: &Arc<Path>, op: KBox<Op>, errno: i32) -> Option<KBox<Op>> {
        let buf_id = op.buf_id();
        let Ok(slot) = self.slot(buf_id) else {
            return Some(op);
        };
        let mut place = slot.place.lock();

        match self.post_answer(path, slot, &mut place, &op, errno, Attempt::First) {
            Err(PostError::Full) => {
                let cid = op.arrival().cid;
                place.op = Place::Stalled(op, Todo::Answer(errno));
                self.stall(Stalled { buf_id, cid });
                drop(place);
                // The room may have come between the attempt and the entry in the list, and there
                // may be nothing on the queue any more that announces more.
                self.make_room(path);
                None
            }
            result => self.answered(path, place, op, result),
        }
    }

    /// What follows an attempt to post an answer. An operation that was not answered is returned.
    fn answered(
        &self,
        path: &Arc<Path>,
        mut place: SpinLockIrqGuard<'_, Held>,
        mut op: KBox<Op>,
        result: Result<(), PostError>,
    ) -> Option<KBox<Op>> {
        let buf_id = op.buf_id();

        match result {
            Ok(()) => {
                let busy = op.take_busy();
                op.rest();
                place.put(Place::Idle(op));
                // Still locked: see the top of this file.
                let end = if busy {
                    path.session().end_word(buf_id, path.incarnation())
                } else {
                    End::NotBusy
                };
                // What follows may be about any other path.
                drop(place);
                path.session().after_end(buf_id, end);
                None
            }
            Err(e) => {
                drop(place);
                if e != PostError::Closed {
                    path.post_failed(e);
                }
                Some(op)
            }
        }
    }

    /// Posts the answer, all of it or nothing.
    #[inline(always)]
    fn post_answer(
        &self,
        path: &Path,
        slot: &Slot,
        place: &mut Held,
        op: &Op,
        errno: i32,
        attempt: Attempt,
    ) -> Result<(), PostError> {
        let request = op.request().ok_or(PostError::Invalid)?;
        let qp = self
            .endpoint(op.arrival().cid)
            .and_then(Endpoint::qp)
            .ok_or(PostError::Invalid)?;
        let status = IoErrno::from_kernel(errno);
        let invalidate = request.inval_rkey();
        let imm = Imm::IoRsp {
            msg_id: u32::from(op.buf_id()),
            errno: status,
            inval: invalidate.is_some(),
        };
        let source = match op.is_private() {
            true => Source::Second,
            false => Source::First,
        };
        let buf_id = op.buf_id();
        let told = |rkey| RkeyRsp { buf_id, rkey }.to_bytes();
        let (register, body) = match slot.mr() {
            // The key was not invalidated.
            Some(mr) if op.is_private() => (None, (!path.keeps_keys()).then(|| told(mr.rkey()))),
            Some(mr) => {
                // One new key for each answer: keys come round after 256, and who made us try that
                // often would have the old one again.
                let rkey = match attempt {
                    Attempt::First => mr.next_rkey().map_err(|_| PostError::Invalid)?,
                    Attempt::Again => mr.rkey(),
                };
                (Some(mr), Some(told(rkey)))
            }
            None => (None, None),
        };
        let answer = Answer {
            // No more than was asked for: the descriptor is as long as the data.
            data: match request.dest() {
                Some(dest) if status.is_success() => Some((
                    source,
                    request.data_len(),
                    Remote {
                        addr: dest.desc.addr,
                        rkey: dest.desc.rkey,
                    },
                )),
                _ => None,
            },
            invalidate,
            body,
            imm: imm.encode().map_err(|_| PostError::Invalid)?,
        };
        place.reply.post(qp, register, &answer)?;
        if register.is_some() {
            place.registered_on = Some(op.arrival().cid);
        }
        trace::answered(path, request, op.buf_id(), qp, errno);
        Ok(())
    }

    /// Notes that an operation waits for room. Its slot is locked.
    ///
    /// [`Live::make_room`] has to follow when it is not: there may be room already, and nothing on the
    /// queue any more that would announce it.
    pub(super) fn stall(&self, stalled: Stalled) {
        self.stalled_len.fetch_add(1, Full);
        self.push_stalled(stalled);
    }

    fn push_stalled(&self, stalled: Stalled) {
        // There is room for every chunk, and no chunk is in it twice.
        let _ = self.stalled.lock().push(stalled);
    }

    /// A send was retired, after which there may be room in its queue.
    pub(crate) fn retired(&self, path: &Arc<Path>) {
        // ORDERING: who stalls counts itself before it tries again; either it sees the room, or we
        // see it.
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

    /// Lets stalled operations go on, as far as there is room: on each connection who waits longest
    /// goes first, and one that is full does not hold up the others. Not with any lock held.
    pub(crate) fn make_room(&self, path: &Arc<Path>) {
        if !self.is_stalled() {
            return;
        }
        loop {
            let progress = self.progress.load(Acquire);
            // Connections without room, by the number of their bit; some share one.
            let mut full = 0u64;
            // Each is taken out and put back, so the order stays.
            for _ in 0..self.stalled_len.load(Relaxed) {
                let next = self.stalled.lock().pop();
                let Some(next) = next else { break };
                let bit = 1u64 << (next.cid % 64);
                if full & bit != 0 {
                    self.push_stalled(next);
                } else if !self.unstall(path, next) {
                    full |= bit;
                }
            }
            // If something was retired after the attempt, then that one's own call may not have
            // found in the list what was put back to it.
            smp_mb();
            if self.progress.load(Relaxed) == progress {
                return;
            }
        }
    }

    /// Tries again what was stalled; `false` if there is still no room, and it is back in the list.
    fn unstall(&self, path: &Arc<Path>, stalled: Stalled) -> bool {
        let Ok(slot) = self.slot(stalled.buf_id) else {
            return true;
        };
        let mut place = slot.place.lock();

        match core::mem::replace(&mut place.op, Place::Out) {
            Place::Stalled(op, Todo::Invalidate) => {
                let left = match slot.mr() {
                    Some(mr) => self.post_inval(path, mr, stalled.cid, &mut place, op),
                    // Without a key to invalidate it would not be here.
                    None => Some(op),
                };
                if let Some(op) = left {
                    place.op = Place::Stalled(op, Todo::Invalidate);
                    self.push_stalled(stalled);
                    return false;
                }
                self.stalled_len.fetch_sub(1, Full);
            }
            Place::Stalled(op, Todo::Answer(errno)) => {
                match self.post_answer(path, slot, &mut place, &op, errno, Attempt::Again) {
                    Err(PostError::Full) => {
                        place.op = Place::Stalled(op, Todo::Answer(errno));
                        self.push_stalled(stalled);
                        return false;
                    }
                    result => {
                        self.stalled_len.fetch_sub(1, Full);
                        drop(self.answered(path, place, op, result));
                    }
                }
            }
            other => {
                place.op = other;
                self.stalled_len.fetch_sub(1, Full);
            }
        }
        true
    }
}
