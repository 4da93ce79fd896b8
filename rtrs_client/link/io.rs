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
        Building,
        Claim,
        DmaDirection,
        Endpoint,
        Flight,
        PostError,
        Remote,
        Target,
        Unposted, //
    },
    place::Place,
    time,
};
use rtrs_core::proto::{
    DataDir,
    Layout,
    ReadDest,
    ReadMsg,
    Room,
    SgDesc,
    WriteMsg, //
};

use super::{
    Link,
    LinkCore,
    LinkIo, //
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
    /// Sends the request. If it returns without error, the completion will come, or has come
    /// already. With `OFTEN` the usual ways are inlined.
    ///
    /// # Errors
    ///
    /// Returns the turn, with the reason, if the request was not sent.
    #[inline(always)]
    pub(crate) fn issue<'t, const OFTEN: bool>(&self, turn: Turn<'t>) -> Result<(), Turn<'t>> {
        // Asked first, while there are few values that the call has to leave alone.
        let now = time::now_ns();
        match self.usual.get(usize::from(turn.id)) {
            Some(flight) => self.issue_in::<OFTEN>(flight, turn, now),
            None => self.issue_if_it_fits(turn, now),
        }
    }

    /// As [`issue`](Self::issue), on a link with limits of its own.
    #[cold]
    #[inline(never)]
    fn issue_if_it_fits<'t>(&self, mut turn: Turn<'t>, now: u64) -> Result<(), Turn<'t>> {
        let Some(ready) = self.core.ready.as_ref() else {
            return Err(unsent(turn, Unsent::NoPath));
        };
        if let Some(room) = &ready.narrower {
            let len = turn.loan.len();
            if !fits(&turn.layout, room, len) {
                // The data may only be said to be too long. If nothing is changed, they are.
                let measured = measure(&self.core, &mut turn);
                if measured.is_err() || turn.loan.len() == len {
                    return Err(unsent(turn, Unsent::Request(errno::EMSGSIZE)));
                }
            }
        }
        match ready.flights.get(usize::from(turn.id)) {
            Some(flight) => self.issue_in::<false>(flight, turn, now),
            None => Err(unsent(turn, Unsent::Request(EINVAL))),
        }
    }

    /// Sends the request at the time `now`. The caller has checked its lengths.
    #[inline(always)]
    fn issue_in<'t, const OFTEN: bool>(
        &self,
        flight: &Flight<LinkCore>,
        turn: Turn<'t>,
        now: u64,
    ) -> Result<(), Turn<'t>> {
        let Some(ep) = self.endpoint(turn.con) else {
            return Err(unsent(turn, Unsent::NoPath));
        };
        let Some(claim) = flight.claim() else {
            return Err(unsent(turn, Unsent::Request(EBUSY)));
        };
        flight.cargo().stamp.set_time(now);
        if turn.loan.is_empty() || !claim.can_copy(turn.loan.len()) {
            return match OFTEN {
                true => issue_more(ep, claim, turn),
                false => issue_more_rarely(ep, claim, turn),
            };
        }
        if turn.loan.entries() != 1 {
            return issue_pieces(ep, claim, turn);
        }
        issue_few::<true>(ep, claim, turn)
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

/// Whether a request with `len` bytes of data fits on a path with limits that differ from the
/// session's.
fn fits(layout: &Layout, room: &Room, len: usize) -> bool {
    Layout::new(room, layout.dir(), len, layout.usr_len().into()).is_ok()
}

/// Sends a read of few data, which the peer writes to the bounce buffer.
#[inline(always)]
fn issue_read<'t, const ONE: bool>(
    ep: &Endpoint<LinkCore>,
    mut building: Building<'_, LinkCore>,
    mut turn: Turn<'t>,
) -> Result<(), Turn<'t>> {
    let (usr_len, len) = (turn.layout.usr_len(), turn.layout.data_len());
    let remote = match building.copy_back(&mut turn.loan) {
        Ok(remote) => remote,
        Err(e) => return Err(not_prepared(building, turn, e)),
    };
    match building.end_message(usr_len.into(), read_to(usr_len, remote, len, false)) {
        Ok(()) => send::<ONE>(ep, building, turn, DataDir::Read, len),
        Err(e) => Err(not_prepared(building, turn, e)),
    }
}

/// Sends a write of few data, which are copied.
#[inline(always)]
fn issue_write<'t, const ONE: bool>(
    ep: &Endpoint<LinkCore>,
    mut building: Building<'_, LinkCore>,
    turn: Turn<'t>,
) -> Result<(), Turn<'t>> {
    let usr_len = turn.layout.usr_len();
    if let Err(e) = building.copy_along(&turn.loan) {
        return Err(not_prepared(building, turn, e));
    }
    match building.end_message(usr_len.into(), WriteMsg { usr_len }.to_bytes()) {
        Ok(()) => send::<ONE>(ep, building, turn, DataDir::Write, 0),
        Err(e) => Err(not_prepared(building, turn, e)),
    }
}

/// Sends a request with few data, in one piece if `ONE` is set.
#[inline(always)]
fn issue_few<'t, const ONE: bool>(
    ep: &Endpoint<LinkCore>,
    claim: Claim<'_, LinkCore>,
    turn: Turn<'t>,
) -> Result<(), Turn<'t>> {
    let building = claim.prepare();
    // One after the other, as what differs is known in each.
    match turn.layout.dir() {
        DataDir::Read => issue_read::<ONE>(ep, building, turn),
        DataDir::Write => issue_write::<ONE>(ep, building, turn),
    }
}

/// Sends a request with few data in several pieces. How few was only said so far.
#[inline(never)]
fn issue_pieces<'t>(
    ep: &Endpoint<LinkCore>,
    claim: Claim<'_, LinkCore>,
    mut turn: Turn<'t>,
) -> Result<(), Turn<'t>> {
    if let Err(e) = measure(ep.handler(), &mut turn) {
        drop(claim);
        return Err(unsent(turn, Unsent::Request(e)));
    }
    if turn.loan.is_empty() || !claim.can_copy(turn.loan.len()) {
        return issue_more_rarely(ep, claim, turn);
    }
    issue_few::<false>(ep, claim, turn)
}

/// Sends a request with more data, which are mapped, or without.
#[inline(always)]
fn issue_more<'t>(
    ep: &Endpoint<LinkCore>,
    claim: Claim<'_, LinkCore>,
    turn: Turn<'t>,
) -> Result<(), Turn<'t>> {
    match turn.layout.dir() {
        _ if turn.loan.is_empty() => issue_without_data(ep, claim, turn),
        DataDir::Read => issue_mapped_read(ep, claim, turn),
        DataDir::Write => issue_mapped_write(ep, claim, turn),
    }
}

/// The same, not inlined.
#[inline(never)]
fn issue_more_rarely<'t>(
    ep: &Endpoint<LinkCore>,
    claim: Claim<'_, LinkCore>,
    turn: Turn<'t>,
) -> Result<(), Turn<'t>> {
    issue_more(ep, claim, turn)
}

/// Sends a read of more data, which the peer writes to their destination.
#[inline(always)]
fn issue_mapped_read<'t>(
    ep: &Endpoint<LinkCore>,
    claim: Claim<'_, LinkCore>,
    mut turn: Turn<'t>,
) -> Result<(), Turn<'t>> {
    let mut building = claim.prepare();
    let (remote, described) = match describe(&mut building, &mut turn) {
        Ok(described) => described,
        Err(e) => return not_mapped(ep, building, turn, e),
    };
    let (usr_len, len) = (turn.layout.usr_len(), turn.layout.data_len());
    if described != u64::from(len) {
        return issue_measured(ep, building, turn);
    }
    match building.end_message(usr_len.into(), read_to(usr_len, remote, len, true)) {
        Ok(()) => send::<false>(ep, building, turn, DataDir::Read, len),
        Err(e) => Err(not_prepared(building, turn, e)),
    }
}

/// Sends a write of more data, from where they are. The common case: no registration, one work
/// request, and only the local device reads the memory.
#[inline(always)]
fn issue_mapped_write<'t>(
    ep: &Endpoint<LinkCore>,
    claim: Claim<'_, LinkCore>,
    mut turn: Turn<'t>,
) -> Result<(), Turn<'t>> {
    let mut building = claim.prepare();
    let gathered = match building.borrow(&mut turn.loan, DmaDirection::ToDevice) {
        Ok(segments) if segments > ep.handler().direct_segments.load(Relaxed) => {
            return issue_registered_write(ep, building, turn);
        }
        Ok(_) => building.gather(),
        Err(e) => Err(e),
    };
    match gathered {
        Ok(len) => end_write(ep, building, turn, len),
        Err(e) => not_mapped(ep, building, turn, e),
    }
}

/// Sends a write of mapped data in more pieces than there are elements for.
#[inline(never)]
fn issue_registered_write<'t>(
    ep: &Endpoint<LinkCore>,
    mut building: Building<'_, LinkCore>,
    turn: Turn<'t>,
) -> Result<(), Turn<'t>> {
    match building.describe() {
        Ok((_, len)) => end_write(ep, building, turn, len),
        Err(e) => not_mapped(ep, building, turn, e),
    }
}

/// Sends a write of mapped data, which has `len` bytes.
#[inline(always)]
fn end_write<'t>(
    ep: &Endpoint<LinkCore>,
    mut building: Building<'_, LinkCore>,
    turn: Turn<'t>,
    len: u64,
) -> Result<(), Turn<'t>> {
    if len != u64::from(turn.layout.data_len()) {
        return issue_measured(ep, building, turn);
    }
    let usr_len = turn.layout.usr_len();
    match building.end_message(usr_len.into(), WriteMsg { usr_len }.to_bytes()) {
        Ok(()) => send::<false>(ep, building, turn, DataDir::Write, 0),
        Err(e) => Err(not_prepared(building, turn, e)),
    }
}

/// Sends a request without data.
#[inline(never)]
fn issue_without_data<'t>(
    ep: &Endpoint<LinkCore>,
    claim: Claim<'_, LinkCore>,
    turn: Turn<'t>,
) -> Result<(), Turn<'t>> {
    let mut building = claim.prepare();
    let (usr_len, dir) = (turn.layout.usr_len(), turn.layout.dir());
    let at = u32::from(usr_len);
    let ended = match dir {
        DataDir::Read => building.end_message(at, ReadMsg::without_data(usr_len)),
        DataDir::Write => building.end_message(at, WriteMsg { usr_len }.to_bytes()),
    };
    match ended {
        Ok(()) => send::<false>(ep, building, turn, dir, 0),
        Err(e) => Err(not_prepared(building, turn, e)),
    }
}

/// Handles data that could not be mapped or registered. They may be few, which are copied however
/// they lie in memory, and only be said to be more.
#[cold]
#[inline(never)]
fn not_mapped<'t>(
    ep: &Endpoint<LinkCore>,
    building: Building<'_, LinkCore>,
    turn: Turn<'t>,
    e: Error,
) -> Result<(), Turn<'t>> {
    match turn.measured {
        false if e == EINVAL || e == ENOMEM => issue_measured(ep, building, turn),
        _ => Err(not_prepared(building, turn, e)),
    }
}

/// Sends a request with mapped data which are not as long as their user has said: once more, by the
/// length that the list has.
#[cold]
#[inline(never)]
fn issue_measured<'t>(
    ep: &Endpoint<LinkCore>,
    building: Building<'_, LinkCore>,
    mut turn: Turn<'t>,
) -> Result<(), Turn<'t>> {
    let flight = building.flight();
    building.cancel(&mut turn.loan);
    let measured = match turn.measured {
        false => measure(ep.handler(), &mut turn),
        // Its user changes the list, or the device maps something else.
        true => Err(EINVAL),
    };
    match (measured, flight.claim()) {
        (Ok(()), Some(claim)) => issue_pieces(ep, claim, turn),
        (Ok(()), None) => Err(unsent(turn, Unsent::Request(EBUSY))),
        (Err(e), _) => Err(unsent(turn, Unsent::Request(e))),
    }
}

/// Finds out how long the data are, unless that was done, and lays the request out by that.
///
/// # Errors
///
/// `EMSGSIZE` if it does not fit on this path; nothing is changed then.
#[inline(never)]
fn measure(link: &LinkCore, io: &mut Io) -> Result {
    if io.measured {
        return Ok(());
    }
    let room = link.path.session.room().ok_or(EINVAL)?;
    let narrower = link.ready.as_ref().and_then(|r| r.narrower.as_ref());
    let (said, layout) = (io.loan.len(), &mut io.layout);
    let (dir, usr_len) = (layout.dir(), layout.usr_len());
    io.measured = io.loan.correct(|len| {
        len == said
            || narrower.is_none_or(|room| fits(layout, room, len))
                && layout.set(room, dir, len, usr_len.into())
    });
    if io.measured {
        Ok(())
    } else {
        Err(errno::EMSGSIZE)
    }
}

/// Handles a request that could not be prepared.
#[cold]
#[inline(never)]
fn not_prepared<'t>(building: Building<'_, LinkCore>, mut turn: Turn<'t>, e: Error) -> Turn<'t> {
    building.cancel(&mut turn.loan);
    unsent(turn, Unsent::Request(e))
}

/// Posts what was prepared, at `skip` bytes from the start of the chunk; see [`Layout::write_off`].
/// `dir` is the direction in the layout; with `ONE` the data has one entry.
#[inline(always)]
fn send<'t, const ONE: bool>(
    ep: &Endpoint<LinkCore>,
    building: Building<'_, LinkCore>,
    turn: Turn<'t>,
    dir: DataDir,
    skip: u32,
) -> Result<(), Turn<'t>> {
    let (core, flight) = (ep.handler(), building.flight());
    let link_io = flight.cargo();
    let off = turn.layout.off();
    trace::issue(core, flight, &turn);
    let entries = match ONE {
        true => 1,
        false => turn.loan.entries(),
    };
    core.path.stats.issued(dir, off, entries);
    link_io.stamp.set_dir(dir);
    let place = turn.place();
    turn.lend();
    // The request may be over before the post returns.
    match building.post(ep, To { link_io, skip, off }) {
        Ok(()) => Ok(()),
        Err(e) => not_posted(ep, place, e),
    }
}

/// Where a request goes: `skip` bytes behind the start of the chunk, with its message at `off`.
struct To<'a> {
    link_io: &'a LinkIo,
    skip: u32,
    off: u32,
}

impl Target for To<'_> {
    #[inline(always)]
    fn remote(&self) -> Remote {
        let chunk = &self.link_io.chunk;

        Remote {
            addr: chunk.addr.load(Relaxed).wrapping_add(self.skip.into()),
            rkey: chunk.rkey.load(Relaxed),
        }
    }

    #[inline(always)]
    fn value(&self) -> u32 {
        self.link_io.imm.at(self.off)
    }
}

/// Makes the peer write the data to their destination. Also returns the number of bytes.
#[inline(always)]
fn describe(building: &mut Building<'_, LinkCore>, io: &mut Io) -> Result<(Remote, u64)> {
    building.borrow(&mut io.loan, DmaDirection::FromDevice)?;
    building.describe()
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
    core.path.stats.not_issued(&turn);
    if matches!(e, PostError::Refused(e) if e != ENOMEM.to_errno()) {
        // Until the owner task takes the link away, it may refuse a request that it has refused
        // before. That says nothing about the request.
        if core.has_failed() {
            return Err(unsent(turn, Unsent::NoPath));
        }
        core.fail("posting a request", e_to_errno(e));
    }
    Err(unsent(turn, e.into()))
}

fn e_to_errno(e: PostError) -> i32 {
    Error::from(e).to_errno()
}
