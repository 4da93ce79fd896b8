// SPDX-License-Identifier: GPL-2.0

//! UUIDs.
//!
//! C header: [`include/linux/uuid.h`](srctree/include/linux/uuid.h)

use core::fmt;

use crate::raw;

/// A UUID, with its bytes in the order in which they are printed and sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Uuid([u8; 16]);

impl Uuid {
    /// A random (version 4) UUID. Any context but NMI.
    pub fn random() -> Self {
        let mut uuid = raw::uuid_t { b: [0; 16] };
        // SAFETY: `uuid` is a local variable of the right type.
        unsafe { raw::uuid_gen(&mut uuid) };
        Self(uuid.b)
    }

    /// The UUID with these bytes, which may have any value.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl kernel::fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
