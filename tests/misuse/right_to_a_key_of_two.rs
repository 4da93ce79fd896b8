// SPDX-License-Identifier: GPL-2.0
// error: E0382

//! The right to change a key has one owner.

use rtrs_bindings::ib::{KeyRight, NewKey, Reply};

/// Uses it.
pub fn change(reply: &Reply, mut right: KeyRight) -> Option<u32> {
    let rkey = reply.change_key(&mut right).ok().as_ref().map(NewKey::rkey);
    let owner = right;
    #[cfg(misuse)]
    let _ = reply.change_key(&mut right);
    drop(owner);
    rkey
}
