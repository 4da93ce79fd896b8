// SPDX-License-Identifier: GPL-2.0

//! Trace events, described in `trace.h`.
//!
//! A disabled event costs a nop; its fields are gathered out of line.
//!
//! # Context
//!
//! Requests: any. Paths: their owner tasks; allocates.

use kernel::{
    prelude::*,
    str::CString, //
};
use rtrs_bindings::{
    ib::Flight,
    trace::tracepoints, //
};

use crate::{
    link::LinkCore,
    logic::path_state::{
        CloseReason,
        PathMachine,
        State,
        Then, //
    },
    path::{
        Path,
        PathName, //
    },
    request::Io,
    session::Session,
    stats::dir_index,
};

tracepoints! {
    // SAFETY: The prototypes are those of the events in `trace.h`.
    unsafe {
        rtrs_clt_reconnect_work(
            sess: str, path: str, state: i32, attempts: i32, max: i32, fail: i32, success: i32,
        );
        rtrs_clt_close_conns(
            sess: str, path: str, state: i32, attempts: i32, max: i32, fail: i32, success: i32,
        );
        rtrs_rdma_error_recovery(
            sess: str, path: str, state: i32, attempts: i32, max: i32, fail: i32, success: i32,
        );
        rtrs_clt_path_state(sess: str, path: str, old: text, new: text, error: i32, why: text);
        rtrs_clt_violation(sess: str, path: str, cid: u32, why: text);
        rtrs_clt_issue(
            sess: str, path: str, cid: u32, id: u32, dir: u32, data_len: u64, usr_len: u32,
            failover: bool,
        );
        rtrs_clt_response(sess: str, path: str, cid: u32, id: u32, result: i32, inval: bool);
        rtrs_clt_complete(
            sess: str, path: str, cid: u32, id: u32, dir: u32, result: i32, latency_ns: u64,
        );
        rtrs_clt_park(sess: str, id: u32, paths: u32);
        rtrs_clt_resume(sess: str, id: u32, result: i32);
        rtrs_clt_failover(sess: str, path: str, cid: u32, id: u32, answered: bool);
    }
}

/// Names of a link's session and path, valid as long as the link.
fn names(core: &LinkCore) -> (&CStr, &CStr) {
    (core.path.session.name().as_cstr(), core.path.cached_name())
}

/// A request is about to be posted.
#[inline(always)]
pub(crate) fn issue(core: &LinkCore, flight: &Flight<LinkCore>, io: &Io) {
    #[cold]
    #[inline(never)]
    fn fire(core: &LinkCore, flight: &Flight<LinkCore>, io: &Io) {
        let (sess, path) = names(core);
        let layout = &io.layout;
        // CAST: The direction is 0 or 1.
        rtrs_clt_issue::fire(
            sess,
            path,
            io.con.into(),
            flight.index().into(),
            dir_index(layout.dir()) as u32,
            layout.data_len().into(),
            layout.usr_len().into(),
            io.failover,
        )
    }

    if rtrs_clt_issue::enabled() {
        fire(core, flight, io);
    }
}

/// An answer has come.
#[inline(always)]
pub(crate) fn response(
    core: &LinkCore,
    con: u16,
    flight: &Flight<LinkCore>,
    result: i32,
    inval: bool,
) {
    #[cold]
    #[inline(never)]
    fn fire(core: &LinkCore, con: u16, flight: &Flight<LinkCore>, result: i32, inval: bool) {
        let (sess, path) = names(core);
        let id = flight.index().into();
        rtrs_clt_response::fire(sess, path, con.into(), id, result, inval)
    }

    if rtrs_clt_response::enabled() {
        fire(core, con, flight, result, inval);
    }
}

/// A request is complete.
#[inline(always)]
pub(crate) fn complete(
    core: &LinkCore,
    con: u16,
    flight: &Flight<LinkCore>,
    io: &Io,
    result: i32,
    ns: u64,
) {
    #[cold]
    #[inline(never)]
    fn fire(core: &LinkCore, con: u16, flight: &Flight<LinkCore>, io: &Io, result: i32, ns: u64) {
        let (sess, path) = names(core);
        let (id, dir) = (flight.index(), dir_index(io.layout.dir()));
        // CAST: The direction is 0 or 1.
        rtrs_clt_complete::fire(sess, path, con.into(), id.into(), dir as u32, result, ns)
    }

    if rtrs_clt_complete::enabled() {
        fire(core, con, flight, io, result, ns);
    }
}

/// A request was in flight on a link that ended.
pub(crate) fn failover(core: &LinkCore, con: u16, id: u16, answered: bool) {
    if rtrs_clt_failover::enabled() {
        let (sess, path) = names(core);
        rtrs_clt_failover::fire(sess, path, con.into(), id.into(), answered)
    }
}

/// A request waits for a path.
pub(crate) fn park(session: &Session, id: u16, paths: u32) {
    if rtrs_clt_park::enabled() {
        rtrs_clt_park::fire(session.name().as_cstr(), id.into(), paths)
    }
}

/// A request does not wait any more. With an error, it fails.
pub(crate) fn resume(session: &Session, id: u16, result: i32) {
    if rtrs_clt_resume::enabled() {
        rtrs_clt_resume::fire(session.name().as_cstr(), id.into(), result)
    }
}

/// The server broke the protocol.
pub(crate) fn violation(core: &LinkCore, con: u16, why: &str) {
    if rtrs_clt_violation::enabled() {
        let (sess, path) = names(core);
        rtrs_clt_violation::fire(sess, path, con.into(), why);
    }
}

/// Returns the state in the numbers of the C module.
fn c_state(state: State) -> i32 {
    match state {
        State::New | State::Connecting => 0,
        State::Closed(CloseReason::NeverUp) => 1,
        State::Waiting | State::TearingDown(Then::Retry | Then::Connect | Then::Soon) => 2,
        State::Connected => 3,
        State::TearingDown(Then::Close(_) | Then::Die) => 4,
        State::Closed(_) => 5,
        State::Dead => 6,
    }
}

/// Calls `f` with the names of session and path, for a path that may have no directory yet: its
/// name is made for the event. Without memory there is no event. May sleep.
fn with_names(path: &Path, f: impl FnOnce(&CStr, &CStr)) {
    if let Ok(name) = CString::try_from_fmt(fmt!("{}", PathName(path))) {
        f(path.session.name().as_cstr(), &name);
    }
}

/// A change of a path's link.
#[derive(Clone, Copy)]
pub(crate) enum LinkChange {
    /// A new link is made.
    Reconnect,
    /// The link is closed on request.
    Close,
    /// The link is closed because of an error.
    Error,
}

/// The events of C's event class.
type FireLinkChange = fn(&CStr, &CStr, i32, i32, i32, i32, i32);

/// The link of a path changes. May sleep.
pub(crate) fn link_change(path: &Path, change: LinkChange, machine: &PathMachine, max: i32) {
    let (enabled, fire): (bool, FireLinkChange) = match change {
        LinkChange::Reconnect => (
            rtrs_clt_reconnect_work::enabled(),
            rtrs_clt_reconnect_work::fire,
        ),
        LinkChange::Close => (rtrs_clt_close_conns::enabled(), rtrs_clt_close_conns::fire),
        LinkChange::Error => (
            rtrs_rdma_error_recovery::enabled(),
            rtrs_rdma_error_recovery::fire,
        ),
    };
    if !enabled {
        return;
    }
    let (success, fail) = path.stats.reconnects();
    with_names(path, |sess, name| {
        fire(
            sess,
            name,
            c_state(machine.state()),
            i32::try_from(machine.attempts()).unwrap_or(i32::MAX),
            max,
            fail,
            success,
        )
    });
}

/// The state of a path changes. May sleep.
pub(crate) fn path_state(path: &Path, old: State, new: State) {
    if !rtrs_clt_path_state::enabled() {
        return;
    }
    let (error, why) = path.status(|s| s.last_error).unwrap_or((0, "none"));
    with_names(path, |sess, name| {
        rtrs_clt_path_state::fire(sess, name, old.as_str(), new.as_str(), error, why)
    });
}
