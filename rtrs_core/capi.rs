// SPDX-License-Identifier: GPL-2.0

//! The C API of rtrs-core: addresses as text.
//!
//! Declared in `rtrs.h`, described in `Documentation/api-c.rst`. May be called in any context in
//! which an interface can be looked up by its name (`dev_get_by_name_rcu()`). Does not sleep.

use core::{
    ffi::{
        c_char,
        c_int,
        c_void, //
    },
    fmt::{
        self,
        Write, //
    },
    slice, //
};
use kernel::{
    prelude::*,
    str::Formatter, //
};
use rtrs_bindings::ib::SockAddr;

use crate::sockaddr;

/// `struct rtrs_addr` of `rtrs.h`.
#[repr(C)]
pub struct RtrsAddr {
    /// Source, a `struct sockaddr_storage`, or null.
    pub src: *mut c_void,
    /// Destination, a `struct sockaddr_storage`.
    pub dst: *mut c_void,
}

/// Writes text to a C buffer. The text is cut off at the end of the buffer and always terminated.
/// Returns its length, without the terminating zero.
fn write_text(buf: &mut [u8], write: impl FnOnce(&mut Formatter<'_>) -> fmt::Result) -> c_int {
    // One byte is reserved for the zero.
    let Some((_, room)) = buf.split_last_mut() else {
        return 0;
    };
    let mut out = Formatter::new(room);
    // An error means that the text does not fit.
    let _ = write(&mut out);
    let len = out.bytes_written().min(room.len());
    if let Some(end) = buf.get_mut(len) {
        *end = 0;
    }
    // CAST: Addresses are short.
    len as c_int
}

fn write_addr(out: &mut Formatter<'_>, addr: Result<SockAddr>) -> fmt::Result {
    match addr.ok().as_ref().and_then(sockaddr::to_addr) {
        Some(addr) => write!(out, "{addr}"),
        None => out.write_str("<invalid address family>"),
    }
}

/// Parses `[src{,|@}]dst`. Returns 0, or a negative errno without writing anything.
///
/// # Safety
///
/// `text` must have `len` readable bytes; `addr` must be a valid `struct rtrs_addr` that points to
/// two writable `struct sockaddr_storage`s.
#[no_mangle]
pub(crate) unsafe extern "C" fn rtrs_addr_to_sockaddr(
    text: *const c_char,
    len: usize,
    port: u16,
    addr: *mut RtrsAddr,
) -> c_int {
    // SAFETY: By the safety requirements of this function, `text` has `len` bytes and `addr` is
    // valid.
    let (text, addr) = unsafe { (slice::from_raw_parts(text.cast::<u8>(), len), &mut *addr) };
    match sockaddr::parse_pair(text, port) {
        Ok((src, dst)) => {
            match src {
                // SAFETY: By the safety requirements of this function, `src` of `addr` is writable.
                Some(src) => unsafe { src.write_raw(addr.src) },
                None => addr.src = core::ptr::null_mut(),
            }
            // SAFETY: By the safety requirements of this function, `dst` of `addr` is writable.
            unsafe { dst.write_raw(addr.dst) };
            0
        }
        Err(e) => e.to_errno(),
    }
}

/// Writes an address as text; returns its length.
///
/// # Safety
///
/// `addr` must be a valid socket address of its family's size, `buf` must have
/// `len` writable bytes.
#[no_mangle]
pub(crate) unsafe extern "C" fn sockaddr_to_str(
    addr: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> c_int {
    if len == 0 {
        return 0;
    }
    // SAFETY: By the safety requirements of this function, `addr` is an address and `buf` has `len`
    // bytes.
    let (addr, buf) = unsafe {
        (
            SockAddr::from_raw(addr),
            slice::from_raw_parts_mut(buf.cast::<u8>(), len),
        )
    };
    write_text(buf, |out| write_addr(out, addr))
}

/// Writes both addresses of a path as `src@dst`; returns the length.
///
/// # Safety
///
/// As for [`sockaddr_to_str`], for both addresses of `addr`; the source may be null.
#[no_mangle]
pub(crate) unsafe extern "C" fn rtrs_addr_to_str(
    addr: *const RtrsAddr,
    buf: *mut c_char,
    len: usize,
) -> c_int {
    if len == 0 {
        return 0;
    }
    // SAFETY: By the safety requirements of this function, `addr` is valid and `buf` has `len`
    // bytes.
    let (addr, buf) = unsafe { (&*addr, slice::from_raw_parts_mut(buf.cast::<u8>(), len)) };
    write_text(buf, |out| {
        if !addr.src.is_null() {
            // SAFETY: By the safety requirements of this function, a source that is not null is an
            // address.
            write_addr(out, unsafe { SockAddr::from_raw(addr.src) })?;
            out.write_str("@")?;
        }
        // SAFETY: By the safety requirements of this function, the destination is an address.
        write_addr(out, unsafe { SockAddr::from_raw(addr.dst) })
    })
}
