// SPDX-License-Identifier: GPL-2.0

//! Answers in.
//!
//! # Context
//!
//! Softirq. Completions of one connection run one after the other, those of
//! different connections in parallel; what a request waits for all comes on the
//! connection it went out on.
//!
//! # Trust
//!
//! An answer is believed if the request is in flight on the connection the
//! answer came on. That the server gave a key back is believed if the device
//! says that it was invalidated; otherwise we invalidate it ourselves. All else
//! that arrives is a violation, and the end of the link.

use kernel::prelude::*;
use rtrs_bindings::{
    errno,
    ib::{
        Chain,
        CmEvent,
        Endpoint,
        Handler,
        Locked,
        PostError,
        QueuePair,
        Wc,
        WcOpcode,
        WcStatus, //
    },
    ratelimit::pr_err_ratelimited,
    time,
};
use rtrs_core::proto::{
    Imm,
    RkeyRsp, //
};

use super::{
    ack_token,
    LinkCore,
    Request,
    INFO_TOKEN,
    RECV_SIZE, //
};
use crate::{
    atomic::Relaxed,
    logic::request_state::{
        Gen,
        Outcome,
        Violation, //
    },
    path::Notice,
    stats::dir_index,
    trace,
};

/// What is wrong with a message.
struct Bad(&'static str);

impl From<Violation> for Bad {
    fn from(v: Violation) -> Self {
        Self(v.as_str())
    }
}

impl Handler for LinkCore {
    fn cm_event(&self, ep: Locked<'_, Self>, event: CmEvent<'_>) {
        self.handle_cm_event(&ep, event);
    }

    #[inline]
    fn found(&self, position: u32) {
        self.path.stats().polls.found(position);
    }

    fn send_done(&self, ep: &Endpoint<Self>, _: &QueuePair, token: Option<u32>, wc: &Wc) {
        if !wc.status().is_ok() {
            return self.completion_failed(ep, wc, "send");
        }
        let (Some(token), Some(tables)) = (token, self.tables.as_ref()) else {
            return;
        };
        // Tokens: sends of the permits, then invalidations of the permits, then one for answers
        // to heartbeats.
        let depth = tables.requests.len();
        let token = token as usize;
        let (id, is_send) = if token < depth {
            (token, true)
        } else {
            (token - depth, false)
        };
        if id == depth {
            return self.liveness.end_ack();
        }
        let Some(request) = tables.requests.get(id) else {
            return;
        };
        let outcome = if is_send {
            request
                .state
                .sent(Gen::from_u32(request.sent_gen.load(Relaxed)))
        } else {
            request
                .state
                .invalidated(Gen::from_u32(request.inval_gen.load(Relaxed)))
        };
        self.after(ep, id, request, outcome);
    }

    fn recv_done(&self, ep: &Endpoint<Self>, qp: &QueuePair, token: u32, wc: &Wc) {
        if !wc.status().is_ok() {
            return self.completion_failed(ep, wc, "receive");
        }
        self.liveness.received(ep.index());
        match self.received(ep, qp, token, wc) {
            Ok(()) => {}
            Err(Bad(what)) => {
                trace::violation(self, ep.index(), what);
                // The first one is the reason; what follows has no meaning any more.
                if !self.has_failed() {
                    pr_err_ratelimited!("{}: violation by the server: {}\n", &*self.path, what);
                }
                self.fail("violation by the server", errno::EPROTO.to_errno());
            }
        }
    }
}

impl LinkCore {
    fn completion_failed(&self, ep: &Endpoint<Self>, wc: &Wc, what: &'static str) {
        // Flushed requests follow what was noticed before.
        if wc.status() != WcStatus::FLUSHED && !self.has_failed() {
            pr_err_ratelimited!(
                "{}: connection {}: {}: {}\n",
                &*self.path,
                ep.index(),
                what,
                wc.status().message()
            );
        }
        self.fail("error completion", errno::ECONNRESET.to_errno());
    }

    /// The CPU that should handle the completions of a connection; the service
    /// connection and those that are polled belong to none.
    pub(super) fn cpu_of(&self, con: u16) -> Option<u32> {
        if self.is_polled(con) {
            return None;
        }
        u32::from(con).checked_sub(1)
    }

    fn received(
        &self,
        ep: &Endpoint<Self>,
        qp: &QueuePair,
        token: u32,
        wc: &Wc,
    ) -> Result<(), Bad> {
        let con = ep.index();
        let state = self.cons.get(usize::from(con)).ok_or(Bad("connection"))?;

        if con == 0 && token == INFO_TOKEN {
            if wc.opcode() != WcOpcode::Recv || wc.imm().is_some() {
                return Err(Bad("no answer with chunks"));
            }
            self.path.notify(Notice::Info {
                link: self.number,
                len: wc.byte_len(),
            });
            return Ok(());
        }

        match (wc.opcode(), wc.imm()) {
            (WcOpcode::RecvRdmaWithImm, Some(imm)) => {
                match Imm::decode(imm).map_err(|e| Bad(e.as_str()))? {
                    Imm::Hb if con == 0 => {
                        let geometry = self.geometry().ok_or(Bad("too early"))?;
                        if let Err(e) = self.liveness.ack(qp, ack_token(geometry)) {
                            self.fail("answering a heartbeat", Error::from(e).to_errno());
                        }
                    }
                    Imm::HbAck if con == 0 => {
                        if let Some(ns) = self.liveness.acked() {
                            self.path.heartbeat_took(ns);
                        }
                    }
                    Imm::IoRsp {
                        msg_id,
                        errno,
                        inval,
                    } if !self.new_rkey.load(Relaxed) => {
                        self.answered(ep, qp, msg_id, errno.to_kernel(), inval)?;
                    }
                    _ => return Err(Bad("immediate out of place")),
                }
            }
            (WcOpcode::Recv, Some(imm)) if self.new_rkey.load(Relaxed) => {
                let Imm::IoRsp {
                    msg_id,
                    errno,
                    inval,
                } = Imm::decode(imm).map_err(|e| Bad(e.as_str()))?
                else {
                    return Err(Bad("immediate out of place"));
                };
                self.new_key(con, token, msg_id, wc)?;
                self.answered(ep, qp, msg_id, errno.to_kernel(), inval)?;
            }
            (WcOpcode::Recv, None) => {
                // Comes before the answer it belongs to.
                let rkey = wc.invalidated_rkey().ok_or(Bad("message out of place"))?;
                state.invalidated.store(rkey, Relaxed);
                state.invalidated_ns.store(time::now_ns(), Relaxed);
            }
            _ => return Err(Bad("message out of place")),
        }

        match qp.post_recv_again(token) {
            Ok(()) | Err(PostError::Closed) => (),
            // The server would wait for it for ever.
            Err(e) => self.fail("posting a receive", Error::from(e).to_errno()),
        }
        Ok(())
    }

    /// The answer has the chunk's new key with it.
    fn new_key(&self, con: u16, token: u32, msg_id: u32, wc: &Wc) -> Result<(), Bad> {
        let tables = self.tables.as_ref().ok_or(Bad("too early"))?;
        if wc.byte_len() != RECV_SIZE {
            return Err(Bad("length of an answer"));
        }
        let mut buf = [0u8; RECV_SIZE];
        tables
            .recv
            .get(usize::from(con))
            .ok_or(Bad("connection"))?
            .read(token as usize * RECV_SIZE, &mut buf)
            .map_err(|_| Bad("receive"))?;
        let rsp = RkeyRsp::parse(&buf).map_err(|e| Bad(e.as_str()))?;
        if u32::from(rsp.buf_id) != msg_id {
            return Err(Bad("key of another chunk"));
        }
        let chunk = tables
            .chunks
            .get(usize::from(rsp.buf_id))
            .ok_or(Bad("no such chunk"))?;
        // Before the request is completed, and its permit used again.
        chunk.rkey.store(rsp.rkey, Relaxed);
        Ok(())
    }

    /// The server says that request `msg_id` is done.
    fn answered(
        &self,
        ep: &Endpoint<Self>,
        qp: &QueuePair,
        msg_id: u32,
        result: i32,
        inval: bool,
    ) -> Result<(), Bad> {
        let tables = self.tables.as_ref().ok_or(Bad("too early"))?;
        let id = msg_id as usize;
        let request = tables.requests.get(id).ok_or(Bad("no such request"))?;
        let con = ep.index();
        let state = self.cons.get(usize::from(con)).ok_or(Bad("connection"))?;
        // It says something about the very next answer only, and about a request that was there by
        // then: keys come again, and a connection may have no answers for long. Completions of
        // one connection are handled one at a time.
        let invalidated = state.invalidated.load(Relaxed);
        if invalidated != 0 {
            state.invalidated.store(0, Relaxed);
            if inval
                && invalidated == request.rkey.load(Relaxed)
                && request.stamp.is_before(state.invalidated_ns.load(Relaxed))
            {
                // A refusal shows in what the answer leaves to be done.
                let _ = request.state.invalidated_by_peer(con);
            }
        }
        trace::response(self, con, msg_id, result, inval);
        let outcome = request.state.response(con, result);
        if let Outcome::Violation(v) = outcome {
            return Err(v.into());
        }
        // The answer is there and the key is not back: take it back.
        if let Outcome::Pending(needs) = outcome {
            if needs.needs_invalidated() {
                if let Some(in_flight) = request.state.peek() {
                    request.inval_gen.store(in_flight.gen.as_u32(), Relaxed);
                }
                let token = id.saturating_add(tables.requests.len());
                let mut chain = Chain::<1>::new(qp);
                chain.local_inv(request.rkey.load(Relaxed));
                // CAST: twice the queue depth.
                if let Err(e) = chain.post(Some(token as u32)) {
                    // The request is looked after when the link is torn down.
                    self.fail("invalidating a key", Error::from(e).to_errno());
                }
            }
        }
        self.after(ep, id, request, outcome);
        Ok(())
    }

    /// Completes the request if that was the last thing it waited for.
    fn after(&self, ep: &Endpoint<Self>, id: usize, request: &Request, outcome: Outcome) {
        let Outcome::Complete(result) = outcome else {
            return;
        };
        request.mapped.undo();
        self.count_inflight(ep.index(), -1);
        let now = time::now_ns();
        let (dir, ns) = request.stamp.get(now);
        self.path
            .stats()
            .completed(dir, ns, now, self.cpu_of(ep.index()));
        trace::complete(self, ep.index(), id, dir_index(dir), result, ns);
        // CAST: a permit's number.
        self.path.session().complete(id as u16, result);
    }

    /// Requests that were in flight when the link ended. For when it is quiet: nothing else
    /// touches the requests any more.
    ///
    /// `f` gets the number of each, and its result if the server had answered.
    pub(crate) fn for_each_left(&self, f: impl Fn(u16, Option<i32>)) {
        let Some(tables) = self.tables.as_ref() else {
            return;
        };
        for (id, request) in tables.requests.iter().enumerate() {
            if let Some(left) = request.state.take_for_failover() {
                request.mapped.undo();
                self.count_inflight(left.con, -1);
                trace::failover(self, left.con, id, !left.needs.needs_response());
                let result = (!left.needs.needs_response()).then_some(left.result);
                // CAST: a permit's number.
                f(id as u16, result);
            }
        }
    }
}
