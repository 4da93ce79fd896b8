// SPDX-License-Identifier: GPL-2.0
// error: E0382

//! Flights own the memory of their messages.

use kernel::{prelude::*, sync::Arc};
use rtrs_bindings::ib::{DmaPages, Domain, Flights, Handler};

/// Makes them.
pub fn flights<H: Handler<Cargo = ()>>(domain: &Arc<Domain>, messages: KVec<DmaPages>) -> Result {
    let _ = Flights::<H>::new(domain, 1, 1, messages, 64, None, |_| Ok(()))?;
    #[cfg(misuse)]
    let _ = Flights::<H>::new(domain, 1, 1, messages, 64, None, |_| Ok(()))?;
    Ok(())
}
