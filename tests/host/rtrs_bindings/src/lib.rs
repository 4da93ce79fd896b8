// SPDX-License-Identifier: GPL-2.0

//! Host build of the part of `rtrs_bindings` that has `unsafe` code, but calls nothing of the
//! kernel, for loom and valgrind.

#![no_std]

#[path = "../../shim/atomic.rs"]
pub mod atomic;

#[path = "../../../../bindings/handoff.rs"]
pub mod handoff;

#[path = "../../../../bindings/place.rs"]
pub mod place;
