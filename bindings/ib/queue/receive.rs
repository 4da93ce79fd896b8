// SPDX-License-Identifier: GPL-2.0

//! Receives of a queue pair: their work requests are made together with it, and are posted again
//! and again.
//!
//! # Locking
//!
//! `rq` of the queue pair serialises posting, in any context; the driver's own locks nest inside.

use core::{
    mem::MaybeUninit,
    ops::Range,
    ptr::null_mut, //
};

use kernel::prelude::*;

use super::{
    super::{
        wc::Success,
        wr::Sge, //
    },
    buffers::Buffers,
    completion::{
        CqeTable,
        Receiving, //
    },
    PostError,
    QueuePair, //
};
use crate::{
    atomic::{
        Acquire,
        Relaxed, //
    },
    raw, //
};

/// The most receives that are posted at a time.
const MAX_BATCH: usize = 32;

/// The data of the receive queue that its lock protects.
pub(super) struct ReceiveQueue {
    pub(super) open: bool,
    /// The receives have memory of their own.
    has_buffers: bool,
    /// The number of those that were posted at least once: the ones with the lowest tokens.
    begun: u32,
    /// Number of receives posted so far, modulo 2^32.
    posted: u32,
    /// Number of tokens, from 0, the receives of which were posted in this order, and no others
    /// before or in between: they take turns if each is posted again. 0 if it is not known.
    in_turn: u32,
    /// Indexed by token.
    receives: KVVec<Receive>,
    /// The linked receives of one token that are posted together.
    batch: [MaybeUninit<raw::ib_recv_wr>; MAX_BATCH],
    /// If set, all of `batch` is linked and holds receives of this token, as it was last posted.
    batch_of: Option<u32>,
}

// SAFETY: The pointers point to data that the queue pair owns, and are used with its lock held.
unsafe impl Send for ReceiveQueue {}

impl ReceiveQueue {
    pub(super) fn new(receives: KVVec<Receive>, has_buffers: bool) -> Self {
        Self {
            open: true,
            has_buffers,
            begun: 0,
            posted: 0,
            in_turn: 0,
            receives,
            batch: [const { MaybeUninit::uninit() }; MAX_BATCH],
            batch_of: None,
        }
    }

    /// Gives the receive of `token` an element, of the domain of the queue pair, or none.
    #[inline(always)]
    fn set(&mut self, token: u32, sge: Option<Sge<'_>>) -> Result<(), PostError> {
        if self.has_buffers {
            return Err(PostError::Invalid);
        }
        self.batch_of = None;
        let receive = self.receives.get_mut(token as usize);
        let receive = receive.ok_or(PostError::Invalid)?;
        // INVARIANT: The element is of the queue pair's domain; the vector does not grow.
        (receive.wr.sg_list, receive.wr.num_sge) = match sge {
            Some(sge) => {
                receive.sge = sge.as_raw();
                (&raw mut receive.sge, 1)
            }
            None => (null_mut(), 0),
        };
        Ok(())
    }

    /// Links `n` receives of one `token`, at most a full batch. Returns the first.
    fn link_same(&mut self, token: u32, n: u32) -> Result<*mut raw::ib_recv_wr, PostError> {
        if self.has_buffers {
            return Err(PostError::Invalid);
        }
        // CAST: `usize` has at least 32 bits.
        let batch = self.batch.get_mut(..n as usize);
        let batch = batch.ok_or(PostError::Invalid)?;
        let all = batch.len() == MAX_BATCH;
        let mut next = null_mut();
        if all && self.batch_of == Some(token) {
            // They are still linked from the last time.
            return batch
                .first_mut()
                .map(MaybeUninit::as_mut_ptr)
                .ok_or(PostError::Invalid);
        }
        self.batch_of = None;
        let receive = self.receives.get(token as usize);
        let receive = receive.ok_or(PostError::Invalid)?;
        for place in batch.iter_mut().rev() {
            next = place.write(raw::ib_recv_wr { next, ..receive.wr });
        }
        self.batch_of = all.then_some(token);
        Ok(next)
    }
}

/// A receive, which is posted again and again.
///
/// # Invariants
///
/// `wr` refers to the completion entry of its token, and to `sge`, the elements of its
/// [memory](Buffers::elements), or none. If it refers to `sge`, then that is of the domain of the queue
/// pair. Neither is moved. `wr.next` points to `wr` of the next token, or is null for the last one.
pub(super) struct Receive {
    wr: raw::ib_recv_wr,
    sge: raw::ib_sge,
}

impl Receive {
    /// Makes one for each entry, with the elements of `buffers`. May sleep.
    pub(super) fn for_each_of(cqes: &CqeTable, n: u32, buffers: &Buffers) -> Result<KVVec<Self>> {
        let mut receives = KVVec::with_capacity(n as usize, GFP_KERNEL)?;
        for token in 0..n {
            let wr_cqe = cqes.get(token).ok_or(EINVAL)?;
            let (sg_list, num_sge) = match buffers.elements(token) {
                // CAST: 2.
                Some(elements) => (elements, buffers.sges() as i32),
                None => (null_mut(), 0),
            };
            // INVARIANT: These are its elements, and `next` is set below.
            let receive = Self {
                wr: raw::ib_recv_wr {
                    next: null_mut(),
                    __bindgen_anon_1: raw::ib_recv_wr__bindgen_ty_1 { wr_cqe },
                    sg_list,
                    num_sge,
                },
                sge: raw::ib_sge::default(),
            };
            receives.push_within_capacity(receive)?;
        }
        let mut next = null_mut();
        for receive in receives.iter_mut().rev() {
            receive.wr.next = next;
            next = &raw mut receive.wr;
        }
        Ok(receives)
    }
}

impl Receiving<'_> {
    /// Posts the receive of `token` again, which has completed, as it was last posted, now or
    /// together with others that [may wait](QueuePair::may_withhold). One that has not completed, or was
    /// posted again, must not be posted: its memory, if it has some, would be written to although a
    /// [`Message`](super::Message) of it is being handled.
    ///
    /// # Errors
    ///
    /// As for [`post_recv`](QueuePair::post_recv); `Invalid` also if others may wait, and it is not
    /// the turn of this token.
    #[inline(always)]
    pub fn post_recv_again(self, token: u32) -> Result<(), PostError> {
        match self.handled.withheld.join() {
            true => Ok(()),
            false => self.post_withheld(token),
        }
    }

    /// After a receive has completed with `wc`, posts another one, of the token `like` as it was last
    /// posted, now or together with others that [may wait](QueuePair::may_withhold). For a queue where
    /// almost all receives have the same token: all waiting ones are posted with that of the last call. On a
    /// queue where each receive has its own memory, as [`post_recv_again`](Self::post_recv_again) with the
    /// token of the receive that has completed.
    ///
    /// # Errors
    ///
    /// As for [`post_recv`](QueuePair::post_recv).
    #[inline(always)]
    pub fn post_recv_next(self, like: u32, wc: &Success) -> Result<(), PostError> {
        match self.handled.withheld.join() {
            true => Ok(()),
            false if self.has_buffers() => self.post_withheld(self.recv_token(wc)),
            false => self.post_alike(like),
        }
    }

    /// Posts the receive of `token` and those that wait.
    #[inline(never)]
    fn post_withheld(self, token: u32) -> Result<(), PostError> {
        let Some((first, last)) = self.handled.withheld.add(token) else {
            return Err(PostError::Invalid);
        };
        // No overflow: at most a batch.
        let n = last.wrapping_sub(first).wrapping_add(1);
        let posted = self.post_several(&mut self.rq.lock(), n, |rq| self.post_run(rq, first, last));
        self.reap_notes();
        posted
    }

    /// Posts the waiting receives, and one more, with `token`.
    #[inline(never)]
    fn post_alike(self, token: u32) -> Result<(), PostError> {
        let posted = self.post_same(token, self.handled.withheld.add_alike());
        self.reap_notes();
        posted
    }
}

impl QueuePair {
    /// Posts a receive. Any context. Without `sge` only messages without data
    /// (or RDMA writes with immediate) can be received.
    ///
    /// # Errors
    ///
    /// See [`PostError`]; `Invalid` also for memory that is mapped [to the
    /// device](crate::ib::DmaDirection::ToDevice) only, and if each receive has memory of its own. The
    /// queue is full with
    /// [`recv_room`](Self::recv_room) outstanding. A task that posts to a queue that was full,
    /// while another one handles its completions, may be `Refused`: the driver may see the room
    /// later than it is counted.
    pub fn post_recv(&self, token: u32, sge: Option<Sge<'_>>) -> Result<(), PostError> {
        if !sge.as_ref().is_none_or(|sge| self.can_receive(sge)) {
            return Err(PostError::Invalid);
        }
        let mut rq = self.rq.lock();
        rq.set(token, sge)?;
        self.post_receive(&mut rq, token)
    }

    /// Whether the queue pair can write to the memory of `sge`.
    fn can_receive(&self, sge: &Sge<'_>) -> bool {
        self.is_of(sge.domain()) && sge.can_be_written()
    }

    /// Posts a receive for each of `tokens`, as [`post_recv`](Self::post_recv) with what `sge`
    /// returns, but many at a time. Any context; `sge` is called with a spinlock held.
    ///
    /// # Errors
    ///
    /// As for [`post_recv`](Self::post_recv), and those of `sge`. Some may have been posted.
    pub fn post_recv_each<'a>(
        &self,
        tokens: Range<u32>,
        sge: impl Fn(u32) -> Result<Option<Sge<'a>>>,
    ) -> Result {
        self.post_in_order(tokens, |rq, token| {
            let sge = sge(token)?;
            if !sge.as_ref().is_none_or(|sge| self.can_receive(sge)) {
                return Err(EINVAL);
            }
            Ok(rq.set(token, sge)?)
        })
    }

    /// Posts the first `n` receives, each with its own memory, for the first time. After that only the
    /// handler of their completions posts them. Any context.
    ///
    /// # Errors
    ///
    /// As for [`post_recv`](Self::post_recv); `EINVAL` if they have no memory of their own, or were
    /// posted before. Some may have been posted.
    pub fn post_recv_buffers(&self, n: u32) -> Result {
        if !self.has_buffers() {
            return Err(EINVAL);
        }
        self.post_in_order(0..n, |rq, token| {
            if token != rq.begun {
                return Err(EINVAL);
            }
            rq.begun = rq.begun.saturating_add(1);
            Ok(())
        })
    }

    /// Posts a receive for each of `tokens`, after `set` was called for it.
    fn post_in_order(
        &self,
        tokens: Range<u32>,
        set: impl Fn(&mut ReceiveQueue, u32) -> Result,
    ) -> Result {
        let mut first = tokens.start;
        let mut in_turn = first == 0;
        let mut posted = None;
        while first < tokens.end {
            // CAST: A small constant.
            let end = first.saturating_add(MAX_BATCH as u32).min(tokens.end);
            let mut rq = self.rq.lock();
            // One of those that are posted already may complete, and be posted again in between.
            in_turn &= match posted {
                None => self.outstanding(&rq) == 0,
                Some(posted) => rq.posted == posted,
            };
            for token in first..end {
                set(&mut rq, token)?;
            }
            // No overflow: `end` is larger.
            self.post_several(&mut rq, end.wrapping_sub(first), |rq| {
                self.post_run(rq, first, end.wrapping_sub(1))
            })?;
            posted = Some(rq.posted);
            rq.in_turn = if in_turn { end } else { 0 };
            first = end;
        }
        Ok(())
    }

    /// Posts `n` receives of one `token`, as it was last posted, or without data: many at a time.
    /// Any context.
    ///
    /// # Errors
    ///
    /// As for [`post_recv`](Self::post_recv). Some may have been posted.
    pub fn post_recv_alike(&self, token: u32, n: u32) -> Result<(), PostError> {
        let mut left = n;
        while left > 0 {
            // CAST: A small constant.
            let n = left.min(MAX_BATCH as u32);
            self.post_same(token, n)?;
            // No overflow: `n` is not larger.
            left = left.wrapping_sub(n);
        }
        Ok(())
    }

    /// Allows up to `receives` receives to wait to be posted again together with others: the peer
    /// does not rely on that many. It has an effect on receives that are
    /// [alike](Receiving::post_recv_next), and on those that were posted [together, from token
    /// 0](Self::post_recv_each), if there were no others: each of these has to be [posted
    /// again](Receiving::post_recv_again) when it has completed, before the next one.
    pub fn may_withhold(&self, receives: u32) {
        let tokens = self.rq.lock().in_turn;

        // CAST: A small constant.
        self.handled
            .withheld
            .allow(receives, MAX_BATCH as u32, tokens);
    }

    /// Posts `n` receives of one `token`, at most a batch.
    #[inline(always)]
    fn post_same(&self, token: u32, n: u32) -> Result<(), PostError> {
        self.post_several(&mut self.rq.lock(), n, |rq| {
            let first = rq.link_same(token, n)?;
            // SAFETY: The receives are linked, and stay valid while the lock is held.
            Ok(unsafe { self.post_linked(first) })
        })
    }

    /// Posts `n` receives with `post`, if there is room for them.
    #[inline(always)]
    fn post_several(
        &self,
        rq: &mut ReceiveQueue,
        n: u32,
        post: impl FnOnce(&mut ReceiveQueue) -> Result<i32, PostError>,
    ) -> Result<(), PostError> {
        if !rq.open {
            return Err(PostError::Closed);
        }
        // The additional entry is reserved for the drain.
        if self.outstanding(rq).saturating_add(n) > self.recv_room {
            return Err(PostError::Full);
        }
        let ret = post(rq)?;
        if ret != 0 {
            // Some may have been posted.
            rq.open = false;
            return Err(PostError::Partial(ret));
        }
        rq.posted = rq.posted.wrapping_add(n);
        Ok(())
    }

    /// The number of receives that are posted and not complete.
    #[inline(always)]
    fn outstanding(&self, rq: &ReceiveQueue) -> u32 {
        // CAST: Modulo 2^32, like `posted`.
        let succeeded = self.handled.received.load(Relaxed) as u32;
        rq.posted
            .wrapping_sub(succeeded)
            .wrapping_sub(self.not_received.load(Acquire))
    }

    #[inline(always)]
    fn post_receive(&self, rq: &mut ReceiveQueue, token: u32) -> Result<(), PostError> {
        if !rq.open {
            return Err(PostError::Closed);
        }
        // The additional entry is reserved for the drain.
        if self.outstanding(rq) >= self.recv_room {
            return Err(PostError::Full);
        }
        let ret = self.post_run(rq, token, token)?;
        if ret != 0 {
            return Err(PostError::Refused(ret));
        }
        rq.posted = rq.posted.wrapping_add(1);
        Ok(())
    }

    /// Posts the receives from token `first` to token `last`, as they are linked. Returns the
    /// result of the driver.
    fn post_run(&self, rq: &mut ReceiveQueue, first: u32, last: u32) -> Result<i32, PostError> {
        let receives = &mut rq.receives;
        if first > last || first as usize >= receives.len() {
            return Err(PostError::Invalid);
        }
        let end = receives.get_mut(last as usize).ok_or(PostError::Invalid)?;
        let next = core::mem::replace(&mut end.wr.next, null_mut());
        let wr = receives.as_ptr().wrapping_add(first as usize);
        // SAFETY: By the invariant of `Receive` each one links to the next, up to the last one,
        // which was just made the end; they stay valid while the lock is held.
        let ret = unsafe { self.post_linked(&raw const (*wr).wr) };
        if let Some(end) = receives.get_mut(last as usize) {
            end.wr.next = next;
        }
        Ok(ret)
    }

    /// Posts receives. Returns the result of the driver.
    ///
    /// # Safety
    ///
    /// The receives must belong to the queue pair, be initialised and linked, and stay valid until
    /// this returns. The gate of the receive queue must be open, and its lock held.
    #[inline(always)]
    unsafe fn post_linked(&self, first: *const raw::ib_recv_wr) -> i32 {
        let mut bad = core::ptr::null();
        // SAFETY: As for `post()` of `Room`, with the gate of the receive queue. By the invariant
        // of `Receive` the entries belong to the queue pair, and the memory stays as long as the
        // domain.
        unsafe { raw::rtrs_helper_ib_post_recv(self.qp.as_ptr(), first, &mut bad) }
    }
}
