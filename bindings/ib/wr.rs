// SPDX-License-Identifier: GPL-2.0

//! Send work requests.
//!
//! A [`Chain`] is built in its final place, and posted as a whole: the driver takes its lock and
//! rings its doorbell once. Each request is written to its place once; the functions that build
//! requests are inlined, so that the compiler knows the place.

use core::mem::MaybeUninit;

use kernel::prelude::*;

use super::{
    domain::{
        DmaDirection,
        Domain, //
    },
    mr::{
        Access,
        Mr, //
    },
    queue::{
        PostError,
        QueuePair, //
    },
};
use crate::raw;

/// A local scatter/gather element: memory that a domain keeps for as long as one of its queue pairs
/// may use it. Only queue pairs of the domain accept the element, although its key may be valid for
/// the whole device.
#[derive(Clone, Copy)]
pub struct Sge<'d> {
    raw: raw::ib_sge,
    domain: &'d Domain,
    dir: DmaDirection,
}

impl<'d> Sge<'d> {
    #[inline]
    pub(super) fn new(
        domain: &'d Domain,
        dir: DmaDirection,
        addr: u64,
        length: u32,
        lkey: u32,
    ) -> Self {
        Self {
            raw: raw::ib_sge { addr, length, lkey },
            domain,
            dir,
        }
    }

    #[inline]
    pub(super) fn as_raw(&self) -> raw::ib_sge {
        self.raw
    }

    #[inline]
    pub(super) fn domain(&self) -> &'d Domain {
        self.domain
    }

    /// Whether the device may write to the memory.
    #[inline]
    pub(super) fn can_be_written(&self) -> bool {
        self.dir != DmaDirection::ToDevice
    }
}

/// Up to `N` elements of one domain, for one work request.
pub struct Sges<'d, const N: usize> {
    raws: [raw::ib_sge; N],
    len: usize,
    domain: Option<&'d Domain>,
}

/// No elements.
pub static NO_SGES: Sges<'static, 0> = Sges::new();

impl<const N: usize> Default for Sges<'_, N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'d> From<Sge<'d>> for Sges<'d, 1> {
    #[inline]
    fn from(sge: Sge<'d>) -> Self {
        Self {
            raws: [sge.raw],
            len: 1,
            domain: Some(sge.domain),
        }
    }
}

impl<'d, const N: usize> Sges<'d, N> {
    /// No elements yet.
    #[inline]
    pub const fn new() -> Self {
        Self {
            raws: [raw::ib_sge {
                addr: 0,
                length: 0,
                lkey: 0,
            }; N],
            len: 0,
            domain: None,
        }
    }

    /// Appends an element.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no room, or if it is of another domain than the elements before.
    #[inline]
    pub fn push(&mut self, sge: Sge<'d>) -> Result {
        self.belong_to(sge.domain)?;
        *self.raws.get_mut(self.len).ok_or(EINVAL)? = sge.raw;
        self.len += 1;
        Ok(())
    }

    #[inline]
    fn belong_to(&mut self, domain: &'d Domain) -> Result {
        match self.domain {
            Some(other) if !core::ptr::eq(other, domain) => return Err(EINVAL),
            _ => self.domain = Some(domain),
        }
        Ok(())
    }

    #[inline]
    fn raws(&self) -> &[raw::ib_sge] {
        self.raws.get(..self.len).unwrap_or_default()
    }
}

/// Memory of the peer. The peer's device checks whether it may be written: any value is safe here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    /// Address as the peer defines it.
    pub addr: u64,
    /// Key.
    pub rkey: u32,
}

/// Room for any work request that a [`Chain`] can hold.
#[repr(C)]
union AnyWr {
    send: raw::ib_send_wr,
    rdma: raw::ib_rdma_wr,
    reg: raw::ib_reg_wr,
}

/// Up to `N` send work requests of one queue pair, posted together, in this order.
///
/// The elements and regions that they refer to are borrowed until the chain is posted, and are of
/// the queue pair's domain: memory of another domain may be freed before the queue pair. A request
/// that does not fit, or is of another domain, makes a chain that cannot be posted.
pub struct Chain<'q, const N: usize> {
    qp: &'q QueuePair,
    wrs: [MaybeUninit<AnyWr>; N],
    /// More than `N` for a chain that cannot be posted.
    len: u32,
}

impl<'q, const N: usize> Chain<'q, N> {
    /// An empty chain for `qp`.
    #[inline(always)]
    pub fn new(qp: &'q QueuePair) -> Self {
        Self {
            qp,
            // Not an array of constants, which the compiler would clear.
            // SAFETY: The elements are `MaybeUninit`, which need not be initialised.
            wrs: unsafe { MaybeUninit::uninit().assume_init() },
            len: 0,
        }
    }

    /// Whether the chain is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a request. A full chain becomes one that cannot be posted.
    #[inline(always)]
    fn push(&mut self, wr: AnyWr) -> &mut Self {
        // CAST: `usize` has at least 32 bits.
        if let Some(slot) = self.wrs.get_mut(self.len as usize) {
            slot.write(wr);
            // No overflow: it was less than `N`.
            self.len = self.len.wrapping_add(1);
        } else {
            self.len = u32::MAX;
        }
        self
    }

    /// Records that memory of `domain` is used. With another domain the chain cannot be posted.
    #[inline(always)]
    fn belong_to(&mut self, domain: Option<&'q Domain>) -> &mut Self {
        if domain.is_some_and(|domain| !self.qp.is_of(domain)) {
            self.len = u32::MAX;
        }
        self
    }

    #[inline(always)]
    fn base(&self, opcode: raw::ib_wr_opcode, sges: &[raw::ib_sge], imm: u32) -> raw::ib_send_wr {
        raw::ib_send_wr {
            next: core::ptr::null_mut(),
            __bindgen_anon_1: raw::ib_send_wr__bindgen_ty_1 {
                wr_cqe: self.qp.silent(),
            },
            // The driver only reads the list.
            sg_list: sges.as_ptr().cast_mut(),
            // CAST: A few elements; drivers compare them with the limit of the queue pair, or of the
            // device.
            num_sge: sges.len() as i32,
            opcode,
            send_flags: 0,
            ex: raw::ib_send_wr__bindgen_ty_2 { imm_data: imm },
        }
    }

    /// Appends an RDMA write of `sges` to the peer's memory that also notifies the peer, with the
    /// immediate value `imm`.
    #[inline(always)]
    pub fn rdma_write_imm<const M: usize>(
        &mut self,
        sges: &'q Sges<'_, M>,
        to: Remote,
        imm: u32,
    ) -> &mut Self {
        let opcode = raw::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM;
        let rdma = raw::ib_rdma_wr {
            wr: self.base(opcode, sges.raws(), imm.to_be()),
            remote_addr: to.addr,
            rkey: to.rkey,
        };
        self.push(AnyWr { rdma }).belong_to(sges.domain)
    }

    /// Appends a message to the peer.
    #[inline(always)]
    pub fn send<const M: usize>(&mut self, sges: &'q Sges<'_, M>) -> &mut Self {
        let send = self.base(raw::ib_wr_opcode_IB_WR_SEND, sges.raws(), 0);
        self.push(AnyWr { send }).belong_to(sges.domain)
    }

    /// Appends a registration of the memory that `mr` describes, with its current key.
    #[inline(always)]
    pub fn reg_mr(&mut self, mr: &'q Mr, access: Access) -> &mut Self {
        let reg = raw::ib_reg_wr {
            wr: self.base(raw::ib_wr_opcode_IB_WR_REG_MR, &[], 0),
            mr: mr.as_raw(),
            key: mr.rkey(),
            access: access.as_raw(),
        };
        self.push(AnyWr { reg }).belong_to(Some(mr.domain()))
    }

    /// Posts the chain. Any context.
    ///
    /// With a `token` the last request of the chain is signalled and its completion delivers the
    /// token; it retires the requests before it, too. Without a token only failed completions are
    /// delivered, with token `None`.
    ///
    /// # Errors
    ///
    /// See [`PostError`].
    #[inline(always)]
    pub fn post(&mut self, token: Option<u32>) -> Result<(), PostError> {
        let (qp, n) = (self.qp, self.len);
        let (cqe, signal) = qp.entry_of(token)?;
        let (first, last) = self.link().ok_or(PostError::Invalid)?;
        let room = qp.reserve(n, signal)?;
        // SAFETY: `link()` has linked requests that `push()` has initialised, and `self` does not
        // move until this returns. The memory that the requests refer to is of the domain of `qp`,
        // as `belong_to()` would otherwise have made a chain that cannot be linked; their
        // completion entries are those of `qp`, from `base()`.
        unsafe { room.post(first, last, cqe) }.map_err(PostError::from)
    }

    /// Links the requests for the driver; returns the first and the last. `None` when the chain
    /// is empty or has overflowed.
    ///
    /// The pointers are valid while `self` does not move.
    #[inline(always)]
    fn link(&mut self) -> Option<(*mut raw::ib_send_wr, *mut raw::ib_send_wr)> {
        // CAST: Every member of the union starts with an `ib_send_wr`, which `push()` has written.
        let mut wrs = self
            .wrs
            .get_mut(..self.len as usize)?
            .iter_mut()
            .map(|wr| wr.as_mut_ptr().cast::<raw::ib_send_wr>());
        let silent = self.qp.silent();
        let first = wrs.next()?;
        let mut last = first;
        for wr in wrs {
            // SAFETY: `last` points into `self` and is initialised.
            unsafe {
                (*last).next = wr;
                // It may have been the last one of a chain that was not posted.
                (*last).send_flags = 0;
                (*last).__bindgen_anon_1.wr_cqe = silent;
            }
            last = wr;
        }
        // SAFETY: As above. This ends the chain, also when it is posted again after a failure.
        unsafe { (*last).next = core::ptr::null_mut() };
        Some((first, last))
    }
}
