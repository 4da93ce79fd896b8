// SPDX-License-Identifier: GPL-2.0
// error: E0308

//! The completions of a flight are handled by the type that it was made for.

use rtrs_bindings::ib::{Building, Endpoint, Handler, Target};

#[cfg(not(misuse))]
/// Posts it.
pub fn post<H: Handler>(building: Building<'_, H>, ep: &Endpoint<H>, to: impl Target) {
    let _ = building.post(ep, to);
}

#[cfg(misuse)]
/// Posts it.
pub fn post<H: Handler, I: Handler>(building: Building<'_, H>, ep: &Endpoint<I>, to: impl Target) {
    let _ = building.post(ep, to);
}
