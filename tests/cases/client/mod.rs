// SPDX-License-Identifier: GPL-2.0

//! Cases for `rtrs_client`: its logic that needs no kernel.

pub(crate) mod devices;
pub(crate) mod fence;
pub(crate) mod link_events;
pub(crate) mod listen;
pub(crate) mod path_state;
pub(crate) mod policy;
pub(crate) mod polled;
pub(crate) mod restore;
pub(crate) mod rnbd;
pub(crate) mod silence;
pub(crate) mod spread;
pub(crate) mod stats;
pub(crate) mod trial;
pub(crate) mod turn;
pub(crate) mod unanswered;
