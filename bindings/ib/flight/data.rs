// SPDX-License-Identifier: GPL-2.0

//! What a flight does with its data: the mapping, and the bounce buffer.

use super::{
    Flight,
    What, //
};
use crate::{
    ib::{
        domain::DmaDirection,
        endpoint::Handler, //
    },
    loan::Loan,
    raw, //
};

impl<H: Handler> Flight<H> {
    /// The identifier of the flight, for [`Loan`].
    #[inline(always)]
    pub(super) fn id(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// Undoes the mapping of data with which `what` was done, if it is one.
    ///
    /// # Safety
    ///
    /// The caller must own the flight, `what` must be true, and no outstanding work request or
    /// valid key may refer to the data.
    #[inline(always)]
    pub(super) unsafe fn unmap(&self, what: What) {
        if what.is_mapped() {
            // SAFETY: By the safety requirements of this function, the caller owns the flight.
            let data = unsafe { &*self.data.get() };
            // SAFETY: The list was mapped with these arguments in `Building::map()`, from a loan that is
            // not given back yet. CAST: As there.
            unsafe {
                raw::rtrs_helper_ib_dma_unmap_sg(
                    self.device,
                    data.sgl,
                    data.nents as i32,
                    data.dir.as_raw(),
                );
            }
        }
    }

    /// Makes `len` bytes that the device wrote to the bounce buffer visible to the processor. Out
    /// of line, as most machines are coherent.
    #[cold]
    #[inline(never)]
    fn give_to_cpu(&self, len: usize) {
        // SAFETY: The device is valid, and the buffer is mapped for it, as long as the domain
        // lives.
        unsafe {
            raw::rtrs_helper_ib_dma_sync_for_cpu(
                self.device,
                self.bounce_dma,
                len,
                DmaDirection::Bidirectional.as_raw(),
            );
        }
    }

    /// Makes bytes that the processor wrote visible to the device: `along` bytes in the bounce
    /// buffer, and `message_len` in the message.
    #[cold]
    #[inline(never)]
    pub(super) fn give_to_device(&self, along: u32, message_len: u32) {
        let (out, both) = (DmaDirection::ToDevice, DmaDirection::Bidirectional);
        // SAFETY: The device is valid, and buffer and message are mapped for it in these
        // directions, as long as the domain lives.
        // CAST: `usize` has at least 32 bits.
        let give = |dma, len: u32, dir: DmaDirection| unsafe {
            raw::rtrs_helper_ib_dma_sync_for_device(self.device, dma, len as usize, dir.as_raw());
        };
        if along != 0 {
            give(self.bounce_dma, along, both);
        }
        give(self.message_dma, message_len, out);
    }

    /// Copies the received data to the list of `loan`.
    ///
    /// # Safety
    ///
    /// The caller must own the flight, its data must be [`What::Back`], and the flight must have
    /// borrowed the loan.
    #[inline(always)]
    pub(super) unsafe fn take_out(&self, loan: &Loan) {
        // SAFETY: By the safety requirements of this function, the caller owns the flight.
        // CAST: `usize` has at least 32 bits.
        let len = unsafe { (*self.data.get()).len } as usize;
        if self.needs_sync {
            self.give_to_cpu(len);
        }
        let (sgl, nents) = loan.borrowed_list();
        // SAFETY: By the invariant of the loan the list is valid; the copy ends at its end.
        // `copy_back()` has checked that the buffer has `len` bytes; it is not part of the list.
        // The peer may be writing to the buffer: the copy takes its contents at that time, as if
        // the peer had written them before.
        unsafe { raw::sg_copy_from_buffer(sgl, nents, self.bounce.cast(), len) };
    }
}
