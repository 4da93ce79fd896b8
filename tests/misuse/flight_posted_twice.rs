// SPDX-License-Identifier: GPL-2.0
// error: E0382

//! A flight is posted once.

use rtrs_bindings::ib::{Building, Endpoint, Handler, Target};

/// Posts it.
pub fn post<H: Handler>(building: Building<'_, H>, ep: &Endpoint<H>, to: impl Target + Copy) {
    let _ = building.post(ep, to);
    #[cfg(misuse)]
    let _ = building.post(ep, to);
}
