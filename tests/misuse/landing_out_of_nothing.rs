// SPDX-License-Identifier: GPL-2.0
// error: E0451

//! Only the last event of a flight makes the value that unmaps its data.

use rtrs_bindings::ib::{Flight, Handler, Landing};

/// Lands it.
pub fn land<H: Handler>(flight: &Flight<H>, landing: Landing<'_, H>) {
    #[cfg(misuse)]
    drop(Landing { flight, result: 0 });
    let _ = flight.index();
    drop(landing);
}
