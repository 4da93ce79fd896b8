// SPDX-License-Identifier: GPL-2.0

//! Values of crates that know nothing of the kernel, in kernel log lines.

use core::fmt;

/// Displays what is in it.
pub(crate) struct Show<T>(pub(crate) T);

impl<T: fmt::Display> kernel::fmt::Display for Show<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
