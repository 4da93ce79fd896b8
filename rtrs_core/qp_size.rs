// SPDX-License-Identifier: GPL-2.0

//! Sizes of queue pairs and completion queues.
//!
//! The sizes are a local decision. A peer relies only on enough posted receives: two per chunk on a
//! client's IO connection, one per chunk on a server's, [`SERVICE_QUEUE_DEPTH`] on both service
//! connections of the C implementation. If a device offers less, the sender waits, as both sides
//! retry for ever when the receiver is not ready. Send queues are guarded by exact accounting
//! (`bindings/ib/sendq.rs`), so a small queue leads to waiting, never to an overflow. A client that
//! has to invalidate a key itself while its queue is full gives the link up, which is unlikely with
//! the size that it asks for.

use crate::proto::{
    heartbeat::ANSWERS,
    ProtoError,
    SERVICE_QUEUE_DEPTH, //
};

/// The limits of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpLimits {
    /// The most work requests in one queue.
    pub max_qp_wr: u32,
    /// The most entries in one completion queue.
    pub max_cqe: u32,
    /// The most scatter-gather entries of one send.
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

/// Number of work requests that a queue needs for draining it.
const DRAIN: u32 = 1;

/// Number of work requests by which the queues of a service connection are larger for heartbeats and
/// their answers. They are not kept for those: other messages may take them.
const HEARTBEATS: u32 = 2 * ANSWERS;

/// Number of receives that are posted at a time. A queue has this many more than its peer relies
/// on, as up to one less than this number may be waiting to be posted.
pub const RECV_BATCH: u32 = 32;

/// The fewest work requests of a usable queue.
pub const MIN_WR: u32 = 16;

impl QpSize {
    /// Sizes for a service connection, of a client or a server.
    ///
    /// `extra_send` is the number of work requests beyond those for each receive credit: for the
    /// server, the registrations before the info answer, which are posted in batches of this size.
    ///
    /// # Errors
    ///
    /// See [`QpSize::clamped`].
    pub fn service(limits: &QpLimits, send_sge: u32, extra_send: u32) -> Result<Self, ProtoError> {
        let depth = u32::from(SERVICE_QUEUE_DEPTH);
        // Two per credit: registration and message each way, as in the C implementation.
        let base = depth.saturating_mul(2).saturating_add(HEARTBEATS);

        Self::clamped(
            limits,
            base.saturating_add(extra_send),
            base.saturating_add(RECV_BATCH),
            send_sge,
        )
    }

    /// Sizes for an IO connection of a client.
    ///
    /// `wr_per_req` is the typical number of send work requests of one request, registrations and
    /// invalidations included; larger requests simply take more of the queue. Those of up to `done`
    /// requests that were answered may still count as outstanding.
    ///
    /// # Errors
    ///
    /// See [`QpSize::clamped`].
    pub fn client_io(
        limits: &QpLimits,
        queue_depth: u16,
        done: u32,
        wr_per_req: u32,
        send_sge: u32,
    ) -> Result<Self, ProtoError> {
        let depth = u32::from(queue_depth);

        Self::clamped(
            limits,
            depth.saturating_add(done).saturating_mul(wr_per_req),
            // Each request may bring an invalidating send and an answer.
            depth.saturating_mul(2).saturating_add(RECV_BATCH),
            send_sge,
        )
    }

    /// Sizes for an IO connection of a server.
    ///
    /// `wr_per_rsp` is the largest number of send work requests from request to answer,
    /// registrations and invalidations included. The client counts on `counted_on` receives.
    ///
    /// # Errors
    ///
    /// See [`QpSize::clamped`].
    pub fn server_io(
        limits: &QpLimits,
        queue_depth: u16,
        counted_on: u32,
        wr_per_rsp: u32,
        send_sge: u32,
    ) -> Result<Self, ProtoError> {
        Self::clamped(
            limits,
            u32::from(queue_depth).saturating_mul(wr_per_rsp),
            counted_on.saturating_add(RECV_BATCH),
            send_sge,
        )
    }

    /// The requested sizes, plus one for draining, limited to what the device supports.
    ///
    /// Receives take precedence when the completion queue is too small for both.
    ///
    /// # Errors
    ///
    /// [`ProtoError::QueueDepth`] if fewer than [`MIN_WR`] are left for a queue, or the device has
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
