// SPDX-License-Identifier: GPL-2.0
// error: E0599

//! A queue pair is made where no event of the connection can come between.

use rtrs_bindings::ib::{Domain, Endpoint, Handler, Locked, QueueConfig};

use kernel::sync::Arc;

#[cfg(not(misuse))]
/// Makes one.
pub fn create<H: Handler>(ep: &Locked<'_, H>, domain: &Arc<Domain>, config: &QueueConfig) {
    let _ = ep.create_qp(domain, config);
    let _: &Endpoint<H> = ep;
}

#[cfg(misuse)]
/// Makes one.
pub fn create<H: Handler>(ep: &Endpoint<H>, domain: &Arc<Domain>, config: &QueueConfig) {
    let _ = ep.create_qp(domain, config);
    let _: Option<Locked<'_, H>> = None;
}
