// SPDX-License-Identifier: GPL-2.0

//! Work completions.

use kernel::str::{
    CStr,
    CStrExt, //
};

use crate::raw;

/// Status of a completed work request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct WcStatus(raw::ib_wc_status);

impl WcStatus {
    /// The work request was carried out.
    pub const SUCCESS: Self = Self(raw::ib_wc_status_IB_WC_SUCCESS);
    /// It was flushed because the queue pair is in error state.
    pub const FLUSHED: Self = Self(raw::ib_wc_status_IB_WC_WR_FLUSH_ERR);

    /// Whether the work request was carried out.
    #[inline]
    pub fn is_ok(self) -> bool {
        self == Self::SUCCESS
    }

    /// Whether it failed because the peer broke a rule: sent more than there is room for, named
    /// memory that is not its own, or not ours, or did what the connection does not allow. Whoever
    /// only loses a connection causes none of these.
    pub fn is_violation(self) -> bool {
        matches!(
            self.0,
            raw::ib_wc_status_IB_WC_LOC_LEN_ERR
                | raw::ib_wc_status_IB_WC_REM_ACCESS_ERR
                | raw::ib_wc_status_IB_WC_REM_INV_REQ_ERR
        )
    }

    /// Text for a log line.
    pub fn message(self) -> &'static CStr {
        // SAFETY: Returns a static string for every value.
        unsafe { CStr::from_char_ptr(raw::ib_wc_status_msg(self.0)) }
    }
}

impl core::fmt::Debug for WcStatus {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WcOpcode {
    /// A send of ours.
    Send,
    /// An RDMA write of ours.
    RdmaWrite,
    /// A local invalidation.
    LocalInv,
    /// A memory registration.
    RegMr,
    /// A message of the peer arrived.
    Recv,
    /// An RDMA write with immediate of the peer arrived.
    RecvRdmaWithImm,
    /// Something this crate does not post.
    Other(u32),
}

/// A work completion, borrowed for the time of the callback.
#[repr(transparent)]
pub struct Wc(kernel::types::Opaque<raw::ib_wc>);

impl Wc {
    /// # Safety
    ///
    /// `wc` must be a completion that ib_core passed to a `done` callback.
    pub(super) unsafe fn from_raw<'a>(wc: *mut raw::ib_wc) -> &'a Self {
        // SAFETY: By the function's requirement; `Wc` is transparent.
        unsafe { &*wc.cast() }
    }

    #[inline]
    fn raw(&self) -> &raw::ib_wc {
        // SAFETY: Nobody writes a completion while its callback runs.
        unsafe { &*self.0.get() }
    }

    /// Status of the work request. With an error only the status counts.
    #[inline]
    pub fn status(&self) -> WcStatus {
        WcStatus(self.raw().status)
    }

    /// What there is to know of a work request that was carried out. Of one that was not the driver
    /// has filled in the status only.
    #[inline(always)]
    pub fn success(&self) -> Option<&Success> {
        if !self.status().is_ok() {
            return None;
        }
        // INVARIANT: Its status was looked at.
        // SAFETY: `Success` is as transparent as `Wc`.
        Some(unsafe { &*core::ptr::from_ref(self).cast() })
    }
}

/// The completion of a work request that was carried out.
///
/// # Invariants
///
/// Its status is success.
#[repr(transparent)]
pub struct Success(kernel::types::Opaque<raw::ib_wc>);

impl Success {
    #[inline]
    fn raw(&self) -> &raw::ib_wc {
        // SAFETY: Nobody writes a completion while its callback runs.
        unsafe { &*self.0.get() }
    }

    /// What completed.
    #[inline]
    pub fn opcode(&self) -> WcOpcode {
        match self.raw().opcode {
            raw::ib_wc_opcode_IB_WC_SEND => WcOpcode::Send,
            raw::ib_wc_opcode_IB_WC_RDMA_WRITE => WcOpcode::RdmaWrite,
            raw::ib_wc_opcode_IB_WC_LOCAL_INV => WcOpcode::LocalInv,
            raw::ib_wc_opcode_IB_WC_REG_MR => WcOpcode::RegMr,
            raw::ib_wc_opcode_IB_WC_RECV => WcOpcode::Recv,
            raw::ib_wc_opcode_IB_WC_RECV_RDMA_WITH_IMM => WcOpcode::RecvRdmaWithImm,
            other => WcOpcode::Other(other),
        }
    }

    /// The immediate, in host order, of an RDMA write of the peer, if that has arrived.
    #[inline(always)]
    pub fn written(&self) -> Option<u32> {
        match self.raw().opcode {
            raw::ib_wc_opcode_IB_WC_RECV_RDMA_WITH_IMM => self.imm(),
            _ => None,
        }
    }

    /// Bytes received.
    #[inline]
    pub fn byte_len(&self) -> usize {
        self.raw().byte_len as usize
    }

    /// The immediate of a received message, in host order.
    #[inline(always)]
    pub fn imm(&self) -> Option<u32> {
        // CAST: Flags are an `int` in the structure.
        if self.raw().wc_flags as u32 & raw::ib_wc_flags_IB_WC_WITH_IMM != 0 {
            // SAFETY: The flag says that this member of the union was written.
            Some(u32::from_be(unsafe { self.raw().ex.imm_data }))
        } else {
            None
        }
    }

    /// The key that a received message invalidated here.
    #[inline]
    pub fn invalidated_rkey(&self) -> Option<u32> {
        if self.raw().wc_flags as u32 & raw::ib_wc_flags_IB_WC_WITH_INVALIDATE != 0 {
            // SAFETY: The flag says that this member of the union was written.
            Some(unsafe { self.raw().ex.invalidate_rkey })
        } else {
            None
        }
    }
}
