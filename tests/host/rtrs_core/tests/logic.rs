// SPDX-License-Identifier: GPL-2.0

//! The cases that KUnit runs as well, and what else is tested of the same subjects: with random
//! input, and with types that the kernel does not have.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

#[macro_use]
#[path = "../../shim/cases.rs"]
mod shim;

#[path = "../../../cases/core/mod.rs"]
mod cases;

/// What is private in `rtrs_bindings`.
mod parts {
    pub(crate) use rtrs_core::{
        flight,
        withheld, //
    };
}

mod logic {
    mod addr;
    mod flight;
    mod geometry;
    mod heartbeat;
    mod imm;
    mod messages;
    mod withheld;
}
