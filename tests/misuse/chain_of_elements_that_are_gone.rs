// SPDX-License-Identifier: GPL-2.0
// error: E0597

//! A chain keeps the elements that it sends.

use rtrs_bindings::ib::{Chain, QueuePair, Region, Sges};

/// Sends the start of `region`.
pub fn send(qp: &QueuePair, region: &Region) {
    let mut chain = Chain::<1>::new(qp);
    #[cfg(not(misuse))]
    let sges;
    if let Ok(sge) = region.sge(0, 8) {
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
