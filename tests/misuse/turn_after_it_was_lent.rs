// SPDX-License-Identifier: GPL-2.0
// error: E0382

//! A value is out of reach as soon as it is lent.

use rtrs_bindings::place::Place;

/// Lends it.
pub fn lend(place: &Place<u32>) {
    if let Some(turn) = place.begin() {
        turn.lend();
        #[cfg(misuse)]
        drop(*turn);
    }
}
