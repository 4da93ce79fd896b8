// SPDX-License-Identifier: GPL-2.0

//! The functions that ib_core, or a [`SentQueue`], calls for a queue pair, the entries
//! that identify requests, and what the handler of receives writes.
//!
//! # Context
//!
//! Completions of one queue are handled one after the other: in the context of its
//! [`PollContext`](super::PollContext), or as [`sent`] says. Events come in any context.

use core::{
    marker::PhantomData,
    ops::Deref, //
};

use kernel::{
    ffi,
    prelude::*, //
};

use super::{
    super::{
        endpoint::{
            Endpoint,
            Handler, //
        },
        wc::{
            Success,
            Wc, //
        },
        withheld::Withheld,
    },
    keys::key_done,
    sent::{
        self,
        Missing,
        SentQueue, //
    },
    QueuePair, //
};
use crate::{
    atomic::{
        Atomic,
        Relaxed,
        Release, //
    },
    raw,
    softirq::Disabled, //
};

/// The number of answers that are to come from which on a late completion is left to their handlers. With
/// fewer, most of the time until the next one would be waited in vain.
const LOOKS_AHEAD: i32 = 4;

/// Called when a work request completes.
pub(super) type Done = unsafe extern "C" fn(*mut raw::ib_cq, *mut raw::ib_wc);

/// Called for an event of a queue pair.
type Event = unsafe extern "C" fn(*mut raw::ib_event, *mut ffi::c_void);

/// The functions for a queue pair of an [`Endpoint`].
#[derive(Clone, Copy)]
pub(super) struct Callbacks {
    pub(super) send: Done,
    pub(super) key: Done,
    pub(super) recv: Done,
    pub(super) event: Event,
    /// For an event of the [`SentQueue`].
    pub(super) sent: sent::Event,
}

impl Callbacks {
    /// The functions for an [`Endpoint<H>`], which must be the context of queue pair and completion
    /// queue.
    pub(super) fn of<H: Handler>() -> Self {
        Self {
            send: send_done::<H>,
            key: key_done::<H>,
            recv: recv_done::<H>,
            event: qp_event::<H>,
            sent: sent::sent_event::<H>,
        }
    }
}

/// Completion entries, by token. The entry of a completion identifies the request.
pub(super) struct CqeTable(KVVec<raw::ib_cqe>);

impl CqeTable {
    /// `n` entries with the same function. May sleep.
    pub(super) fn new(n: u32, done: Done) -> Result<Self> {
        let mut cqes = KVVec::with_capacity(n as usize, GFP_KERNEL)?;
        for _ in 0..n {
            cqes.push_within_capacity(raw::ib_cqe { done: Some(done) })?;
        }
        Ok(Self(cqes))
    }

    /// The entry of a token, for a work request.
    #[inline]
    pub(super) fn get(&self, token: u32) -> Option<*mut raw::ib_cqe> {
        // ib_core only reads it.
        Some(core::ptr::from_ref(self.0.get(token as usize)?).cast_mut())
    }

    /// The token of an entry, if it is one of these.
    #[inline]
    pub(super) fn token_of(&self, cqe: *const raw::ib_cqe) -> Option<u32> {
        let index = self.index_of(cqe);
        // CAST: The number of tokens is a `u32`.
        (index < self.0.len()).then_some(index as u32)
    }

    /// The index of an entry, if it is one of these; otherwise a number without meaning.
    #[inline(always)]
    pub(super) fn index_of(&self, cqe: *const raw::ib_cqe) -> usize {
        cqe.addr().wrapping_sub(self.0.as_ptr().addr()) / size_of::<raw::ib_cqe>()
    }
}

/// How far a completion is behind the first one that its poll has found.
///
/// The core polls up to 16 completions into an array of the completion queue, and hands them out one by
/// one. What a caller [polls](QueuePair::poll) is in an array of the caller, so its place is not known.
// The number of bytes in the array, so that nothing is calculated for each completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Polled(usize);

impl Polled {
    /// The first one.
    pub const FIRST: Self = Self(0);

    /// Of the completion `wc` of `cq`.
    ///
    /// # Safety
    ///
    /// `cq` must be valid.
    #[inline(always)]
    pub(in super::super) unsafe fn of(cq: *const raw::ib_cq, wc: &Wc) -> Self {
        // SAFETY: By the safety requirements of this function. The array is made with the queue.
        let first = unsafe { (*cq).wc };

        Self(core::ptr::from_ref(wc).addr().wrapping_sub(first.addr()))
    }

    /// That of another one.
    #[inline(always)]
    pub fn at(offset: usize) -> Self {
        Self(offset)
    }

    /// Grows with the number of completions that the same poll has found before it.
    #[inline(always)]
    pub fn offset(self) -> usize {
        self.0
    }

    /// The number of completions that the same poll has found before it. `None` if that is not known.
    pub fn before(self) -> Option<u32> {
        const BATCH: usize = 16;
        let before = self.0 / size_of::<Wc>();

        // CAST: A small number.
        (before < BATCH).then_some(before as u32)
    }
}

/// The fields that the handler of receives writes, with nearly every one. They are one cache line, to
/// which no other task writes while requests are handled.
#[repr(align(64))]
pub(super) struct Handled {
    /// Number of receives that have succeeded.
    pub(super) received: Atomic<u64>,
    /// The key that the last receive with an invalidation has invalidated, 0 for none, and the
    /// number of that receive.
    invalidated_by: Atomic<u64>,
    invalidated: Atomic<u32>,
    /// Number of flights that have ended, modulo 2^32, but for those that end by a completion of a
    /// [`SentQueue`].
    landed: Atomic<u32>,
    pub(super) withheld: Withheld,
}

impl Handled {
    pub(super) fn new() -> Self {
        const {
            assert!(size_of::<Self>() == 64);
        }
        Self {
            received: Atomic::new(0),
            invalidated_by: Atomic::new(0),
            invalidated: Atomic::new(0),
            landed: Atomic::new(0),
            withheld: Withheld::new(),
        }
    }
}

/// The queue pair of a receive that has completed, for the handler of that completion, which it
/// does not outlive. What only this handler may do takes one: it runs once at a time for each queue
/// pair.
///
/// # Invariants
///
/// The handler of a receive of `qp` runs on this thread.
#[derive(Clone, Copy)]
pub struct Receiving<'h> {
    qp: &'h QueuePair,
    // Neither `Send` nor `Sync`.
    _here: PhantomData<*const ()>,
}

impl<'h> Receiving<'h> {
    /// The queue pair.
    #[inline(always)]
    pub(super) fn queue_pair(self) -> &'h QueuePair {
        self.qp
    }

    /// The key that was last invalidated by a receive, 0 for none, and the number of that receive.
    #[inline(always)]
    pub(in super::super) fn invalidated(self) -> (u32, u64) {
        // By the type invariant this is the only thread that writes them.
        let by = self.handled.invalidated_by.load(Relaxed);
        (self.handled.invalidated.load(Relaxed), by)
    }
}

impl Deref for Receiving<'_> {
    type Target = QueuePair;

    #[inline(always)]
    fn deref(&self) -> &QueuePair {
        self.qp
    }
}

/// An event of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QpEvent {
    /// The peer used memory that does not exist, or that it may not access. The connection is over.
    AccessError,
    /// The peer sent an invalid request. The connection is over.
    RequestError,
}

/// # Safety
///
/// `cq` is the CQ of a live [`Endpoint<H>`], `wc` one of its completions, of a send.
unsafe extern "C" fn send_done<H: Handler>(cq: *mut raw::ib_cq, wc: *mut raw::ib_wc) {
    // SAFETY: The context of the CQ is the endpoint, which outlives the CQ.
    let ep = unsafe { &*(*cq).cq_context.cast::<Endpoint<H>>() };
    // SAFETY: `ib_core` passes a valid completion.
    let (cqe, wc) = unsafe { ((*wc).__bindgen_anon_1.wr_cqe, Wc::from_raw(wc)) };
    let Some(qp) = ep.qp() else { return };
    let token = qp.send_cqes.token_of(cqe);
    // SAFETY: The caller passes a valid queue.
    if qp.send_completed(ep, wc, unsafe { Polled::of(cq, wc) }, true) {
        if token.is_some() {
            ep.handler().send_done(ep, qp, token, wc);
        }
        ep.handler().send_retired(ep, qp);
    } else {
        ep.handler().send_done(ep, qp, token, wc);
    }
}

/// # Safety
///
/// As for [`send_done`], of a receive.
// If messages are usual, it only jumps, before anything is saved: the registers that one of the two
// functions needs are not saved for the other one.
unsafe extern "C" fn recv_done<H: Handler>(cq: *mut raw::ib_cq, wc: *mut raw::ib_wc) {
    // SAFETY: `ib_core` passes a valid completion.
    let success = unsafe { Wc::from_raw(wc) }.success();
    // SAFETY: By the safety requirements of this function, and as just checked.
    unsafe {
        // If both kinds are usual, each has a function of its own.
        let both = const { H::KEYS_ARE_INVALIDATED || H::RECEIVES_MESSAGES };
        match (success.map(Success::is_write), both) {
            (None, _) => not_done::<H>(cq, wc),
            (Some(true), true) => write_done::<H>(cq, wc),
            (Some(true), false) => written::<H>(cq, wc),
            (Some(false), _) => message_done::<H>(cq, wc),
        }
    }
}

/// The same for a receive that has failed.
///
/// # Safety
///
/// As for [`recv_done`].
#[cold]
#[inline(never)]
unsafe extern "C" fn not_done<H: Handler>(cq: *mut raw::ib_cq, wc: *mut raw::ib_wc) {
    // SAFETY: By the safety requirements of this function.
    let (ep, qp) = unsafe { polled::<H>(cq, wc) };
    qp.count_not_received();
    // A send that has failed before is the reason.
    qp.reap();
    // SAFETY: `ib_core` passes a valid completion.
    ep.handler().recv_failed(ep, unsafe { Wc::from_raw(wc) });
}

/// The same for a write.
///
/// # Safety
///
/// As for [`recv_done`]; the receive was successful, and it was by an RDMA write.
#[inline(never)]
unsafe extern "C" fn write_done<H: Handler>(cq: *mut raw::ib_cq, wc: *mut raw::ib_wc) {
    // SAFETY: By the safety requirements of this function.
    unsafe { written::<H>(cq, wc) };
}

/// The same, inlined.
///
/// # Safety
///
/// As for [`write_done`].
#[inline(always)]
unsafe fn written<H: Handler>(cq: *mut raw::ib_cq, wc: *mut raw::ib_wc) {
    // SAFETY: By the safety requirements of this function.
    let (ep, qp, wc) = unsafe { received::<H>(cq, wc) };
    // SAFETY: By the safety requirements of this function.
    let imm = unsafe { wc.imm_of_write() };
    ep.handler().recv_written(ep, qp, imm, wc);
}

/// The same for a message.
///
/// # Safety
///
/// As for [`recv_done`]; the receive was successful.
#[inline(never)]
unsafe extern "C" fn message_done<H: Handler>(cq: *mut raw::ib_cq, wc: *mut raw::ib_wc) {
    // SAFETY: By the safety requirements of this function.
    let (ep, qp, wc) = unsafe { received::<H>(cq, wc) };
    // Only a message invalidates keys, not an RDMA write.
    if H::KEYS_ARE_INVALIDATED {
        if let Some(rkey) = wc.invalidated_rkey() {
            qp.note_invalidated(rkey);
        }
    }
    if H::RECEIVES_MESSAGES {
        // SAFETY: This is the completion, and the only call.
        if let Some(message) = unsafe { qp.message(wc) } {
            return ep.handler().recv_message(ep, message, wc);
        }
    }
    ep.handler().recv_done(ep, qp, qp.recv_token(wc), wc);
}

/// Counts a receive that was successful. Returns its parts.
///
/// # Safety
///
/// As for [`recv_done`]; the receive was successful. The parts must not be used after the callback.
#[inline(always)]
unsafe fn received<'a, H: Handler>(
    cq: *mut raw::ib_cq,
    wc: *mut raw::ib_wc,
) -> (&'a Endpoint<H>, Receiving<'a>, &'a Success) {
    // SAFETY: By the safety requirements of this function.
    let (ep, qp) = unsafe { polled::<H>(cq, wc) };
    qp.count_received();
    // INVARIANT: This is the handler.
    let qp = Receiving {
        qp,
        _here: PhantomData,
    };
    // SAFETY: `ib_core` passes a valid completion; by the safety requirements of this function, it is
    // a successful one.
    (ep, qp, unsafe { Success::from_raw(wc) })
}

/// Counts a completion of a receive. Returns its endpoint and queue pair.
///
/// # Safety
///
/// As for [`recv_done`]. The references must not be used after the callback.
#[inline(always)]
unsafe fn polled<'a, H: Handler>(
    cq: *mut raw::ib_cq,
    wc: *mut raw::ib_wc,
) -> (&'a Endpoint<H>, &'a QueuePair) {
    // SAFETY: The context of the CQ is the endpoint, which outlives the CQ. `ib_core` passes a valid
    // completion.
    let (ep, wc) = unsafe { (&*(*cq).cq_context.cast::<Endpoint<H>>(), Wc::from_raw(wc)) };
    // SAFETY: This is one of the endpoint's completions.
    let qp = unsafe { ep.qp_of_completion() };
    // SAFETY: `ib_core` passes a valid queue.
    qp.count_polled(ep, unsafe { Polled::of(cq, wc) });
    (ep, qp)
}

/// # Safety
///
/// `context` is a live [`Endpoint<H>`], `event` one of its queue pair.
unsafe extern "C" fn qp_event<H: Handler>(event: *mut raw::ib_event, context: *mut ffi::c_void) {
    // SAFETY: The endpoint outlives its queue pair.
    let ep = unsafe { &*context.cast::<Endpoint<H>>() };
    // SAFETY: `ib_core` passes a valid event.
    let event = match unsafe { (*event).event } {
        raw::ib_event_type_IB_EVENT_QP_ACCESS_ERR => QpEvent::AccessError,
        raw::ib_event_type_IB_EVENT_QP_REQ_ERR => QpEvent::RequestError,
        raw::ib_event_type_IB_EVENT_COMM_EST => return ep.communication_established(),
        _ => return,
    };
    ep.handler().qp_event(ep, event);
}

impl QueuePair {
    /// Handles the completion of a send. Returns whether it was successful; if so, and if it
    /// `retires` requests, those are it and all posted before it. Called by one thread at a time.
    #[inline(always)]
    pub(in super::super) fn send_completed<H: Handler>(
        &self,
        ep: &Endpoint<H>,
        wc: &Wc,
        polled: Polled,
        retires: bool,
    ) -> bool {
        self.count_polled(ep, polled);
        let ok = wc.status().is_ok();
        if ok && retires {
            // Requests with a note complete in order.
            self.ledger.retire();
        }
        ok
    }

    /// Notes that a completion is handled.
    #[inline(always)]
    pub(super) fn count_polled<H: Handler>(&self, ep: &Endpoint<H>, polled: Polled) {
        ep.handler().cqe_polled(polled);
    }

    /// Retires a signaled request that was successful, with all posted before it. Called by one
    /// thread at a time.
    #[inline(never)]
    pub(super) fn retired<H: Handler>(&self, ep: &Endpoint<H>) {
        self.ledger.retire();
        ep.handler().send_retired(ep, self);
    }

    /// The token of a receive that has completed.
    #[inline(always)]
    pub fn recv_token(&self, wc: &Success) -> u32 {
        // Every posted receive has one of these entries.
        // CAST: The number of tokens is a `u32`.
        self.recv_cqes.index_of(wc.entry()) as u32
    }

    /// Counts a receive that has succeeded: there is room for another one. Called by one thread at
    /// a time.
    #[inline(always)]
    fn count_received(&self) {
        let received = &self.handled.received;
        // Relaxed: it is a number, and orders nothing. Drivers order the use of their queues.
        received.store(received.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Counts a receive that has failed, likewise.
    #[cold]
    fn count_not_received(&self) {
        self.not_received
            .store(self.not_received.load(Relaxed).wrapping_add(1), Release);
    }

    /// Records that the receive that was counted last has invalidated a key. Called by one thread
    /// at a time.
    #[inline(always)]
    fn note_invalidated(&self, rkey: u32) {
        self.handled.invalidated.store(rkey, Relaxed);
        self.handled.invalidated_by.store(self.received(), Relaxed);
    }

    /// The number of receives that have succeeded. Any context.
    #[inline(always)]
    pub fn received(&self) -> u64 {
        self.handled.received.load(Relaxed)
    }

    /// Counts a flight that has ended by a receive. Called by the handler of that.
    #[inline(always)]
    pub(in super::super) fn count_landed(&self) {
        let landed = &self.handled.landed;
        landed.store(landed.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Number of flights that have ended, modulo 2^32. Any context.
    pub(in super::super) fn landed(&self) -> u32 {
        let landed = self.handled.landed.load(Relaxed);
        let sent = self.sent.as_ref().map_or(0, |sent| sent.landed());
        landed.wrapping_add(sent)
    }

    /// Counts a flight that has ended by its own completion, which was expected if that is `expected`.
    /// Called by the handler of that completion.
    #[inline(always)]
    pub(in super::super) fn count_landed_sent(&self, expected: bool) {
        let Some(sent) = &self.sent else {
            return self.count_landed();
        };
        sent.count_landed();
        if expected {
            sent.has_come();
        }
    }

    /// A flight was answered, and waits for a completion of its own: polls the queue for sends, if there
    /// is one. Then calls `is_missed`, which returns whether the completion has not come, and notes that:
    /// then it is [expected](Self::count_landed_sent). `is_own` is set for a completion of a request that
    /// was posted just now. Called by the handler of receives.
    #[inline(always)]
    pub(in super::super) fn reap_or_expect(&self, is_own: bool, is_missed: impl FnOnce() -> bool) {
        if let Some(sent) = &self.sent {
            sent.reap_or_expect(is_missed, |expected| match is_own {
                true => Missing::Announce,
                false => self.missing(sent, expected),
            });
        }
    }

    /// How to provide for completions that are missing, if `expected` are.
    ///
    /// The handler of an answer looks if the send of its flight has not completed. So many flights are not
    /// answered and will look: all the sends that have not completed, without those that are expected.
    #[cold]
    #[inline(never)]
    fn missing(&self, sent: &SentQueue, expected: u32) -> Missing {
        let out = self.signaled.load(Relaxed).wrapping_sub(sent.done());
        // CAST: The difference is small, but may be negative: the numbers are not of the same moment,
        // and invalidations are expected, too.
        match out.wrapping_sub(expected) as i32 {
            LOOKS_AHEAD.. => Missing::Soon,
            _ => Missing::Announce,
        }
    }

    /// Counts a completion of the send of a flight. Called by the handler of that completion.
    #[inline(always)]
    pub(in super::super) fn count_done(&self) {
        if let Some(sent) = &self.sent {
            sent.count_done();
        }
    }

    /// Polls the queue for sends, so that the room on the send queue is known. Returns whether there is
    /// such a queue. Called by the handler of receives.
    pub(in super::super) fn reap(&self) -> bool {
        match &self.sent {
            Some(sent) => {
                sent.reap(Missing::Provided);
                true
            }
            None => false,
        }
    }

    /// The same if requests have a note: only their completions make room.
    #[inline(always)]
    pub(super) fn reap_notes(&self) {
        if self.sent.is_some() && self.ledger.outstanding() != 0 {
            self.reap();
        }
    }

    /// Polls the [queue for sends](super::QueueConfig::sent), if there is one.
    ///
    /// Context: a task that holds no lock which the handler, or its users, take: they are called from
    /// here, with softirqs disabled.
    pub fn reap_in_task(&self) {
        let _no_softirq = Disabled::new();
        self.reap();
    }
}
