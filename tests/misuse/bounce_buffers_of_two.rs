// SPDX-License-Identifier: GPL-2.0
// error: E0382

//! Flights own their bounce buffers: no two requests are copied through the same one.

use kernel::{prelude::*, sync::Arc};
use rtrs_bindings::ib::{Bounce, DmaPages, Domain, Flights, Handler};

/// Makes them.
pub fn flights<H: Handler<Cargo = ()>>(
    domain: &Arc<Domain>,
    messages: KVec<DmaPages>,
    bounce: Bounce,
) -> Result {
    let _ = Flights::<H>::new(domain, 1, 1, messages, 64, Some(bounce), |_| Ok(()))?;
    #[cfg(misuse)]
    let _ = Flights::<H>::new(domain, 1, 1, KVec::new(), 64, Some(bounce), |_| Ok(()))?;
    Ok(())
}
