// SPDX-License-Identifier: GPL-2.0

//! The server's decisions, without the kernel: use of chunks, admission of paths and names, states,
//! quotas, turns, waits, parameters.
//!
//! The same files are compiled into the module and into the host tests (`tests/host`). The crate
//! root declares `pub mod logic;` and provides `crate::atomic`.
//!
//! No function in here allocates, locks, sleeps or panics.

pub mod admission;
pub mod chunk_state;
pub mod lines;
pub mod linger;
pub mod listen;
pub mod path_state;
pub mod pending;
pub mod pile;
pub mod quota;
pub mod receives;
pub mod ring;
pub mod room;
pub mod source;
pub mod stage;
pub mod turn;
pub mod valve;
