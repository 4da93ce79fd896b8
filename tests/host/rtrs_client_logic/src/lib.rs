// SPDX-License-Identifier: GPL-2.0

//! Host build of the kernel-free part of `rtrs_client`.

#![no_std]

#[path = "../../shim/atomic.rs"]
pub mod atomic;

// An inline module with a path, so that the files find their sub-modules as in the kernel build.
#[path = "../../../../rtrs_client"]
mod source {
    pub mod logic;
}

pub use source::logic;
