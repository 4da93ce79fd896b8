// SPDX-License-Identifier: GPL-2.0

//! Requests out.
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
    /// Sends request `id`. When it returns without error the completion will
    /// come, or has come already.
    ///
    /// # Errors
    ///
    /// It does not: the turn, with the reason.
    #[inline(always)]
    pub(crate) fn issue<'t>(&self, id: u16, mut turn: Turn<'t>) -> Result<(), Turn<'t>> {
        let core = &*self.core;
        let con = turn.con;
        let Some(tables) = core.tables.as_ref() else {
            return Err(unsent(turn, Unsent::NoPath));
        };
        let Some(ep) = self.endpoint(con) else {
            return Err(unsent(turn, Unsent::NoPath));
        };
        let index = usize::from(id);
        let Some(slot) = tables.slots.get(index) else {
            return Err(unsent(turn, Unsent::Request(EINVAL)));
        };
        let Some(flight) = tables.flights.get(index) else {
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
        if let Err(e) = prepare(&mut building, &mut turn, core) {
            building.cancel(&mut turn.loan);
            return Err(unsent(turn, Unsent::Request(e)));
        }
        // The request may be over before the post returns.
        let layout = turn.layout;
        let to = Remote {
            addr: slot
                .chunk
                .addr
                .load(Relaxed)
                .wrapping_add(u64::from(layout.write_off())),
            rkey: slot.chunk.rkey.load(Relaxed),
        };
        trace::issue(core, id, &turn);
        core.path.stats().issued(&turn);
        slot.stamp.set(layout.dir(), time::now_ns());
        let place = turn.place();
        turn.lend();
        match building.post(ep, con, to, layout.imm(slot.imm)) {
            Ok(()) => Ok(()),
            Err(e) => core.not_posted(place, e),
        }
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

/// Whether a request fits on a path whose limits are not those of the session.
#[cold]
#[inline(never)]
fn fits(io: &Io, room: &Room) -> bool {
    let (len, usr_len) = (io.loan.len(), usize::from(io.layout.usr_len()));
    Layout::new(room, io.layout.dir(), len, usr_len).is_ok()
}

/// Lends the data to the device, or has them copied if they are few, and writes the protocol's
/// message behind the user's.
#[inline(always)]
fn prepare(building: &mut Building<'_, LinkCore>, io: &mut Io, core: &LinkCore) -> Result {
    let (usr_len, len) = (io.layout.usr_len(), io.layout.data_len());
    let at = u32::from(usr_len);
    match io.layout.dir() {
        Dir::Read if len == 0 => building.end_message(at, ReadMsg::without_data(usr_len)),
        Dir::Read => {
            let copies = building.can_copy(io.loan.len());
            let remote = match copies {
                true => building.copy_back(&mut io.loan)?,
                false => describe(building, io)?,
            };
            building.end_message(at, read_to(usr_len, remote, len, !copies))
        }
        Dir::Write => {
            if len != 0 {
                match building.can_copy(io.loan.len()) {
                    true => building.copy_along(&io.loan)?,
                    false => send_mapped(building, io, core)?,
                }
            }
            building.end_message(at, WriteMsg { usr_len }.to_bytes())
        }
    }
}

/// Has the peer write the data to where they go.
#[inline(never)]
fn describe(building: &mut Building<'_, LinkCore>, io: &mut Io) -> Result<Remote> {
    building.borrow(&mut io.loan, Direction::FromDevice)?;
    building.describe(SEGMENT_SIZE, io.layout.data_len(), Access::REMOTE_WRITE)
}

/// Sends the data from where they are. The common case: no registration, one work request, and nobody
/// but our own device ever reads the memory.
#[inline(never)]
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

impl LinkCore {
    /// The request that was lent at `place` was not posted, or a part of it: what that means for the
    /// link.
    #[cold]
    #[inline(never)]
    fn not_posted<'t>(
        &self,
        place: &'t Place<Io>,
        why: Unposted<'_, Self>,
    ) -> Result<(), Turn<'t>> {
        let (e, building) = match why {
            Unposted::Not(e, building) => (e, building),
            // It is looked after with the others in flight.
            Unposted::Broken(e) => {
                self.fail("posting a request", e_to_errno(e));
                return Ok(());
            }
        };
        // It was lent to nobody.
        let Some(mut turn) = place.resume() else {
            return Ok(());
        };
        building.cancel(&mut turn.loan);
        self.path.stats().not_issued(&turn);
        if matches!(e, PostError::Refused(e) if e != ENOMEM.to_errno()) {
            self.fail("posting a request", e_to_errno(e));
        }
        Err(unsent(turn, e.into()))
    }
}

fn e_to_errno(e: PostError) -> i32 {
    Error::from(e).to_errno()
}
