// SPDX-License-Identifier: GPL-2.0

//! rtrs-client.

use kernel::prelude::*;

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
        Ok(Self)
    }
}
