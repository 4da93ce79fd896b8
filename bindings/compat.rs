// SPDX-License-Identifier: GPL-2.0

//! The differences between the supported kernels, in one place.
//!
//! `probe.sh` sets each `cfg`, after inspecting the kernel crate of the tree.

use crate::raw;

/// A full barrier between processors, `smp_mb()`. Any context.
#[cfg(rtrs_barrier_ordering)]
#[inline(always)]
pub fn smp_mb() {
    use kernel::sync::barrier;

    barrier::smp_mb(barrier::Full);
}
#[cfg(not(rtrs_barrier_ordering))]
pub use kernel::sync::barrier::smp_mb;

/// The `&'static ThisModule` of the calling crate, which has a `module!`; also in constants.
#[cfg(rtrs_this_module_const)]
#[macro_export]
#[allow(clippy::crate_in_macro_def)] // It is the caller's module.
macro_rules! this_module {
    () => {
        ::kernel::module::this_module::<crate::LocalModule>()
    };
}
/// The `&'static ThisModule` of the calling crate, which has a `module!`; also in constants.
#[cfg(not(rtrs_this_module_const))]
#[macro_export]
#[allow(clippy::crate_in_macro_def)] // It is the caller's module.
macro_rules! this_module {
    () => {
        &crate::THIS_MODULE
    };
}
pub use this_module;

/// The values of `enum dma_data_direction`, which are small, in one byte.
#[cfg(rtrs_dma_direction_newtype)]
pub(crate) mod dma {
    use super::raw::dma_data_direction as Raw;

    // CAST: They are 0 to 2.
    pub(crate) const TO_DEVICE: u8 = Raw::DMA_TO_DEVICE.0 as u8;
    pub(crate) const FROM_DEVICE: u8 = Raw::DMA_FROM_DEVICE.0 as u8;
    pub(crate) const BIDIRECTIONAL: u8 = Raw::DMA_BIDIRECTIONAL.0 as u8;

    #[inline(always)]
    pub(crate) fn raw(value: u8) -> Raw {
        Raw(value.into())
    }
}
/// The values of `enum dma_data_direction`, which are small, in one byte.
#[cfg(not(rtrs_dma_direction_newtype))]
pub(crate) mod dma {
    use super::raw::{self, dma_data_direction as Raw};

    // CAST: They are 0 to 2.
    pub(crate) const TO_DEVICE: u8 = raw::dma_data_direction_DMA_TO_DEVICE as u8;
    pub(crate) const FROM_DEVICE: u8 = raw::dma_data_direction_DMA_FROM_DEVICE as u8;
    pub(crate) const BIDIRECTIONAL: u8 = raw::dma_data_direction_DMA_BIDIRECTIONAL as u8;

    #[inline(always)]
    pub(crate) fn raw(value: u8) -> Raw {
        value.into()
    }
}
