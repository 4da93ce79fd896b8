// SPDX-License-Identifier: GPL-2.0

//! The generated bindings: private to this crate.
//!
//! All of [`kernel::bindings`], and the items of `rtrs_bindings.h` that the kernel crate does not
//! have. If both have a name, the kernel crate has only an opaque stub for it, and the definition
//! of this crate takes precedence.

#![allow(
    clippy::all,
    clippy::as_underscore,
    clippy::cast_lossless,
    clippy::ptr_as_ptr,
    clippy::ref_as_ptr,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    improper_ctypes,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_op_in_unsafe_fn
)]

use kernel::ffi;
use pin_init::{
    MaybeZeroable,
    Zeroable, //
};

pub(crate) use kernel::bindings::*;

type __kernel_size_t = usize;
type __kernel_ssize_t = isize;
type __kernel_ptrdiff_t = isize;

// SAFETY: `__BindgenBitfieldUnit<Storage>` is a transparent wrapper of `Storage`.
unsafe impl<Storage> Zeroable for __BindgenBitfieldUnit<Storage> where Storage: Zeroable {}

include!(env!("RTRS_BINDINGS"));
