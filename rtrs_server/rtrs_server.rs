// SPDX-License-Identifier: GPL-2.0

//! rtrs-server: block IO over RDMA, the side that has the disks.
//!
//! | module | noun |
//! |---|---|
//! | [`api`] | the interface for users of the server |
//! | `capi` | the same under the names of the C API |
//! | `config` | module parameters, checked |
//! | `context` | one listening server |
//! | `registry` | the sessions of all servers, and their names |
//! | `limits` | limits on the resources of clients |
//! | `handshake` | a connection request that waits for its decision |
//! | `session` | one client, over all its paths |
//! | `path` | one way to a client, its owner task and connections |
//! | `active` | the objects of a path while it carries IO |
//! | `chunk` | one chunk: memory, registration, operation, answer |
//! | `inbox` | requests on their way to the user |
//! | `op` | a request that the user has |
//! | `ops_ref` | the object that all operations of a path share |
//! | `turns` | turns of inboxes that keep a task busy for long |
//! | `stats`, `sysfs`, `debugfs`, `trace` | how all that is observed |
//! | [`logic`] | decisions that need no kernel |
//!
//! Architecture, lock order and lifetimes: `Documentation/server.rst`.

mod active;
pub mod api;
mod capi;
mod chunk;
mod config;
mod context;
mod debugfs;
mod handshake;
mod inbox;
mod limits;
pub mod logic;
mod op;
mod ops_ref;
mod path;
mod registry;
mod session;
mod stats;
mod sysfs;
mod trace;
mod turns;

use kernel::prelude::*;
use rtrs_bindings::ib::OwnedConsumer;

/// Atomics, under the name by which the logic finds them in the kernel and in host tests.
mod atomic {
    pub(crate) use kernel::sync::atomic::{
        Acquire,
        Atomic,
        Full,
        Relaxed, //
    };
}

/// The name under which `rdma resource` shows the module's RDMA objects.
const OWNER: &kernel::str::CStr = c"rtrs_server";

module! {
    type: ServerModule,
    name: "rtrs_server",
    authors: ["The RTRS in Rust authors"],
    description: "RDMA Transport server",
    license: "GPL",
}

// Field order is teardown order.
struct ServerModule {
    // Waits for readers, which look at sessions.
    _debugfs: rtrs_core::table::DebugFiles,
    _quotas: sysfs::QuotaFiles,
    _totals: stats::Totals,
    _class: sysfs::ClassGuard,
    _registry: registry::RegistryGuard,
    // Waits for the registry, and for all connections.
    _rdma: OwnedConsumer,
}

impl kernel::Module for ServerModule {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        config::init()?;
        let rdma = OwnedConsumer::new(OWNER)?;
        let (registry, guard) = registry::init(rdma.handle())?;
        let class = sysfs::init()?;
        Ok(Self {
            _debugfs: debugfs::init()?,
            _quotas: sysfs::QuotaFiles::new(&registry)?,
            _totals: stats::Totals::new()?,
            _class: class,
            _registry: guard,
            _rdma: rdma,
        })
    }
}
