// SPDX-License-Identifier: GPL-2.0
// error: E0277

//! A message belongs to the handler of its completion, and stays on its thread.

use rtrs_bindings::ib::Message;

fn any<T>(_: T) {}
#[cfg(misuse)]
fn elsewhere<T: Send>(_: T) {}

/// Handles it.
pub fn handle(message: Message<'_>) {
    #[cfg(not(misuse))]
    any(message);
    #[cfg(misuse)]
    elsewhere(message);
}
