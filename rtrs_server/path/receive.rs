// SPDX-License-Identifier: GPL-2.0

//! Messages and events on the connections of a path.
//!
//! # Context
//!
//! Completions are handled in a work item of the completion queue, one at a time per connection.
//! Draining a connection waits for it, so nothing here may take long. The user is called from a
//! work item of the connection's [inbox](crate::inbox). Connection events are called with the
//! connection manager's handler lock held.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Release, //
        },
        rcu,
        Arc, //
    },
};

use rtrs_bindings::{
    ib::{
        CmEvent,
        Endpoint,
        Handler,
        Locked,
        Message,
        Polled,
        PostError,
        QpEvent,
        QueuePair,
        Receiving,
        Success,
        Wc,
        WcOpcode, //
    },
    ratelimit::pr_warn_caused_by,
    time::now_ns,
    workqueue::WorkExt,
};
use rtrs_core::proto::{
    heartbeat::{
        HbAction,
        HbCounts,
        Liveness,
        DEFAULT_LIMIT, //
    },
    DataDir,
    Imm,
    InfoReq, //
};

use super::{
    Owner,
    Path,
    Violation, //
};
use crate::{
    chunk::{
        Home,
        Origin,
        Written, //
    },
    logic::path_state::{
        CloseReason,
        ServerPathState, //
    },
    op::{
        Op,
        Operation, //
    },
    trace,
};

/// Receive tokens: the info request, and all later messages, which carry no data.
pub(super) const RECV_INFO: u32 = 0;
pub(super) const RECV_EMPTY: u32 = 1;
/// The number of receive tokens.
pub(super) const RECV_TOKENS: u32 = 2;

/// Send tokens. Invalidations of a chunk's key have tokens of their own: the chunk's number.
pub(super) const SEND_REG: u32 = 0;
pub(super) const SEND_INFO: u32 = 1;
const SEND_ACK: u32 = 2;
/// The number of send tokens.
pub(super) const SEND_TOKENS: u32 = 3;

const NOT_INFO: Violation = Violation::Unexpected("first message is no info request");

impl Handler for Path {
    type Cargo = ();

    const KEYS_ARE_INVALIDATED: bool = false;

    const RECEIVES_MESSAGES: bool = true;

    fn cm_event(&self, ep: Locked<'_, Self>, event: CmEvent<'_>) {
        let reason = match event {
            CmEvent::Disconnected | CmEvent::TimewaitExit => CloseReason::Peer,
            CmEvent::DeviceRemoval => CloseReason::DeviceGone,
            CmEvent::Rejected(..) | CmEvent::Failed(_) | CmEvent::AddrChange => {
                CloseReason::ConnError
            }
            // Not needed: the client's first message counts.
            CmEvent::Established(_) => return,
            _ => return,
        };
        ep.handler().close(reason);
    }

    #[inline(always)]
    fn cqe_polled(&self, polled: Polled) {
        self.stats.polls.count(polled);
    }

    fn send_done(&self, ep: &Endpoint<Self>, _qp: &QueuePair, token: Option<u32>, wc: &Wc) {
        let path = ep.handler();
        let ok = wc.status().is_ok();

        if !ok {
            self.connection_failed(path, ep, wc, "send");
        }
        match token {
            Some(SEND_REG) => {
                self.registered_ok.store(ok, Release);
                self.registered.complete();
            }
            Some(SEND_ACK) => self.liveness.end_ack(),
            // An operation without a valid invalidation goes with its chunk.
            _ => (),
        }
    }

    fn send_retired(&self, ep: &Endpoint<Self>, qp: &QueuePair) {
        let guard = rcu::read_lock();

        if let Some(active) = self.active.read(&guard) {
            active.retired(ep, qp);
        }
    }

    #[inline(always)]
    fn key_invalid(&self, _ep: &Endpoint<Self>, _qp: &QueuePair, token: u32) {
        let guard = rcu::read_lock();

        if let Some(active) = self.active.read(&guard) {
            active.invalidated(self, token);
        }
    }

    fn qp_event(&self, ep: &Endpoint<Self>, event: QpEvent) {
        // An access that only writes or reads and that the device refuses leaves no other trace.
        ep.handler().violated(Violation::Unexpected(match event {
            QpEvent::AccessError => "access to memory that is not the client's",
            _ => "request that the device does not understand",
        }));
    }

    fn recv_failed(&self, ep: &Endpoint<Self>, wc: &Wc) {
        self.connection_failed(ep.handler(), ep, wc, "receive");
    }

    fn recv_done(&self, ep: &Endpoint<Self>, qp: Receiving<'_>, _: u32, wc: &Success) {
        self.recv_first(ep.handler(), qp, wc);
    }

    #[inline(always)]
    fn recv_message(&self, ep: &Endpoint<Self>, message: Message<'_>, wc: &Success) {
        Self::recv_sent(ep, message, wc);
    }

    #[inline(always)]
    fn recv_written(&self, ep: &Endpoint<Self>, qp: Receiving<'_>, imm: u32, wc: &Success) {
        // No look at whether the path closes: a request then waits for the user in its chunk, and
        // is taken back from there by the end of the path. That comes after this, as it waits for the
        // RCU section in which the request gets there. All that a
        // violation does for a path that closes is nothing. Whatever else has an effect looks
        // itself.
        Self::recv_imm(ep, qp, imm, wc);
    }
}

impl Path {
    #[cold]
    fn connection_failed(
        &self,
        path: &Arc<Self>,
        ep: &Endpoint<Self>,
        wc: &Wc,
        what: &'static str,
    ) {
        if wc.status().is_violation() {
            path.violated(Violation::Unexpected(
                "the device refused an access or a length",
            ));
        }
        if !self.is_closing() {
            pr_warn_caused_by!(
                self.log_place(),
                "{}: connection {}: {} failed: {}\n",
                self.label(),
                ep.index(),
                what,
                wc.status().message()
            );
        }
        path.close(CloseReason::ConnError);
    }

    /// Handles the first message on the service connection.
    #[cold]
    fn recv_info(&self, path: &Arc<Self>, wc: &Success) -> Result<(), Violation> {
        if wc.opcode() != WcOpcode::Recv || wc.imm().is_some() {
            return Err(NOT_INFO);
        }
        let mut message = [0; InfoReq::SIZE];
        let message = message
            .get_mut(..wc.byte_len())
            .ok_or(Violation::Unexpected("info request is too long"))?;
        let mut info = self.info.lock();
        if let Some(dma_pages) = &info.dma_pages {
            dma_pages
                .read(0, message)
                .map_err(|_| Violation::Unexpected("info request is too long"))?;
            info.name = Some(InfoReq::parse(message)?.name);
        }
        drop(info);
        path.kick();
        Ok(())
    }

    /// Handles a message that is no write.
    #[cold]
    #[inline(never)]
    fn recv_first(&self, path: &Arc<Self>, qp: Receiving<'_>, wc: &Success) {
        if self.is_closing() {
            return;
        }
        if qp.recv_token(wc) != RECV_INFO {
            return path.unexpected("message on a connection for writes");
        }
        if let Err(violation) = self.recv_info(path, wc) {
            path.violated(violation);
        }
    }

    /// Handles all other messages, which are RDMA writes with an immediate value.
    #[inline(always)]
    fn recv_imm(ep: &Endpoint<Self>, qp: Receiving<'_>, imm: u32, wc: &Success) {
        // Posted again at once: the client's chunks limit the work that it can cause.
        if let Err(e) = qp.post_recv_next(RECV_EMPTY, wc) {
            ep.handler().recv_not_posted(e);
        }
        match Imm::request(imm) {
            Some(payload) => {
                // A length that does not fit is longer than any chunk.
                let byte_len = u32::try_from(wc.byte_len()).unwrap_or(u32::MAX);
                Self::recv_request(ep, payload, byte_len, &mut Written);
            }
            None => ep.handler().recv_other(ep.index(), qp, imm, wc),
        }
    }

    /// Handles a message to a receive that has memory: a request that was sent.
    #[inline(always)]
    fn recv_sent(ep: &Endpoint<Self>, mut message: Message<'_>, wc: &Success) {
        let Some(payload) = wc.imm().and_then(Imm::request) else {
            return ep.handler().unexpected("message that is no request");
        };
        let byte_len = u32::try_from(wc.byte_len()).unwrap_or(u32::MAX);
        Self::recv_request(ep, payload, byte_len, &mut message);
        // The message was taken out.
        if let Err(e) = message.post_again() {
            ep.handler().recv_not_posted(e);
        }
    }

    #[cold]
    #[inline(never)]
    fn unexpected(self: &Arc<Self>, what: &'static str) {
        self.violated(Violation::Unexpected(what));
    }

    #[cold]
    #[inline(never)]
    fn recv_not_posted(self: &Arc<Self>, e: PostError) {
        if e != PostError::Closed {
            self.post_failed(e);
        }
    }

    #[cold]
    #[inline(never)]
    fn recv_other(self: &Arc<Self>, cid: u16, qp: Receiving<'_>, imm: u32, wc: &Success) {
        if self.is_closing() {
            return;
        }
        // A request in its place comes before the info answer.
        if cid == 0 && qp.recv_token(wc) == RECV_INFO {
            return self.violated(NOT_INFO);
        }
        match Imm::decode(imm) {
            Ok(Imm::Hb) if cid == 0 => self.ack_heartbeat(&qp),
            Ok(Imm::HbAck) if cid == 0 => {
                // The round-trip time is not used on this side.
                let _ = self.liveness.acked();
            }
            Ok(Imm::Hb | Imm::HbAck) => self.unexpected("heartbeat on an IO connection"),
            Ok(Imm::IoReq { .. } | Imm::IoRsp { .. } | Imm::IoRspNextKey { .. }) => {
                self.unexpected("answer from a client")
            }
            Err(e) => self.violated(e.into()),
        }
    }

    #[inline(always)]
    fn recv_request(ep: &Endpoint<Self>, payload: u32, byte_len: u32, origin: &mut impl Origin) {
        let now = now_ns();
        let guard = rcu::read_lock();
        let path = ep.handler();

        match path.active(&guard) {
            Some(active) => active.arrived(ep, payload, byte_len, now, origin),
            None => path.unexpected("request before the info answer"),
        }
    }

    /// Whether the chunk has an operation here that is not answered. Any context, also with the
    /// session's list of paths locked.
    pub(crate) fn is_under_way(&self, buf_id: u16) -> bool {
        let guard = rcu::read_lock();

        // Without an `Active`, the path is closing.
        self.active
            .read(&guard)
            .is_some_and(|active| active.is_under_way(buf_id))
    }

    /// The chunk's operation on another path is over: runs the one that waits for that here.
    /// Returns `false` if there is none. Any context, with the session's list of paths locked:
    /// nothing called from here looks for another path.
    pub(crate) fn unpark(self: &Arc<Self>, buf_id: u16) -> bool {
        let guard = rcu::read_lock();
        let Some(active) = self.active.read(&guard) else {
            return false;
        };

        let found = active.unpark(self, buf_id);
        if found && active.is_stalled() {
            self.room_work.enqueue(&self.session.ctx.io_queue, self);
        }
        found
    }

    /// The work item that makes room.
    pub(super) fn make_room(self: &Arc<Self>) {
        let guard = rcu::read_lock();

        if let Some(active) = self.active.read(&guard) {
            active.make_all_room(self);
        }
    }

    /// Hands the request of `op` to the user. May sleep, as the user may.
    // No look at whether the path closes: the caller took `op` from its `Active`, which the owner task takes
    // away then. A request that is handed over before that is no different from one that the user has.
    #[inline(always)]
    pub(crate) fn call_user(&self, op: KBox<Op>) {
        let mut op = op;
        if !op.is_ready() {
            if op.is_late() {
                return match Op::begin_late(op) {
                    // With code of its own, in which direction and memory are known.
                    Ok(parts) => {
                        self.started(parts.op(), DataDir::Write);
                        self.session.ctx.user.call(&self.session, parts);
                    }
                    Err(op) => self.call_user_later(op),
                };
            }
            if !op.copy_if_usual() {
                return self.call_user_later(op);
            }
        }
        self.hand_over(op);
    }

    /// The same for a request that takes longer to be ready.
    #[inline(never)]
    fn call_user_later(&self, op: KBox<Op>) {
        if let Some(op) = Self::make_ready(op) {
            self.hand_over(op);
        }
    }

    /// Hands the request of `op`, which is ready, to the user.
    #[inline(always)]
    fn hand_over(&self, op: KBox<Op>) {
        self.started(&op, op.dir());
        let session = &self.session;
        let operation = Operation::new(op);
        session.ctx.user.request(session, operation);
    }

    /// The user is about to be called for the request of `op`, which has the direction `dir`.
    #[inline(always)]
    fn started(&self, op: &Op, dir: DataDir) {
        let request = op.request();

        self.stats.started(dir, request.total_len());
        trace::submit(op);
    }

    /// Reads a request that was not read when it arrived, and takes its data out of the chunk if
    /// that is needed. Returns `None` if the path ends by that or has ended, or if one of these
    /// steps failed and the request was answered with the error.
    fn make_ready(mut op: KBox<Op>) -> Option<KBox<Op>> {
        let ready = match op.is_read() {
            true => op.take_data(),
            false => {
                let path = op.home().clone();
                path.begin(&mut op)?
            }
        };

        match ready {
            Ok(()) => Some(op),
            Err(e) => {
                op.home().started(&op, op.dir());
                Path::answer(op, e.to_errno());
                None
            }
        }
    }

    /// Parses a request that was not parsed when it arrived. Returns `None` if the path ends by
    /// that, or has ended.
    fn begin(self: &Arc<Self>, op: &mut Op) -> Option<Result> {
        let parsed = {
            let guard = rcu::read_lock();
            self.active(&guard)?.parse(op)
        };

        match parsed {
            Ok(request) => Some(op.begin(request)),
            Err(violation) => {
                self.violated(violation);
                None
            }
        }
    }

    fn ack_heartbeat(self: &Arc<Self>, qp: &QueuePair) {
        if let Err(e) = self.liveness.ack(qp, SEND_ACK) {
            self.post_failed(e);
        }
    }

    /// A heartbeat interval is over. Called by the owner.
    pub(super) fn heartbeat(self: &Arc<Self>, owner: &mut Owner) {
        let rx = owner.received.take(self.received());
        match self.liveness.tick(&mut owner.heartbeat, rx, DEFAULT_LIMIT) {
            HbAction::Nothing => (),
            HbAction::Dead => self.close(CloseReason::Heartbeat),
            HbAction::SendHb => self.send_heartbeat(),
        }
    }

    /// Asks the client whether it lives: [`Path::was_heard`] is about later messages only. Any
    /// context.
    pub(crate) fn ask(self: &Arc<Self>) {
        // Before the heartbeat: its answer is a later message.
        self.asked.ask(self.received().total());
        self.ask_again();
    }

    /// Repeats the question, even if another heartbeat is on its way: that one may be lost. Any
    /// context.
    pub(crate) fn ask_again(self: &Arc<Self>) {
        self.post_heartbeat(Liveness::ask);
    }

    /// Whether anything was heard of the client since it was asked, or it waits for its chunks. Any
    /// context.
    pub(crate) fn was_heard(&self) -> bool {
        let waits = self.state() == ServerPathState::Starting
            || self.session.is_ending() && self.has_asked();

        waits || self.asked.was_heard(self.received().total())
    }

    /// The messages that were received. The queues count them in any case, so there is nothing to
    /// do for each.
    fn received(&self) -> HbCounts {
        let guard = rcu::read_lock();
        let Some(active) = self.active(&guard) else {
            // The path does not carry IO yet: there is no message but the info request, which the
            // queue has counted, too. Or it does not any more, and nothing counts.
            return HbCounts::of([u64::from(self.info.lock().name.is_some())]);
        };

        let qps = active.endpoints().iter().map(|ep| ep.qp());
        HbCounts::of(qps.map(QueuePair::received))
    }

    fn send_heartbeat(self: &Arc<Self>) {
        self.post_heartbeat(Liveness::send);
    }

    fn post_heartbeat(
        self: &Arc<Self>,
        post: impl Fn(&Liveness, &QueuePair) -> Result<(), PostError>,
    ) {
        // Mainline's client takes the first message for its chunks.
        if !self.has_told.load(Acquire) {
            return;
        }
        let guard = rcu::read_lock();
        let qp = self
            .active
            .read(&guard)
            .and_then(|active| Some(active.endpoints().first()?.qp()));

        if let Some(Err(e)) = qp.map(|qp| post(&self.liveness, qp)) {
            self.post_failed(e);
        }
    }
}
