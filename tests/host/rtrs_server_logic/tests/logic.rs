// SPDX-License-Identifier: GPL-2.0

//! The cases that KUnit runs as well, and what else is tested of the same subjects: with random
//! input, and with types that the kernel does not have.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

// The name that the crate has in the kernel.
extern crate rtrs_server_logic as rtrs_server;

#[macro_use]
#[path = "../../shim/cases.rs"]
mod shim;

#[path = "../../../cases/server/mod.rs"]
mod cases;

mod logic {
    mod decisions;
    mod linger;
    mod receives;
    mod shares;
    mod stage;
    mod turn;
}
