// SPDX-License-Identifier: GPL-2.0
// error: E0382

//! A page is not taken out of a receive that was posted again: the device may be writing to it.

use rtrs_bindings::ib::{Buffer, Message};

/// Keeps the page, and posts the receive.
pub fn keep(mut message: Message<'_>, page: &mut Buffer) {
    #[cfg(not(misuse))]
    {
        let _ = message.exchange(page);
        let _ = message.post_again();
    }
    #[cfg(misuse)]
    {
        let _ = message.post_again();
        let _ = message.exchange(page);
    }
}
