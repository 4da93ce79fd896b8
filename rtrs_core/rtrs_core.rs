// SPDX-License-Identifier: GPL-2.0

//! rtrs-core.

use kernel::prelude::*;

module! {
    type: CoreModule,
    name: "rtrs_core",
    authors: ["The RTRS in Rust authors"],
    description: "RDMA Transport core",
    license: "GPL",
}

struct CoreModule;

impl kernel::Module for CoreModule {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Self)
    }
}
