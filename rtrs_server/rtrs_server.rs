// SPDX-License-Identifier: GPL-2.0

//! rtrs-server.

use kernel::prelude::*;

module! {
    type: ServerModule,
    name: "rtrs_server",
    authors: ["The RTRS in Rust authors"],
    description: "RDMA Transport server",
    license: "GPL",
}

struct ServerModule;

impl kernel::Module for ServerModule {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Self)
    }
}
