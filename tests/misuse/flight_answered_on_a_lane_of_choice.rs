// SPDX-License-Identifier: GPL-2.0
// error: E0061

//! The lane of an answer is that of the queue pair, not one that the caller tells.

use rtrs_bindings::ib::{Flight, Handler, Receiving};

/// Handles it.
pub fn answer<H: Handler>(flight: &Flight<H>, qp: Receiving<'_>) {
    #[cfg(not(misuse))]
    let _ = flight.answered(qp, 0, false);
    #[cfg(misuse)]
    let _ = flight.answered(qp, 0, 0, false);
}
