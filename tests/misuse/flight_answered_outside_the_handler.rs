// SPDX-License-Identifier: GPL-2.0
// error: E0308

//! Only the handler of a receive can handle an answer: two at a time could end a later use.

use rtrs_bindings::ib::{Flight, Handler, QueuePair, Receiving};

/// Handles it.
pub fn answer<H: Handler>(flight: &Flight<H>, qp: &QueuePair, receiving: Receiving<'_>) {
    #[cfg(not(misuse))]
    let _ = (flight.returned(receiving), qp);
    #[cfg(misuse)]
    let _ = (flight.returned(qp), receiving);
}
