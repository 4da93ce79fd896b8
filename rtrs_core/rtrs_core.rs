// SPDX-License-Identifier: GPL-2.0

//! rtrs-core: code that client and server of the RDMA transport share.
//!
//! [`proto`], [`addr`] and [`qp_size`] do not depend on the kernel and are also compiled into the
//! host tests.

pub mod addr;
pub mod capi;
mod liveness;
pub mod polls;
pub mod proto;
pub mod qp_size;
pub mod sockaddr;
pub mod table;
pub mod uevent;

use kernel::prelude::*;

/// Atomics, under the name that code also compiled into the host tests uses.
mod atomic {
    pub(crate) use kernel::sync::atomic::{
        Atomic,
        Full,
        Relaxed,
        Release, //
    };
}

/// Implements the kernel's `Display`, which the kernel crate's log macros need, for types that have
/// `core`'s, as code that is also compiled on the host has.
#[macro_export]
macro_rules! kernel_display {
    ($($type:ty),+ $(,)?) => {$(
        impl ::kernel::fmt::Display for $type {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                ::core::fmt::Display::fmt(self, f)
            }
        }
    )+};
}

kernel_display!(addr::Addr, addr::AddrPair, proto::SessionName);

module! {
    type: CoreModule,
    name: "rtrs_core",
    authors: ["The RTRS in Rust authors"],
    description: "RDMA Transport: protocol and bindings",
    license: "GPL",
}

struct CoreModule;

impl kernel::Module for CoreModule {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Self)
    }
}
