// SPDX-License-Identifier: GPL-2.0

//! Handling of answers.
//!
//! # Context
//!
//! Softirq, or a task with softirqs disabled. Receives of one connection are handled one after the
//! other, and so are its sends; those of different connections in parallel. All completions of a
//! request come on the connection that it was sent on.
//!
//! # Trust
//!
//! An answer is accepted if the request is in flight on the connection that the answer came on. The
//! invalidation of a key by the server is accepted if the device reports it; otherwise the client
//! invalidates the key itself. All other messages are violations and end the link.

use kernel::{
    cpu::CpuId,
    prelude::*, //
};
use rtrs_bindings::{
    errno,
    ib::{
        self,
        AnswerError,
        CmEvent,
        Endpoint,
        Flight,
        Handler,
        Landing,
        Locked,
        Outcome,
        Polled,
        PostError,
        QueuePair,
        Receiving,
        Success,
        Wc,
        WcOpcode,
        WcStatus, //
    },
    ratelimit::pr_err_ratelimited,
    time,
};
use rtrs_core::proto::{
    geometry::SEGMENT_SIZE,
    next_key_number,
    next_rkey,
    returned_of,
    success_number,
    success_of,
    DataDir,
    Imm,
    RkeyRsp, //
};

use super::{
    left::counts_as,
    LinkCore,
    LinkIo,
    Ready,
    ACK_TOKEN,
    INFO_TOKEN,
    RECV_SIZE, //
};
use crate::{
    atomic::Relaxed,
    logic::path_state::Failure,
    session::complete,
    trace, //
};

/// What a receive was, if that is found out in a short way.
enum Arrived<'a> {
    /// The last event of a request.
    Over(&'a Ready, Landing<'a, LinkCore>),
    /// A message after which something else has to come. It was noted, and the request may be over by
    /// now.
    Noted,
    /// Nothing was done.
    Else,
}

/// What a message or answer of the server violates. Ends the connection.
struct Violation(&'static str);

impl From<ib::Violation> for Violation {
    fn from(v: ib::Violation) -> Self {
        Self(v.as_str())
    }
}

impl Handler for LinkCore {
    fn cm_event(&self, ep: Locked<'_, Self>, event: CmEvent<'_>) {
        self.handle_cm_event(&ep, event);
    }

    type Cargo = LinkIo;

    const PAGE_SIZE: u32 = SEGMENT_SIZE;

    #[inline(always)]
    fn cqe_polled(&self, polled: Polled) {
        self.path.stats.polls.count(polled);
    }

    fn send_done(&self, ep: &Endpoint<Self>, _: &QueuePair, token: Option<u32>, wc: &Wc) {
        if !wc.status().is_ok() {
            return self.completion_failed(ep, wc, "send");
        }
        if token == Some(ACK_TOKEN) {
            self.liveness.end_ack();
        }
    }

    #[inline(always)]
    fn landed(&self, ep: &Endpoint<Self>, landing: Landing<'_, Self>) {
        if let Some(ready) = self.ready.as_ref() {
            self.over(ready, ep.index(), landing);
        }
    }

    #[inline(always)]
    fn recv_done(&self, ep: &Endpoint<Self>, qp: Receiving<'_>, token: u32, wc: &Success) {
        let con = ep.index();
        let arrived = match wc.only_invalidates() {
            // It comes before its answer; the queue pair has noted it.
            true if wc.byte_len() == 0 => match con {
                // It may be there in place of the chunks.
                0 => Arrived::Else,
                _ => Arrived::Noted,
            },
            // Also on the service connection: `received()` handles what answers no request.
            true => self.answered_by_inval(qp, con, token, wc),
            false => return self.received_more(ep, qp, token, wc),
        };
        self.arrived(ep, qp, token, wc, arrived);
    }

    // Usually an answer that completes its request. The receive buffer was not used.
    #[inline(always)]
    fn recv_written(&self, ep: &Endpoint<Self>, qp: Receiving<'_>, imm: u32, wc: &Success) {
        let arrived = self.answered_alone(qp, ep.index(), imm);
        self.arrived(ep, qp, qp.recv_token(wc), wc, arrived);
    }

    fn recv_failed(&self, ep: &Endpoint<Self>, wc: &Wc) {
        self.completion_failed(ep, wc, "receive");
    }
}

impl LinkCore {
    #[cold]
    #[inline(never)]
    fn violated(&self, con: u16, what: &'static str) {
        trace::violation(self, con, what);
        // The first violation is the reason; later ones have no meaning.
        if !self.has_failed() {
            pr_err_ratelimited!("{}: violation by the server: {}\n", &*self.path, what);
        }
        // Not final: one message does not show that the server has changed.
        self.fail_as(
            Failure::Again,
            "violation by the server",
            errno::EPROTO.to_errno(),
        );
    }

    #[cold]
    #[inline(never)]
    fn completion_failed(&self, ep: &Endpoint<Self>, wc: &Wc, what: &'static str) {
        // Flushed requests only follow a failure that was reported before.
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

    /// Returns the CPU that should handle the completions of a connection; `None` for the service
    /// connection and for polled ones.
    pub(super) fn cpu_of(&self, con: u16) -> Option<u32> {
        if self.cons.is_polled(con) {
            return None;
        }
        u32::from(con).checked_sub(1)
    }

    /// Handles a value that arrived without a message, if it is all of an answer, and its effect is
    /// known at once.
    #[inline(always)]
    fn answered_alone<'a>(&'a self, qp: Receiving<'_>, con: u16, imm: u32) -> Arrived<'a> {
        let Some(ready) = self.ready.as_ref() else {
            return Arrived::Else;
        };
        if let Some(flight) = ready.answered.get(success_number(imm) as usize) {
            return self.succeeded::<false>(ready, qp, con, flight);
        }
        if let Some(flight) = ready.counted.get(next_key_number(imm) as usize) {
            return self.succeeded::<true>(ready, qp, con, flight);
        }
        let returned = returned_of(imm).and_then(|msg_id| ready.answered.get(msg_id as usize));
        match returned.and_then(|flight| self.returned(qp, con, flight)) {
            Some(landing) => Arrived::Over(ready, landing),
            None => Arrived::Else,
        }
    }

    /// Handles an answer to the request of `flight` that says success, and, with `COUNTS`, that its
    /// chunk has the next key.
    #[inline(always)]
    fn succeeded<'a, const COUNTS: bool>(
        &'a self,
        ready: &'a Ready,
        qp: Receiving<'_>,
        con: u16,
        flight: &'a Flight<Self>,
    ) -> Arrived<'a> {
        let Some(landing) = flight.land_answered(qp) else {
            return match self.waits_for_more::<COUNTS>(ready, qp, con, flight) {
                true => Arrived::Noted,
                false => Arrived::Else,
            };
        };
        if COUNTS {
            count_key(flight);
        }
        trace::response(self, con, flight, 0, false);
        Arrived::Over(ready, landing)
    }

    /// The same for a request that needs more than this answer, or needed it until now. Returns `false` if
    /// nothing was done.
    // Not inlined, and no large result: what it needs is not saved for the others.
    #[inline(never)]
    fn waits_for_more<const COUNTS: bool>(
        &self,
        ready: &Ready,
        qp: Receiving<'_>,
        con: u16,
        flight: &Flight<Self>,
    ) -> bool {
        let counts = || {
            // If the answer does not count here, the key is counted when it does.
            if COUNTS {
                count_key(flight);
            }
            trace::response(self, con, flight, 0, false);
        };
        match flight.succeeded(qp, counts) {
            // Its send has completed just now. That is rare, so the receive may be posted later.
            Outcome::Over(landing) => self.over(ready, con, landing),
            // The request may be over, and the flight used again.
            Outcome::Noted => {}
            Outcome::NotInvalidated(e) => self.not_invalidated(e),
            Outcome::Unclear => return false,
        }
        true
    }

    /// Handles a key that could not be invalidated. The request is collected when the link is torn
    /// down.
    #[cold]
    #[inline(never)]
    fn not_invalidated(&self, e: PostError) {
        self.fail("invalidating a key", Error::from(e).to_errno());
    }

    /// Handles an answer to the request of `flight` that says success, and that the key was
    /// invalidated. Returns the landing of the request, if nothing else is outstanding.
    #[inline(always)]
    fn returned<'a>(
        &'a self,
        qp: Receiving<'_>,
        con: u16,
        flight: &'a Flight<Self>,
    ) -> Option<Landing<'a, Self>> {
        let landing = flight.returned(qp)?;
        trace::response(self, con, flight, 0, true);
        Some(landing)
    }

    /// Handles an answer that comes with the chunk's new key, likewise.
    #[inline(always)]
    fn arrived_with_key<'a>(
        &'a self,
        qp: Receiving<'_>,
        con: u16,
        token: u32,
        wc: &Success,
    ) -> Arrived<'a> {
        let imm = match (wc.opcode(), wc.imm()) {
            (WcOpcode::Recv, Some(imm)) if self.new_rkey.load(Relaxed) => imm,
            _ => return Arrived::Else,
        };
        let plain = success_of(imm);
        let Some(msg_id) = plain.or(returned_of(imm)) else {
            return Arrived::Else;
        };
        // A fault is found once more, and reported.
        let Ok((ready, flight)) = self.new_key(con, token, Some(msg_id), wc) else {
            return Arrived::Else;
        };
        if plain.is_some() {
            return self.succeeded::<false>(ready, qp, con, flight);
        }
        match self.returned(qp, con, flight) {
            Some(landing) => Arrived::Over(ready, landing),
            None => Arrived::Else,
        }
    }

    /// Handles a receive that is neither an invalidation nor an answer without a key.
    #[inline(never)]
    fn received_more(&self, ep: &Endpoint<Self>, qp: Receiving<'_>, token: u32, wc: &Success) {
        let arrived = self.arrived_with_key(qp, ep.index(), token, wc);
        self.arrived(ep, qp, token, wc, arrived);
    }

    /// Handles a message that invalidates a key and has data: it may be the answer to a request.
    #[inline(always)]
    fn answered_by_inval<'a>(
        &'a self,
        qp: Receiving<'_>,
        con: u16,
        token: u32,
        wc: &Success,
    ) -> Arrived<'a> {
        if !self.inval_answers.load(Relaxed) {
            return Arrived::Else;
        }
        // A fault is found once more, and reported. The queue pair has noted the key.
        let Ok((ready, flight)) = self.new_key(con, token, None, wc) else {
            return Arrived::Else;
        };
        match self.returned(qp, con, flight) {
            Some(landing) => Arrived::Over(ready, landing),
            None => Arrived::Else,
        }
    }

    /// Goes on with a receive that has `arrived`.
    #[inline(always)]
    fn arrived(
        &self,
        ep: &Endpoint<Self>,
        qp: Receiving<'_>,
        token: u32,
        wc: &Success,
        arrived: Arrived<'_>,
    ) {
        match arrived {
            Arrived::Over(ready, landing) => {
                self.post_again(qp, token);
                self.over(ready, ep.index(), landing);
            }
            Arrived::Noted => self.post_again(qp, token),
            Arrived::Else => self.received_else(ep, qp, token, wc),
        }
    }

    /// Handles all other receives.
    #[inline(never)]
    fn received_else(&self, ep: &Endpoint<Self>, qp: Receiving<'_>, token: u32, wc: &Success) {
        match self.received(ep, qp, token, wc) {
            Ok(true) => self.post_again(qp, token),
            Ok(false) => {}
            Err(Violation(what)) => self.violated(ep.index(), what),
        }
    }

    /// Posts a receive again.
    #[inline(always)]
    fn post_again(&self, qp: Receiving<'_>, token: u32) {
        match qp.post_recv_again(token) {
            Ok(()) | Err(PostError::Closed) => (),
            // Without this receive the server would wait forever.
            Err(e) => self.not_posted_again(e),
        }
    }

    #[cold]
    #[inline(never)]
    fn not_posted_again(&self, e: PostError) {
        self.fail("posting a receive", Error::from(e).to_errno());
    }

    /// Returns whether the receive has to be posted again.
    fn received(
        &self,
        ep: &Endpoint<Self>,
        qp: Receiving<'_>,
        token: u32,
        wc: &Success,
    ) -> Result<bool, Violation> {
        let con = ep.index();
        // A server may ask for a sign of life before it has sent its chunks. The receive is posted
        // again then, with the same buffer.
        if con == 0 && token == INFO_TOKEN && !is_heartbeat(wc) {
            if wc.opcode() != WcOpcode::Recv || wc.imm().is_some() {
                return Err(Violation("no answer with chunks"));
            }
            let info = (self.number, wc.byte_len());
            self.path.notify(|notes| notes.info = Some(info));
            // There is one such answer.
            return Ok(false);
        }

        match (wc.opcode(), wc.imm()) {
            (WcOpcode::RecvRdmaWithImm, Some(imm)) => {
                match Imm::decode(imm).map_err(|e| Violation(e.as_str()))? {
                    Imm::Hb if con == 0 => {
                        if let Err(e) = self.liveness.ack(&qp, ACK_TOKEN) {
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
                    } if self.capabilities.keeps_keys || !self.new_rkey.load(Relaxed) => {
                        self.answered(qp, con, msg_id, errno.to_kernel(), inval)?;
                    }
                    Imm::IoRspNextKey { msg_id } => self.counted(qp, con, msg_id)?,
                    _ => return Err(Violation("immediate out of place")),
                }
            }
            (WcOpcode::Recv, Some(imm)) if self.new_rkey.load(Relaxed) => {
                let Imm::IoRsp {
                    msg_id,
                    errno,
                    inval,
                } = Imm::decode(imm).map_err(|e| Violation(e.as_str()))?
                else {
                    return Err(Violation("immediate out of place"));
                };
                self.new_key(con, token, Some(msg_id), wc)?;
                self.answered(qp, con, msg_id, errno.to_kernel(), inval)?;
            }
            (WcOpcode::Recv, None) if wc.only_invalidates() => {
                // Without data it comes before its answer. The queue pair has noted the key.
                if wc.byte_len() != 0 {
                    if !self.inval_answers.load(Relaxed) {
                        return Err(Violation("message out of place"));
                    }
                    let (_, flight) = self.new_key(con, token, None, wc)?;
                    self.answered(qp, con, flight.index().into(), 0, true)?;
                }
            }
            _ => return Err(Violation("message out of place")),
        }
        Ok(true)
    }

    /// Takes the chunk's new key from an answer to request `msg_id`, or to the one that it names
    /// itself. Returns the flight of the request.
    #[inline(always)]
    fn new_key(
        &self,
        con: u16,
        token: u32,
        msg_id: Option<u32>,
        wc: &Success,
    ) -> Result<(&Ready, &Flight<Self>), Violation> {
        let ready = self.ready.as_ref().ok_or(Violation("too early"))?;
        if wc.byte_len() != RECV_SIZE {
            return Err(Violation("length of an answer"));
        }
        const { assert!(RECV_SIZE == 8) };
        let [bytes] = ready
            .recv
            .get(usize::from(con))
            .ok_or(Violation("connection"))?
            .words(token as usize * RECV_SIZE)
            .ok_or(Violation("receive"))?;
        let rsp = RkeyRsp::parse(&bytes).map_err(|e| Violation(e.as_str()))?;
        if msg_id.is_some_and(|msg_id| u32::from(rsp.buf_id) != msg_id) {
            return Err(Violation("key of another chunk"));
        }
        let flight = ready
            .flights
            .get(usize::from(rsp.buf_id))
            .ok_or(Violation("no such chunk"))?;
        // Stored before the request is completed and its permit is used again.
        flight.cargo().chunk.rkey.store(rsp.rkey, Relaxed);
        Ok((ready, flight))
    }

    /// Handles the answer to request `msg_id` that says that its chunk has the next key.
    fn counted(&self, qp: Receiving<'_>, con: u16, msg_id: u32) -> Result<(), Violation> {
        let ready = self.ready.as_ref().ok_or(Violation("too early"))?;
        if ready.counted.is_empty() {
            return Err(Violation("immediate out of place"));
        }
        let flight = ready.counted.get(msg_id as usize);
        count_key(flight.ok_or(Violation("no such request"))?);
        self.answered(qp, con, msg_id, 0, false)
    }

    /// Handles the answer to request `msg_id`.
    fn answered(
        &self,
        qp: Receiving<'_>,
        con: u16,
        msg_id: u32,
        result: i32,
        inval: bool,
    ) -> Result<(), Violation> {
        let ready = self.ready.as_ref().ok_or(Violation("too early"))?;
        let flight = ready.flights.get(msg_id as usize);
        let flight = flight.ok_or(Violation("no such request"))?;
        trace::response(self, con, flight, result, inval);
        match flight.answered(qp, result, inval) {
            Ok(Some(landing)) => self.over(ready, con, landing),
            Ok(None) => {}
            Err(AnswerError::Violation(v)) => return Err(v.into()),
            Err(AnswerError::Post(e)) => self.not_invalidated(e),
        }
        Ok(())
    }

    /// Completes a request.
    #[inline(always)]
    fn over(&self, ready: &Ready, con: u16, landing: Landing<'_, Self>) {
        let flight = landing.flight();
        let link_io = flight.cargo();
        let Some(mut turn) = link_io.place.resume() else {
            return not_ours(landing);
        };
        let now = time::now_ns();
        let (mut dir, ns) = (turn.layout.dir(), link_io.stamp.age(now));
        let cpu = CpuId::current().as_u32();
        // In the usual case the CPU is the expected one.
        if u32::from(con) != cpu.wrapping_add(1) {
            dir = self.migrated(con, cpu, dir);
        }
        self.path.stats.completed(dir, ns, now);
        trace::complete(self, con, flight, &turn, landing.result(), ns);
        let result = landing.result();
        // Called before the user is told, as the user may use the permit at once.
        landing.give_back(&mut turn.loan);
        complete(&ready.permits, turn, result);
    }

    /// Counts a completion of connection `con` on `cpu`, if that is not the expected CPU. Returns
    /// the [direction that it counts as](counts_as).
    #[inline(never)]
    fn migrated(&self, con: u16, cpu: u32, dir: DataDir) -> DataDir {
        if let Some(expected) = self.cpu_of(con).filter(|&expected| expected != cpu) {
            self.path.stats.migrated(expected);
        }
        counts_as(con, dir)
    }
}

/// Handles an answer to an unknown request.
#[cold]
#[inline(never)]
fn not_ours(landing: Landing<'_, LinkCore>) {
    drop(landing);
}

/// The chunk of a flight has its next key. Called before the request is completed and its permit is
/// used again.
#[inline(always)]
fn count_key(flight: &Flight<LinkCore>) {
    let rkey = &flight.cargo().chunk.rkey;

    rkey.store(next_rkey(rkey.load(Relaxed)), Relaxed);
}

/// Whether a message is a heartbeat, or the answer to one.
fn is_heartbeat(wc: &Success) -> bool {
    let imm = wc.written().map(Imm::decode);

    matches!(imm, Some(Ok(Imm::Hb | Imm::HbAck)))
}
