// SPDX-License-Identifier: GPL-2.0

//! What an operator may change while a session is open: how paths are chosen, how fast their failure
//! is noticed, and how often they reconnect. The time that requests wait for a path is with those
//! that wait, see [`wait`](super::wait).
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
    logic::policy::Policy,
    params, //
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
    policy: Atomic<u32>,
    max_reconnect_attempts: Atomic<i32>,
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
    /// With the values of the module parameters, and this maximum of attempts to reconnect.
    pub(super) fn new(max_reconnect_attempts: i32) -> Self {
        Self {
            policy: Atomic::new(Policy::MinInflight.number()),
            max_reconnect_attempts: Atomic::new(max_reconnect_attempts),
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

    /// Returns the policy that chooses the path of a request.
    pub(crate) fn policy(&self) -> Policy {
        Policy::from_number(self.policy.load(Relaxed)).unwrap_or(Policy::MinInflight)
    }

    /// Sets the policy for later requests.
    pub(crate) fn set_policy(&self, policy: Policy) {
        self.policy.store(policy.number(), Relaxed);
    }

    /// Returns the maximum of attempts to reconnect in a row, -1 for no limit.
    pub(crate) fn max_reconnect_attempts(&self) -> i32 {
        self.max_reconnect_attempts.load(Relaxed)
    }

    /// Sets that maximum. Each path looks at it with its next event.
    pub(crate) fn set_max_reconnect_attempts(&self, attempts: i32) {
        self.max_reconnect_attempts.store(attempts, Relaxed);
    }
}
