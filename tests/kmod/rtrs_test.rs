// SPDX-License-Identifier: GPL-2.0

//! rtrs-test: a user of the Rust API, for tests only.

use kernel::prelude::*;

module! {
    type: TestModule,
    name: "rtrs_test",
    authors: ["The RTRS in Rust authors"],
    description: "RDMA Transport tests",
    license: "GPL",
}

struct TestModule;

impl kernel::Module for TestModule {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Self)
    }
}
