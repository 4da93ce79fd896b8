// SPDX-License-Identifier: GPL-2.0

//! Trace events, described in `trace.h`.
//!
//! A disabled event costs a nop; its fields are gathered out of line.
//!
//! # Context
//!
//! Any.

use core::ffi::CStr;
use kernel::sync::Arc;
use rtrs_bindings::{
    ib::QueuePair,
    trace::tracepoints, //
};
use rtrs_core::proto::Request;

use crate::{
    chunk::Arrival,
    logic::path_state::ServerPathState,
    op::Op,
    path::Path, //
};

tracepoints! {
    // SAFETY: The prototypes are those of the events in `trace.h`.
    unsafe {
        rtrs_srv_recv(sess: str, path: str, cid: u32, msg_id: u32, off: u32, len: u32);
        rtrs_srv_parked(sess: str, path: str, cid: u32, msg_id: u32, off: u32, len: u32);
        rtrs_srv_invalidated(sess: str, path: str, cid: u32, msg_id: u32, off: u32, len: u32);
        rtrs_srv_submit(
            sess: str, path: str, cid: u32, msg_id: u32, dir: u32, data_len: u32, usr_len: u32,
            result: i32, age_ns: u64,
        );
        rtrs_srv_done(
            sess: str, path: str, cid: u32, msg_id: u32, dir: u32, data_len: u32, usr_len: u32,
            result: i32, age_ns: u64,
        );
        send_io_resp_imm(
            sess: str, path: str, dir: u32, need_inval: bool, always_invalidate: bool,
            msg_id: u32, wr_cnt: i32, signal_interval: u32, state: i32, error: i32,
        );
        rtrs_srv_path_state(sess: str, path: str, old: text, new: text, why: text);
        rtrs_srv_violation(sess: str, path: str, old: text, new: text, why: text);
    }
}

/// An event between the arrival of a request and its way to the user.
type FireArrival = fn(&CStr, &CStr, u32, u32, u32, u32);

// The parts of the arrival are passed by value: a whole one is passed in memory.
#[cold]
fn fire_arrival(fire: FireArrival, path: &Path, op: &Op, cid: u16, off: u32, byte_len: u32) {
    fire(
        path.session.cname(),
        &path.cname,
        cid.into(),
        op.buf_id().into(),
        off,
        byte_len,
    );
}

/// The same for the arrival that `op` has kept.
#[cold]
fn fire_kept(fire: FireArrival, path: &Path, op: &Op) {
    let at = op.arrival();

    fire_arrival(fire, path, op, at.cid, at.off, at.byte_len);
}

/// A request was received.
#[inline(always)]
pub(crate) fn recv(path: &Arc<Path>, op: &Op, at: Arrival) {
    if rtrs_srv_recv::enabled() {
        fire_arrival(rtrs_srv_recv::fire, path, op, at.cid, at.off, at.byte_len);
    }
}

/// A request waits for the one of another path.
#[inline(always)]
pub(crate) fn parked(path: &Path, op: &Op) {
    if rtrs_srv_parked::enabled() {
        fire_kept(rtrs_srv_parked::fire, path, op);
    }
}

/// Whether there is an event for [`invalidated`].
#[inline(always)]
pub(crate) fn shows_invalidated() -> bool {
    rtrs_srv_invalidated::enabled()
}

/// The key of the chunk of a request is invalid.
pub(crate) fn invalidated(path: &Path, op: &Op) {
    if shows_invalidated() {
        fire_kept(rtrs_srv_invalidated::fire, path, op);
    }
}

/// An event of the user's work on a request.
type FireWork = fn(&CStr, &CStr, u32, u32, u32, u32, u32, i32, u64);

#[cold]
fn fire_work(fire: FireWork, op: &Op, result: i32) {
    let (path, request) = (op.home(), op.request());

    fire(
        path.session.cname(),
        &path.cname,
        op.cid().into(),
        op.buf_id().into(),
        request.dir() as u32,
        data_len(request),
        request.usr_len().into(),
        result,
        path.age_of_request(op.buf_id()),
    );
}

fn data_len(request: &Request) -> u32 {
    u32::try_from(request.data_range().len()).unwrap_or(u32::MAX)
}

/// A request is handed to the user.
#[inline(always)]
pub(crate) fn submit(op: &Op) {
    if rtrs_srv_submit::enabled() {
        fire_work(rtrs_srv_submit::fire, op, 0);
    }
}

/// The user has answered a request.
#[inline(always)]
pub(crate) fn done(op: &Op, result: i32) {
    if rtrs_srv_done::enabled() {
        fire_work(rtrs_srv_done::fire, op, result);
    }
}

/// Returns the state in the numbers of the C module.
fn c_state(state: ServerPathState) -> i32 {
    match state {
        ServerPathState::Connected => 1,
        ServerPathState::Closing(_) => 2,
        ServerPathState::Closed(_) => 3,
        _ => 0,
    }
}

/// A request is about to be answered on `qp`.
#[inline(always)]
pub(crate) fn answer(op: &Op, qp: &QueuePair, errno: i32) {
    #[cold]
    fn fire(op: &Op, qp: &QueuePair, errno: i32) {
        let (path, request) = (op.home(), op.request());

        send_io_resp_imm::fire(
            path.session.cname(),
            &path.cname,
            request.dir() as u32,
            request.inval_rkey().is_some(),
            path.session.ctx.config.always_invalidate,
            op.buf_id().into(),
            i32::try_from(qp.send_used()).unwrap_or(i32::MAX),
            qp.signal_interval(),
            c_state(path.state()),
            errno,
        );
    }

    if send_io_resp_imm::enabled() {
        fire(op, qp, errno);
    }
}

/// The state of a path changes. Any context.
pub(crate) fn path_state(path: &Path, old: ServerPathState, new: ServerPathState) {
    if !rtrs_srv_path_state::enabled() {
        return;
    }
    let why = match new {
        ServerPathState::Closing(reason) | ServerPathState::Closed(reason) => reason.as_str(),
        _ => "",
    };
    let (old, new) = (old.as_str(), new.as_str());
    rtrs_srv_path_state::fire(path.session.cname(), &path.cname, old, new, why);
}

/// The client broke the protocol. Any context.
pub(crate) fn violation(path: &Path, what: &str) {
    if !rtrs_srv_violation::enabled() {
        return;
    }
    let old = match path.state() {
        ServerPathState::Closed(_) => "closing",
        state => state.as_str(),
    };
    rtrs_srv_violation::fire(path.session.cname(), &path.cname, old, "closing", what);
}
