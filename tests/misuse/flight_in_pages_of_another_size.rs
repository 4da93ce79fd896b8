// SPDX-License-Identifier: GPL-2.0
// error: E0061

//! Data is described in pages of the one size for which the device was checked.

use rtrs_bindings::ib::{Building, Handler};

/// Describes it.
pub fn describe<H: Handler>(building: &mut Building<'_, H>) {
    #[cfg(not(misuse))]
    let _ = building.describe();
    #[cfg(misuse)]
    let _ = building.describe(65536);
}
