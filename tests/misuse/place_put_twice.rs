// SPDX-License-Identifier: GPL-2.0
// error: E0382

//! The tag of a place that was given up is returned once.

use rtrs_bindings::{place::Left, places::Places};

/// Returns it.
pub fn put<T>(places: &Places<T>, left: Left<'_, T>) {
    places.put_left(left);
    #[cfg(misuse)]
    places.put_left(left);
}
