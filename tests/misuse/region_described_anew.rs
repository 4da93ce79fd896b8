// SPDX-License-Identifier: GPL-2.0
// error: E0599

//! What a memory region describes is said when it is made, and never again: a peer may have its key.

use rtrs_bindings::ib::{Mr, Region};

/// Uses it.
pub fn describe(mr: &Mr, regions: &[Region]) {
    #[cfg(misuse)]
    let _ = mr.map_regions(regions, 65536);
    let _ = (mr.rkey(), regions.len());
}
