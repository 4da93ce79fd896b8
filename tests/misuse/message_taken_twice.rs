// SPDX-License-Identifier: GPL-2.0
// error: E0382

//! A message is one receive: it is not posted twice.

use rtrs_bindings::ib::Message;

/// Posts it again.
pub fn again(message: Message<'_>) {
    let _ = message.post_again();
    #[cfg(misuse)]
    let _ = message.post_again();
}
