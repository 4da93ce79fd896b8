// SPDX-License-Identifier: GPL-2.0

//! The cases that KUnit runs as well, and what else is tested of the same subjects: with random
//! input, and with types that the kernel does not have.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

// The name that the crate has in the kernel.
extern crate rtrs_client_logic as rtrs_client;

#[macro_use]
#[path = "../../shim/cases.rs"]
mod shim;

#[path = "../../../cases/client/mod.rs"]
mod cases;

mod logic {
    mod devices;
    mod fence;
    mod link_events;
    mod listen;
    mod path_state;
    mod policy;
    mod polled;
    mod restore;
    mod rnbd;
    mod silence;
    mod spread;
    mod stats;
    mod trial;
    mod turn;
}
