// SPDX-License-Identifier: GPL-2.0

//! How fast the failure of a path is noticed.
//!
//! # Context
//!
//! Any. The values are independent, so plain loads and stores suffice.

use core::ops::RangeInclusive;

use kernel::prelude::*;
use rtrs_core::proto::heartbeat;

use crate::atomic::{
    Atomic,
    Relaxed, //
};

/// A number with bounds that the operator may change at any time.
pub(crate) struct Knob {
    value: Atomic<u32>,
    range: &'static RangeInclusive<u32>,
}

impl Knob {
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

/// The tuning of a session.
pub(crate) struct Tuning {
    /// Milliseconds between heartbeats; applies from the next heartbeat on.
    pub(crate) heartbeat_interval_ms: Knob,
    /// Heartbeat intervals without a sign of life after which a path is dead.
    pub(crate) heartbeat_limit: Knob,
    /// Milliseconds that a path with waiting requests may be silent for, while other paths of the
    /// session are not.
    pub(crate) silent_path_ms: Knob,
    /// Milliseconds after which a link is given up if requests wait there and none is answered; 0
    /// for never. Checked with each heartbeat.
    pub(crate) request_timeout_ms: Knob,
    /// Time until an unacknowledged packet is sent again, as the exponent of the IB specification:
    /// 4.096 us * 2^n. 0 leaves it to the connection manager. Applies to connections made from then
    /// on.
    pub(crate) ack_timeout: Knob,
}

impl Tuning {
    /// Bounds of the heartbeat interval, in milliseconds.
    pub(crate) const INTERVAL_MS: RangeInclusive<u32> = 100..=60_000;
    /// Bounds of the heartbeat limit.
    pub(crate) const LIMIT: RangeInclusive<u32> = 1..=100;
    /// Bounds of the time that a path may be silent for, in milliseconds.
    pub(crate) const SILENT_MS: RangeInclusive<u32> = 100..=60_000;
    /// Bounds of the time that requests may wait without an answer, in milliseconds.
    pub(crate) const REQUEST_MS: RangeInclusive<u32> = 0..=3_600_000;
    /// Bounds of the ack time-out: the field of the specification has 5 bits.
    pub(crate) const ACK_TIMEOUT: RangeInclusive<u32> = 0..=31;

    /// With the values of the module parameters.
    pub(super) fn from_params() -> Self {
        Self {
            heartbeat_interval_ms: Knob::new(
                crate::params::heartbeat_interval_ms(),
                &Self::INTERVAL_MS,
            ),
            heartbeat_limit: Knob::new(crate::params::heartbeat_limit(), &Self::LIMIT),
            silent_path_ms: Knob::new(crate::params::silent_path_ms(), &Self::SILENT_MS),
            request_timeout_ms: Knob::new(crate::params::request_timeout_ms(), &Self::REQUEST_MS),
            ack_timeout: Knob::new(crate::params::ack_timeout(), &Self::ACK_TIMEOUT),
        }
    }
}

const _: () = assert!(
    heartbeat::DEFAULT_INTERVAL_MS >= *Tuning::INTERVAL_MS.start()
        && heartbeat::DEFAULT_INTERVAL_MS <= *Tuning::INTERVAL_MS.end()
);
