// SPDX-License-Identifier: GPL-2.0

//! Names of sessions.

use core::{
    ffi::CStr,
    fmt, //
};

use super::error::ProtoError;

/// The name of a session: a directory name in sysfs, a word in logs and uevents.
///
/// The user of the client chooses it. The server gets it over the wire and must not trust it, so it
/// is checked: it has 1 to 254 printable ASCII characters without blank, `/` and `.`.
///
/// # Invariants
///
/// The first `len` bytes of `buf` are such characters; all others are zero, and there is at least
/// one of those.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionName {
    buf: [u8; Self::FIELD_SIZE],
    len: u8,
}

impl SessionName {
    /// Size of the field in the message in bytes, the terminating NUL included.
    pub const FIELD_SIZE: usize = 255;

    /// Length of the longest name in bytes.
    pub const MAX_LEN: usize = Self::FIELD_SIZE - 1;

    /// Makes a name of these bytes, which have no NUL.
    ///
    /// # Errors
    ///
    /// [`ProtoError::Name`] if it is empty, is too long or has a forbidden character.
    pub fn new(name: &[u8]) -> Result<Self, ProtoError> {
        let forbidden = |c: &u8| !c.is_ascii_graphic() || matches!(c, b'/' | b'.');
        if name.is_empty() || name.len() > Self::MAX_LEN || name.iter().any(forbidden) {
            return Err(ProtoError::Name);
        }

        let mut buf = [0; Self::FIELD_SIZE];
        let dst = buf.get_mut(..name.len()).ok_or(ProtoError::Name)?;
        // PANIC: `dst` was cut to the length of `name`.
        dst.copy_from_slice(name);

        // INVARIANT: Checked above; `buf` was zero, and is longer than the longest name.
        Ok(Self {
            buf,
            len: u8::try_from(name.len()).map_err(|_| ProtoError::Name)?,
        })
    }

    /// Parses the name in a message field. Bytes after the terminating NUL are ignored.
    ///
    /// # Errors
    ///
    /// As [`SessionName::new`], and if there is no NUL.
    pub fn from_field(field: &[u8; Self::FIELD_SIZE]) -> Result<Self, ProtoError> {
        let len = field.iter().position(|&c| c == 0).ok_or(ProtoError::Name)?;

        Self::new(field.get(..len).ok_or(ProtoError::Name)?)
    }

    /// The message field with the name: its bytes, followed by zeroes.
    pub fn as_field(&self) -> &[u8; Self::FIELD_SIZE] {
        &self.buf
    }

    /// The name's bytes, without a NUL.
    pub fn as_bytes(&self) -> &[u8] {
        self.buf.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        // Printable ASCII is UTF-8, by the type invariant.
        core::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    /// The name as a C string.
    pub fn as_cstr(&self) -> &CStr {
        // There is a NUL in `buf`, by the type invariant.
        CStr::from_bytes_until_nul(&self.buf).unwrap_or_default()
    }
}

impl fmt::Display for SessionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for SessionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}
