// SPDX-License-Identifier: GPL-2.0

//! The usual answers: the request was carried out, and keys change or are told. [`Reply::post`]
//! posts all others.
//!
//! Each work request is written once, with the address of the next one, and only if it is posted.
//!
//! # Context
//!
//! Any.

use core::{
    mem::MaybeUninit,
    ptr::null_mut, //
};

use super::{
    Give,
    Memory,
    NotPosted,
    Reply,
    REPLY_BODY, //
};
use crate::{
    ib::{
        mr::{
            Access,
            NewKey, //
        },
        queue::{
            PostError,
            QueuePair, //
        },
        wr::Remote,
    },
    raw,
};

/// How an answer invalidates the peer's key of the place of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidation {
    /// The key stays valid.
    None,
    /// By a message without data, which comes before the answer.
    Ahead,
    /// The answer is the message that invalidates the key. It has no immediate value.
    Answer,
}

/// The keys that an answer changes, and what goes with it.
pub struct Keys<'a> {
    /// The region that is registered, and its key.
    pub register: NewKey<'a>,
    /// Bytes that are sent with the answer.
    pub body: [u8; REPLY_BODY],
    /// There are data, from the first pages.
    pub has_data: bool,
    /// What is done with the key of the place of the data.
    pub invalidation: Invalidation,
}

/// How an answer that invalidates the peer's key, and nothing else, ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidatingEnd {
    /// With the immediate value.
    Value,
    /// With the immediate value, and the bytes of the last answer that had others, or those that were
    /// [set](Reply::set_body) since.
    Bytes,
    /// With the message that invalidates the key, which has those bytes, and no immediate value.
    Invalidation,
}

impl Reply {
    /// Posts an answer on `qp` as [`post`](Self::post) does: data of `len` bytes to `to`, if there
    /// are any; the registration; the invalidation, if it is wanted; and the immediate value for
    /// that, with the bytes, unless the [invalidation is the answer](Invalidation::Answer).
    /// [Gives](Give) `what` away.
    ///
    /// If it cannot be posted, `failed` gets the error that [`post`](Self::post) would return, and
    /// the result is `None`.
    #[inline(always)]
    pub fn post_registering<G: Give>(
        &self,
        qp: &QueuePair,
        keys: &Keys<'_>,
        len: u32,
        to: Remote,
        what: G,
        failed: impl FnOnce(NotPosted<G>),
    ) -> Option<G::Given> {
        let ([memory, _], mr) = (&self.memory, keys.register.mr());
        let Some(at) = &self.body else {
            failed(NotPosted::Kept(PostError::Invalid, what));
            return None;
        };
        let fits = !keys.has_data || memory.has(len);
        if !qp.is_of(&self.domain) || !qp.is_of(mr.domain()) || !fits {
            failed(NotPosted::Kept(PostError::Invalid, what));
            return None;
        }
        let cqe = qp.silent();
        self.write_body(at, keys.body);
        let (opcode, ex) = match keys.invalidation {
            Invalidation::None => (raw::ib_wr_opcode_IB_WR_SEND_WITH_IMM, self.imms.plain),
            Invalidation::Ahead => (raw::ib_wr_opcode_IB_WR_SEND_WITH_IMM, self.imms.inval),
            Invalidation::Answer => (raw::ib_wr_opcode_IB_WR_SEND_WITH_INV, to.rkey),
        };
        let mut own = MaybeUninit::uninit();
        let (element, flags) = at.element(qp, &mut own);
        let mut end = request(cqe, null_mut(), opcode, ex, Some(element));
        end.send_flags = flags;
        let last = &raw mut end;
        let mut next = last;
        let is_ahead = keys.invalidation == Invalidation::Ahead;
        let mut inval = MaybeUninit::uninit();
        if is_ahead {
            let opcode = raw::ib_wr_opcode_IB_WR_SEND_WITH_INV;
            next = inval.write(request(cqe, next, opcode, to.rkey, None));
        }
        let mut reg = registration(cqe, next, keys.register);
        let mut first = &raw mut reg.wr;
        let mut data = MaybeUninit::uninit();
        let mut write = MaybeUninit::uninit();
        if keys.has_data {
            let data = data.write(self.hand_over(memory, len));
            let opcode = raw::ib_wr_opcode_IB_WR_RDMA_WRITE;
            let write = write.write(raw::ib_rdma_wr {
                wr: request(cqe, first, opcode, 0, Some(data)),
                remote_addr: to.addr,
                rkey: to.rkey,
            });
            first = &raw mut write.wr;
        }
        let n = 2 + u32::from(is_ahead) + u32::from(keys.has_data);
        // SAFETY: There are `n` work requests: the two that are always there, and those counted.
        // They are initialised and linked, `next` of the last one is null, and they stay until this
        // returns, as do the elements. Pages and region are of the domain, see above, which keeps
        // both until its last queue pair is gone. The entry of each is the silent one.
        unsafe { self.post_links(qp, [first, last], n, what, failed) }
    }

    /// Sets the bytes of answers that do not bring their own.
    #[inline(always)]
    pub fn set_body(&self, bytes: [u8; REPLY_BODY]) {
        if let Some(body) = &self.body {
            self.write_body(body, bytes);
        }
    }

    /// Posts an answer without data to a peer that counts keys: the registration with `key`, and the
    /// immediate value for that. [Gives](Give) `what` away; errors as for
    /// [`post_registering`](Self::post_registering).
    #[inline(always)]
    pub fn post_counted<G: Give>(
        &self,
        qp: &QueuePair,
        key: NewKey<'_>,
        what: G,
        failed: impl FnOnce(NotPosted<G>),
    ) -> Option<G::Given> {
        if !qp.is_of(&self.domain) || !qp.is_of(key.mr().domain()) {
            failed(NotPosted::Kept(PostError::Invalid, what));
            return None;
        }
        let mut end = Self::end(qp, self.imms.next_key, Remote::default());
        let last = &raw mut end.wr;
        let mut reg = registration(qp.silent(), last, key);
        // SAFETY: There are two work requests. They are initialised and linked, `next` of the last
        // one is null, and they stay until this returns. The region is of the domain, see above. The
        // entry of each is the silent one.
        unsafe { self.post_links(qp, [&raw mut reg.wr, last], 2, what, failed) }
    }

    /// As [`post_registering`](Self::post_registering) without a registration, and always with data
    /// and an invalidation. Data come from the other pages if there are any.
    #[inline(always)]
    pub fn post_invalidating<G: Give>(
        &self,
        qp: &QueuePair,
        with: InvalidatingEnd,
        len: u32,
        to: Remote,
        what: G,
        failed: impl FnOnce(NotPosted<G>),
    ) -> Option<G::Given> {
        let memory = &self.plain;
        if !qp.is_of(&self.domain) || !memory.has(len) {
            failed(NotPosted::Kept(PostError::Invalid, what));
            return None;
        }
        let cqe = qp.silent();
        let mut own = MaybeUninit::uninit();
        let mut data = MaybeUninit::<raw::ib_sge>::uninit();
        let mut write = MaybeUninit::<raw::ib_rdma_wr>::uninit();
        let mut inval = MaybeUninit::<raw::ib_send_wr>::uninit();
        let mut end = MaybeUninit::<raw::ib_rdma_wr>::uninit();
        let (data, write) = (data.as_mut_ptr(), write.as_mut_ptr());
        let (inval, end) = (inval.as_mut_ptr(), end.as_mut_ptr());
        let bytes = match (with, &self.body) {
            (InvalidatingEnd::Value, _) => None,
            (_, Some(body)) => Some(body),
            (_, None) => {
                failed(NotPosted::Kept(PostError::Invalid, what));
                return None;
            }
        };
        let is_end = with == InvalidatingEnd::Invalidation;
        // In the order in which nothing has to be kept for later, or over the call of `hand_over()`.
        // `wr` is the first field of each.
        let opcode = raw::ib_wr_opcode_IB_WR_RDMA_WRITE;
        let first = raw::ib_rdma_wr {
            wr: request(cqe, inval, opcode, 0, Some(data)),
            remote_addr: to.addr,
            rkey: to.rkey,
        };
        // SAFETY: The place is one of this function, and there is no reference to it.
        unsafe { write.write(first) };
        let next = if is_end { null_mut() } else { end.cast() };
        let opcode = raw::ib_wr_opcode_IB_WR_SEND_WITH_INV;
        let mut second = request(cqe, next, opcode, to.rkey, None);
        if let (true, Some(body)) = (is_end, bytes) {
            second.num_sge = 1;
            (second.sg_list, second.send_flags) = body.element(qp, &mut own);
        }
        // SAFETY: As above.
        unsafe { inval.write(second) };
        if !is_end {
            let mut third = Self::end(qp, self.imms.inval, Remote::default());
            if let Some(body) = bytes {
                third.wr.opcode = raw::ib_wr_opcode_IB_WR_SEND_WITH_IMM;
                third.wr.num_sge = 1;
                (third.wr.sg_list, third.wr.send_flags) = body.element(qp, &mut own);
            }
            // SAFETY: As above.
            unsafe { end.write(third) };
        }
        // SAFETY: As above.
        unsafe { data.write(self.hand_over(memory, len)) };
        let last = if is_end { inval } else { next };
        let n = 2 + u32::from(!is_end);
        // SAFETY: There are `n` work requests. They are initialised and linked, `next` of the last
        // one is null, and they stay until this returns, as do the elements. The pages are of the
        // domain, see above. The entry of each is the silent one.
        unsafe { self.post_links(qp, [write.cast(), last], n, what, failed) }
    }

    /// Posts an answer of the immediate value alone, with the bytes of the last answer that had
    /// others. [Gives](Give) `what` away; errors as for [`post_registering`](Self::post_registering).
    #[inline(always)]
    pub fn post_telling<G: Give>(
        &self,
        qp: &QueuePair,
        what: G,
        failed: impl FnOnce(NotPosted<G>),
    ) -> Option<G::Given> {
        let Some(body) = &self.body else {
            failed(NotPosted::Kept(PostError::Invalid, what));
            return None;
        };
        if !qp.is_of(&self.domain) {
            failed(NotPosted::Kept(PostError::Invalid, what));
            return None;
        }
        let (imm, opcode) = (self.imms.plain, raw::ib_wr_opcode_IB_WR_SEND_WITH_IMM);
        let mut own = MaybeUninit::uninit();
        let (element, flags) = body.element(qp, &mut own);
        let mut end = request(qp.silent(), null_mut(), opcode, imm, Some(element));
        end.send_flags = flags;
        let last = &raw mut end;
        // SAFETY: The work request is initialised, `next` is null, and it stays until this returns,
        // as does the element. The body is of the domain, see above. The entry is the silent one.
        unsafe { self.post_links(qp, [last, last], 1, what, failed) }
    }

    /// Hands the first `len` bytes of `memory` to the device, and returns their element.
    #[inline(always)]
    fn hand_over(&self, memory: &Memory, len: u32) -> raw::ib_sge {
        if memory.needs_sync {
            self.sync(memory.dma, len as usize, memory.dir);
        }
        raw::ib_sge {
            addr: memory.dma,
            length: len,
            lkey: self.lkey,
        }
    }

    /// Posts the `n` work requests from the first to the last one of `ends`, and gives `what` away.
    ///
    /// # Safety
    ///
    /// They must be initialised and linked in this order, and not signaled; `next` of the last one
    /// must be null, and they must stay until this returns, without a reference to them. Their
    /// memory must be of the domain of `qp`, and their entry the silent one.
    #[inline(always)]
    unsafe fn post_links<G: Give>(
        &self,
        qp: &QueuePair,
        ends: [*mut raw::ib_send_wr; 2],
        n: u32,
        what: G,
        failed: impl FnOnce(NotPosted<G>),
    ) -> Option<G::Given> {
        let [first, last] = ends;
        // SAFETY: By the safety requirements of this function, the last one is initialised, and
        // there is no other reference to it.
        let room = match qp.reserve_for(n, unsafe { &mut *last }) {
            Ok(room) => room,
            Err(e) => {
                failed(NotPosted::Kept(e, what));
                return None;
            }
        };
        let given = what.give();
        // SAFETY: By the safety requirements of this function; the room is for these.
        match unsafe { room.post(first, last) } {
            Ok(()) => Some(given),
            Err(refused) => {
                failed(NotPosted::Given(refused.into(), given));
                None
            }
        }
    }
}

/// The registration with `key`, before `next`.
#[inline(always)]
fn registration(
    cqe: *mut raw::ib_cqe,
    next: *mut raw::ib_send_wr,
    key: NewKey<'_>,
) -> raw::ib_reg_wr {
    raw::ib_reg_wr {
        wr: request(cqe, next, raw::ib_wr_opcode_IB_WR_REG_MR, 0, None),
        mr: key.mr().as_raw(),
        key: key.rkey(),
        access: Access::REMOTE_WRITE.as_raw(),
    }
}

/// A work request before `next`, with the value `ex` and the element `data`, if any.
#[inline(always)]
fn request(
    cqe: *mut raw::ib_cqe,
    next: *mut raw::ib_send_wr,
    opcode: raw::ib_wr_opcode,
    ex: u32,
    data: Option<*mut raw::ib_sge>,
) -> raw::ib_send_wr {
    raw::ib_send_wr {
        next,
        __bindgen_anon_1: raw::ib_send_wr__bindgen_ty_1 { wr_cqe: cqe },
        sg_list: data.unwrap_or(null_mut()),
        num_sge: i32::from(data.is_some()),
        opcode,
        send_flags: 0,
        // The same place for a key and for a value.
        ex: raw::ib_send_wr__bindgen_ty_2 { imm_data: ex },
    }
}
