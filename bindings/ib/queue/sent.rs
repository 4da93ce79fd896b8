// SPDX-License-Identifier: GPL-2.0

//! A completion queue for the sends of a queue pair. It raises no interrupt unless a completion is
//! expected.
//!
//! Without one, the completion of each signaled send is an interrupt of its own. Most of these
//! completions are of interest only when the peer has answered, and are there by then: the handler of
//! the answer [looks](SentQueue::reap_or_expect). Documentation/request.rst, Completions of sends.
//!
//! # Context
//!
//! Stated for each function; to make and to destroy one may sleep. The task that looks handles the
//! completions, with no lock held. It runs in softirq, or with softirqs disabled, so that no softirq that
//! looks, too, delays it.

use core::{
    mem::MaybeUninit,
    ptr::NonNull, //
};
use kernel::{
    error::from_err_ptr,
    ffi,
    prelude::*,
    str::{
        CStr,
        CStrExt, //
    },
    sync::Arc,
    time::{
        delay::fsleep,
        Delta,
        Jiffies, //
    },
    types::{
        Opaque,
        ScopeGuard, //
    },
};

use super::super::{
    device::Device,
    endpoint::{
        Endpoint,
        Handler, //
    },
};
use crate::{
    atomic::{
        Atomic,
        Full,
        Relaxed, //
    },
    raw,
    softirq::Disabled,
    solo::{
        Lead,
        Solo, //
    },
    workqueue::{
        impl_has_delayed_work,
        impl_has_work,
        impl_work_item,
        new_delayed_work,
        new_work,
        DelayedOn,
        DelayedWork,
        DelayedWorkExt,
        Queue,
        Work,
        WorkExt, //
    },
};

/// Number of completions that are taken out at a time: as many as the core takes, so that their places
/// are [known](super::Polled).
const BATCH: usize = 16;

/// Number of batches, after which other work gets the processor: then as many completions are handled
/// as irq_poll handles at a time.
const BATCHES: u32 = 16;

/// Time to wait for a task that looks, before the next attempt.
const TRY_AGAIN: Delta = Delta::from_millis(1);

/// No event is asked for.
const NOTHING: u32 = 0;
/// One is asked for with the completion of a request that has failed.
const FAILURE: u32 = 1;
/// One is asked for with the next completion.
const NEXT: u32 = 2;

/// How a task that has looked provides for a completion that is expected, and not there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    /// The handlers of more answers will look, and one of them finds it. If no completion of a send is
    /// found for a [while](SOON), an event is asked for.
    Soon,
    /// An event is asked for.
    Announce,
    /// The task that has expected it has provided for it.
    Provided,
}

/// Time after which an event is asked for if no completion of a send was found, in jiffies: one to two.
const SOON: Jiffies = 1;

/// Called for an event of the completion queue.
pub(super) type Event = unsafe extern "C" fn(*mut raw::ib_cq, *mut ffi::c_void);

/// See the module.
///
/// # Invariants
///
/// `cq` is valid until [`destroy`](Self::destroy). Only the task that has the lead of `solo` polls it,
/// and uses `found`.
#[pin_data]
pub(super) struct SentQueue {
    cq: NonNull<raw::ib_cq>,
    solo: Solo,
    /// Number of completions that flights wait for which were answered.
    expected: Atomic<u32>,
    /// The event that the device was asked for: [`NOTHING`] after it has come.
    asked: Atomic<u32>,
    /// Number of flights that have ended by a completion of this queue, modulo 2^32. Written by the
    /// task that has the lead.
    landed: Atomic<u32>,
    /// Number of sends of flights that have completed, likewise.
    done: Atomic<u32>,
    /// The same when `soon` was queued.
    done_then: Atomic<u32>,
    /// Runs the work items.
    queue: Queue,
    #[pin]
    work: Work<SentQueue, LOOK>,
    #[pin]
    soon: DelayedWork<SentQueue, LATER>,
    found: Opaque<[MaybeUninit<raw::ib_wc>; BATCH]>,
}

// Work items.
const LOOK: u64 = 0;
const LATER: u64 = 1;

impl_has_work! {
    impl HasWork<Self, LOOK> for SentQueue { self.work }
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, LATER> for SentQueue { self.soon }
}

impl_work_item! {
    impl WorkItem<LOOK> for SentQueue { Self::reap_and_announce }
    impl WorkItem<LATER> for SentQueue { Self::reap_after_a_while }
}

impl DelayedOn<LATER> for SentQueue {
    fn queue(&self) -> &Queue {
        &self.queue
    }
}

// SAFETY: Verbs may be called from any thread; what is not atomic belongs to the task with the lead.
unsafe impl Send for SentQueue {}
// SAFETY: See above.
unsafe impl Sync for SentQueue {}

impl SentQueue {
    /// Makes a queue for `cqe` completions, with their `vector`. `context` and `event` are those of
    /// [`Endpoint<H>`] and [`sent_event`]. `queue` runs the work items. May sleep.
    ///
    /// # Safety
    ///
    /// Completions that the queue gets must be handled by functions for that endpoint, or those of the
    /// drain. The endpoint must stay until [`destroy`](Self::destroy) has returned.
    pub(super) unsafe fn new(
        device: &Device,
        context: *mut ffi::c_void,
        event: Event,
        cqe: u32,
        vector: u32,
        queue: &Queue,
        owner: &'static CStr,
    ) -> Result<Arc<Self>> {
        let attr = raw::ib_cq_init_attr {
            cqe,
            comp_vector: vector,
            flags: 0,
        };
        // SAFETY: The device is valid; `context` is only passed to the functions, which are called
        // until `destroy()`.
        let cq = from_err_ptr(unsafe {
            raw::__ib_create_cq(
                device.as_raw(),
                Some(event),
                None,
                context,
                &attr,
                owner.as_char_ptr(),
            )
        })?;
        let cq = NonNull::new(cq).ok_or(ENOMEM)?;
        let destroy = ScopeGuard::new(move || {
            // SAFETY: The queue was made above, and has no users.
            unsafe { raw::rtrs_helper_ib_destroy_cq(cq.as_ptr()) }
        });
        // INVARIANT: The queue was made above. Nobody has the lead.
        let this = Arc::pin_init(
            pin_init!(Self {
                cq,
                solo: Solo::new(),
                expected: Atomic::new(0),
                asked: Atomic::new(NOTHING),
                landed: Atomic::new(0),
                done: Atomic::new(0),
                done_then: Atomic::new(0),
                queue: queue.clone(),
                work <- new_work!("rtrs_sent"),
                soon <- new_delayed_work!("rtrs_sent_soon"),
                found: Opaque::uninit(),
            }),
            GFP_KERNEL,
        )?;
        // SAFETY: The queue is valid, and no other task has it. The core uses this field of its own
        // queues only; here it tells where completions are found, for `Polled`.
        unsafe { (*cq.as_ptr()).wc = this.found.get().cast() };
        destroy.dismiss();
        if let Some(lead) = this.solo.ask() {
            this.ask_for_event(&lead, FAILURE);
        }
        Ok(this)
    }

    /// The queue, for a queue pair.
    pub(super) fn as_raw(&self) -> *mut raw::ib_cq {
        self.cq.as_ptr()
    }

    /// Handles the completions that are there, or leaves that to the task that does so now. What is
    /// expected and not there is provided for as `missing` says.
    ///
    /// Context: softirq, or a task of the module itself with softirqs disabled. Users are called.
    #[inline(never)]
    pub(super) fn reap(self: &Arc<Self>, missing: Missing) {
        let _rt = Self::in_task();
        if let Some(lead) = self.solo.ask() {
            let mut left = BATCHES;
            let none_left = self.handle(&lead, &mut left);
            self.go_on(lead, left, none_left, || missing);
        }
    }

    /// A work item: an event has come, or there was more than one task handles at a time.
    fn reap_and_announce(self: &Arc<Self>) {
        self.reap(Missing::Announce);
    }

    /// A work item: something may have been expected for a while. Completions come in order. If none has
    /// come meanwhile, the device is asked for an event; otherwise what is missing now is newer, or the
    /// device is at work.
    fn reap_after_a_while(self: &Arc<Self>) {
        self.reap(match self.done() == self.done_then.load(Relaxed) {
            true => Missing::Announce,
            false => Missing::Soon,
        });
    }

    /// As [`reap`](Self::reap), for one completion. `is_missed` is called afterwards: if the completion
    /// has not come, it notes that, and returns `true`. Then the completion is expected. `missing` is
    /// called with the number of completions that are, and must not be [`Missing::Provided`].
    #[inline(always)]
    pub(super) fn reap_or_expect(
        self: &Arc<Self>,
        is_missed: impl FnOnce() -> bool,
        missing: impl FnOnce(u32) -> Missing,
    ) {
        let _rt = Self::in_task();
        let Some(lead) = self.solo.ask() else {
            if is_missed() {
                self.expect();
            }
            return;
        };
        let mut left = BATCHES;
        let none_left = self.handle_some(&lead, &mut left);
        if is_missed() {
            self.expected.fetch_add(1, Full);
        }
        self.go_on(lead, left, none_left, || {
            missing(self.expected.load(Relaxed))
        });
    }

    /// With PREEMPT_RT, receives are handled by a task.
    #[inline(always)]
    fn in_task() -> Option<Disabled> {
        cfg!(CONFIG_PREEMPT_RT).then(Disabled::new)
    }

    /// Goes on after a first round, which has left none, or not. `missing` is for that round; a task
    /// that asks for another one may want an event.
    #[inline(always)]
    fn go_on<'a>(
        self: &'a Arc<Self>,
        mut lead: Lead<'a>,
        mut left: u32,
        mut none_left: bool,
        missing: impl FnOnce() -> Missing,
    ) {
        let mut missing = Some(missing);
        loop {
            let mut wanted = match self.expected.load(Relaxed) {
                0 => FAILURE,
                _ => NEXT,
            };
            let missing = missing.take();
            if none_left && self.asked.load(Relaxed) < wanted {
                if wanted == NEXT {
                    match missing.map_or(Missing::Announce, |how| how()) {
                        Missing::Announce => (),
                        Missing::Provided => wanted = FAILURE,
                        Missing::Soon => {
                            self.look_soon();
                            wanted = FAILURE;
                        }
                    }
                }
                if self.asked.load(Relaxed) < wanted {
                    self.ask_for_event(&lead, wanted);
                    // What came before it was asked for: not every driver tells of that.
                    none_left = self.handle(&lead, &mut left);
                }
            }
            if !none_left {
                lead.abandon();
                return self.later();
            }
            lead = match lead.leave() {
                None => return,
                Some(again) => again,
            };
            none_left = self.handle(&lead, &mut left);
        }
    }

    /// Makes the work item look. Any context, also with locks held.
    #[cold]
    #[inline(never)]
    pub(super) fn later(self: &Arc<Self>) {
        self.work.enqueue(&self.queue, self);
    }

    /// Makes a work item look in a while, unless it is going to already. It begins after this, and so
    /// sees what is expected.
    #[cold]
    #[inline(never)]
    fn look_soon(self: &Arc<Self>) {
        if self.soon.enqueue(self, SOON) {
            self.done_then.store(self.done(), Relaxed);
        }
    }

    /// Handles completions, at most `left` batches. Returns whether none is left.
    #[inline(never)]
    fn handle(&self, lead: &Lead<'_>, left: &mut u32) -> bool {
        self.handle_some(lead, left)
    }

    /// The same, for the usual round.
    #[inline(always)]
    fn handle_some(&self, _lead: &Lead<'_>, left: &mut u32) -> bool {
        let found: *mut raw::ib_wc = self.found.get().cast();
        while let Some(fewer) = left.checked_sub(1) {
            *left = fewer;
            // SAFETY: By the type invariant the queue is valid: it is destroyed when nobody can get the
            // lead any more. This task has it, and so `found` is its own. CAST: 16.
            let n = unsafe {
                raw::rtrs_helper_ib_poll_cq(self.cq.as_ptr(), BATCH as ffi::c_int, found)
            };
            // A negative number is an error of the device, which ends by other means.
            let n = usize::try_from(n).unwrap_or(0).min(BATCH);
            for i in 0..n {
                let wc = found.wrapping_add(i);
                // SAFETY: The driver has filled in `n` completions. Their requests have entries with a
                // function for the endpoint of this queue, see `new()`, or one of the drain. An entry
                // stays until its completion is handled, or the queue pair is gone.
                unsafe {
                    let entry = (*wc).__bindgen_anon_1.wr_cqe.as_ref();
                    if let Some(done) = entry.and_then(|entry| entry.done) {
                        done(self.cq.as_ptr(), wc);
                    }
                }
            }
            if n < BATCH {
                return true;
            }
        }
        false
    }

    /// Asks for the event `wanted`, and remembers that.
    ///
    /// Some devices flush receives, by which the end of a connection is noticed, only when the request
    /// that has failed is polled. Others tell of it in any case.
    #[cold]
    #[inline(never)]
    fn ask_for_event(&self, _lead: &Lead<'_>, wanted: u32) {
        // ORDERING: Before the device is asked. If an event comes at the same time, less is remembered
        // than is asked for, and it is asked for once more.
        self.asked.xchg(wanted, Full);
        let flags = match wanted {
            NEXT => raw::ib_cq_notify_flags_IB_CQ_NEXT_COMP,
            _ => raw::ib_cq_notify_flags_IB_CQ_SOLICITED,
        };
        // SAFETY: As in `handle_some()`. A failure is that of the device.
        unsafe { raw::rtrs_helper_ib_req_notify_cq(self.cq.as_ptr(), flags) };
    }

    /// An event has come. Any context.
    fn event(self: &Arc<Self>) {
        // ORDERING: Before the look that follows, which asks for the next one.
        self.asked.xchg(NOTHING, Full);
        // Not here: the driver may have called this in an interrupt, or in a call of this module that
        // holds locks.
        self.later();
    }

    /// A completion is expected, and announced by an event. Called while another task handles
    /// completions.
    #[cold]
    #[inline(never)]
    fn expect(self: &Arc<Self>) {
        // The completion may have come meanwhile: then the count was one too low until now, and no task
        // that saw it so can have been misled, as this asks for one more round.
        // ORDERING: Before the lead is asked for: the task that has it asks for the event.
        self.expected.fetch_add(1, Full);
        self.reap(Missing::Announce);
    }

    /// All completions are expected from now on. Any context.
    pub(super) fn expect_all(self: &Arc<Self>) {
        // ORDERING: As in `expect()`. It is never taken back.
        self.expected.fetch_add(1, Full);
        self.later();
    }

    /// A completion that was expected has come. Called with the lead.
    pub(super) fn has_come(&self) {
        self.expected.fetch_sub(1, Full);
    }

    /// Counts a flight that has ended. Called with the lead.
    #[inline(always)]
    pub(super) fn count_landed(&self) {
        self.landed
            .store(self.landed.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Counts a completion of the send of a flight. Called with the lead.
    #[inline(always)]
    pub(super) fn count_done(&self) {
        self.done
            .store(self.done.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// The number of sends of flights that have completed here, modulo 2^32.
    pub(super) fn done(&self) -> u32 {
        self.done.load(Relaxed)
    }

    /// The number of flights that have ended here, modulo 2^32.
    pub(super) fn landed(&self) -> u32 {
        self.landed.load(Relaxed)
    }

    /// Waits until no task has the lead. After that no task handles completions. Sleeps.
    ///
    /// Called after the queue pair was destroyed.
    pub(super) fn end(&self) {
        while !self.solo.end() {
            fsleep(TRY_AGAIN);
        }
    }

    /// Destroys the queue. Sleeps.
    ///
    /// # Safety
    ///
    /// Must be called only once, after the queue pair was destroyed, and after [`end`](Self::end). No
    /// other function may be called afterwards, but for [`reap`](Self::reap), by the work items.
    pub(super) unsafe fn destroy(&self) {
        // SAFETY: By the safety requirements of this function the queue has no users. The driver waits
        // for a handler of events that runs.
        unsafe { raw::rtrs_helper_ib_destroy_cq(self.cq.as_ptr()) };
    }
}

/// Called by a driver for an event.
///
/// # Safety
///
/// `context` is a live [`Endpoint<H>`], and `cq` the [`SentQueue`] of its queue pair.
pub(super) unsafe extern "C" fn sent_event<H: Handler>(
    _cq: *mut raw::ib_cq,
    context: *mut ffi::c_void,
) {
    // SAFETY: The endpoint outlives the queue.
    let ep = unsafe { &*context.cast::<Endpoint<H>>() };
    // What completes was posted by a task that had found the queue pair there.
    if let Some(sent) = ep.qp().and_then(|qp| qp.sent.as_ref()) {
        sent.event();
    }
}
