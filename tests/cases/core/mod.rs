// SPDX-License-Identifier: GPL-2.0

//! Cases for `rtrs_core`: its logic that needs no kernel.

pub(crate) mod addr;
pub(crate) mod geometry;
pub(crate) mod heartbeat;
pub(crate) mod imm;
pub(crate) mod messages;
