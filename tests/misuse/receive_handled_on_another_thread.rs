// SPDX-License-Identifier: GPL-2.0
// error: E0277

//! What only the handler of a receive may do stays on its thread.

use rtrs_bindings::ib::{QueuePair, Receiving};

fn elsewhere<T: Send>(_: T) {}

/// Handles it.
pub fn receive(receiving: Receiving<'_>) {
    #[cfg(not(misuse))]
    elsewhere::<&QueuePair>(&receiving);
    #[cfg(misuse)]
    elsewhere(receiving);
}
