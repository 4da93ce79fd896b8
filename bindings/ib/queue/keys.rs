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
    completion::CqeTable,
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
    if !qp.sent(ep, wc) {
        return ep.handler().send_done(ep, qp, None, wc);
    }
    let Some(token) = qp.key_cqes.as_ref().and_then(|cqes| cqes.token_of(cqe)) else {
        return;
    };
    ep.handler().key_invalid(ep, qp, token);
}

impl QueuePair {
    /// Sets the number of tokens of [invalidations](Self::invalidate). Works only once. May sleep.
    pub fn set_key_tokens(&self, tokens: u32) -> Result {
        let cqes = CqeTable::new(tokens, self.callbacks.key)?;
        if self.key_cqes.populate(cqes) {
            Ok(())
        } else {
            Err(EBUSY)
        }
    }

    /// Posts the invalidation of the local key `rkey`. Its completion delivers `token` to
    /// [`Handler::key_invalid`], perhaps before this returns. If it fails, that is delivered to
    /// [`Handler::send_done`], without a token. Any context.
    ///
    /// # Errors
    ///
    /// See [`PostError`].
    #[inline(always)]
    pub fn invalidate(&self, rkey: u32, token: u32) -> Result<(), PostError> {
        let cqes = self.key_cqes.as_ref().ok_or(PostError::Invalid)?;
        let cqe = cqes.get(token).ok_or(PostError::Invalid)?;
        let mut wr = raw::ib_send_wr {
            next: core::ptr::null_mut(),
            __bindgen_anon_1: raw::ib_send_wr__bindgen_ty_1 { wr_cqe: cqe },
            sg_list: core::ptr::null_mut(),
            num_sge: 0,
            opcode: raw::ib_wr_opcode_IB_WR_LOCAL_INV,
            send_flags: 0,
            ex: raw::ib_send_wr__bindgen_ty_2 {
                invalidate_rkey: rkey,
            },
        };
        let wr = &raw mut wr;
        let room = self.reserve(1, true)?;
        // SAFETY: The request is initialised, and stays until this returns. It names no memory, and
        // its entry is the queue pair's.
        unsafe { room.post(wr, wr, cqe) }.map_err(PostError::from)
    }
}
