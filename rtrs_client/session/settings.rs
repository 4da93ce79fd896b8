// SPDX-License-Identifier: GPL-2.0

//! How fast the failure of a path is noticed.
//!
//! # Context
//!
//! Any. The values are independent, so plain loads and stores suffice.

use core::ops::RangeInclusive;

use kernel::prelude::*;

use crate::{
    atomic::{
        Atomic,
        Relaxed, //
    },
    params,
};

/// A number with bounds that the operator may change at any time.
pub(crate) struct Tunable {
    value: Atomic<u32>,
    range: &'static RangeInclusive<u32>,
}

impl Tunable {
    fn new(value: u32, range: &'static RangeInclusive<u32>) -> Self {
        Self {
            value: Atomic::new(value.clamp(*range.start(), *range.end())),
            range,
        }
    }

    /// Returns the number.
    pub(crate) fn get(&self) -> u32 {
        self.value.load(Relaxed)
    }

    /// Changes the number.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is out of bounds.
    pub(crate) fn set(&self, value: u32) -> Result {
        if !self.range.contains(&value) {
            return Err(EINVAL);
        }
        self.value.store(value, Relaxed);
        Ok(())
    }
}

/// The settings of a session.
pub(crate) struct Settings {
    /// Milliseconds between heartbeats; applies from the next heartbeat on.
    pub(crate) heartbeat_interval_ms: Tunable,
    /// Heartbeat intervals without a sign of life after which a path is dead.
    pub(crate) heartbeat_limit: Tunable,
    /// Milliseconds that a path with waiting requests may be silent for, while other paths of the
    /// session are not.
    pub(crate) silent_path_ms: Tunable,
    /// Milliseconds after which a link is given up if requests wait there and none is answered; 0
    /// for never. Checked with each heartbeat.
    pub(crate) request_timeout_ms: Tunable,
    /// Time until an unacknowledged packet is sent again, as the exponent of the IB specification:
    /// 4.096 us * 2^n. 0 leaves it to the connection manager. Applies to connections made from then
    /// on.
    pub(crate) ack_timeout: Tunable,
}

impl Settings {
    /// With the values of the module parameters.
    pub(super) fn from_params() -> Self {
        Self {
            heartbeat_interval_ms: Tunable::new(
                params::heartbeat_interval_ms(),
                &params::INTERVAL_MS,
            ),
            heartbeat_limit: Tunable::new(params::heartbeat_limit(), &params::LIMIT),
            silent_path_ms: Tunable::new(params::silent_path_ms(), &params::SILENT_MS),
            request_timeout_ms: Tunable::new(params::request_timeout_ms(), &params::REQUEST_MS),
            ack_timeout: Tunable::new(params::ack_timeout(), &params::ACK_TIMEOUT_EXPONENT),
        }
    }
}
