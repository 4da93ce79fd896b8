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
    /// The work request succeeded.
    pub const SUCCESS: Self = Self(raw::ib_wc_status_IB_WC_SUCCESS);
    /// The work request was flushed because the queue pair is in error state.
    pub const FLUSHED: Self = Self(raw::ib_wc_status_IB_WC_WR_FLUSH_ERR);

    /// Whether the work request succeeded.
    #[inline]
    pub fn is_ok(self) -> bool {
        self == Self::SUCCESS
    }

    /// Whether the work request failed because the peer broke a rule: it sent more than there is
    /// room for, used memory that it or this side does not have, or sent a request that the
    /// connection does not allow. A peer that only loses its connection causes none of these.
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
        // SAFETY: The function returns a static string for every value.
        unsafe { CStr::from_char_ptr(raw::ib_wc_status_msg(self.0)) }
    }
}

impl core::fmt::Debug for WcStatus {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The operation that completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WcOpcode {
    /// A local send.
    Send,
    /// A local RDMA write.
    RdmaWrite,
    /// A local invalidation.
    LocalInv,
    /// A memory registration.
    RegMr,
    /// A message of the peer arrived.
    Recv,
    /// An RDMA write with immediate of the peer arrived.
    RecvRdmaWithImm,
    /// An operation that this crate does not post.
    Other(u32),
}

/// A work completion, borrowed for the duration of the callback.
#[repr(transparent)]
pub struct Wc(kernel::types::Opaque<raw::ib_wc>);

impl Wc {
    /// # Safety
    ///
    /// `wc` must be a completion that ib_core passed to a `done` callback.
    pub(super) unsafe fn from_raw<'a>(wc: *mut raw::ib_wc) -> &'a Self {
        // SAFETY: By the safety requirements of this function, the completion is valid; `Wc` is
        // transparent.
        unsafe { &*wc.cast() }
    }

    #[inline]
    fn raw(&self) -> &raw::ib_wc {
        // SAFETY: The completion is valid, and is not written while its callback runs.
        unsafe { &*self.0.get() }
    }

    /// Status of the work request. If it is an error, no other field is valid.
    #[inline]
    pub fn status(&self) -> WcStatus {
        WcStatus(self.raw().status)
    }

    /// The further fields of a successful work request. For any other one the driver has set the
    /// status only.
    #[inline(always)]
    pub fn success(&self) -> Option<&Success> {
        if !self.status().is_ok() {
            return None;
        }
        // INVARIANT: The status was checked above.
        // SAFETY: `Success` and `Wc` are both transparent.
        Some(unsafe { &*core::ptr::from_ref(self).cast() })
    }
}

/// The completion of a successful work request.
///
/// # Invariants
///
/// Its status is success.
#[repr(transparent)]
pub struct Success(kernel::types::Opaque<raw::ib_wc>);

impl Success {
    #[inline]
    fn raw(&self) -> &raw::ib_wc {
        // SAFETY: The completion is valid, and is not written while its callback runs.
        unsafe { &*self.0.get() }
    }

    /// # Safety
    ///
    /// As for [`Wc::from_raw`]; the status must be success.
    #[inline(always)]
    pub(super) unsafe fn from_raw<'a>(wc: *mut raw::ib_wc) -> &'a Self {
        // INVARIANT: By the safety requirements of this function.
        // SAFETY: By the safety requirements of this function, the completion is valid; `Success` is
        // transparent.
        unsafe { &*wc.cast() }
    }

    /// Whether this is the arrival of an RDMA write of the peer.
    #[inline(always)]
    pub(super) fn is_write(&self) -> bool {
        self.raw().opcode == raw::ib_wc_opcode_IB_WC_RECV_RDMA_WITH_IMM
    }

    /// The operation that completed.
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

    /// The immediate value, in host order, if this is the arrival of an RDMA write of the peer.
    #[inline(always)]
    pub fn written(&self) -> Option<u32> {
        if !self.is_write() {
            return None;
        }
        // SAFETY: Checked above.
        Some(unsafe { self.imm_of_write() })
    }

    /// As [`written`](Self::written), for a caller that knows that there is one.
    ///
    /// # Safety
    ///
    /// It must be the arrival of an RDMA write.
    #[inline(always)]
    pub(super) unsafe fn imm_of_write(&self) -> u32 {
        // SAFETY: By the safety requirements of this function, this member of the union was written:
        // only a write with a value completes a receive. The flag says nothing more.
        u32::from_be(unsafe { self.raw().ex.imm_data })
    }

    /// Whether this is the arrival of a message that does nothing but invalidate a key.
    #[inline(always)]
    pub fn only_invalidates(&self) -> bool {
        let wc = self.raw();
        let both = raw::ib_wc_flags_IB_WC_WITH_IMM | raw::ib_wc_flags_IB_WC_WITH_INVALIDATE;
        // CAST: As in `imm()`.
        let flags = wc.wc_flags as u32 & both;
        wc.opcode == raw::ib_wc_opcode_IB_WC_RECV && flags == raw::ib_wc_flags_IB_WC_WITH_INVALIDATE
    }

    /// The entry that the work request has named.
    #[inline(always)]
    pub(super) fn entry(&self) -> *const raw::ib_cqe {
        // SAFETY: The work requests of queue pairs name an entry, and no number.
        unsafe { self.raw().__bindgen_anon_1.wr_cqe }
    }

    /// Number of bytes received.
    #[inline]
    pub fn byte_len(&self) -> usize {
        self.raw().byte_len as usize
    }

    /// The immediate value of a received message, in host order.
    #[inline(always)]
    pub fn imm(&self) -> Option<u32> {
        // CAST: Flags are an `int` in the structure.
        if self.raw().wc_flags as u32 & raw::ib_wc_flags_IB_WC_WITH_IMM != 0 {
            // SAFETY: The flag shows that this member of the union was written.
            Some(u32::from_be(unsafe { self.raw().ex.imm_data }))
        } else {
            None
        }
    }

    /// The local key that a received message invalidated.
    #[inline]
    pub(super) fn invalidated_rkey(&self) -> Option<u32> {
        if self.raw().wc_flags as u32 & raw::ib_wc_flags_IB_WC_WITH_INVALIDATE != 0 {
            // SAFETY: The flag shows that this member of the union was written.
            Some(unsafe { self.raw().ex.invalidate_rkey })
        } else {
            None
        }
    }
}
