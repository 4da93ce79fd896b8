// SPDX-License-Identifier: GPL-2.0
// error: E0597

//! A chain keeps the elements that it sends.

use rtrs_bindings::ib::{Chain, DmaPages, QueuePair, Sges};

/// Sends the start of `dma_pages`.
pub fn send(qp: &QueuePair, dma_pages: &DmaPages) {
    let mut chain = Chain::<1>::new(qp);
    #[cfg(not(misuse))]
    let sges;
    if let Ok(sge) = dma_pages.sge(0, 8) {
        #[cfg(not(misuse))]
        {
            sges = Sges::from(sge);
        }
        #[cfg(misuse)]
        let sges = Sges::from(sge);
        chain.send(&sges);
    }
    let _ = chain.post(None);
}
