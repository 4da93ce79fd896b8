// SPDX-License-Identifier: GPL-2.0
// error: E0599

//! There is one turn at a time.

use rtrs_bindings::place::Turn;

/// The type of the value.
pub struct Value;

/// Ends it.
pub fn end(turn: Turn<'_, Value>) {
    #[cfg(misuse)]
    drop(turn.clone());
    drop(turn);
}
