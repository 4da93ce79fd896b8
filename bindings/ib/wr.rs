// SPDX-License-Identifier: GPL-2.0

//! Send work requests.
//!
//! A [`Chain`] is built on the stack and posted as a whole: the driver takes
//! its lock and rings its doorbell once.

use core::mem::MaybeUninit;

use super::mr::{
    Access,
    Mr, //
};
use crate::raw;

/// A local scatter/gather element.
#[repr(transparent)]
#[derive(Clone, Copy, Default)]
pub struct Sge(raw::ib_sge);

impl Sge {
    #[inline]
    pub(super) fn new(addr: u64, length: u32, lkey: u32) -> Self {
        Self(raw::ib_sge { addr, length, lkey })
    }

    /// Bytes.
    #[inline]
    pub fn len(&self) -> u32 {
        self.0.length
    }

    /// Whether it describes no byte.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.length == 0
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
/// The elements and regions they name are borrowed until the chain is posted.
pub struct Chain<'a, const N: usize> {
    wrs: [MaybeUninit<AnyWr>; N],
    len: usize,
    _sges: core::marker::PhantomData<&'a [Sge]>,
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
            _sges: core::marker::PhantomData,
        }
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
    #[inline]
    fn push(mut self, wr: AnyWr) -> Self {
        if let Some(slot) = self.wrs.get_mut(self.len) {
            slot.write(wr);
        }
        self.len += 1;
        self
    }

    #[inline]
    fn base(opcode: raw::ib_wr_opcode, sges: &[Sge], ex: u32) -> raw::ib_send_wr {
        raw::ib_send_wr {
            next: core::ptr::null_mut(),
            __bindgen_anon_1: raw::ib_send_wr__bindgen_ty_1 { wr_id: 0 },
            // The driver only reads the list.
            sg_list: sges.as_ptr().cast_mut().cast(),
            // CAST: a few elements; the device checks against its limit.
            num_sge: sges.len() as i32,
            opcode,
            send_flags: 0,
            ex: raw::ib_send_wr__bindgen_ty_2 {
                invalidate_rkey: ex,
            },
        }
    }

    #[inline]
    fn rdma(self, opcode: raw::ib_wr_opcode, sges: &'a [Sge], to: Remote, ex: u32) -> Self {
        self.push(AnyWr {
            rdma: raw::ib_rdma_wr {
                wr: Self::base(opcode, sges, ex),
                remote_addr: to.addr,
                rkey: to.rkey,
            },
        })
    }

    /// RDMA write of `sges` to the peer's memory.
    #[inline]
    pub fn rdma_write(self, sges: &'a [Sge], to: Remote) -> Self {
        self.rdma(raw::ib_wr_opcode_IB_WR_RDMA_WRITE, sges, to, 0)
    }

    /// RDMA write that also tells the peer about it, with a word `imm`.
    #[inline]
    pub fn rdma_write_imm(self, sges: &'a [Sge], to: Remote, imm: u32) -> Self {
        self.rdma(
            raw::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM,
            sges,
            to,
            imm.to_be(),
        )
    }

    /// Message to the peer.
    #[inline]
    pub fn send(self, sges: &'a [Sge]) -> Self {
        self.push(AnyWr {
            send: Self::base(raw::ib_wr_opcode_IB_WR_SEND, sges, 0),
        })
    }

    /// Message to the peer with a word `imm`.
    #[inline]
    pub fn send_imm(self, sges: &'a [Sge], imm: u32) -> Self {
        self.push(AnyWr {
            send: Self::base(raw::ib_wr_opcode_IB_WR_SEND_WITH_IMM, sges, imm.to_be()),
        })
    }

    /// Message to the peer that also invalidates its key `rkey`.
    #[inline]
    pub fn send_inv(self, sges: &'a [Sge], rkey: u32) -> Self {
        self.push(AnyWr {
            send: Self::base(raw::ib_wr_opcode_IB_WR_SEND_WITH_INV, sges, rkey),
        })
    }

    /// Registration of what `mr` was last mapped to, under its current key.
    #[inline]
    pub fn reg_mr(self, mr: &'a Mr, access: Access) -> Self {
        let key = mr.rkey();
        self.push(AnyWr {
            reg: raw::ib_reg_wr {
                wr: Self::base(raw::ib_wr_opcode_IB_WR_REG_MR, &[], 0),
                mr: mr.as_raw(),
                key,
                access: access.as_raw(),
            },
        })
    }

    /// Invalidation of our own key `rkey`.
    #[inline]
    pub fn local_inv(self, rkey: u32) -> Self {
        self.push(AnyWr {
            send: Self::base(raw::ib_wr_opcode_IB_WR_LOCAL_INV, &[], rkey),
        })
    }

    /// Links the requests for the driver: all complete on `cqe`, but the last
    /// on `last` if given, which is also signalled then. `None` when the chain
    /// is empty or has overflowed.
    ///
    /// The pointer is good while `self` stays where it is.
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
