// SPDX-License-Identifier: GPL-2.0
// error: E0382

//! The data of a request has one owner.

use rtrs_bindings::loan::Loan;

/// Forgets it.
pub fn end(loan: Loan) {
    drop(loan);
    #[cfg(misuse)]
    drop(loan);
}
