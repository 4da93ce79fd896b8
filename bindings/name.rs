// SPDX-License-Identifier: GPL-2.0

//! Short names that the kernel may change at any time, as they were when they were asked for.

/// A copy of a name of less than `N` bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Name<const N: usize>([u8; N]);

impl<const N: usize> Name<N> {
    /// The name that `copy` writes to the room it gets, with a zero behind it.
    pub(crate) fn copied(copy: impl FnOnce(&mut [u8; N])) -> Self {
        let mut name = [0; N];

        copy(&mut name);
        // What follows the end says nothing, and is not to be compared.
        let end = name.iter().position(|b| *b == 0).unwrap_or(0);
        if let Some(rest) = name.get_mut(end..) {
            rest.fill(0);
        }
        Self(name)
    }

    /// The name, empty if it is no text.
    pub fn as_str(&self) -> &str {
        let end = self.0.iter().position(|b| *b == 0).unwrap_or(0);

        self.0
            .get(..end)
            .and_then(|name| core::str::from_utf8(name).ok())
            .unwrap_or("")
    }
}
