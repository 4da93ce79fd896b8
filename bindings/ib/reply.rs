// SPDX-License-Identifier: GPL-2.0

//! Answers to a peer: memory of ours that goes out, and keys that change.
//!
//! A [`Reply`] has the work requests of an answer, of which a few words are written for each. What
//! it may consist of, in this order: data, by RDMA write; a registration; an invalidation of the
//! peer's key; and always the answer itself, a word and perhaps a few bytes. Data and a word
//! alone are one message.
//!
//! # Context
//!
//! Any; creating may sleep.

use core::ptr::{
    null_mut,
    NonNull, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    domain::{
        Direction,
        Domain,
        Region, //
    },
    mr::{
        Access,
        Mr, //
    },
    queue::{
        PostError,
        QueuePair, //
    },
    wr::Remote, //
};
use crate::raw;

/// Bytes that an answer can carry besides its word.
pub const REPLY_BODY: usize = 8;

/// Where the body of answers is.
struct Body {
    /// In pages of the domain, of which nobody has a reference.
    at: NonNull<[u8; REPLY_BODY]>,
    dma: u64,
    dir: Direction,
}

/// Which of its memory an answer's data come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The first region.
    First,
    /// The second one.
    Second,
}

/// A region's memory.
#[derive(Clone, Copy)]
struct Memory {
    dma: u64,
    len: u32,
    dir: Direction,
}

impl Memory {
    const NONE: Self = Self {
        dma: 0,
        len: 0,
        dir: Direction::ToDevice,
    };

    fn of(region: &Region) -> Result<Self> {
        Ok(Self {
            dma: region.dma(),
            len: u32::try_from(region.len())?,
            dir: region.direction(),
        })
    }
}

/// The answers of one user, one at a time.
///
/// # Invariants
///
/// `memory` and `body` are in regions of `domain`.
pub struct Reply {
    write: raw::ib_rdma_wr,
    reg: raw::ib_reg_wr,
    inval: raw::ib_send_wr,
    end: raw::ib_rdma_wr,
    data: raw::ib_sge,
    body_sge: raw::ib_sge,
    body: Option<Body>,
    /// By [`Source`].
    memory: [Memory; 2],
    domain: Arc<Domain>,
}

// SAFETY: What it points to may be used from any thread, by one at a time.
unsafe impl Send for Reply {}

/// What an answer is to say.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// So many bytes of the data, to there.
    pub data: Option<(Source, u32, Remote)>,
    /// A key of the peer that is invalidated there.
    pub invalidate: Option<u32>,
    /// Bytes that go with the word, which is a message then; otherwise it comes with the data, or with
    /// a write of nothing.
    pub body: Option<[u8; REPLY_BODY]>,
    /// The word.
    pub imm: u32,
}

/// Work requests that are linked one behind the other.
struct Links {
    first: *mut raw::ib_send_wr,
    last: *mut raw::ib_send_wr,
    n: u32,
}

impl Links {
    /// Appends `wr`, which completes at `cqe` if it fails.
    ///
    /// # Safety
    ///
    /// `wr`, and what was appended before, must be valid and the caller's to write.
    #[inline(always)]
    unsafe fn push(&mut self, wr: *mut raw::ib_send_wr, cqe: *mut raw::ib_cqe) {
        // SAFETY: By the function's requirement.
        unsafe {
            (*wr).__bindgen_anon_1.wr_cqe = cqe;
            match self.n {
                0 => self.first = wr,
                _ => (*self.last).next = wr,
            }
        }
        self.last = wr;
        self.n = self.n.wrapping_add(1);
    }
}

impl Reply {
    /// Answers with data from the start of `data`, or of a second region, and with bytes that are
    /// kept at an offset of a region: a multiple of their number.
    ///
    /// # Errors
    ///
    /// `EINVAL` for regions of different domains, or an offset that is none.
    pub fn new(
        data: &Region,
        second: Option<&Region>,
        body: Option<(&Region, usize)>,
    ) -> Result<Self> {
        let domain = data.domain();
        let lkey = domain.lkey();
        if second.is_some_and(|second| !Arc::ptr_eq(second.domain(), domain)) {
            return Err(EINVAL);
        }
        let body = match body {
            Some((region, offset)) => {
                let end = offset.checked_add(REPLY_BODY).ok_or(EINVAL)?;
                if !Arc::ptr_eq(region.domain(), domain) || end > region.len() {
                    return Err(EINVAL);
                }
                let at = region.pages().as_ptr().wrapping_add(offset).cast();
                Some(Body {
                    at: NonNull::new(at).ok_or(EINVAL)?,
                    // CAST: `usize` has at most 64 bits.
                    dma: region.dma() + offset as u64,
                    dir: region.direction(),
                })
            }
            None => None,
        };
        let mut this = Self {
            write: raw::ib_rdma_wr::default(),
            reg: raw::ib_reg_wr::default(),
            inval: raw::ib_send_wr::default(),
            end: raw::ib_rdma_wr::default(),
            data: raw::ib_sge {
                addr: 0,
                length: 0,
                lkey,
            },
            body_sge: raw::ib_sge {
                addr: body.as_ref().map_or(0, |body| body.dma),
                // CAST: 8.
                length: REPLY_BODY as u32,
                lkey,
            },
            body,
            memory: [
                Memory::of(data)?,
                second.map_or(Ok(Memory::NONE), Memory::of)?,
            ],
            domain: domain.clone(),
        };
        this.write.wr.opcode = raw::ib_wr_opcode_IB_WR_RDMA_WRITE;
        this.write.wr.num_sge = 1;
        this.reg.wr.opcode = raw::ib_wr_opcode_IB_WR_REG_MR;
        this.reg.access = Access::REMOTE_WRITE.as_raw();
        this.inval.opcode = raw::ib_wr_opcode_IB_WR_SEND_WITH_INV;
        Ok(this)
    }

    /// Posts `answer` on `qp`, all of it or nothing. With `register` the region is registered before
    /// the word, for the peer to write to, under its current key.
    ///
    /// # Errors
    ///
    /// See [`PostError`]; it is `Invalid` for more data than there is, for a body without a place, or
    /// a queue pair or region of another domain.
    #[inline(always)]
    pub fn post(
        &mut self,
        qp: &QueuePair,
        register: Option<&Mr>,
        answer: &Answer,
    ) -> Result<(), PostError> {
        if !qp.is_of(&self.domain) {
            return Err(PostError::Invalid);
        }
        let dev = self.domain.device().as_raw();
        let cqe = qp.silent();
        let mut links = Links {
            first: null_mut(),
            last: null_mut(),
            n: 0,
        };
        // Nothing of an answer before.
        self.end.wr.num_sge = 0;
        (self.end.remote_addr, self.end.rkey) = (0, 0);
        if let Some((source, len, to)) = answer.data {
            let memory = match source {
                Source::First => &self.memory[0],
                Source::Second => &self.memory[1],
            };
            if len > memory.len {
                return Err(PostError::Invalid);
            }
            self.data.addr = memory.dma;
            self.data.length = len;
            // SAFETY: The device is valid, and the data in a region of the domain.
            unsafe {
                raw::rtrs_helper_ib_dma_sync_for_device(
                    dev,
                    memory.dma,
                    len as usize,
                    memory.dir.as_raw(),
                );
            }
            // Nothing comes between data and word: they are one message.
            if answer.body.is_none() && answer.invalidate.is_none() && register.is_none() {
                self.end.wr.num_sge = 1;
                self.end.wr.sg_list = &raw mut self.data;
                self.end.remote_addr = to.addr;
                self.end.rkey = to.rkey;
            } else {
                self.write.wr.sg_list = &raw mut self.data;
                self.write.remote_addr = to.addr;
                self.write.rkey = to.rkey;
                // SAFETY: The work request is ours.
                unsafe { links.push(&raw mut self.write.wr, cqe) };
            }
        }
        // The order that is on the wire since ever, whatever its reason: an invalidation comes first
        // if there is no data.
        let before = answer.invalidate.filter(|_| answer.data.is_none());
        let after = answer.invalidate.filter(|_| answer.data.is_some());
        if let Some(rkey) = before {
            self.inval.ex.invalidate_rkey = rkey;
            // SAFETY: The work request is ours.
            unsafe { links.push(&raw mut self.inval, cqe) };
        }
        if let Some(mr) = register {
            if !qp.is_of(mr.domain()) {
                return Err(PostError::Invalid);
            }
            self.reg.mr = mr.as_raw();
            self.reg.key = mr.rkey();
            // SAFETY: The work request is ours.
            unsafe { links.push(&raw mut self.reg.wr, cqe) };
        }
        if let Some(rkey) = after {
            self.inval.ex.invalidate_rkey = rkey;
            // SAFETY: The work request is ours.
            unsafe { links.push(&raw mut self.inval, cqe) };
        }
        self.end.wr.opcode = raw::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM;
        if let Some(bytes) = answer.body {
            let body = self.body.as_ref().ok_or(PostError::Invalid)?;
            self.end.wr.opcode = raw::ib_wr_opcode_IB_WR_SEND_WITH_IMM;
            self.end.wr.num_sge = 1;
            self.end.wr.sg_list = &raw mut self.body_sge;
            // SAFETY: By the invariant.
            unsafe {
                body.at.as_ptr().write_unaligned(bytes);
                raw::rtrs_helper_ib_dma_sync_for_device(
                    dev,
                    body.dma,
                    REPLY_BODY,
                    body.dir.as_raw(),
                );
            }
        }
        self.end.wr.ex.imm_data = answer.imm.to_be();
        // SAFETY: The work request is ours.
        unsafe { links.push(&raw mut self.end.wr, cqe) };

        let room = qp.reserve(links.n, false)?;
        // SAFETY: They are initialised and linked, and ours while `self` is borrowed; `next` of the
        // last one is null since it was made. What they name is of the domain, see above, and
        // the entry the queue pair's.
        unsafe { room.post(links.first, links.last, cqe) }.map_err(PostError::from)
    }
}
