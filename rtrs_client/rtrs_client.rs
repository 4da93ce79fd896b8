// SPDX-License-Identifier: GPL-2.0

//! rtrs-client: sessions to RTRS servers.
//!
//! | module | noun |
//! |---|---|
//! | [`api`] | the interface for users of the client |
//! | `capi` | the same under the names of the C API |
//! | `params` | module parameters, checked |
//! | `client` | the sessions of the module, and their names |
//! | `session` | one server, over all its paths |
//! | `path` | one way to a server, and its owner task |
//! | `link` | the connections of a path, from one attempt to connect to their end |
//! | `request` | a request, whichever path it takes |
//! | `stats`, `sysfs`, `debugfs`, `trace` | how all that is observed |
//! | [`logic`] | decisions that need no kernel |
//!
//! Architecture, lock order and object lifetimes: `Documentation/architecture.rst`.

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
use rtrs_bindings::ib::Watching;

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

// Field order is teardown order.
struct ClientModule {
    // Waits for readers, which look at sessions.
    _debugfs: rtrs_core::table::DebugFiles,
    // Waits for events of devices, which look at sessions.
    _watching: Watching<client::Devices>,
    _client: client::ClientGuard,
}

impl kernel::Module for ClientModule {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let client = client::init()?;
        let watching = client::watch()?;
        Ok(Self {
            _debugfs: debugfs::init()?,
            _watching: watching,
            _client: client,
        })
    }
}
