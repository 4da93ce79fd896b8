// SPDX-License-Identifier: GPL-2.0

//! The sizes of pages in which a device can describe memory.
//!
//! A memory region is a list of pages of one size, each of which begins at a multiple of it. The
//! larger they are the fewer a region needs. Memory that was mapped for a device need not begin
//! where its length suggests: a bounce buffer of the kernel (swiotlb) begins at a page of the
//! processor.
//!
//! No kernel function is called here, so that the host can test it.

/// Returns the largest page size of a device that supports `sizes`, a bit for each, in which pieces
/// of memory can be described. `bits` is all addresses at which they begin, and all of their
/// lengths, by OR. Returns nothing if there is no such size below 4 GiB.
pub fn largest(sizes: u64, bits: u64) -> Option<u32> {
    // Pages of a size fit if no bit below it is set: those up to the lowest one that is.
    let fit = sizes & (bits ^ bits.wrapping_sub(1));

    1u32.checked_shl(fit.checked_ilog2()?)
}

/// Whether a device that supports `sizes`, a bit for each, has pages of `size` bytes.
pub fn has(sizes: u64, size: u32) -> bool {
    size.is_power_of_two() && sizes & u64::from(size) != 0
}
