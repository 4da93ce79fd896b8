// SPDX-License-Identifier: GPL-2.0
// error: E0599

//! A memory region describes its pages once, when it is made: a peer may have its key.

use rtrs_bindings::ib::{DmaPages, Mr};

/// Uses it.
pub fn describe(mr: &Mr, mapped: &[DmaPages]) {
    #[cfg(misuse)]
    let _ = mr.map_regions(mapped, 65536);
    let _ = (mr.rkey(), mapped.len());
}
