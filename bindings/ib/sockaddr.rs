// SPDX-License-Identifier: GPL-2.0

//! Socket addresses.

use kernel::prelude::*;

use crate::raw;

/// The index of the network interface `name`. Any context.
///
/// # Errors
///
/// `ENODEV` if there is no such interface.
pub fn interface_index(name: &core::ffi::CStr) -> Result<u32> {
    // SAFETY: `name` is a C string.
    match unsafe { raw::rtrs_helper_ifindex(kernel::str::CStrExt::as_char_ptr(name)) } {
        0 => Err(ENODEV),
        index => Ok(index),
    }
}

/// An address for the connection manager: IPv4, IPv6 or InfiniBand.
///
/// # Invariants
///
/// Bytes after the structure of the family are zero.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct SockAddr(raw::__kernel_sockaddr_storage);

// SAFETY: The type holds plain bytes; the generated type has a pointer for alignment only.
unsafe impl Send for SockAddr {}
// SAFETY: As above.
unsafe impl Sync for SockAddr {}

const AF_INET: u16 = raw::AF_INET as u16;
const AF_INET6: u16 = raw::AF_INET6 as u16;
const AF_IB: u16 = raw::AF_IB as u16;

impl SockAddr {
    fn zeroed() -> Self {
        // SAFETY: All zeroes is a valid `sockaddr_storage`.
        Self(unsafe { core::mem::zeroed() })
    }

    fn from_part<T>(part: T) -> Self {
        const { assert!(core::mem::size_of::<T>() <= core::mem::size_of::<Self>()) };
        const { assert!(core::mem::align_of::<T>() <= core::mem::align_of::<Self>()) };
        let mut this = Self::zeroed();
        // SAFETY: The storage is large and aligned enough for `T`, see above; this is only called
        // with the C structures below.
        unsafe { core::ptr::from_mut(&mut this.0).cast::<T>().write(part) };
        this
    }

    /// # Safety
    ///
    /// `T` must be the C structure of the address's family.
    unsafe fn part<T: Copy>(&self) -> T {
        // SAFETY: The storage is large and aligned enough, and by the safety requirements of this
        // function it holds a `T`.
        unsafe { core::ptr::from_ref(&self.0).cast::<T>().read() }
    }

    /// IPv4 address and port.
    pub fn v4(ip: [u8; 4], port: u16) -> Self {
        // SAFETY: All zeroes is a valid `sockaddr_in`.
        let mut sin: raw::sockaddr_in = unsafe { core::mem::zeroed() };
        sin.sin_family = AF_INET;
        sin.sin_port = port.to_be();
        sin.sin_addr.s_addr = u32::from_ne_bytes(ip);
        Self::from_part(sin)
    }

    /// IPv6 address, port and scope (interface index, or 0).
    pub fn v6(ip: [u8; 16], port: u16, scope: u32) -> Self {
        // SAFETY: All zeroes is a valid `sockaddr_in6`.
        let mut sin6: raw::sockaddr_in6 = unsafe { core::mem::zeroed() };
        sin6.sin6_family = AF_INET6;
        sin6.sin6_port = port.to_be();
        sin6.sin6_addr.in6_u.u6_addr8 = ip;
        sin6.sin6_scope_id = scope;
        Self::from_part(sin6)
    }

    /// Any address of any IP family, and port.
    pub fn any(port: u16) -> Self {
        Self::v6([0; 16], port, 0)
    }

    /// InfiniBand GID, with the service id of `port` in the IB port space,
    /// every partition.
    pub fn gid(gid: [u8; 16], port: u16) -> Self {
        // SAFETY: All zeroes is a valid `sockaddr_ib`.
        let mut sib: raw::sockaddr_ib = unsafe { core::mem::zeroed() };
        sib.sib_family = AF_IB;
        sib.sib_pkey = u16::MAX.to_be();
        sib.sib_addr.ib_u.uib_addr8 = gid;
        // The port stays unsigned, so that ports from 32768 leave the prefix intact.
        sib.sib_sid = (u64::from(raw::RDMA_IB_IP_PS_IB) | u64::from(port)).to_be();
        sib.sib_sid_mask = u64::MAX.to_be();
        Self::from_part(sib)
    }

    /// Copies a C `struct sockaddr`.
    ///
    /// # Errors
    ///
    /// `EAFNOSUPPORT` for any other family.
    ///
    /// # Safety
    ///
    /// `ptr` must point to an address with the full size of its family.
    pub unsafe fn from_raw(ptr: *const core::ffi::c_void) -> Result<Self> {
        // SAFETY: Every `sockaddr` starts with its family.
        let family = unsafe { ptr.cast::<u16>().read_unaligned() };
        // SAFETY: By the safety requirements of this function, the address has the size of its
        // family.
        unsafe {
            match family {
                AF_INET => {
                    let sin = ptr.cast::<raw::sockaddr_in>().read_unaligned();
                    Ok(Self::v4(
                        sin.sin_addr.s_addr.to_ne_bytes(),
                        u16::from_be(sin.sin_port),
                    ))
                }
                AF_INET6 => {
                    let sin6 = ptr.cast::<raw::sockaddr_in6>().read_unaligned();
                    Ok(Self::v6(
                        sin6.sin6_addr.in6_u.u6_addr8,
                        u16::from_be(sin6.sin6_port),
                        sin6.sin6_scope_id,
                    ))
                }
                AF_IB => Ok(Self::from_part(
                    ptr.cast::<raw::sockaddr_ib>().read_unaligned(),
                )),
                _ => Err(crate::errno::EAFNOSUPPORT),
            }
        }
    }

    /// Writes the address to a C `struct sockaddr_storage`.
    ///
    /// # Safety
    ///
    /// `ptr` must point to a writable `struct sockaddr_storage`.
    pub unsafe fn write_raw(&self, ptr: *mut core::ffi::c_void) {
        // SAFETY: By the safety requirements of this function, `ptr` is writable.
        unsafe {
            ptr.cast::<raw::__kernel_sockaddr_storage>()
                .write_unaligned(self.0)
        };
    }

    fn family(&self) -> u16 {
        // SAFETY: Every address starts with its family.
        unsafe { self.part::<u16>() }
    }

    /// Address bytes of an IPv4 address.
    pub fn as_v4(&self) -> Option<[u8; 4]> {
        (self.family() == AF_INET).then(|| {
            // SAFETY: The family is that of the structure.
            let sin: raw::sockaddr_in = unsafe { self.part() };
            sin.sin_addr.s_addr.to_ne_bytes()
        })
    }

    /// Whether it is any address of its family.
    pub fn is_any(&self) -> bool {
        self.as_v4().is_some_and(|ip| ip == [0; 4])
            || self.as_v6().is_some_and(|(ip, _)| ip == [0; 16])
            || self.as_gid().is_some_and(|gid| gid == [0; 16])
    }

    /// Address bytes and scope of an IPv6 address.
    pub fn as_v6(&self) -> Option<([u8; 16], u32)> {
        (self.family() == AF_INET6).then(|| {
            // SAFETY: The family is that of the structure; every bit pattern is an address.
            unsafe {
                let sin6: raw::sockaddr_in6 = self.part();
                (sin6.sin6_addr.in6_u.u6_addr8, sin6.sin6_scope_id)
            }
        })
    }

    /// GID of an InfiniBand address.
    pub fn as_gid(&self) -> Option<[u8; 16]> {
        (self.family() == AF_IB).then(|| {
            // SAFETY: The family is that of the structure; every bit pattern is a GID.
            unsafe {
                let sib: raw::sockaddr_ib = self.part();
                sib.sib_addr.ib_u.uib_addr8
            }
        })
    }

    /// Whether this is an InfiniBand address.
    pub(super) fn is_ib(&self) -> bool {
        self.family() == AF_IB
    }

    /// The port: of an IP address, or in the service id of an InfiniBand address.
    pub fn port(&self) -> u16 {
        match self.family() {
            // SAFETY: The family is that of the structure.
            AF_INET => u16::from_be(unsafe { self.part::<raw::sockaddr_in>() }.sin_port),
            // SAFETY: The family is that of the structure.
            AF_INET6 => u16::from_be(unsafe { self.part::<raw::sockaddr_in6>() }.sin6_port),
            // SAFETY: The family is that of the structure.
            // CAST: The port is in the last 16 bits of the id.
            AF_IB => u64::from_be(unsafe { self.part::<raw::sockaddr_ib>() }.sib_sid) as u16,
            _ => 0,
        }
    }

    pub(super) fn as_raw(&self) -> *const raw::sockaddr {
        core::ptr::from_ref(&self.0).cast()
    }

    /// # Safety
    ///
    /// `ptr` must be valid.
    pub(super) unsafe fn from_storage(ptr: *const raw::__kernel_sockaddr_storage) -> Self {
        // SAFETY: By the safety requirements of this function, `ptr` is valid.
        Self(unsafe { ptr.read() })
    }
}
