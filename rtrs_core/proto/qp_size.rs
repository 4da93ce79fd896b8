// SPDX-License-Identifier: GPL-2.0

//! Sizes of queue pairs and completion queues.
//!
//! They are a local matter. All that a peer relies on is that enough receives are posted: two per
//! chunk on a client's IO connection, one per chunk on a server's, [`SERVICE_QUEUE_DEPTH`] on both
//! service connections of the C implementation. Where a device offers less the sender waits, as
//! both sides retry for ever when the receiver is not ready. Send queues are guarded by exact
//! accounting (`rtrs_bindings::ib::sendq`), so a small one costs waiting, never an overflow.

use super::{
    error::ProtoError,
    heartbeat::ANSWERS,
    SERVICE_QUEUE_DEPTH, //
};

/// What the device can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpLimits {
    /// Most work requests in one queue.
    pub max_qp_wr: u32,
    /// Most entries in one completion queue.
    pub max_cqe: u32,
    /// Most scatter-gather entries of one send.
    pub max_send_sge: u32,
}

/// Sizes of one connection's queues, in work requests and completion entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpSize {
    /// Send queue.
    pub send_wr: u32,
    /// Receive queue.
    pub recv_wr: u32,
    /// Scatter-gather entries of a send.
    pub send_sge: u32,
    /// Scatter-gather entries of a receive.
    pub recv_sge: u32,
    /// Completion queue: one entry for each work request of both queues.
    pub cqe: u32,
}

/// Work requests a drained queue needs for the drain itself.
const DRAIN: u32 = 1;

/// Work requests kept on a service connection for heartbeats and their answers.
const HEARTBEATS: u32 = 2 * ANSWERS;

/// Receives that are posted at a time, and that a queue has besides those which a peer counts on: so
/// many less one may be waiting to be posted.
pub const RECV_BATCH: u32 = 16;

/// Fewest work requests of a queue we can work with.
pub const MIN_WR: u32 = 16;

impl QpSize {
    /// Service connection, client or server.
    ///
    /// `extra_send` is what a side sends beyond one work request per receive credit: for the
    /// server the registrations in front of the info answer, posted in batches of this size.
    ///
    /// # Errors
    ///
    /// See [`QpSize::clamped`].
    pub fn service(limits: &QpLimits, send_sge: u32, extra_send: u32) -> Result<Self, ProtoError> {
        let depth = u32::from(SERVICE_QUEUE_DEPTH);
        // Two per credit: registration and message each way, as the C implementation has it.
        let base = depth.saturating_mul(2).saturating_add(HEARTBEATS);

        Self::clamped(
            limits,
            base.saturating_add(extra_send),
            base.saturating_add(RECV_BATCH),
            send_sge,
        )
    }

    /// IO connection of a client.
    ///
    /// `wr_per_req` is the typical number of send work requests of one request, registrations and
    /// invalidations included; larger requests simply take more of the queue.
    ///
    /// # Errors
    ///
    /// See [`QpSize::clamped`].
    pub fn client_io(
        limits: &QpLimits,
        queue_depth: u16,
        wr_per_req: u32,
        send_sge: u32,
    ) -> Result<Self, ProtoError> {
        let depth = u32::from(queue_depth);

        Self::clamped(
            limits,
            depth.saturating_mul(wr_per_req),
            // An invalidating send and an answer may come for each request.
            depth.saturating_mul(2).saturating_add(RECV_BATCH),
            send_sge,
        )
    }

    /// IO connection of a server.
    ///
    /// `wr_per_rsp` is the largest number of send work requests from request to answer,
    /// registrations and invalidations included.
    ///
    /// # Errors
    ///
    /// See [`QpSize::clamped`].
    pub fn server_io(
        limits: &QpLimits,
        queue_depth: u16,
        wr_per_rsp: u32,
        send_sge: u32,
    ) -> Result<Self, ProtoError> {
        let depth = u32::from(queue_depth);

        Self::clamped(
            limits,
            depth.saturating_mul(wr_per_rsp),
            depth.saturating_add(RECV_BATCH),
            send_sge,
        )
    }

    /// The sizes asked for, and one more for draining, cut to what the device can do.
    ///
    /// Receives go first when the completion queue is too small for both.
    ///
    /// # Errors
    ///
    /// [`ProtoError::QueueDepth`] if less than [`MIN_WR`] is left of a queue, or the device has
    /// no scatter-gather entries.
    pub fn clamped(
        limits: &QpLimits,
        send_wr: u32,
        recv_wr: u32,
        send_sge: u32,
    ) -> Result<Self, ProtoError> {
        let recv_wr = recv_wr
            .max(MIN_WR)
            .saturating_add(DRAIN)
            .min(limits.max_qp_wr)
            .min(limits.max_cqe / 2);
        let send_wr = send_wr
            .max(MIN_WR)
            .saturating_add(DRAIN)
            .min(limits.max_qp_wr)
            .min(limits.max_cqe.saturating_sub(recv_wr));
        let send_sge = send_sge.min(limits.max_send_sge);

        if send_wr < MIN_WR || recv_wr < MIN_WR || send_sge == 0 {
            return Err(ProtoError::QueueDepth);
        }
        Ok(Self {
            send_wr,
            recv_wr,
            send_sge,
            recv_sge: 1,
            // No overflow: at most `max_cqe`.
            cqe: send_wr.saturating_add(recv_wr),
        })
    }
}
