// SPDX-License-Identifier: GPL-2.0

//! The memory of the data of answers.

use kernel::prelude::*;

use crate::ib::domain::{
    DmaDirection,
    DmaPages, //
};

/// The memory that the data of an answer comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The first pages.
    First,
    /// The second one.
    Second,
}

/// The memory of pages.
#[derive(Clone, Copy)]
pub(super) struct Memory {
    pub(super) dma: u64,
    len: u32,
    pub(super) needs_sync: bool,
    pub(super) dir: DmaDirection,
}

impl Memory {
    pub(super) fn of(dma_pages: &DmaPages) -> Result<Self> {
        Ok(Self {
            dma: dma_pages.dma(),
            len: u32::try_from(dma_pages.len())?,
            needs_sync: dma_pages.needs_sync(),
            dir: dma_pages.direction(),
        })
    }

    /// Whether it has `len` bytes. There is no element of no bytes, see
    /// [`DmaPages::sge`].
    #[inline(always)]
    pub(super) fn has(&self, len: u32) -> bool {
        len.wrapping_sub(1) < self.len
    }

    pub(super) fn none() -> Self {
        Self {
            dma: 0,
            len: 0,
            needs_sync: false,
            dir: DmaDirection::ToDevice,
        }
    }
}
