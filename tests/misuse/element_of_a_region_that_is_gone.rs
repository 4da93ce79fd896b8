// SPDX-License-Identifier: GPL-2.0
// error: E0505

//! A scatter/gather element keeps the region that it is of.

use rtrs_bindings::ib::{Region, Sges};

/// Makes one.
pub fn element(region: Region) {
    if let Ok(sge) = region.sge(0, 8) {
        let sges = Sges::from(sge);
        #[cfg(misuse)]
        drop(region);
        drop(sges);
    }
}
