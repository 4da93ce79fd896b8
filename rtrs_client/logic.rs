// SPDX-License-Identifier: GPL-2.0

//! The client's decisions, without the kernel: state machines, path choice, statistics.
//!
//! The same files are compiled into the module and into the host tests (`tests/host`). The crate
//! root declares `pub mod logic;` and provides `crate::atomic`.
//!
//! No function in here allocates, locks, sleeps or panics.

pub mod backoff;
pub mod creation;
pub mod devices;
pub mod epoch;
pub mod ewma;
pub mod fence;
pub mod hist;
pub mod link_events;
pub mod listen;
pub mod path_state;
pub mod policy;
pub mod polled;
pub mod restore;
pub mod rnbd;
pub mod silence;
pub mod spread;
pub mod trial;
pub mod turn;
pub mod unanswered;
