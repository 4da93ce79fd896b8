// SPDX-License-Identifier: GPL-2.0

//! Requests out.
//!
//! # Context
//!
//! Any; the caller is inside an RCU read-side section, which keeps the link.

use kernel::prelude::*;
use rtrs_bindings::{
    ib::{
        Access,
        Building,
        Direction,
        Endpoint,
        PostError,
        Posted,
        Remote, //
    },
    time,
};
use rtrs_core::proto::{
    geometry::SEGMENT_SIZE,
    Dir,
    Layout,
    ReadDest,
    ReadMsg,
    SgDesc,
    WriteMsg, //
};

use super::{
    Link,
    LinkCore, //
};
use crate::{
    atomic::Relaxed,
    request::{
        Connection,
        Io,
        IssueError,
        Turn, //
    },
    trace,
};

impl Link {
    /// The connection for a request: the service connection, a polled one, or the one
    /// of the CPU that took the permit.
    #[inline(always)]
    fn con_of(&self, io: &Io) -> u16 {
        if let Some(con) = io.polled.and_then(|queue| self.core.polled_con(queue)) {
            return con;
        }
        let io_cons = self.core.io_cons();
        match (io.connection, io_cons) {
            (Connection::Admin, _) | (_, 0) => 0,
            // CAST: Less than `io_cons`. A division is for CPUs that have no connection.
            (_, n) if io.cpu < u32::from(n) => 1 + io.cpu as u16,
            (_, n) => 1 + (io.cpu % u32::from(n)) as u16,
        }
    }

    /// Requests in flight on the connection for `io`. Any context.
    pub(crate) fn inflight_beside(&self, io: &Io) -> u64 {
        self.core.inflight_on(self.con_of(io))
    }

    /// Sends request `id`. When it returns without error the completion will
    /// come, or has come already.
    ///
    /// # Errors
    ///
    /// Why not, and the turn.
    #[inline(always)]
    pub(crate) fn issue<'t>(
        &self,
        id: u16,
        mut turn: Turn<'t>,
    ) -> Result<(), (IssueError, Turn<'t>)> {
        let core = &*self.core;
        let con = self.con_of(&turn);
        let (Some(tables), Some(ep)) = (core.tables.as_ref(), self.endpoint(con)) else {
            return Err((IssueError::Link, turn));
        };
        let index = usize::from(id);
        let (Some(slot), Some(flight)) = (tables.slots.get(index), tables.flights.get(index))
        else {
            return Err((IssueError::Request(EINVAL), turn));
        };
        let layout = match Layout::new(&tables.room, turn.dir, turn.loan.len(), turn.usr_len) {
            Ok(layout) => layout,
            Err(e) => {
                let e = Error::from_errno(e.to_errno());
                return Err((IssueError::Request(e), turn));
            }
        };
        let Some(mut building) = flight.build() else {
            return Err((IssueError::Request(EBUSY), turn));
        };
        let direct_segments = core.direct_segments.load(Relaxed);
        if let Err(e) = prepare(&mut building, &mut turn, &layout, direct_segments) {
            building.cancel(&mut turn.loan);
            return Err((IssueError::Request(e), turn));
        }
        let to = Remote {
            addr: slot
                .chunk
                .addr
                .load(Relaxed)
                .wrapping_add(u64::from(layout.write_off())),
            rkey: slot.chunk.rkey.load(Relaxed),
        };
        // What is needed of the request when it may be over.
        let sent = Sent {
            dir: turn.dir,
            bytes: layout.off(),
            usr_len: layout.usr_len(),
            entries: turn.loan.entries(),
            failover: turn.failover,
        };
        slot.stamp.set(sent.dir, time::now_ns());
        core.count_inflight(con, 1);
        let place = turn.place();
        turn.lend();
        match building.post(ep, con, to, layout.imm(slot.imm)) {
            Ok(Posted::All) => {}
            // A part is on its way: the request is looked after with the others in flight.
            Ok(Posted::Broken(e)) => core.fail("posting a request", e_to_errno(e)),
            Err((e, building)) => {
                core.count_inflight(con, -1);
                // It was lent to nobody.
                let Some(mut turn) = place.resume() else {
                    return Ok(());
                };
                building.cancel(&mut turn.loan);
                return Err((core.not_posted(e), turn));
            }
        }
        trace::issue(core, con, id, &sent);
        core.path
            .stats()
            .issued(sent.dir, sent.bytes, sent.entries, sent.failover);
        Ok(())
    }

    /// Sends a heartbeat, on the service connection, unless one is on its way. The link fails if
    /// that cannot be.
    pub(crate) fn send_heartbeat(&self) {
        let sent = self
            .endpoint(0)
            .and_then(Endpoint::qp)
            .ok_or(PostError::Closed)
            .and_then(|qp| self.core.liveness.send(qp));
        if let Err(e) = sent {
            self.core.fail("sending a heartbeat", e_to_errno(e));
        }
    }
}

/// What was sent.
pub(crate) struct Sent {
    pub(crate) dir: Dir,
    /// Of data and user message.
    pub(crate) bytes: u32,
    pub(crate) usr_len: u16,
    /// Of the scatter list.
    pub(crate) entries: u32,
    /// Another path had it before.
    pub(crate) failover: bool,
}

/// Lends the data to the device, or has them copied if they are few, and writes the protocol's
/// message behind the user's.
#[inline(always)]
fn prepare(
    building: &mut Building<'_, LinkCore>,
    io: &mut Io,
    layout: &Layout,
    direct_segments: u32,
) -> Result {
    let (usr_len, len) = (layout.usr_len(), layout.data_len());
    let at = u32::from(usr_len);
    let copies = len != 0 && building.can_copy(len as usize);
    match layout.dir() {
        Dir::Write if copies => {
            building.copy_along(&io.loan)?;
            building.end_message(at, WriteMsg { usr_len }.to_bytes())
        }
        Dir::Write => {
            // The common case: no registration, one work request, and nobody but our own device ever
            // reads the memory.
            if building.borrow(&mut io.loan, Direction::ToDevice)? > direct_segments {
                building.describe(SEGMENT_SIZE, len, Access::LOCAL_READ)?;
            }
            building.end_message(at, WriteMsg { usr_len }.to_bytes())
        }
        Dir::Read if len == 0 => building.end_message(at, ReadMsg::without_data(usr_len)),
        Dir::Read if copies => {
            let remote = building.copy_back(&mut io.loan)?;
            building.end_message(at, read_to(usr_len, remote, len, false))
        }
        Dir::Read => {
            building.borrow(&mut io.loan, Direction::FromDevice)?;
            let remote = building.describe(SEGMENT_SIZE, len, Access::REMOTE_WRITE)?;
            building.end_message(at, read_to(usr_len, remote, len, true))
        }
    }
}

/// The message of a read of `len` bytes.
#[inline(always)]
fn read_to(usr_len: u16, to: Remote, len: u32, need_inval: bool) -> [u8; ReadMsg::MAX_SIZE] {
    let desc = SgDesc {
        addr: to.addr,
        rkey: to.rkey,
        len,
    };
    ReadMsg::with_data(usr_len, &ReadDest { desc, need_inval })
}

impl LinkCore {
    /// A request was not posted: what that means for the link.
    #[cold]
    fn not_posted(&self, e: PostError) -> IssueError {
        if matches!(e, PostError::Refused(e) if e != ENOMEM.to_errno()) {
            self.fail("posting a request", e_to_errno(e));
        }
        e.into()
    }
}

fn e_to_errno(e: PostError) -> i32 {
    Error::from(e).to_errno()
}
