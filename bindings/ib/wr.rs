// SPDX-License-Identifier: GPL-2.0

//! Send work requests.
//!
//! A [`Chain`] is built where it stays until it was posted, and posted as a whole: the driver
//! takes its lock and rings its doorbell once. Each request is written to its place once; what
//! builds them is inlined, so that the place is known to the compiler.

use core::mem::MaybeUninit;

use kernel::prelude::*;

use super::{
    domain::Domain,
    mr::{
        Access,
        Mr, //
    },
    sg::MappedSg,
};
use crate::raw;

/// A local scatter/gather element: memory that a domain keeps for as long as a queue pair of it
/// may use that. Only those take it: a key may be good for the whole device.
#[derive(Clone, Copy)]
pub struct Sge<'d> {
    raw: raw::ib_sge,
    domain: &'d Domain,
}

impl<'d> Sge<'d> {
    #[inline]
    pub(super) fn new(domain: &'d Domain, addr: u64, length: u32, lkey: u32) -> Self {
        Self {
            raw: raw::ib_sge { addr, length, lkey },
            domain,
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
    /// None yet.
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

    /// Appends one.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no room, or it is of another domain than those before.
    #[inline]
    pub fn push(&mut self, sge: Sge<'d>) -> Result {
        self.belong_to(sge.domain)?;
        *self.raws.get_mut(self.len).ok_or(EINVAL)? = sge.raw;
        self.len += 1;
        Ok(())
    }

    /// Appends the segments of a scatter list that was mapped for `domain`.
    ///
    /// # Errors
    ///
    /// As for [`push`](Self::push), and if it was mapped for another domain.
    #[inline]
    pub fn push_mapped(&mut self, domain: &'d Domain, map: &MappedSg) -> Result {
        self.belong_to(domain)?;
        let room = self.raws.get_mut(self.len..).ok_or(EINVAL)?;
        // No overflow: there was room for them.
        self.len += map.fill(domain, room)?;
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

/// Memory of the peer. Whether it may be written is for the peer's device to
/// say: any value is safe here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    /// Address in the peer's terms.
    pub addr: u64,
    /// Key.
    pub rkey: u32,
}

/// Room for any work request a [`Chain`] can hold.
#[repr(C)]
union AnyWr {
    send: raw::ib_send_wr,
    rdma: raw::ib_rdma_wr,
    reg: raw::ib_reg_wr,
}

/// Up to `N` send work requests, posted together, in this order.
///
/// The elements and regions they name are borrowed until the chain is posted, and are of one
/// domain.
pub struct Chain<'a, const N: usize> {
    wrs: [MaybeUninit<AnyWr>; N],
    /// More than `N` for a chain that cannot be posted.
    len: usize,
    domain: Option<&'a Domain>,
}

impl<const N: usize> Default for Chain<'_, N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a, const N: usize> Chain<'a, N> {
    /// An empty chain.
    #[inline]
    pub fn new() -> Self {
        Self {
            wrs: [const { MaybeUninit::uninit() }; N],
            len: 0,
            domain: None,
        }
    }

    /// The domain of what its requests name, if they name anything.
    #[inline]
    pub(super) fn domain(&self) -> Option<&'a Domain> {
        self.domain
    }

    /// Work requests in the chain.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends; a chain that is full stays as it is and the post fails.
    #[inline(always)]
    fn push(&mut self, wr: AnyWr) -> &mut Self {
        if let Some(slot) = self.wrs.get_mut(self.len) {
            slot.write(wr);
        }
        self.len += 1;
        self
    }

    /// What is named is of `domain`; a chain that names two domains' cannot be posted.
    #[inline(always)]
    fn belong_to(&mut self, domain: Option<&'a Domain>) -> &mut Self {
        match (self.domain, domain) {
            (_, None) => (),
            (None, Some(_)) => self.domain = domain,
            (Some(one), Some(other)) if core::ptr::eq(one, other) => (),
            _ => self.len = N.saturating_add(1),
        }
        self
    }

    #[inline(always)]
    fn base(opcode: raw::ib_wr_opcode, sges: &[raw::ib_sge], ex: u32) -> raw::ib_send_wr {
        raw::ib_send_wr {
            next: core::ptr::null_mut(),
            __bindgen_anon_1: raw::ib_send_wr__bindgen_ty_1 { wr_id: 0 },
            // The driver only reads the list.
            sg_list: sges.as_ptr().cast_mut(),
            // CAST: a few elements; the device checks against its limit.
            num_sge: sges.len() as i32,
            opcode,
            send_flags: 0,
            ex: raw::ib_send_wr__bindgen_ty_2 {
                invalidate_rkey: ex,
            },
        }
    }

    #[inline(always)]
    fn rdma<const M: usize>(
        &mut self,
        opcode: raw::ib_wr_opcode,
        sges: &'a Sges<'_, M>,
        to: Remote,
        ex: u32,
    ) -> &mut Self {
        self.belong_to(sges.domain).push(AnyWr {
            rdma: raw::ib_rdma_wr {
                wr: Self::base(opcode, sges.raws(), ex),
                remote_addr: to.addr,
                rkey: to.rkey,
            },
        })
    }

    /// RDMA write of `sges` to the peer's memory.
    #[inline(always)]
    pub fn rdma_write<const M: usize>(&mut self, sges: &'a Sges<'_, M>, to: Remote) -> &mut Self {
        self.rdma(raw::ib_wr_opcode_IB_WR_RDMA_WRITE, sges, to, 0)
    }

    /// RDMA write that also tells the peer about it, with a word `imm`.
    #[inline(always)]
    pub fn rdma_write_imm<const M: usize>(
        &mut self,
        sges: &'a Sges<'_, M>,
        to: Remote,
        imm: u32,
    ) -> &mut Self {
        self.rdma(
            raw::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM,
            sges,
            to,
            imm.to_be(),
        )
    }

    /// Message to the peer.
    #[inline(always)]
    pub fn send<const M: usize>(&mut self, sges: &'a Sges<'_, M>) -> &mut Self {
        self.belong_to(sges.domain).push(AnyWr {
            send: Self::base(raw::ib_wr_opcode_IB_WR_SEND, sges.raws(), 0),
        })
    }

    /// Message to the peer with a word `imm`.
    #[inline(always)]
    pub fn send_imm<const M: usize>(&mut self, sges: &'a Sges<'_, M>, imm: u32) -> &mut Self {
        self.belong_to(sges.domain).push(AnyWr {
            send: Self::base(
                raw::ib_wr_opcode_IB_WR_SEND_WITH_IMM,
                sges.raws(),
                imm.to_be(),
            ),
        })
    }

    /// Message without content that invalidates the peer's key `rkey`.
    #[inline(always)]
    pub fn send_inv(&mut self, rkey: u32) -> &mut Self {
        self.push(AnyWr {
            send: Self::base(raw::ib_wr_opcode_IB_WR_SEND_WITH_INV, &[], rkey),
        })
    }

    /// Registration of what `mr` was last mapped to, under its current key.
    #[inline(always)]
    pub fn reg_mr(&mut self, mr: &'a Mr, access: Access) -> &mut Self {
        let key = mr.rkey();
        self.belong_to(Some(mr.domain())).push(AnyWr {
            reg: raw::ib_reg_wr {
                wr: Self::base(raw::ib_wr_opcode_IB_WR_REG_MR, &[], 0),
                mr: mr.as_raw(),
                key,
                access: access.as_raw(),
            },
        })
    }

    /// Invalidation of our own key `rkey`.
    #[inline(always)]
    pub fn local_inv(&mut self, rkey: u32) -> &mut Self {
        self.push(AnyWr {
            send: Self::base(raw::ib_wr_opcode_IB_WR_LOCAL_INV, &[], rkey),
        })
    }

    /// Links the requests for the driver: all complete on `cqe`, but the last
    /// on `last` if given, which is also signalled then. `None` when the chain
    /// is empty or has overflowed.
    ///
    /// The pointer is good while `self` stays where it is.
    #[inline(always)]
    pub(super) fn link(
        &mut self,
        cqe: *mut raw::ib_cqe,
        last: Option<*mut raw::ib_cqe>,
    ) -> Option<*const raw::ib_send_wr> {
        let n = self.len;
        let wrs = self.wrs.get_mut(..n)?;
        let mut next = core::ptr::null_mut();
        for (i, slot) in wrs.iter_mut().enumerate().rev() {
            // CAST: every member of the union starts with an `ib_send_wr`,
            // which `push()` has written.
            let wr = slot.as_mut_ptr().cast::<raw::ib_send_wr>();
            let (cqe, flags) = match last {
                Some(last) if i + 1 == n => (last, raw::ib_send_flags_IB_SEND_SIGNALED),
                _ => (cqe, 0),
            };
            // SAFETY: `wr` points into `self` and is initialised.
            unsafe {
                (*wr).next = next;
                (*wr).__bindgen_anon_1.wr_cqe = cqe;
                (*wr).send_flags = flags;
            }
            next = wr;
        }
        if next.is_null() {
            None
        } else {
            Some(next)
        }
    }
}
