// SPDX-License-Identifier: GPL-2.0

//! Invalidations of local keys, each with a completion of its own.
//!
//! # Context
//!
//! Posting: any. Completions are handled one after the other, like those of [`super::completion`].

use kernel::prelude::*;

use super::{
    super::{
        endpoint::{
            Endpoint,
            Handler, //
        },
        wc::Wc,
    },
    completion::{
        CqeTable,
        Done,
        Polled, //
    },
    forms::Forms,
    room::Room,
    PostError,
    QueuePair, //
};
use crate::raw;

/// # Safety
///
/// `cq` is the CQ of a live [`Endpoint<H>`], `wc` one of its completions, of an
/// [invalidation](QueuePair::invalidate).
pub(super) unsafe extern "C" fn key_done<H: Handler>(cq: *mut raw::ib_cq, wc: *mut raw::ib_wc) {
    // SAFETY: The context of the CQ is the endpoint, which outlives the CQ.
    let ep = unsafe { &*(*cq).cq_context.cast::<Endpoint<H>>() };
    // SAFETY: `ib_core` passes a valid completion.
    let (cqe, wc) = unsafe { ((*wc).__bindgen_anon_1.wr_cqe, Wc::from_raw(wc)) };
    // SAFETY: This is one of the endpoint's completions.
    let qp = unsafe { ep.qp_of_completion() };
    // SAFETY: `ib_core` passes a valid queue.
    qp.count_polled(ep, unsafe { Polled::of(cq, wc) });
    if !wc.status().is_ok() {
        return ep.handler().send_done(ep, qp, None, wc);
    }
    // Every invalidation has one of these entries.
    let entry = qp.key_cqes.index_of(cqe);
    if entry & NOTED as usize != 0 {
        qp.retired(ep);
    }
    // CAST: The number of tokens is a `u32`.
    let token = (entry / ENTRIES as usize) as u32;
    ep.handler().key_invalid(ep, qp, token);
}

/// Entries of a token. Every invalidation is signaled, but few have a note in the ledger: the
/// completions of all others retire nothing, like requests that are not signaled. The entry tells
/// which it is.
const ENTRIES: u32 = 2;
/// The bit of the entry with a note.
const NOTED: u32 = 1;

/// The token of an invalidation, made once, so that its entries are found at once.
///
/// # Invariants
///
/// `noted` is odd: an entry without a note precedes the one with it.
#[derive(Clone, Copy)]
pub struct KeyToken {
    /// The index of its entry with a note.
    noted: u32,
}

impl KeyToken {
    /// For the number `token`. One that is too large for all queue pairs has no entries.
    pub const fn new(token: u32) -> Self {
        // INVARIANT: The lowest bit is set.
        Self {
            noted: token.saturating_mul(ENTRIES) | NOTED,
        }
    }
}

impl CqeTable {
    /// The entries of `tokens` invalidations. May sleep.
    pub(super) fn of_keys(tokens: u32, done: Done) -> Result<Self> {
        Self::new(tokens.checked_mul(ENTRIES).ok_or(EINVAL)?, done)
    }
}

impl QueuePair {
    /// Posts the invalidation of the local key `rkey`. Its completion delivers the number of `token` to
    /// [`Handler::key_invalid`], perhaps before this returns. If it fails, that is delivered to
    /// [`Handler::send_done`], without a token. If it cannot be posted, `failed` gets the error. Any
    /// context.
    #[inline(always)]
    pub fn invalidate(&self, rkey: u32, token: KeyToken, failed: impl FnOnce(PostError)) {
        // A token that is too large has no entry. Both entries, or none: there are twice as many as
        // tokens.
        let Some(noted) = self.key_cqes.get(token.noted) else {
            return failed(PostError::Invalid);
        };
        let (room, cqe) = match self.reserve_signaled(noted) {
            Ok(reserved) => reserved,
            Err(e) => return failed(e),
        };
        // SAFETY: The forms are valid and linked, and accessed by no other task, as the send queue is
        // locked.
        let wr = unsafe { Forms::local_inval(self.forms.get(), rkey, cqe) };
        // Asked if the driver refuses: the entry tells it, so that nothing is kept over the post.
        let is_noted = |cqe: *mut raw::ib_cqe| self.key_cqes.index_of(cqe) & NOTED as usize != 0;
        // SAFETY: The request is the one that was reserved. It is initialised and signaled, and stays
        // until the driver has read it. It names no memory. Its entry is the queue pair's, by the
        // invariant of the token, and tells whether it has a note.
        if let Err(refused) = unsafe { room.post_signaled(wr, is_noted) } {
            failed(refused.into());
        }
    }

    /// Locks the send queue, with room for one request, which is signaled. Returns its entry, too:
    /// `noted` if its completion retires it, otherwise the one before.
    #[inline(always)]
    fn reserve_signaled(
        &self,
        noted: *mut raw::ib_cqe,
    ) -> Result<(Room<'_>, *mut raw::ib_cqe), PostError> {
        let mut sq = self.sq.lock();
        let mut cqe = noted.wrapping_sub(NOTED as usize);
        if sq.posted.take(1, false).is_none() && self.look(&mut sq, 1, false)? != 0 {
            cqe = noted;
        }
        // Whether there is a note need not be kept until the post: the entry tells.
        Ok((Room::new(self, sq, 1, 0), cqe))
    }
}
