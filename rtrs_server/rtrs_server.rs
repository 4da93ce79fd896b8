// SPDX-License-Identifier: GPL-2.0

//! rtrs-server: block IO over RDMA, the side that has the disks.
//!
//! | module | noun |
//! |---|---|
//! | [`api`] | what users of the server implement and call |
//! | `capi` | the same under the names of the C API |
//! | `config` | module parameters, checked |
//! | `context` | one listening server and its sessions |
//! | `handshake` | a connection request that waits for its decision |
//! | `session` | one client, over all its paths |
//! | `path` | one way to a client, its owner task and connections |
//! | `live` | what a path has while it carries IO |
//! | `op` | one request and its answer |
//! | [`logic`] | decisions that need no kernel |
//!
//! Architecture, lock order and lifetimes: `Documentation/server.rst`.

use kernel::prelude::*;

pub mod api;
mod capi;
mod config;
mod context;
mod handshake;
mod live;
pub mod logic;
mod op;
mod path;
mod session;
mod show;
mod sysfs;

/// Atomics, under the name by which the logic finds them in the kernel and in host tests.
mod atomic {
    pub(crate) use kernel::sync::atomic::{
        Atomic,
        Full,
        Relaxed, //
    };
}

/// Whose the RDMA objects are, for `rdma resource`.
const OWNER: &kernel::str::CStr = c"rtrs_server";

module! {
    type: ServerModule,
    name: "rtrs_server",
    authors: ["The RTRS in Rust authors"],
    description: "RDMA Transport server",
    license: "GPL",
}

struct ServerModule {
    _class: sysfs::ClassGuard,
}

impl kernel::Module for ServerModule {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        config::init()?;
        Ok(Self {
            _class: sysfs::init()?,
        })
    }
}
