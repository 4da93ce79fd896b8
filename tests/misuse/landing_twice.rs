// SPDX-License-Identifier: GPL-2.0
// error: E0382

//! Data is unmapped, and its loan given back, once.

use rtrs_bindings::{
    ib::{Handler, Landing},
    loan::Loan,
};

/// Gives the loan back.
pub fn give_back<H: Handler>(landing: Landing<'_, H>, loan: &mut Loan) {
    landing.give_back(loan);
    #[cfg(misuse)]
    landing.give_back(loan);
}
