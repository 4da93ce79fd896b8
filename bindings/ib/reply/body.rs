// SPDX-License-Identifier: GPL-2.0

//! The memory of the body of answers.

use core::ptr::NonNull;
use kernel::prelude::*;

use super::{
    BODY_END,
    REPLY_BODY, //
};
use crate::{
    atomic::{
        Atomic,
        Relaxed, //
    },
    ib::{
        domain::{
            DmaDirection,
            DmaPages, //
        },
        queue::PostError, //
    },
};

/// The memory of the body of answers, if there is any. It has two halves, so that one can be written
/// alone.
///
/// # Invariants
///
/// `at` is aligned, and points into pages that the owner keeps, to which there are no Rust references.
/// `addresses` are those of the same memory. `direct` is `at`, or none.
pub(super) struct Body {
    /// None if the device has to be told of what is written.
    direct: Option<NonNull<u32>>,
    at: Option<NonNull<u32>>,
    /// The addresses of the device and of the processor.
    addresses: [u64; 2],
    pub(super) dir: DmaDirection,
}

impl Body {
    /// No memory.
    pub(super) const NONE: Self = Self {
        direct: None,
        at: None,
        addresses: [0; 2],
        dir: DmaDirection::ToDevice,
    };

    /// The [`REPLY_BODY`] bytes at `offset` of `dma_pages`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if they are not in there, or if the offset is no multiple of their number.
    ///
    /// # Safety
    ///
    /// The pages must stay for as long as the result is used.
    pub(super) unsafe fn new(dma_pages: &DmaPages, offset: usize) -> Result<Self> {
        let end = offset.checked_add(REPLY_BODY).ok_or(EINVAL)?;
        if end > dma_pages.len() || offset % REPLY_BODY != 0 {
            return Err(EINVAL);
        }
        let at: *mut u32 = dma_pages.pages().as_ptr().wrapping_add(offset).cast();
        // CAST: `usize` has at most 64 bits, here and below.
        let addr = dma_pages.dma() + offset as u64;
        let addresses = [addr, at.expose_provenance() as u64];
        let at = Some(NonNull::new(at).ok_or(EINVAL)?);
        // INVARIANT: Pages are aligned, and so is the offset. By the safety requirements of this function
        // they stay.
        Ok(Self {
            direct: at.filter(|_| !dma_pages.needs_sync()),
            at,
            addresses,
            dir: dma_pages.direction(),
        })
    }

    /// Whether there is memory.
    #[inline(always)]
    pub(super) fn exists(&self) -> bool {
        self.at.is_some()
    }

    /// Its addresses: of the device, and of the processor.
    #[inline(always)]
    pub(super) fn addresses(&self) -> &[u64; 2] {
        &self.addresses
    }

    /// Writes the first half. The device may have to be told.
    ///
    /// # Errors
    ///
    /// `Invalid` if there is no memory.
    pub(super) fn write_start(&self, bytes: [u8; BODY_END]) -> Result<(), PostError> {
        let at = self.at.ok_or(PostError::Invalid)?;
        // SAFETY: By the invariants the memory is valid and aligned. Other writes are atomic and of the
        // same halves, or copies into `Pages`, if there are any, which the compiler knows nothing of.
        let at = unsafe { Atomic::from_ptr(at.as_ptr()) };
        at.store(u32::from_ne_bytes(bytes), Relaxed);
        Ok(())
    }

    /// Writes the second half, likewise.
    ///
    /// # Errors
    ///
    /// As for [`write_start`](Self::write_start).
    pub(super) fn write_end(&self, bytes: [u8; BODY_END]) -> Result<(), PostError> {
        let at = self.at.ok_or(PostError::Invalid)?;
        // SAFETY: As in `write_start()`, of the second half.
        let at = unsafe { Atomic::from_ptr(at.as_ptr().add(1)) };
        at.store(u32::from_ne_bytes(bytes), Relaxed);
        Ok(())
    }

    /// The same if that is all that has to be done. Returns `false`, and writes nothing, if the device has
    /// to be told, or if there is no memory.
    #[inline(always)]
    pub(super) fn write_end_alone(&self, bytes: [u8; BODY_END]) -> bool {
        let Some(at) = self.direct else { return false };
        // SAFETY: As in `write_end()`.
        let at = unsafe { Atomic::from_ptr(at.as_ptr().add(1)) };
        at.store(u32::from_ne_bytes(bytes), Relaxed);
        true
    }
}
