// SPDX-License-Identifier: GPL-2.0
// error: E0382

//! The user is notified once.

use rtrs_bindings::loan::Loan;

/// Notifies the user.
pub fn end(loan: &mut Loan) {
    if let Some(callback) = loan.end() {
        callback.call(0);
        #[cfg(misuse)]
        callback.call(0);
    }
}
