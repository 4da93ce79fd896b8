// SPDX-License-Identifier: GPL-2.0

//! Sending of requests.
//!
//! # Context
//!
//! Any; the caller is inside an RCU read-side section, which keeps the link.

use kernel::prelude::*;
use rtrs_bindings::{
    errno,
    ib::{
        Access,
        Building,
        Direction,
        Endpoint,
        PostError,
        Remote,
        Unposted, //
    },
    place::Place,
    time,
};
use rtrs_core::proto::{
    geometry::SEGMENT_SIZE,
    Dir,
    Layout,
    ReadDest,
    ReadMsg,
    Room,
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
        unsent,
        Io,
        Turn,
        Unsent, //
    },
    trace,
};

impl Link {
    /// Sends request `id`. If it returns without error, the completion will come, or has come
    /// already.
    ///
    /// # Errors
    ///
    /// Returns the turn, with the reason, if the request was not sent.
    #[inline(always)]
    pub(crate) fn issue<'t>(&self, id: usize, mut turn: Turn<'t>) -> Result<(), Turn<'t>> {
        let core = &*self.core;
        let con = turn.con;
        let Some(tables) = core.tables.as_ref() else {
            return Err(unsent(turn, Unsent::NoPath));
        };
        let Some(ep) = self.endpoint(con) else {
            return Err(unsent(turn, Unsent::NoPath));
        };
        let Some(flight) = tables.flights.get(id) else {
            return Err(unsent(turn, Unsent::Request(EINVAL)));
        };
        if let Some(room) = &tables.narrower {
            if !fits(&turn, room) {
                return Err(unsent(turn, Unsent::Request(errno::EMSGSIZE)));
            }
        }
        let Some(mut building) = flight.build() else {
            return Err(unsent(turn, Unsent::Request(EBUSY)));
        };
        let skip = match prepare(&mut building, &mut turn, core) {
            Ok(skip) => skip,
            Err(e) => {
                building.cancel(&mut turn.loan);
                return Err(unsent(turn, Unsent::Request(e)));
            }
        };
        let slot = flight.cargo();
        let off = turn.layout.off();
        trace::issue(core, flight, &turn);
        core.path.stats().issued(&turn, off);
        slot.stamp.set(turn.layout.dir(), time::now_ns());
        let place = turn.place();
        turn.lend();
        // The request may be over before the post returns.
        let to = Remote {
            addr: slot.chunk.addr.load(Relaxed).wrapping_add(skip.into()),
            rkey: slot.chunk.rkey.load(Relaxed),
        };
        let imm = slot.imm.at(off);
        if building.is_mapped() {
            return post_mapped(ep, place, building, to, imm);
        }
        match building.post(ep, to, imm) {
            Ok(()) => Ok(()),
            Err(e) => not_posted(ep, place, e),
        }
    }

    /// Sends a heartbeat on the service connection, unless one is on its way. The link fails if
    /// that is not possible.
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

/// Whether a request fits on a path with limits that differ from the session's.
#[cold]
#[inline(never)]
fn fits(io: &Io, room: &Room) -> bool {
    let (len, usr_len) = (io.loan.len(), usize::from(io.layout.usr_len()));
    Layout::new(room, io.layout.dir(), len, usr_len).is_ok()
}

/// Lends the data to the device, or copies them if they are small, and writes the protocol's
/// message behind the user's. Returns the offset in the chunk where the write starts, in bytes; see
/// [`Layout::write_off`].
#[inline(always)]
fn prepare(building: &mut Building<'_, LinkCore>, io: &mut Io, core: &LinkCore) -> Result<u32> {
    let (usr_len, len) = (io.layout.usr_len(), io.layout.data_len());
    let at = u32::from(usr_len);
    match io.layout.dir() {
        Dir::Read if len == 0 => building.end_message(at, ReadMsg::without_data(usr_len))?,
        Dir::Read => {
            let copies = building.can_copy(io.loan.len());
            let remote = match copies {
                true => building.copy_back(&mut io.loan)?,
                false => describe(building, io)?,
            };
            building.end_message(at, read_to(usr_len, remote, len, !copies))?;
            return Ok(len);
        }
        Dir::Write => {
            if len != 0 {
                match building.can_copy(io.loan.len()) {
                    true => building.copy_along(&io.loan)?,
                    false => send_mapped(building, io, core)?,
                }
            }
            building.end_message(at, WriteMsg { usr_len }.to_bytes())?;
        }
    }
    Ok(0)
}

/// Makes the peer write the data to their destination.
#[inline(always)]
fn describe(building: &mut Building<'_, LinkCore>, io: &mut Io) -> Result<Remote> {
    building.borrow(&mut io.loan, Direction::FromDevice)?;
    building.describe(SEGMENT_SIZE, io.layout.data_len(), Access::REMOTE_WRITE)
}

/// Sends the data from where they are. The common case: no registration, one work request, and only
/// the local device reads the memory.
#[inline(always)]
fn send_mapped(building: &mut Building<'_, LinkCore>, io: &mut Io, core: &LinkCore) -> Result {
    let segments = building.borrow(&mut io.loan, Direction::ToDevice)?;
    if segments > core.direct_segments.load(Relaxed) {
        building.describe(SEGMENT_SIZE, io.layout.data_len(), Access::LOCAL_READ)?;
    }
    Ok(())
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

/// Posts a request with mapped data. Separate from requests without, which need none of this.
#[inline(never)]
fn post_mapped<'t>(
    ep: &Endpoint<LinkCore>,
    place: &'t Place<Io>,
    building: Building<'_, LinkCore>,
    to: Remote,
    imm: u32,
) -> Result<(), Turn<'t>> {
    match building.post(ep, to, imm) {
        Ok(()) => Ok(()),
        Err(e) => not_posted(ep, place, e),
    }
}

/// Handles a request that was lent at `place` and that was not posted, or only in part.
#[cold]
#[inline(never)]
fn not_posted<'t>(
    ep: &Endpoint<LinkCore>,
    place: &'t Place<Io>,
    why: Unposted<'_, LinkCore>,
) -> Result<(), Turn<'t>> {
    let (core, e) = (ep.handler(), why.error);
    let Some(building) = why.building else {
        // It is collected with the others in flight.
        core.fail("posting a request", e_to_errno(e));
        return Ok(());
    };
    // It was not lent.
    let Some(mut turn) = place.resume() else {
        return Ok(());
    };
    building.cancel(&mut turn.loan);
    core.path.stats().not_issued(&turn);
    if matches!(e, PostError::Refused(e) if e != ENOMEM.to_errno()) {
        core.fail("posting a request", e_to_errno(e));
    }
    Err(unsent(turn, e.into()))
}

fn e_to_errno(e: PostError) -> i32 {
    Error::from(e).to_errno()
}
