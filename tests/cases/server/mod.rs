// SPDX-License-Identifier: GPL-2.0

//! Cases for `rtrs_server`: its logic that needs no kernel.

pub(crate) mod decisions;
pub(crate) mod linger;
pub(crate) mod names;
pub(crate) mod pending;
pub(crate) mod receives;
pub(crate) mod shares;
pub(crate) mod stage;
pub(crate) mod turn;
