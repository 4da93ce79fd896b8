// SPDX-License-Identifier: GPL-2.0

//! Trace events of a module.
//!
//! They are described in a C header, from which a C file with
//! `CREATE_RUST_TRACE_POINTS` makes them, and named again for Rust:
//!
//! ```ignore
//! tracepoints! {
//!     // SAFETY: As in trace.h.
//!     unsafe {
//!         my_event(name: str, number: u32);
//!     }
//! }
//!
//! if my_event::enabled() {
//!     my_event::fire(c"it", 1);
//! }
//! ```
//!
//! A disabled one costs a nop. Any context but NMI.
//!
//! The kernel crate's `declare_trace!` finds only what its own bindings have.

/// Declares events: for each a module with `enabled()` and `fire()`.
///
/// # Safety
///
/// `unsafe` says that the header declares the same: a `str` is a `const char *`
/// that is copied and not kept, other types are those of the same size.
#[macro_export]
#[doc(hidden)]
macro_rules! __tracepoints {
    (unsafe { $($name:ident($($arg:ident: $type:ident),+ $(,)?);)+ }) => {$(
        mod $name {
            ::kernel::macros::paste! {
                // A lock class key has no fields in this configuration.
                #[allow(improper_ctypes)]
                extern "C" {
                    #[allow(non_upper_case_globals)]
                    static [< __tracepoint_ $name >]: ::kernel::bindings::tracepoint;
                    fn [< rust_do_trace_ $name >]($($arg: $crate::trace::raw_type!($type)),+);
                }

                /// Whether somebody listens.
                #[inline(always)]
                pub(super) fn enabled() -> bool {
                    // SAFETY: A tracepoint, which C code defines, has a static key.
                    unsafe {
                        ::kernel::jump_label::static_branch_unlikely!(
                            [< __tracepoint_ $name >],
                            ::kernel::bindings::tracepoint,
                            key
                        )
                    }
                }

                /// Tells who listens.
                #[allow(clippy::too_many_arguments)]
                pub(super) fn fire($($arg: $crate::trace::arg_type!($type)),+) {
                    // SAFETY: Who declares the event says that the types are right; strings have
                    // a zero at their end, and are copied.
                    unsafe {
                        [< rust_do_trace_ $name >]($($crate::trace::raw_value!($type, $arg)),+)
                    }
                }
            }
        }
    )+};
}

#[macro_export]
#[doc(hidden)]
macro_rules! __trace_raw_type {
    (str) => { *const ::kernel::ffi::c_char };
    ($type:ident) => { $type };
}

#[macro_export]
#[doc(hidden)]
macro_rules! __trace_arg_type {
    (str) => {
        &::core::ffi::CStr
    };
    ($type:ident) => {
        $type
    };
}

#[macro_export]
#[doc(hidden)]
macro_rules! __trace_raw_value {
    (str, $arg:ident) => {
        ::kernel::str::CStrExt::as_char_ptr($arg)
    };
    ($type:ident, $arg:ident) => {
        $arg
    };
}

pub use crate::__tracepoints as tracepoints;
#[doc(hidden)]
pub use crate::{
    __trace_arg_type as arg_type,
    __trace_raw_type as raw_type,
    __trace_raw_value as raw_value, //
};
