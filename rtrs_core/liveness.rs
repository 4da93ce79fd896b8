// SPDX-License-Identifier: GPL-2.0

//! Heartbeats on the wire: empty RDMA writes on the service connection. The immediate value is the
//! message.
//!
//! # Context
//!
//! Any.

use rtrs_bindings::{
    ib::{
        Chain,
        PostError,
        QueuePair,
        Remote,
        NO_SGES, //
    },
    time::now_ns,
};

use crate::proto::{
    heartbeat::{
        Asked,
        Liveness, //
    },
    Imm, //
};

fn post(qp: &QueuePair, imm: Imm, token: Option<u32>) -> Result<(), PostError> {
    let imm = imm.encode().map_err(|_| PostError::Invalid)?;

    Chain::<1>::new(qp)
        .rdma_write_imm(&NO_SGES, Remote::default(), imm)
        .post(token)
}

/// Filters out errors that do not matter: the rules of [`Heartbeat`](crate::proto::heartbeat::Heartbeat)
/// count a full queue as a heartbeat without an answer, and a closed queue is already being handled.
fn serious(e: PostError) -> Result<(), PostError> {
    match e {
        PostError::Full | PostError::Closed => Ok(()),
        e => Err(e),
    }
}

impl Liveness {
    /// Sends a heartbeat, unless one is on its way. If there is no room for it, the next tick tries
    /// again.
    ///
    /// # Errors
    ///
    /// The connection is no longer usable.
    pub fn send(&self, qp: &QueuePair) -> Result<(), PostError> {
        // Must be recorded before posting, as the answer may arrive right after it.
        if !self.probe().begin(now_ns()) {
            return Ok(());
        }
        self.post_heartbeat(qp, Asked::First)
    }

    /// Sends a heartbeat even if one is on its way, as that one may be lost, see
    /// [`HbProbe::begin_again`](crate::proto::heartbeat::HbProbe::begin_again).
    ///
    /// # Errors
    ///
    /// As [`Liveness::send`].
    pub fn ask(&self, qp: &QueuePair) -> Result<(), PostError> {
        match self.probe().begin_again(now_ns()) {
            Asked::No => Ok(()),
            asked => self.post_heartbeat(qp, asked),
        }
    }

    fn post_heartbeat(&self, qp: &QueuePair, asked: Asked) -> Result<(), PostError> {
        post(qp, Imm::Hb, None).or_else(|e| {
            self.probe().take_back(asked);
            serious(e)
        })
    }

    /// Answers a heartbeat. The completion of send `token` must call [`Liveness::end_ack`].
    ///
    /// # Errors
    ///
    /// As [`Liveness::send`].
    pub fn ack(&self, qp: &QueuePair, token: u32) -> Result<(), PostError> {
        if !self.begin_ack() {
            return Ok(());
        }
        post(qp, Imm::HbAck, Some(token)).or_else(|e| {
            self.end_ack();
            serious(e)
        })
    }

    /// Handles an answer. Returns the round trip in nanoseconds, if a heartbeat was waiting for it.
    pub fn acked(&self) -> Option<u64> {
        self.probe().ack(now_ns())
    }
}
