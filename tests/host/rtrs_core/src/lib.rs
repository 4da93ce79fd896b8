// SPDX-License-Identifier: GPL-2.0

//! Host build of the kernel-free part of `rtrs_core`, under the crate's own name so that the
//! client's and the server's logic find it.

#![no_std]

#[path = "../../shim/atomic.rs"]
pub mod atomic;

// An inline module with a path, so that the files find their sub-modules as in the kernel build.
#[path = "../../../../rtrs_core"]
mod source {
    pub mod addr;
    pub mod proto;
    pub mod qp_size;
}

#[path = "../../../../bindings/ib/sendq.rs"]
pub mod sendq;

#[path = "../../../../bindings/ib/withheld.rs"]
pub mod withheld;

#[path = "../../../../bindings/ib/flight/word.rs"]
pub mod flight;

pub use source::{
    addr,
    proto,
    qp_size, //
};
