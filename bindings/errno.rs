// SPDX-License-Identifier: GPL-2.0

//! The error numbers that the kernel crate has no constants for.
//!
//! The constants are [`Error`]s like those of [`kernel::error::code`], which are re-exported: they
//! can be returned, compared and used as patterns. Newer kernels have all of them; 7.2 has none.
//!
//! C header: [`include/uapi/asm-generic/errno.h`](srctree/include/uapi/asm-generic/errno.h)

use core::mem::transmute;
use kernel::prelude::*;

use crate::raw;

pub use kernel::error::code::*;

// `Error` has one field, a `NonZeroI32`. As both have the same size, the field is at offset 0 and
// there is nothing else.
static_assert!(size_of::<Error>() == size_of::<core::num::NonZeroI32>());
static_assert!(align_of::<Error>() == align_of::<core::num::NonZeroI32>());

const fn error(errno: u32) -> Error {
    assert!(errno >= 1 && errno <= raw::MAX_ERRNO);
    // SAFETY: `Error` is a `NonZeroI32` (asserted above). Its invariant, to be
    // within `-MAX_ERRNO..0`, was just checked.
    unsafe { transmute(-(errno as i32)) }
}

// The results are equal to those of the kernel crate.
static_assert!(matches!(error(raw::EPERM), EPERM));
static_assert!(matches!(error(raw::EINVAL), EINVAL));
static_assert!(matches!(error(raw::ENOGRACE), ENOGRACE));

macro_rules! declare {
    ($($name:ident, $doc:literal;)+) => {
        $(
            #[doc = $doc]
            pub const $name: Error = error(raw::$name);
        )+
    };
}

declare! {
    EPROTO, "Protocol error.";
    EBADMSG, "Not a data message.";
    ECOMM, "Communication error on send.";
    EOPNOTSUPP, "Operation not supported on transport endpoint.";
    EAFNOSUPPORT, "Address family not supported by protocol.";
    EADDRINUSE, "Address already in use.";
    EADDRNOTAVAIL, "Cannot assign requested address.";
    ENETDOWN, "Network is down.";
    ECONNABORTED, "Software caused connection abort.";
    ECONNRESET, "Connection reset by peer.";
    ENOTCONN, "Transport endpoint is not connected.";
    ESHUTDOWN, "Cannot send after transport endpoint shutdown.";
    ECONNREFUSED, "Connection refused.";
    EHOSTUNREACH, "No route to host.";
    EALREADY, "Operation already in progress.";
    EUSERS, "Too many users.";
}

/// The error with the number `errno`, which is negative, as in the kernel.
///
/// [`None`] if there is no such error: for numbers from the wire, where
/// [`Error::from_errno`] would fill the log. Any context.
pub fn from_i32(errno: i32) -> Option<Error> {
    if (-(raw::MAX_ERRNO as i32)..0).contains(&errno) {
        Some(Error::from_errno(errno))
    } else {
        None
    }
}
