// SPDX-License-Identifier: GPL-2.0

//! rtrs-client: sessions to RTRS servers.
//!
//! [`api`] is for block drivers in Rust, `rtrs.h` for block drivers in C. Architecture, lock order
//! and object lifetimes: `Documentation/architecture.rst`.

pub mod api;
mod capi;
mod client;
mod debugfs;
mod link;
pub mod logic;
mod params;
mod path;
mod request;
mod session;
mod stats;
mod sysfs;
mod trace;

use kernel::{
    prelude::*,
    str::CStr, //
};

/// Atomics, under the name by which code that is also tested on the host finds them.
mod atomic {
    pub(crate) use kernel::sync::atomic::{
        Atomic,
        Full,
        Relaxed, //
    };
}

/// The name under which `rdma resource` shows the module's objects.
const MODULE_NAME: &CStr = c"rtrs_client";

module! {
    type: ClientModule,
    name: "rtrs_client",
    authors: ["The RTRS in Rust authors"],
    description: "RDMA Transport client",
    license: "GPL",
}

struct ClientModule;

impl kernel::Module for ClientModule {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        client::init()?;
        Ok(Self)
    }
}

impl Drop for ClientModule {
    fn drop(&mut self) {
        client::exit();
    }
}
