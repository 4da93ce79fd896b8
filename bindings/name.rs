// SPDX-License-Identifier: GPL-2.0

//! Copies of short names that the kernel may change at any time.

/// A copy of a name of less than `N` bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Name<const N: usize>([u8; N]);

impl<const N: usize> Name<N> {
    /// Makes a name from the zero-terminated text that `copy` writes to its buffer.
    pub(crate) fn copied(copy: impl FnOnce(&mut [u8; N])) -> Self {
        let mut name = [0; N];

        copy(&mut name);
        // Bytes after the end have no meaning, and must not influence comparisons.
        let end = name.iter().position(|b| *b == 0).unwrap_or(0);
        if let Some(rest) = name.get_mut(end..) {
            rest.fill(0);
        }
        Self(name)
    }

    /// The name; empty if it is not valid UTF-8.
    pub fn as_str(&self) -> &str {
        let end = self.0.iter().position(|b| *b == 0).unwrap_or(0);

        self.0
            .get(..end)
            .and_then(|name| core::str::from_utf8(name).ok())
            .unwrap_or("")
    }
}
