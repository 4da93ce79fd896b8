// SPDX-License-Identifier: GPL-2.0
// error: E0382

//! What a device uses does not change: neither mapping nor registration.

use rtrs_bindings::ib::{Access, Building, Endpoint, Handler, Remote};

/// Posts it.
pub fn post<H: Handler>(mut building: Building<'_, H>, ep: &Endpoint<H>, to: Remote) {
    let _ = building.describe(Access::REMOTE_WRITE);
    let _ = building.post(ep, to, 0);
    #[cfg(misuse)]
    let _ = building.describe(Access::REMOTE_WRITE);
}
