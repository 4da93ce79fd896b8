// SPDX-License-Identifier: GPL-2.0
// error: E0382

//! A flight is posted once.

use rtrs_bindings::ib::{Building, Endpoint, Handler, Remote};

/// Posts it.
pub fn post<H: Handler>(building: Building<'_, H>, ep: &Endpoint<H>, to: Remote) {
    let _ = building.post(ep, to, 0);
    #[cfg(misuse)]
    let _ = building.post(ep, to, 0);
}
