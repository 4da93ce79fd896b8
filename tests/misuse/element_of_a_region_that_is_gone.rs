// SPDX-License-Identifier: GPL-2.0
// error: E0505

//! A scatter/gather element keeps its region.

use rtrs_bindings::ib::{DmaPages, Sges};

/// Makes one.
pub fn element(dma_pages: DmaPages) {
    if let Ok(sge) = dma_pages.sge(0, 8) {
        let sges = Sges::from(sge);
        #[cfg(misuse)]
        drop(dma_pages);
        drop(sges);
    }
}
