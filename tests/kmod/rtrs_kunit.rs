// SPDX-License-Identifier: GPL-2.0

//! rtrs-kunit: what needs no kernel, tested in the kernel.
//!
//! The cases are in `tests/cases`, and the host runs the same files (`tests/host`). Here they use the
//! crates of the modules, built with the kernel's options, and the kernel's atomics. KUnit runs all
//! suites when this module is loaded.
//!
//! The macros below are what cases are written with: one that fails ends its case, and not the
//! kernel. `tests/host/shim/cases.rs` has those for the host. `panic!` is not among them, since macros
//! of the kernel crate use it for errors at compile time.

use kernel::prelude::*;

module! {
    type: KunitModule,
    name: "rtrs_kunit",
    authors: ["The RTRS in Rust authors"],
    description: "RDMA Transport unit tests",
    license: "GPL",
}

struct KunitModule;

impl kernel::Module for KunitModule {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Self)
    }
}

/// Atomics, under the name that code also compiled on the host uses.
mod atomic {
    pub(crate) use kernel::sync::atomic::{
        Acquire,
        Atomic,
        Full,
        Relaxed,
        Release, //
    };
}

/// Parts of `rtrs_bindings` that are private there, compiled once more.
#[path = "../../bindings/ib"]
pub mod parts {
    #[path = "flight/word.rs"]
    pub mod flight;
    pub mod withheld;
}

macro_rules! cases {
    ($($suite:tt)+) => {
        ::rtrs_bindings::kunit::suite!($($suite)+);
    };
}

macro_rules! must {
    ($value:expr) => {
        ::rtrs_bindings::kunit::must!($value)
    };
}

macro_rules! fail {
    ($($why:tt)+) => {
        ::rtrs_bindings::kunit::fail!($($why)+)
    };
}

macro_rules! assert {
    ($($claim:tt)+) => {
        ::rtrs_bindings::kunit::check!($($claim)+)
    };
}

/// `assert_eq` and `assert_ne` differ in the operator.
macro_rules! compare {
    (@) => { "" };
    (@ $($why:tt)+) => { format_args!(": {}", format_args!($($why)+)) };
    ($left:expr, $op:tt, $right:expr $(, $($why:tt)+)?) => {
        match (&$left, &$right) {
            (left, right) => {
                if !(*left $op *right) {
                    fail!(
                        "not so: {} {} {}: {left:?}, {right:?}{}",
                        stringify!($left),
                        stringify!($op),
                        stringify!($right),
                        compare!(@ $($($why)+)?)
                    )
                }
            }
        }
    };
}

macro_rules! assert_eq {
    ($left:expr, $right:expr $(,)?) => { compare!($left, ==, $right) };
    ($left:expr, $right:expr, $($why:tt)+) => { compare!($left, ==, $right, $($why)+) };
}

macro_rules! assert_ne {
    ($left:expr, $right:expr $(,)?) => { compare!($left, !=, $right) };
    ($left:expr, $right:expr, $($why:tt)+) => { compare!($left, !=, $right, $($why)+) };
}

#[path = "../cases/client/mod.rs"]
mod client;
#[path = "../cases/core/mod.rs"]
mod common;
#[path = "../cases/server/mod.rs"]
mod server;
