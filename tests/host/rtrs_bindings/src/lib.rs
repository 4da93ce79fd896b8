// SPDX-License-Identifier: GPL-2.0

//! Host build of the part of `rtrs_bindings` that has `unsafe` code but calls no kernel functions,
//! for loom and valgrind.

#![no_std]

extern crate alloc;

#[path = "../../shim/atomic.rs"]
pub mod atomic;

/// The owning pointer, under the name that the sources use.
pub mod boxed {
    pub use alloc::boxed::Box as KBox;
}

#[path = "../../../../bindings/berth.rs"]
pub mod berth;

#[path = "../../../../bindings/solo.rs"]
pub mod solo;

#[path = "../../../../bindings/try_lock.rs"]
pub mod try_lock;

#[path = "../../../../bindings/ib/hidden.rs"]
pub mod hidden;

#[path = "../../../../bindings/ib/page_size.rs"]
pub mod page_size;

#[path = "../../../../bindings/place.rs"]
pub mod place;
