// SPDX-License-Identifier: GPL-2.0

//! Formatting of types that are also compiled on the host.
//!
//! The kernel crate's log macros need its own `Display`; code that does not depend on the kernel
//! implements that of `core`.

/// Implements the kernel's `Display` for types that have `core`'s.
#[macro_export]
macro_rules! kernel_display {
    ($($type:ty),+ $(,)?) => {$(
        impl ::kernel::fmt::Display for $type {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                ::core::fmt::Display::fmt(self, f)
            }
        }
    )+};
}

kernel_display!(
    crate::addr::Addr,
    crate::addr::AddrPair,
    crate::proto::SessionName,
);
