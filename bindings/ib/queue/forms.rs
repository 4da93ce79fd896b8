// SPDX-License-Identifier: GPL-2.0

//! Work requests that a queue pair keeps for requests and answers: a post writes only the fields that
//! differ from those of the last one.
//!
//! # Locking
//!
//! The forms are accessed with the send queue locked. A driver reads them only while they are posted,
//! which is done with that lock held, too.

use core::ptr::null_mut;

use super::{
    PostError,
    QueuePair,
    Refused,
    Room,
    SendQueue,
    FORM_BYTES,
    INLINE,
    LARGE, //
};
use crate::{
    ib::{
        mr::Access,
        wr::Remote, //
    },
    lock::SpinLockIrqGuard,
    raw, //
};

/// The forms of a queue pair.
///
/// # Invariants
///
/// Once [linked](Forms::link), the requests are initialised, and complete silently, but for
/// `local_inval`; their elements are those of the same forms. Only the last one of a chain has flags,
/// and those that can only be the last one, or are always alone, have no next one.
pub(super) struct Forms {
    /// A write of the data, with an immediate value; the last one.
    with_data: raw::ib_rdma_wr,
    /// The same of data and a message behind them.
    with_both: raw::ib_rdma_wr,
    /// The same as a message; the last one.
    both_sent: raw::ib_send_wr,
    /// An immediate value alone; the last one.
    value: raw::ib_rdma_wr,
    /// A message of the bytes, with an immediate value; the last one.
    told: raw::ib_send_wr,
    /// A message of the bytes, which invalidates a key of the peer; the last one.
    told_by_inval: raw::ib_send_wr,
    /// A write of the data.
    write: raw::ib_rdma_wr,
    /// A registration.
    reg: raw::ib_reg_wr,
    /// A message without bytes, which invalidates a key of the peer.
    inval: raw::ib_send_wr,
    /// The invalidation of a local key, which is alone, and signaled.
    local_inval: raw::ib_send_wr,
    data: raw::ib_sge,
    both: [raw::ib_sge; 2],
    bytes: raw::ib_sge,
    /// Flags of a message of the bytes.
    flags: i32,
    /// Which address of the bytes it has: 0 for that of the device, 1 for that of the processor.
    which: usize,
}

impl Forms {
    /// Blank forms, for memory with the key `lkey`, and with messages of bytes that are sent inline
    /// if `is_inline` is set.
    pub(super) fn new(lkey: u32, is_inline: bool) -> Self {
        let element = raw::ib_sge {
            addr: 0,
            length: FORM_BYTES,
            lkey,
        };
        Self {
            with_data: raw::ib_rdma_wr::default(),
            with_both: raw::ib_rdma_wr::default(),
            both_sent: raw::ib_send_wr::default(),
            value: raw::ib_rdma_wr::default(),
            told: raw::ib_send_wr::default(),
            told_by_inval: raw::ib_send_wr::default(),
            write: raw::ib_rdma_wr::default(),
            reg: raw::ib_reg_wr::default(),
            inval: raw::ib_send_wr::default(),
            local_inval: raw::ib_send_wr::default(),
            data: element,
            both: [element; 2],
            bytes: element,
            flags: if is_inline { INLINE } else { 0 },
            which: usize::from(is_inline),
        }
    }

    /// Links the forms. Requests complete at `cqe` if they fail.
    ///
    /// # Safety
    ///
    /// `forms` must be valid, and accessed by no other task; they must not move afterwards. `cqe` must
    /// be the silent entry of their queue pair.
    pub(super) unsafe fn link(forms: *mut Self, cqe: *mut raw::ib_cqe) {
        // SAFETY: By the safety requirements of this function, the fields may be written. No
        // reference is made to them, so that the pointers stay valid.
        unsafe {
            let (data, bytes) = (&raw mut (*forms).data, &raw mut (*forms).bytes);
            let both: *mut raw::ib_sge = (&raw mut (*forms).both).cast();
            let set = |wr: *mut raw::ib_send_wr, opcode, element: *mut raw::ib_sge| {
                (*wr).__bindgen_anon_1.wr_cqe = cqe;
                (*wr).opcode = opcode;
                (*wr).sg_list = element;
                (*wr).num_sge = i32::from(!element.is_null());
            };
            let with_imm = raw::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM;
            set(&raw mut (*forms).with_data.wr, with_imm, data);
            set(&raw mut (*forms).with_both.wr, with_imm, both);
            (*forms).with_both.wr.num_sge = 2;
            set(&raw mut (*forms).value.wr, with_imm, null_mut());
            let with_imm = raw::ib_wr_opcode_IB_WR_SEND_WITH_IMM;
            set(&raw mut (*forms).told, with_imm, bytes);
            set(&raw mut (*forms).both_sent, with_imm, both);
            (*forms).both_sent.num_sge = 2;
            let with_inval = raw::ib_wr_opcode_IB_WR_SEND_WITH_INV;
            set(&raw mut (*forms).told_by_inval, with_inval, bytes);
            set(&raw mut (*forms).inval, with_inval, null_mut());
            let write = raw::ib_wr_opcode_IB_WR_RDMA_WRITE;
            set(&raw mut (*forms).write.wr, write, data);
            let reg = raw::ib_wr_opcode_IB_WR_REG_MR;
            set(&raw mut (*forms).reg.wr, reg, null_mut());
            (*forms).reg.access = Access::REMOTE_WRITE.as_raw();
            let local = raw::ib_wr_opcode_IB_WR_LOCAL_INV;
            set(&raw mut (*forms).local_inval, local, null_mut());
            (*forms).local_inval.send_flags = raw::ib_send_flags_IB_SEND_SIGNALED;
        }
    }

    /// Fills in the invalidation of the local key `rkey`, which completes at `cqe`.
    ///
    /// # Safety
    ///
    /// `forms` must be valid and [linked](Forms::link), and accessed by no other task until the
    /// request is posted.
    #[inline(always)]
    pub(super) unsafe fn local_inval(
        forms: *mut Self,
        rkey: u32,
        cqe: *mut raw::ib_cqe,
    ) -> *mut raw::ib_send_wr {
        // SAFETY: By the safety requirements of this function.
        unsafe {
            let wr = &raw mut (*forms).local_inval;
            (*wr).__bindgen_anon_1.wr_cqe = cqe;
            (*wr).ex.invalidate_rkey = rkey;
            wr
        }
    }
}

/// The forms of a queue pair, the send queue of which is locked, and a chain of those that are filled
/// in.
///
/// # Invariants
///
/// `first` and `last` are the ends of a chain of `n` forms of `qp`, if that is not 0.
pub(in crate::ib) struct Filling<'q> {
    qp: &'q QueuePair,
    sq: SpinLockIrqGuard<'q, SendQueue>,
    first: *mut raw::ib_send_wr,
    last: *mut raw::ib_send_wr,
    n: u32,
}

/// A chain that has its last request.
///
/// # Invariants
///
/// It is not empty, and ends with a form that can only be the last one.
pub(in crate::ib) struct Filled<'q>(Filling<'q>);

/// A chain for which there is room on the queue, which is still locked.
///
/// # Invariants
///
/// `first` and `last` are the ends of a [`Filled`] chain. The room is for that many requests, and the
/// last one is signaled if it has a note.
pub(in crate::ib) struct Granted<'q> {
    room: Room<'q>,
    first: *mut raw::ib_send_wr,
    last: *mut raw::ib_send_wr,
}

impl QueuePair {
    /// Locks the send queue, and returns its forms.
    #[inline(always)]
    pub(in crate::ib) fn forms(&self) -> Filling<'_> {
        // INVARIANT: There is none yet.
        Filling {
            qp: self,
            sq: self.sq.lock(),
            first: null_mut(),
            last: null_mut(),
            n: 0,
        }
    }
}

impl<'q> Filling<'q> {
    /// The forms, which only this chain has, as the send queue is locked.
    #[inline(always)]
    fn at(&self) -> *mut Forms {
        self.qp.forms.get()
    }

    /// Appends `wr`.
    ///
    /// # Safety
    ///
    /// It must be one of the forms, filled in, and not in the chain.
    #[inline(always)]
    unsafe fn push(&mut self, wr: *mut raw::ib_send_wr) {
        match self.n {
            0 => self.first = wr,
            // SAFETY: By the type invariant this is one of the forms.
            _ => unsafe { (*self.last).next = wr },
        }
        // INVARIANT: By the safety requirements of this function.
        self.last = wr;
        self.n = self.n.wrapping_add(1);
    }

    /// Appends a write of `len` bytes at `dma` to `to`.
    ///
    /// # Safety
    ///
    /// The data must be memory of the domain of the queue pair, and not empty. There must be no other
    /// write in the chain.
    #[inline(always)]
    pub(in crate::ib) unsafe fn write(&mut self, dma: u64, len: u32, to: Remote) {
        // SAFETY: The send queue is locked, so that this is the only access to the forms. By the safety
        // requirements of this function, this one is not in the chain.
        unsafe {
            let at = self.at();
            (*at).data.addr = dma;
            (*at).data.length = len;
            (*at).write.remote_addr = to.addr;
            (*at).write.rkey = to.rkey;
            self.push(&raw mut (*at).write.wr);
        }
    }

    /// Appends the registration of `mr` with the key `rkey`, for the peer to write to.
    ///
    /// # Safety
    ///
    /// The region must be of the domain of the queue pair. What it describes must be the peer's to
    /// write, and stay, until the key is invalid or the queue pair is gone. There must be no other
    /// registration in the chain.
    #[inline(always)]
    pub(in crate::ib) unsafe fn register(&mut self, mr: *mut raw::ib_mr, rkey: u32) {
        // SAFETY: As in `write()`.
        unsafe {
            let at = self.at();
            (*at).reg.mr = mr;
            (*at).reg.key = rkey;
            self.push(&raw mut (*at).reg.wr);
        }
    }

    /// Appends a message without bytes that invalidates the peer's key `rkey`.
    ///
    /// # Safety
    ///
    /// There must be no other one in the chain.
    #[inline(always)]
    pub(in crate::ib) unsafe fn invalidate(&mut self, rkey: u32) {
        // SAFETY: As in `write()`.
        unsafe {
            let at = self.at();
            (*at).inval.ex.invalidate_rkey = rkey;
            self.push(&raw mut (*at).inval);
        }
    }

    /// Ends the chain with the immediate value `imm`, which is big endian.
    #[inline(always)]
    pub(in crate::ib) fn value(mut self, imm: u32) -> Filled<'q> {
        // SAFETY: As in `write()`. A chain has one last form: it ends here.
        unsafe {
            let wr = &raw mut (*self.at()).value.wr;
            (*wr).ex.imm_data = imm;
            (*wr).send_flags = 0;
            self.push(wr);
        }
        // INVARIANT: That was the last one.
        Filled(self)
    }

    /// The same with `len` bytes of data at `addr`, which are written to `to`. Further `flags` may be
    /// [`INLINE`]: then the address is one of the processor.
    ///
    /// # Safety
    ///
    /// As for [`write`](Self::write). Inline data must not have more bytes than the queue pair
    /// [takes](QueuePair::takes_inline), and be readable until they are posted.
    #[inline(always)]
    pub(in crate::ib) unsafe fn value_with_data(
        mut self,
        imm: u32,
        (addr, len, flags): (u64, u32, i32),
        to: Remote,
    ) -> Filled<'q> {
        // SAFETY: As in `value()`.
        unsafe {
            let at = self.at();
            (*at).data.addr = addr;
            (*at).data.length = len;
            let wr = Self::address(&raw mut (*at).with_data, imm, to);
            (*wr).send_flags = flags;
            self.push(wr);
        }
        // INVARIANT: That was the last one.
        Filled(self)
    }

    /// The same with two pieces of data, one behind the other: their addresses and numbers of bytes.
    ///
    /// # Safety
    ///
    /// As for [`write`](Self::write), for both.
    #[inline(always)]
    pub(in crate::ib) unsafe fn value_with_both(
        mut self,
        imm: u32,
        first: (u64, u32),
        second: (u64, u32),
        to: Remote,
    ) -> Filled<'q> {
        // SAFETY: As in `value()`.
        unsafe {
            let at = self.at();
            Self::fill_in_both(at, first, second);
            let wr = Self::address(&raw mut (*at).with_both, imm, to);
            (*wr).send_flags = 0;
            self.push(wr);
        }
        // INVARIANT: That was the last one.
        Filled(self)
    }

    /// The same as a message.
    ///
    /// # Safety
    ///
    /// As for [`value_with_both`](Self::value_with_both).
    #[inline(always)]
    pub(in crate::ib) unsafe fn message_of_both(
        mut self,
        imm: u32,
        first: (u64, u32),
        second: (u64, u32),
    ) -> Filled<'q> {
        // SAFETY: As in `value()`.
        unsafe {
            let at = self.at();
            Self::fill_in_both(at, first, second);
            let wr = &raw mut (*at).both_sent;
            (*wr).ex.imm_data = imm;
            (*wr).send_flags = 0;
            self.push(wr);
        }
        // INVARIANT: That was the last one.
        Filled(self)
    }

    /// Fills in two pieces of data: their addresses and numbers of bytes.
    ///
    /// # Safety
    ///
    /// The forms must be valid, and accessed by no other task.
    #[inline(always)]
    unsafe fn fill_in_both(at: *mut Forms, first: (u64, u32), second: (u64, u32)) {
        // SAFETY: By the safety requirements of this function.
        unsafe {
            ((*at).both[0].addr, (*at).both[0].length) = first;
            ((*at).both[1].addr, (*at).both[1].length) = second;
        }
    }

    /// Fills in where `write` goes, and its value.
    ///
    /// # Safety
    ///
    /// It must be valid, and accessed by no other task.
    #[inline(always)]
    unsafe fn address(write: *mut raw::ib_rdma_wr, imm: u32, to: Remote) -> *mut raw::ib_send_wr {
        // SAFETY: By the safety requirements of this function.
        unsafe {
            (*write).remote_addr = to.addr;
            (*write).rkey = to.rkey;
            (*write).wr.ex.imm_data = imm;
            &raw mut (*write).wr
        }
    }

    /// Ends the chain with a message of the bytes at `bytes`, an address of the device and one of the
    /// processor, and the immediate value `imm`, which is big endian.
    ///
    /// # Safety
    ///
    /// Both must be addresses of the same [`FORM_BYTES`] bytes, in memory of the domain of the queue
    /// pair.
    #[inline(always)]
    pub(in crate::ib) unsafe fn told(mut self, bytes: &[u64; 2], imm: u32) -> Filled<'q> {
        // SAFETY: As in `value()`.
        unsafe {
            let wr = &raw mut (*self.at()).told;
            (*wr).ex.imm_data = imm;
            self.tell(wr, bytes);
        }
        // INVARIANT: That was the last one.
        Filled(self)
    }

    /// The same with the invalidation of the peer's key `rkey` in place of the value.
    ///
    /// # Safety
    ///
    /// As for [`told`](Self::told).
    #[inline(always)]
    pub(in crate::ib) unsafe fn told_by_inval(mut self, bytes: &[u64; 2], rkey: u32) -> Filled<'q> {
        // SAFETY: As in `value()`.
        unsafe {
            let wr = &raw mut (*self.at()).told_by_inval;
            (*wr).ex.invalidate_rkey = rkey;
            self.tell(wr, bytes);
        }
        // INVARIANT: That was the last one.
        Filled(self)
    }

    /// Appends `wr`, which has the bytes.
    ///
    /// # Safety
    ///
    /// As for [`push`](Self::push), and for [`told`](Self::told).
    #[inline(always)]
    unsafe fn tell(&mut self, wr: *mut raw::ib_send_wr, bytes: &[u64; 2]) {
        // SAFETY: As in `write()`, and by the safety requirements of this function.
        unsafe {
            let at = self.at();
            (*at).bytes.addr = bytes[(*at).which & 1];
            (*wr).send_flags = (*at).flags;
            self.push(wr);
        }
    }
}

impl<'q> Filled<'q> {
    /// Reserves room for the requests.
    ///
    /// # Errors
    ///
    /// See [`PostError`]. The queue is not locked any more.
    #[inline(always)]
    pub(in crate::ib) fn reserve(self) -> Result<Granted<'q>, PostError> {
        self.reserve_data(0)
    }

    /// The same, for requests with `bytes` of the data of a reply.
    ///
    /// # Errors
    ///
    /// As for [`reserve`](Self::reserve).
    #[inline(always)]
    pub(in crate::ib) fn reserve_data(self, bytes: u32) -> Result<Granted<'q>, PostError> {
        let Filling {
            qp,
            mut sq,
            first,
            last,
            n,
        } = self.0;
        let noted = match bytes > LARGE {
            true if sq.posted.take_data(n, bytes).is_some() => 0,
            true => qp.look_for_data(&mut sq, n, bytes)?,
            false if sq.posted.take(n, false).is_some() => 0,
            false => qp.look(&mut sq, n, false)?,
        };
        if noted != 0 {
            // SAFETY: The send queue is locked, so that this is the only access to the forms.
            unsafe { (*last).send_flags |= raw::ib_send_flags_IB_SEND_SIGNALED };
        }
        // INVARIANT: Room for `n` requests was reserved, and the flag is set if there is a note.
        Ok(Granted {
            // Whether there is a note need not be kept until the post: the flag tells.
            room: Room::new(qp, sq, n, 0),
            first,
            last,
        })
    }
}

impl<'q> Granted<'q> {
    /// As [`Room::count_flight`].
    #[inline(always)]
    pub(in crate::ib) fn count_flight(&self) {
        self.room.count_flight();
    }

    /// Posts the requests.
    ///
    /// # Errors
    ///
    /// See [`PostError`].
    #[inline(always)]
    pub(in crate::ib) fn post(self) -> Result<(), Refused<'q>> {
        // SAFETY: By the invariants, the requests are initialised and linked, complete at the silent
        // entry, and have room. Their memory is of the domain, as the callers of the functions that
        // fill them in have promised; the bytes are inline if the queue pair takes as many. The send
        // queue stays locked until the driver has read them.
        unsafe { self.room.post_flagged(self.first, self.last) }
    }
}
