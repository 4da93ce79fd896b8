// SPDX-License-Identifier: GPL-2.0

//! Cases for `rtrs_core`, and for parts of `rtrs_bindings`: logic that needs no kernel.

pub(crate) mod addr;
pub(crate) mod flight;
pub(crate) mod geometry;
pub(crate) mod heartbeat;
pub(crate) mod imm;
pub(crate) mod messages;
pub(crate) mod withheld;
