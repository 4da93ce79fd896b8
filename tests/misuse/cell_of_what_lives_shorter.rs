// SPDX-License-Identifier: GPL-2.0
// error: E0597

//! What is put into a cell lives as long as the readers of the cell believe.

use kernel::prelude::*;
use rtrs_bindings::rcu::RcuCell;

fn put<'a>(cell: &RcuCell<KBox<&'a u8>>, value: KBox<&'a u8>) {
    drop(cell.replace(Some(value)));
}

/// Puts a reference to a variable on the stack into a cell.
pub fn publish(cell: &RcuCell<KBox<&'static u8>>) -> Result {
    let on_stack = 1;

    put(cell, KBox::new(&2, GFP_KERNEL)?);
    #[cfg(misuse)]
    put(cell, KBox::new(&on_stack, GFP_KERNEL)?);
    let _: u8 = on_stack;
    Ok(())
}
