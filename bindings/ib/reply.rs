// SPDX-License-Identifier: GPL-2.0

//! Answers to a peer: local memory that is sent, and keys that change.
//!
//! For protocols in which an immediate value answers a request: the form of an answer, and the order
//! of its parts, are here so that they are one chain, built without a look at each part by its user.
//! What the values mean is not known here.
//!
//! A [`Reply`] holds the data that all answers of one user have in common. An answer may consist
//! of, in this order: data, by RDMA write; a registration; an invalidation of the peer's key, which
//! comes before the registration if there are no data; and always the answer itself, an immediate
//! value and perhaps a few bytes. Data and an immediate value alone are one message, and one work
//! request.
//!
//! # Context
//!
//! Any; creating and dropping may sleep.

mod body;
mod keys;
mod memory;

use core::ptr::null_mut;
use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    domain::{
        DmaDirection,
        DmaPages,
        Domain, //
    },
    mr::{
        Access,
        Mr, //
    },
    queue::{
        Filled,
        PostError,
        QueuePair,
        FORM_BYTES, //
    },
    wr::Remote, //
};
use crate::raw;

use self::{
    body::Body,
    memory::Memory, //
};

pub use self::{
    keys::{
        Bytes,
        Invalidation,
        Keys,
        NewKey, //
    },
    memory::Source,
};

/// Number of bytes that an answer can carry besides its immediate value: two halves, each of which is
/// written at once.
// CAST: `usize` has at least 32 bits.
pub const REPLY_BODY: usize = FORM_BYTES as usize;

/// Number of bytes of the second half of a body.
const BODY_END: usize = REPLY_BODY / 2;

/// Immediate values of the answers without an error of one user.
#[derive(Clone, Copy, Debug)]
pub struct Imms {
    /// Nothing was invalidated; that of [plain](Reply::post_plain) answers.
    pub plain: u32,
    /// A key of the peer was invalidated.
    pub inval: u32,
    /// A region was registered with its next key, which the peer [counts](Keys::register).
    pub next_key: u32,
}

/// The common parts of the answers of one user.
///
/// # Invariants
///
/// `memory`, `plain` and `body`, if there is any, are in pages of `domain`, and `lkey` is its key. `region`
/// is of `domain`.
// The fields for plain answers come first.
#[repr(C)]
pub struct Reply {
    domain: Arc<Domain>,
    /// The source of the data of plain answers: one of those below.
    plain: Memory,
    /// The immediate values of answers without an error, as they are sent.
    imms: Imms,
    lkey: u32,
    /// Indexed by [`Source`].
    memory: [Memory; 2],
    body: Body,
    /// The region that answers register.
    region: Option<Mr>,
}

// SAFETY: The memory that it points to may be used from any thread.
unsafe impl Send for Reply {}
// SAFETY: The memory that it points to is written by atomic stores, and by copies into `Pages`,
// which may be concurrent (see there).
unsafe impl Sync for Reply {}

/// The contents of an answer.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// The source, the number of bytes and the destination of the data.
    pub data: Option<(Source, u32, Remote)>,
    /// A key of the peer that the answer invalidates.
    pub invalidate: Option<u32>,
    /// Bytes that are sent with the immediate value, as a message. Without them it goes with the
    /// data, or with an empty write.
    pub body: Option<[u8; REPLY_BODY]>,
    /// The immediate value.
    pub imm: u32,
}

/// A value that is given away with an answer, once there is room for the answer and before the
/// device is told: it happens before everything that the peer does because of the answer.
pub trait Give {
    /// The rest of the value.
    type Given;

    /// The length and the destination of the data, if the answer has any. Called more than once, also
    /// with the send queue locked. Must not post, and must not sleep.
    fn wanted(&self) -> (u32, Remote);

    /// Gives the value away. The send queue is locked, so that requests that are posted as a
    /// consequence of this call come after the answer. Must not post, and must not sleep.
    fn give(self) -> Self::Given;
}

/// The reason why an answer was not posted.
pub enum NotPosted<G: Give> {
    /// Nothing was done: returns the value that was not given away.
    Kept(PostError, G),
    /// The value was given away before the driver refused.
    Given(PostError, G::Given),
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
    /// `wr`, and the work requests appended before, must be valid, and the caller must be allowed
    /// to write them.
    #[inline(always)]
    unsafe fn push(&mut self, wr: *mut raw::ib_send_wr, cqe: *mut raw::ib_cqe) {
        // SAFETY: By the safety requirements of this function, `wr` and the last work request are
        // valid.
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
    /// Makes answers with data from the start of `data`, or of other pages. `body` is the
    /// pages and offset of the [`REPLY_BODY`] bytes, and those that are there first; the offset must
    /// be a multiple of their number. Answers without an error have one of the `imms`. Answers that
    /// register no region (see [`Keys`]) have data from the other pages if there are any. `region` is what
    /// the others register.
    ///
    /// # Errors
    ///
    /// `EINVAL` for pages or a region of different domains, or an invalid offset.
    pub fn new(
        data: &DmaPages,
        second: Option<&DmaPages>,
        body: Option<(&DmaPages, usize, [u8; REPLY_BODY])>,
        region: Option<Mr>,
        imms: Imms,
    ) -> Result<Self> {
        let domain = data.domain();
        if region
            .as_ref()
            .is_some_and(|mr| !core::ptr::eq(mr.domain(), &**domain))
        {
            return Err(EINVAL);
        }
        if second.is_some_and(|second| !Arc::ptr_eq(second.domain(), domain)) {
            return Err(EINVAL);
        }
        let (lkey, mut first) = (domain.lkey(), None);
        let body = match body {
            Some((dma_pages, _, _)) if !Arc::ptr_eq(dma_pages.domain(), domain) => {
                return Err(EINVAL);
            }
            Some((dma_pages, offset, bytes)) => {
                first = Some(bytes);
                // SAFETY: Pages stay as long as their domain, which this object keeps.
                unsafe { Body::new(dma_pages, offset) }?
            }
            None => Body::NONE,
        };
        // INVARIANT: Checked above.
        let this = Self {
            memory: [
                Memory::of(data)?,
                second.map_or_else(|| Ok(Memory::none()), Memory::of)?,
            ],
            plain: Memory::of(second.unwrap_or(data))?,
            imms: Imms {
                plain: imms.plain.to_be(),
                inval: imms.inval.to_be(),
                next_key: imms.next_key.to_be(),
            },
            lkey,
            body,
            region,
            domain: domain.clone(),
        };
        if let Some(bytes) = first {
            this.write_body(bytes).map_err(Error::from)?;
        }
        Ok(this)
    }

    /// The region that answers register.
    #[inline(always)]
    pub fn region(&self) -> Option<&Mr> {
        self.region.as_ref()
    }

    /// Posts a plain answer on `qp`: one message, with the data that are [wanted](Give::wanted) if
    /// `DATA` is set, otherwise without data. [Gives](Give) `what` away. For few data: they do not count
    /// for a [portion](super::QueueConfig::portion), however many they are.
    ///
    /// If it cannot be posted, `failed` gets the error that [`post_message`](Self::post_message)
    /// would return, and the result is `None`.
    #[inline(always)]
    pub fn post_plain<G: Give, const DATA: bool>(
        &self,
        qp: &QueuePair,
        what: G,
        failed: impl FnOnce(NotPosted<G>),
    ) -> Option<G::Given> {
        let memory = &self.plain;
        if !qp.is_of(&self.domain) {
            failed(NotPosted::Kept(PostError::Invalid, what));
            return None;
        }
        if !DATA {
            return Self::post_filled(qp.forms().value(self.imms.plain), 0, what, failed);
        }
        self.hand_over(memory, &what);
        let filling = qp.forms();
        let (len, to) = what.wanted();
        if !memory.has(len) {
            drop(filling);
            failed(NotPosted::Kept(PostError::Invalid, what));
            return None;
        }
        // SAFETY: The memory has that many bytes, not none, and is of the domain, see above. Nothing
        // is inline, and there is no other write.
        let filled = unsafe { filling.value_with_data(self.imms.plain, (memory.dma, len, 0), to) };
        Self::post_filled(filled, 0, what, failed)
    }

    /// Hands the data that `what` wants to the device, if it has to be told of them. Called before the
    /// send queue is locked, as that may copy them.
    #[inline(always)]
    fn hand_over<G: Give>(&self, memory: &Memory, what: &G) {
        if memory.needs_sync {
            let (len, _) = what.wanted();
            if memory.has(len) {
                // CAST: `usize` has at least 32 bits.
                self.sync(memory.dma, len as usize, memory.dir);
            }
        }
    }

    /// Posts filled forms, with `len` bytes of data that count, and gives `what` away.
    #[inline(always)]
    fn post_filled<G: Give>(
        filled: Filled<'_>,
        len: u32,
        what: G,
        failed: impl FnOnce(NotPosted<G>),
    ) -> Option<G::Given> {
        let granted = match filled.reserve_data(len) {
            Ok(granted) => granted,
            Err(e) => {
                failed(NotPosted::Kept(e, what));
                return None;
            }
        };
        let given = what.give();
        match granted.post() {
            Ok(()) => Some(given),
            Err(refused) => {
                failed(NotPosted::Given(refused.into(), given));
                None
            }
        }
    }

    /// Posts an answer on `qp` as one message: data, if any, and the immediate value.
    /// [Gives](Give) `what` away.
    ///
    /// # Errors
    ///
    /// See [`NotPosted`] and [`PostError`]; the latter is `Invalid` for more data than the source
    /// has, or a queue pair of another domain.
    pub fn post_message<G: Give>(
        &self,
        qp: &QueuePair,
        data: Option<(Source, u32, Remote)>,
        imm: u32,
        what: G,
    ) -> Result<G::Given, NotPosted<G>> {
        if !qp.is_of(&self.domain) {
            return Err(NotPosted::Kept(PostError::Invalid, what));
        }
        let (mut element, n, to) = match data {
            Some((source, len, to)) => match self.data(source, len) {
                Ok(element) => (element, 1, to),
                Err(e) => return Err(NotPosted::Kept(e, what)),
            },
            None => (raw::ib_sge::default(), 0, Remote { addr: 0, rkey: 0 }),
        };
        let mut end = Self::end(qp, imm.to_be(), to);
        end.wr.num_sge = n;
        end.wr.sg_list = &raw mut element;
        let len = data.map_or(0, |(_, len, _)| len);
        let room = match qp.reserve_data(1, len) {
            Ok(room) => room,
            Err(e) => return Err(NotPosted::Kept(e, what)),
        };
        let given = what.give();
        let wr = &raw mut end.wr;
        // SAFETY: The work request is initialised, and stays until this returns, as does the
        // element. Its memory is of the domain, see above, and the entry is the queue pair's.
        match unsafe { room.post(wr, wr, qp.silent()) }.map_err(PostError::from) {
            Ok(()) => Ok(given),
            Err(e) => Err(NotPosted::Given(e, given)),
        }
    }

    /// Posts `answer` on `qp`, all of it or nothing, as [`post_message`](Self::post_message) does.
    /// With `registers`, the [region](Self::region) is registered with its current key before the
    /// immediate value is sent, so that the peer can write to it.
    ///
    /// # Errors
    ///
    /// As for [`post_message`](Self::post_message); `Invalid` also for a body without memory for
    /// it, or if there is no region.
    pub fn post<G: Give>(
        &self,
        qp: &QueuePair,
        registers: bool,
        answer: &Answer,
        what: G,
    ) -> Result<G::Given, NotPosted<G>> {
        if !registers && answer.invalidate.is_none() && answer.body.is_none() {
            return self.post_message(qp, answer.data, answer.imm, what);
        }
        let register = self.region.as_ref().filter(|_| registers);
        if !qp.is_of(&self.domain) || registers && register.is_none() {
            return Err(NotPosted::Kept(PostError::Invalid, what));
        }
        let cqe = qp.silent();
        let mut links = Links {
            first: null_mut(),
            last: null_mut(),
            n: 0,
        };
        let (mut write, mut inval, mut reg) = (
            raw::ib_rdma_wr::default(),
            raw::ib_send_wr::default(),
            raw::ib_reg_wr::default(),
        );
        let mut data;
        if let Some((source, len, to)) = answer.data {
            data = match self.data(source, len) {
                Ok(data) => data,
                Err(e) => return Err(NotPosted::Kept(e, what)),
            };
            write.wr.opcode = raw::ib_wr_opcode_IB_WR_RDMA_WRITE;
            write.wr.num_sge = 1;
            write.wr.sg_list = &raw mut data;
            write.remote_addr = to.addr;
            write.rkey = to.rkey;
            // SAFETY: The work request is a local variable, which outlives `links`.
            unsafe { links.push(&raw mut write.wr, cqe) };
        }
        inval.opcode = raw::ib_wr_opcode_IB_WR_SEND_WITH_INV;
        inval.ex.invalidate_rkey = answer.invalidate.unwrap_or(0);
        // An invalidation comes first if there are no data: peers may rely on the order in which
        // parts have always come.
        if answer.invalidate.is_some() && answer.data.is_none() {
            // SAFETY: The work request is a local variable, which outlives `links`.
            unsafe { links.push(&raw mut inval, cqe) };
        }
        if let Some(mr) = register {
            reg.wr.opcode = raw::ib_wr_opcode_IB_WR_REG_MR;
            reg.access = Access::REMOTE_WRITE.as_raw();
            reg.mr = mr.as_raw();
            reg.key = mr.rkey();
            // SAFETY: The work request is a local variable, which outlives `links`.
            unsafe { links.push(&raw mut reg.wr, cqe) };
        }
        if answer.invalidate.is_some() && answer.data.is_some() {
            // SAFETY: The work request is a local variable, which outlives `links`.
            unsafe { links.push(&raw mut inval, cqe) };
        }
        let mut end = Self::end(qp, answer.imm.to_be(), Remote { addr: 0, rkey: 0 });
        let mut body;
        if let Some(bytes) = answer.body {
            body = match self.body(bytes) {
                Ok(body) => body,
                Err(e) => return Err(NotPosted::Kept(e, what)),
            };
            end.wr.opcode = raw::ib_wr_opcode_IB_WR_SEND_WITH_IMM;
            end.wr.num_sge = 1;
            end.wr.sg_list = &raw mut body;
        }
        // SAFETY: The work request is a local variable, which outlives `links`.
        unsafe { links.push(&raw mut end.wr, cqe) };

        let len = answer.data.map_or(0, |(_, len, _)| len);
        let room = match qp.reserve_data(links.n, len) {
            Ok(room) => room,
            Err(e) => return Err(NotPosted::Kept(e, what)),
        };
        let given = what.give();
        // SAFETY: The work requests are initialised and linked, and stay until this returns, as do
        // the elements; `next` of the last one is null. Their memory is of the domain, see above,
        // and the entry is the queue pair's.
        match unsafe { room.post(links.first, links.last, cqe) }.map_err(PostError::from) {
            Ok(()) => Ok(given),
            Err(e) => Err(NotPosted::Given(e, given)),
        }
    }

    /// Hands `len` bytes of data to the device, and returns their element.
    fn data(&self, source: Source, len: u32) -> Result<raw::ib_sge, PostError> {
        let memory = match source {
            Source::First => &self.memory[0],
            Source::Second => &self.memory[1],
        };
        if !memory.has(len) {
            return Err(PostError::Invalid);
        }
        if memory.needs_sync {
            self.sync(memory.dma, len as usize, memory.dir);
        }
        Ok(raw::ib_sge {
            addr: memory.dma,
            length: len,
            lkey: self.lkey,
        })
    }

    /// Writes `bytes` to the body, and returns its element.
    fn body(&self, bytes: [u8; REPLY_BODY]) -> Result<raw::ib_sge, PostError> {
        self.write_body(bytes)?;
        Ok(raw::ib_sge {
            addr: self.body.addresses()[0],
            length: FORM_BYTES,
            lkey: self.lkey,
        })
    }

    /// Writes `bytes` to the body.
    ///
    /// # Errors
    ///
    /// `Invalid` if there is none.
    fn write_body(&self, bytes: [u8; REPLY_BODY]) -> Result<(), PostError> {
        let [a, b, c, d, end @ ..] = bytes;
        self.body.write_start([a, b, c, d])?;
        self.write_end(end)
    }

    /// Writes the second half of the body.
    ///
    /// # Errors
    ///
    /// As for [`write_body`](Self::write_body).
    #[inline(always)]
    fn write_end(&self, bytes: [u8; BODY_END]) -> Result<(), PostError> {
        match self.body.write_end_alone(bytes) {
            true => Ok(()),
            false => self.write_end_and_sync(bytes),
        }
    }

    /// The same if the device has to be told of it, or if there is no body.
    #[cold]
    #[inline(never)]
    fn write_end_and_sync(&self, bytes: [u8; BODY_END]) -> Result<(), PostError> {
        self.body.write_end(bytes)?;
        let [dma, _] = *self.body.addresses();
        self.sync(dma, REPLY_BODY, self.body.dir);
        Ok(())
    }

    /// Hands memory of the pages to the device.
    #[inline(never)]
    fn sync(&self, dma: u64, len: usize, dir: DmaDirection) {
        // SAFETY: The device is valid, and the memory is in pages of the domain.
        unsafe {
            raw::rtrs_helper_ib_dma_sync_for_device(
                self.domain.device().as_raw(),
                dma,
                len,
                dir.as_raw(),
            );
        }
    }

    /// The work request of the immediate value `imm`, which is big endian: a write to `to`, without
    /// elements yet.
    #[inline(always)]
    fn end(qp: &QueuePair, imm: u32, to: Remote) -> raw::ib_rdma_wr {
        raw::ib_rdma_wr {
            wr: raw::ib_send_wr {
                next: null_mut(),
                __bindgen_anon_1: raw::ib_send_wr__bindgen_ty_1 {
                    wr_cqe: qp.silent(),
                },
                sg_list: null_mut(),
                num_sge: 0,
                opcode: raw::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM,
                send_flags: 0,
                ex: raw::ib_send_wr__bindgen_ty_2 { imm_data: imm },
            },
            remote_addr: to.addr,
            rkey: to.rkey,
        }
    }
}
