// SPDX-License-Identifier: GPL-2.0
// error: E0382

//! What a device uses does not change: neither mapping nor registration.

use rtrs_bindings::ib::{Building, Endpoint, Handler, Target};

/// Posts it.
pub fn post<H: Handler>(mut building: Building<'_, H>, ep: &Endpoint<H>, to: impl Target) {
    let _ = building.describe();
    let _ = building.post(ep, to);
    #[cfg(misuse)]
    let _ = building.describe();
}
