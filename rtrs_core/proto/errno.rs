// SPDX-License-Identifier: GPL-2.0

//! Error numbers as they travel on the wire.
//!
//! Two fields carry one: the 9-bit field of an IO answer and the 16-bit field of a reject. The
//! numbers are those of the generic Linux ABI, on every architecture that is known to run RTRS.

/// Operation not permitted.
pub const EPERM: i32 = 1;
/// No such file or directory.
pub const ENOENT: i32 = 2;
/// I/O error; also replaces errors that cannot be expressed on the wire.
pub const EIO: i32 = 5;
/// No such device or address.
pub const ENXIO: i32 = 6;
/// Try again.
pub const EAGAIN: i32 = 11;
/// Out of memory.
pub const ENOMEM: i32 = 12;
/// Device or resource busy.
pub const EBUSY: i32 = 16;
/// Exists already.
pub const EEXIST: i32 = 17;
/// No such device.
pub const ENODEV: i32 = 19;
/// Invalid argument.
pub const EINVAL: i32 = 22;
/// Protocol error.
pub const EPROTO: i32 = 71;
/// Message too long.
pub const EMSGSIZE: i32 = 90;
/// Operation not supported.
pub const EOPNOTSUPP: i32 = 95;
/// Software caused connection abort.
pub const ECONNABORTED: i32 = 103;
/// Connection reset by peer.
pub const ECONNRESET: i32 = 104;
/// Not connected.
pub const ENOTCONN: i32 = 107;
/// Timed out.
pub const ETIMEDOUT: i32 = 110;
/// Too many users: a quota of the server is used up.
pub const EUSERS: i32 = 87;

/// Interrupted system call.
const EINTR: i32 = 4;
/// Not a typewriter.
const ENOTTY: i32 = 25;
/// Stale handle.
const ESTALE: i32 = 116;

/// Largest errno the kernel uses in an error pointer or return value.
const MAX_ERRNO: i32 = 4095;

/// The result field of an IO answer: success, or an errno that fits 9 bits.
///
/// # Invariants
///
/// The value is in 0..=511; only 0 means success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IoErrno(u16);

impl IoErrno {
    /// Width of the field in bits.
    pub const BITS: u32 = 9;

    /// Largest value of the field.
    pub const MAX: u16 = (1 << Self::BITS) - 1;

    /// The request succeeded.
    // INVARIANT: 0 is success.
    pub const SUCCESS: Self = Self(0);

    /// Converts the kernel-style result `ret`: 0, or a negative errno.
    ///
    /// Numbers that need more than 9 bits are internal to the kernel and are replaced by the public
    /// errno of the same meaning; all others, and a positive `ret`, which is a bug of the caller,
    /// become `EIO`. An error never turns into success.
    pub const fn from_kernel(ret: i32) -> Self {
        if ret == 0 {
            return Self::SUCCESS;
        }

        let errno = match ret.checked_neg() {
            Some(errno @ 1..=511) => errno,
            // ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND, ERESTART_RESTARTBLOCK.
            Some(512..=514 | 516) => EINTR,
            // ENOIOCTLCMD.
            Some(515) => ENOTTY,
            // EPROBE_DEFER, EJUKEBOX.
            Some(517 | 528) => EAGAIN,
            // EOPENSTALE, EBADHANDLE.
            Some(518 | 521) => ESTALE,
            // ENOPARAM, ETOOSMALL.
            Some(519 | 525) => EINVAL,
            // ENOTSUPP.
            Some(524) => EOPNOTSUPP,
            _ => EIO,
        };

        // INVARIANT: All numbers above are in 1..=511.
        // CAST: All numbers above fit 16 bits.
        Self(errno as u16)
    }

    /// Converts the low 9 bits of `field`.
    pub(super) const fn from_field(field: u32) -> Self {
        // INVARIANT, CAST: Masked to 9 bits.
        Self((field & Self::MAX as u32) as u16)
    }

    /// The field of the immediate value.
    pub const fn to_field(self) -> u32 {
        self.0 as u32
    }

    /// The kernel-style result: 0 or a negative errno.
    pub const fn to_kernel(self) -> i32 {
        -(self.0 as i32)
    }

    /// Whether the request succeeded.
    pub const fn is_success(self) -> bool {
        self.0 == 0
    }
}

/// The reason why a connection was refused: always an error.
///
/// # Invariants
///
/// The value is in 1..=4095.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RejectErrno(u16);

impl RejectErrno {
    /// The peer gave no usable reason.
    // INVARIANT: In 1..=4095.
    pub const CONNRESET: Self = Self(ECONNRESET as u16);

    /// Converts the kernel-style error `ret`, a negative errno.
    ///
    /// Zero and positive numbers are not errors and become `ECONNRESET`: a reject must never
    /// look like an established connection to the code that waits for the outcome.
    pub const fn from_kernel(ret: i32) -> Self {
        match ret.checked_neg() {
            // INVARIANT, CAST: The pattern matches 1..=4095 only.
            Some(errno @ 1..=MAX_ERRNO) => Self(errno as u16),
            _ => Self::CONNRESET,
        }
    }

    /// Converts the errno field of a reject message, a negative number.
    ///
    /// Numbers that are internal to the kernel are replaced as in an answer: they would make the
    /// code that waits for the outcome misbehave, for instance start again.
    pub const fn from_field(field: u16) -> Self {
        // CAST: The field is two's complement.
        match field as i16 as i32 {
            ret @ ..=-1 => Self::from_kernel(IoErrno::from_kernel(ret).to_kernel()),
            _ => Self::CONNRESET,
        }
    }

    /// The field of a reject message.
    pub const fn to_field(self) -> u16 {
        // CAST: Two's complement of a number that fits 15 bits.
        (-(self.0 as i16)) as u16
    }

    /// The negative errno.
    pub const fn to_kernel(self) -> i32 {
        -(self.0 as i32)
    }
}
