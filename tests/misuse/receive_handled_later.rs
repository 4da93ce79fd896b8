// SPDX-License-Identifier: GPL-2.0
// error: E0521

//! What only the handler of a receive may do ends with it.

use rtrs_bindings::ib::Receiving;

fn keep(_: Receiving<'static>) {}

/// Handles it.
pub fn receive(receiving: Receiving<'_>) {
    #[cfg(not(misuse))]
    let _ = receiving.received();
    #[cfg(misuse)]
    keep(receiving);
}
