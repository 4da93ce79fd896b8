// SPDX-License-Identifier: GPL-2.0

//! Trace events of a module.
//!
//! A C header describes them, a C file with `CREATE_RUST_TRACE_POINTS` defines them, and Rust
//! declares them again:
//!
//! ```ignore
//! tracepoints! {
//!     // SAFETY: As in trace.h.
//!     unsafe {
//!         my_event(name: str, number: u32, why: text);
//!     }
//! }
//!
//! if my_event::enabled() {
//!     my_event::fire(c"it", 1, "no reason");
//! }
//! ```
//!
//! A disabled event costs a nop. Any context but NMI.
//!
//! The kernel crate's `declare_trace!` supports only events in its own bindings.

use core::marker::PhantomData;

/// Text for an event: `struct rtrs_text` in `trace_text.h`.
#[doc(hidden)]
#[repr(C)]
pub struct Text<'a> {
    ptr: *const u8,
    len: usize,
    _text: PhantomData<&'a str>,
}

impl<'a> Text<'a> {
    /// For an event that copies `text`.
    pub fn new(text: &'a str) -> Self {
        Self {
            ptr: text.as_ptr(),
            len: text.len(),
            _text: PhantomData,
        }
    }
}

/// Declares events: for each a module with `enabled()` and `fire()`.
///
/// # Safety
///
/// `unsafe` asserts that the header declares the same event: a `str` is a `const char *` that is
/// copied and not kept, a `text` a `const struct rtrs_text *` for which the same is true; other
/// types are those of the same size.
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

                /// Whether the event is enabled.
                #[inline(always)]
                pub(super) fn enabled() -> bool {
                    // SAFETY: C code defines the tracepoint, which has a static key.
                    unsafe {
                        ::kernel::jump_label::static_branch_unlikely!(
                            [< __tracepoint_ $name >],
                            ::kernel::bindings::tracepoint,
                            key
                        )
                    }
                }

                /// Emits the event.
                #[allow(clippy::too_many_arguments)]
                pub(super) fn fire($($arg: $crate::trace::arg_type!($type)),+) {
                    // SAFETY: The declaration of the event asserts that the types are right;
                    // strings are zero-terminated, texts have a length, and both are copied.
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
    (text) => { *const $crate::trace::Text<'_> };
    ($type:ident) => { $type };
}

#[macro_export]
#[doc(hidden)]
macro_rules! __trace_arg_type {
    (str) => {
        &::core::ffi::CStr
    };
    (text) => {
        &str
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
    (text, $arg:ident) => {
        &$crate::trace::Text::new($arg)
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
