// SPDX-License-Identifier: GPL-2.0

//! Heartbeats on the wire: RDMA writes of nothing, on the service connection, whose immediate
//! value says it all.
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

/// What failed for good: a full queue is a sign of traffic, a closed one that somebody knows.
fn serious(e: PostError) -> Result<(), PostError> {
    match e {
        PostError::Full | PostError::Closed => Ok(()),
        e => Err(e),
    }
}

impl Liveness {
    /// Sends a heartbeat, unless one is on its way. If there is no room for it the next tick tries
    /// again.
    ///
    /// # Errors
    ///
    /// The connection is of no use any more.
    pub fn send(&self, qp: &QueuePair) -> Result<(), PostError> {
        // Before: the answer may be faster than what follows the posting.
        if !self.probe().begin(now_ns()) {
            return Ok(());
        }
        self.post_heartbeat(qp, Asked::First)
    }

    /// Sends a heartbeat, also if one is on its way that may be lost, see
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

    /// Answers a heartbeat. The completion of send `token` has to tell [`Liveness::end_ack`].
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

    /// An answer came: the round trip in nanoseconds, if there was a heartbeat to answer.
    pub fn acked(&self) -> Option<u64> {
        self.probe().ack(now_ns())
    }
}
