// SPDX-License-Identifier: GPL-2.0

//! A queue pair with its completion queue, or one for each direction.
//!
//! # Locking
//!
//! * `sq` serialises posting to the send queue: it keeps the count of free entries, the order of
//!   posted requests and the gate consistent, and guards `forms`. Taken in any context,
//!   interrupts off; the driver's own locks nest inside.
//! * `rq` does the same for the receive queue.
//! * Completions of one queue run one after the other, in softirq or a work
//!   item, as chosen. The ledger's consumer side belongs to those of sends, which have a queue of their
//!   own if that is [wanted](QueueConfig::sent): then they run beside those of receives.

mod buffers;
mod close;
mod completion;
mod config;
mod direct;
mod forms;
mod keys;
mod receive;
mod room;
mod sent;

use core::{
    cell::UnsafeCell,
    ptr::NonNull, //
};
use kernel::{
    ffi,
    prelude::*,
    str::{
        CStr,
        CStrExt, //
    },
    sync::{
        static_lock_class,
        Arc,
        SetOnce, //
    },
};

use self::{
    buffers::Buffers,
    completion::{
        Callbacks,
        CqeTable,
        Handled, //
    },
    forms::Forms,
    receive::{
        Receive,
        ReceiveQueue, //
    },
    sent::SentQueue, //
};
pub use self::{
    buffers::{
        Buffer,
        Message, //
    },
    completion::{
        Polled,
        QpEvent,
        Receiving, //
    },
    config::{
        PollContext,
        QueueConfig, //
    },
    keys::KeyToken, //
};
pub(super) use self::{
    forms::Filled,
    room::{
        Refused,
        Room, //
    }, //
};
use super::{
    domain::Domain,
    endpoint::{
        Endpoint,
        Handler, //
    },
    flight::Lane,
    sendq::{
        SqLedger,
        SqProducer, //
    },
};
use crate::{
    atomic::{
        Atomic,
        Relaxed, //
    },
    errno,
    lock::{
        lock_name,
        SpinLockIrq, //
    },
    raw,
    rcu::Past, //
};

/// The flag of a work request the data of which are copied to it when it is posted.
pub(super) const INLINE: i32 = raw::ib_send_flags_IB_SEND_INLINE;

/// The reason why nothing, or not everything, was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostError {
    /// The gate is closed: the connection is being torn down. Nothing posted.
    Closed,
    /// The queue is full. Nothing posted.
    Full,
    /// The chain or a token is malformed. Nothing posted.
    Invalid,
    /// The driver refused. Nothing posted.
    Refused(i32),
    /// The driver took a part of the chain and refused the rest, or does not say what it took. The
    /// gate was closed. The posted requests complete, or are flushed when the owner disconnects,
    /// which it must do.
    Partial(i32),
}

impl PostError {
    /// Whether some of the chain may have been posted.
    pub(super) fn is_partial(self) -> bool {
        matches!(self, Self::Partial(_))
    }
}

impl From<PostError> for Error {
    fn from(e: PostError) -> Self {
        match e {
            PostError::Closed => errno::ECONNABORTED,
            PostError::Full => ENOMEM,
            PostError::Invalid => EINVAL,
            PostError::Refused(e) | PostError::Partial(e) => Error::from_errno(e),
        }
    }
}

/// Data of a reply count for a [portion](QueueConfig::portion) if they have more bytes than this.
pub const LARGE: u32 = 4096;

/// Number of bytes of a message that the [forms](QueuePair::forms) have.
pub(super) const FORM_BYTES: u32 = 8;

/// Storage of the ledger's notes: one for each request, which may all be
/// signalled.
struct Ring(KVVec<Atomic<u32>>);

impl Ring {
    fn new(depth: u32) -> Result<Self> {
        let len = depth.checked_next_power_of_two().ok_or(EINVAL)?;
        let mut ring = KVVec::with_capacity(len as usize, GFP_KERNEL)?;
        for _ in 0..len {
            // There is room. A call of `push()` would cost five times as much.
            ring.push_within_capacity(Atomic::new(0))?;
        }
        Ok(Self(ring))
    }
}

impl AsRef<[Atomic<u32>]> for Ring {
    fn as_ref(&self) -> &[Atomic<u32>] {
        &self.0
    }
}

/// The data of the send queue that its lock protects.
struct SendQueue {
    /// If false, `posted` grants no entries without a look at the ledger.
    open: bool,
    posted: SqProducer,
}

impl SendQueue {
    fn close(&mut self) {
        self.open = false;
        self.posted.stop();
    }
}

/// A queue pair, its completion queue, and the entries that distinguish completions. Lives inside
/// an [`Endpoint`].
///
/// # Invariants
///
/// `qp` belongs to `id`, and completes to `cq`; what it sends to `sent`, if there is that. The context
/// of both is the endpoint that owns `self`. They are destroyed by [`QueuePair::destroy_qp`] and
/// [`QueuePair::free_cq`]. `forms` are [linked](Forms::link).
#[pin_data]
pub struct QueuePair {
    qp: NonNull<raw::ib_qp>,
    cq: NonNull<raw::ib_cq>,
    id: NonNull<raw::rdma_cm_id>,
    /// One entry for each send token.
    send_cqes: CqeTable,
    /// Two entries for each token of an invalidation.
    key_cqes: CqeTable,
    /// The entry of requests without a token.
    silent: KBox<raw::ib_cqe>,
    recv_cqes: CqeTable,
    callbacks: Callbacks,
    handled: Handled,
    /// See [`QueueConfig::sent`].
    sent: Option<Arc<SentQueue>>,
    /// Number of receives that have failed; written by their handler.
    not_received: Atomic<u32>,
    ledger: SqLedger<Ring>,
    /// Number of flights that were posted, modulo 2^32. Written with `sq` locked.
    flown: Atomic<u32>,
    /// Number of posted flights whose send is always signaled, modulo 2^32. Written with `sq` locked.
    signaled: Atomic<u32>,
    max_sges: u32,
    /// The most bytes that a work request takes inline.
    inline_max: u32,
    /// See [`QueueConfig::sends`].
    sends: u32,
    recv_room: u32,
    qp_num: u32,
    /// No other queue pair of the domain has or had the same.
    lane: Lane,
    context: PollContext,
    /// A caller is handling completions of a [`PollContext::Direct`] queue.
    polling: Atomic<bool>,
    /// The queue pair was drained, or a caller is draining it.
    drained: Atomic<bool>,
    /// When the CQ was stopped, after the QP was destroyed.
    stopped: SetOnce<Past>,
    #[pin]
    sq: SpinLockIrq<SendQueue>,
    /// Accessed with `sq` locked. They have addresses of each other.
    #[pin]
    forms: UnsafeCell<Forms>,
    #[pin]
    rq: SpinLockIrq<ReceiveQueue>,
    /// The memory of the receives, if each has its own.
    buffers: Buffers,
    domain: Arc<Domain>,
}

// SAFETY: Verbs may be called from any thread; mutable data is protected by locks.
unsafe impl Send for QueuePair {}
// SAFETY: See above.
unsafe impl Sync for QueuePair {}

impl QueuePair {
    /// Creates CQ and QP for `id`. Completions go to the endpoint `ep`. May sleep.
    ///
    /// # Safety
    ///
    /// `id` must be the bound `cm_id` of `ep`, without a QP. `ep` must not move, and must own the
    /// result, until `free_cq()` of the result has returned.
    pub(super) unsafe fn new<H: Handler>(
        id: NonNull<raw::rdma_cm_id>,
        ep: &Endpoint<H>,
        domain: &Arc<Domain>,
        cfg: &QueueConfig,
        owner: &'static CStr,
    ) -> Result<Pin<KBox<Self>>> {
        // SAFETY: By the safety requirements of this function, `id` and `ep` are as `create` needs
        // them; the callbacks are those of the endpoint's type.
        unsafe {
            Self::create(
                id,
                core::ptr::from_ref(ep).cast_mut().cast(),
                ep.index(),
                Callbacks::of::<H>(),
                domain,
                cfg,
                owner,
            )
        }
    }

    /// The part of [`QueuePair::new`] that does not depend on the type of the handler, so that it
    /// is compiled only once.
    ///
    /// # Safety
    ///
    /// As for [`QueuePair::new`]; `context` is the endpoint, with `index`, and `callbacks` are
    /// those of its type.
    #[inline(never)]
    unsafe fn create(
        id: NonNull<raw::rdma_cm_id>,
        context: *mut ffi::c_void,
        index: u16,
        callbacks: Callbacks,
        domain: &Arc<Domain>,
        cfg: &QueueConfig,
        owner: &'static CStr,
    ) -> Result<Pin<KBox<Self>>> {
        let attrs = domain.device().attrs();
        // One entry of each queue belongs to the drain.
        let send_wrs = cfg.send_wrs.checked_add(1).ok_or(EINVAL)?;
        let recv_wrs = cfg.recv_wrs.checked_add(1).ok_or(EINVAL)?;
        let cqe = send_wrs.checked_add(recv_wrs).ok_or(EINVAL)?;
        let tells = cfg.poll != PollContext::Softirq || cfg.send_tokens != 0 || cfg.key_tokens != 0;
        if cfg.sent.is_some() && tells {
            return Err(EINVAL);
        }
        if send_wrs > attrs.max_qp_wr || recv_wrs > attrs.max_qp_wr || cqe > attrs.max_cqe {
            return Err(EINVAL);
        }
        let max_sges = cfg.send_sges.min(attrs.max_send_sge).max(1);

        let lane = Lane::new(index, domain.add_queue_pair()?);
        let uncount = kernel::types::ScopeGuard::new(|| domain.remove_queue_pair());
        let send_cqes = CqeTable::new(cfg.send_tokens, callbacks.send)?;
        let key_cqes = CqeTable::of_keys(cfg.key_tokens, callbacks.key)?;
        let silent = raw::ib_cqe {
            done: Some(callbacks.send),
        };
        let silent = KBox::new(silent, GFP_KERNEL)?;
        let recv_tokens = cfg.recv_tokens.max(1);
        let recv_cqes = CqeTable::new(recv_tokens, callbacks.recv)?;
        let buffers = match cfg.recv_rest {
            0 => Buffers::none(domain),
            rest => Buffers::new(domain, recv_tokens, rest)?,
        };
        let receives = Receive::for_each_of(&recv_cqes, recv_tokens, &buffers)?;
        let (ledger, posted) =
            SqLedger::with_portions(cfg.send_wrs, cfg.portion, Ring::new(cfg.send_wrs)?)
                .ok_or(EINVAL)?;

        let vector = cfg.comp_vector.checked_rem(attrs.comp_vectors).unwrap_or(0);
        let sent = match &cfg.sent {
            // SAFETY: The callbacks are those of the endpoint's type, which stays, by the safety
            // requirements of this function, until `free_cq()`.
            Some(queue) => match unsafe {
                SentQueue::new(
                    domain.device(),
                    context,
                    callbacks.sent,
                    send_wrs,
                    vector,
                    queue,
                    owner,
                )
            } {
                Ok(sent) => Some(sent),
                // The device may have one for both.
                Err(e) if e == ENOMEM || e == ENOSPC => None,
                Err(e) => return Err(e),
            },
            None => None,
        };
        let destroy_sent = kernel::types::ScopeGuard::new_with_data(sent.clone(), |sent| {
            if let Some(sent) = sent {
                sent.end();
                // SAFETY: It has no users, and this is the only call.
                unsafe { sent.destroy() }
            }
        });
        let cqe = match sent {
            Some(_) => recv_wrs,
            None => cqe,
        };

        // SAFETY: The device is valid; `context` is only passed to the callbacks, which end in
        // `free_cq()`. CAST: Bounded by device limits.
        let cq = kernel::error::from_err_ptr(unsafe {
            raw::__ib_alloc_cq(
                domain.device().as_raw(),
                context,
                cqe as i32,
                vector as i32,
                cfg.poll.as_raw(),
                owner.as_char_ptr(),
            )
        })?;
        let cq = NonNull::new(cq).ok_or(ENOMEM)?;
        let free_cq = kernel::types::ScopeGuard::new(|| {
            // SAFETY: The CQ was allocated above and has no users.
            unsafe { raw::ib_free_cq(cq.as_ptr()) }
        });

        let mut attr = raw::ib_qp_init_attr {
            send_cq: sent.as_ref().map_or(cq.as_ptr(), |sent| sent.as_raw()),
            recv_cq: cq.as_ptr(),
            cap: raw::ib_qp_cap {
                max_send_wr: send_wrs,
                max_recv_wr: recv_wrs,
                max_send_sge: max_sges,
                max_recv_sge: buffers.sges(),
                ..Default::default()
            },
            sq_sig_type: raw::ib_sig_type_IB_SIGNAL_REQ_WR,
            qp_type: raw::ib_qp_type_IB_QPT_RC,
            event_handler: Some(callbacks.event),
            qp_context: context,
            ..Default::default()
        };
        // SAFETY: `id` is bound to the domain's device, or the call fails; `attr` is complete;
        // events arrive until the queue pair is destroyed in `destroy_qp()`.
        kernel::error::to_result(unsafe {
            raw::rdma_create_qp(id.as_ptr(), domain.as_raw(), &mut attr)
        })?;
        let destroy_qp = kernel::types::ScopeGuard::new(|| {
            // SAFETY: The QP was created above, and nothing was posted.
            unsafe { raw::rdma_destroy_qp(id.as_ptr()) }
        });
        // SAFETY: `id` is valid and has a QP now.
        let qp = NonNull::new(unsafe { raw::rtrs_helper_cm_qp(id.as_ptr()) }).ok_or(EINVAL)?;
        // SAFETY: `qp` is valid, and `owner` is static.
        let qp_num = unsafe {
            raw::rtrs_helper_ib_qp_set_owner(qp.as_ptr(), owner.as_char_ptr());
            raw::rtrs_helper_ib_qp_num(qp.as_ptr())
        };

        // The driver has said how much there is.
        let takes = attr.cap.max_inline_data.min(cfg.inline_max);
        let takes = takes.min(attrs.max_inline);
        // INVARIANT: QP and CQ were created above, for `id` and `ep`.
        let this = KBox::pin_init(
            pin_init!(Self {
                qp,
                cq,
                id,
                send_cqes,
                key_cqes,
                silent,
                recv_cqes,
                callbacks,
                handled: Handled::new(),
                sent,
                not_received: Atomic::new(0),
                ledger,
                flown: Atomic::new(0),
                signaled: Atomic::new(0),
                max_sges,
                inline_max: takes,
                sends: cfg.sends,
                recv_room: cfg.recv_wrs,
                qp_num,
                lane,
                context: cfg.poll,
                polling: Atomic::new(false),
                drained: Atomic::new(false),
                stopped: SetOnce::new(),
                sq <- SpinLockIrq::new(
                    SendQueue { open: true, posted },
                    lock_name!("rtrs_sq"),
                    static_lock_class!(),
                ),
                forms: UnsafeCell::new(Forms::new(domain.lkey(), FORM_BYTES <= takes)),
                rq <- SpinLockIrq::new(
                    ReceiveQueue::new(receives, !buffers.is_empty()),
                    lock_name!("rtrs_rq"),
                    static_lock_class!(),
                ),
                buffers,
                domain: domain.clone(),
            }),
            GFP_KERNEL,
        )?;
        // SAFETY: The forms are pinned with the queue pair, which no other task has yet, and which has
        // the entry.
        unsafe { Forms::link(this.forms.get(), this.silent()) };
        destroy_qp.dismiss();
        free_cq.dismiss();
        destroy_sent.dismiss();
        uncount.dismiss();
        Ok(this)
    }

    /// Whether each receive has memory of its own.
    pub fn has_buffers(&self) -> bool {
        !self.buffers.is_empty()
    }

    /// The most outstanding receives.
    pub fn recv_room(&self) -> u32 {
        self.recv_room
    }

    /// The queue pair's number, as `rdma resource` shows it.
    pub fn number(&self) -> u32 {
        self.qp_num
    }

    /// The lane of flights that are posted here.
    #[inline(always)]
    pub(super) fn lane(&self) -> Lane {
        self.lane
    }

    /// The most scatter/gather elements of a send work request.
    pub fn max_sges(&self) -> usize {
        self.max_sges as usize
    }

    /// Whether a work request takes `len` bytes inline: with [`INLINE`] as a flag, and an address
    /// of the processor.
    #[inline(always)]
    pub(super) fn takes_inline(&self, len: u32) -> bool {
        len <= self.inline_max
    }

    /// Whether data with a message of `len` bytes, not 0, behind them are sent to the peer.
    #[inline(always)]
    pub(super) fn sends(&self, len: u32) -> bool {
        len <= self.sends
    }

    /// The domain of the queue pair.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// The longest run of work requests without a completion of their own.
    pub fn signal_interval(&self) -> u32 {
        self.ledger.interval()
    }

    /// Number of work requests on the send queue that are not known to be retired.
    pub fn send_used(&self) -> u32 {
        self.ledger
            .depth()
            .saturating_sub(self.ledger.available(&self.sq.lock().posted))
    }

    /// Number of flights that were posted, modulo 2^32. Any context.
    pub(super) fn flown(&self) -> u32 {
        self.flown.load(Relaxed)
    }

    /// Adds `by` to `signaled`. Called with the send queue locked.
    #[inline(always)]
    fn count_signaled(&self, by: u32) {
        self.signaled
            .store(self.signaled.load(Relaxed).wrapping_add(by), Relaxed);
    }

    /// Adds `by` to the number of posted flights. Called with the send queue locked.
    #[inline(always)]
    fn count_flown(&self, by: u32) {
        self.flown
            .store(self.flown.load(Relaxed).wrapping_add(by), Relaxed);
    }

    /// Number of work requests that fit on the send queue.
    pub fn send_depth(&self) -> u32 {
        self.ledger.depth()
    }

    /// The completion entry of requests without a token.
    #[inline(always)]
    pub(super) fn silent(&self) -> *mut raw::ib_cqe {
        // ib_core only reads it.
        core::ptr::from_ref(&*self.silent).cast_mut()
    }

    /// The completion entry of a chain with `token`, and whether the chain is signalled.
    #[inline(always)]
    pub(super) fn entry_of(
        &self,
        token: Option<u32>,
    ) -> Result<(*mut raw::ib_cqe, bool), PostError> {
        match token {
            Some(token) => Ok((self.send_cqes.get(token).ok_or(PostError::Invalid)?, true)),
            None => Ok((self.silent(), false)),
        }
    }

    /// Whether `domain` is the domain of the queue pair, so that its memory stays for as long as
    /// the queue pair may use it.
    #[inline(always)]
    pub(super) fn is_of(&self, domain: &Domain) -> bool {
        core::ptr::eq(domain, &*self.domain)
    }
}
