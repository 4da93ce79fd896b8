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
        Chain,
        Direction,
        Endpoint,
        PostError,
        QueuePair,
        Remote,
        Sge,
        Sges, //
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
    mapping::Fresh,
    Link,
    LinkCore,
    Request,
    Tables,
    MAX_SEND_SGES, //
};
use crate::{
    atomic::Relaxed,
    logic::request_state::Needs,
    session::{
        Io,
        MessageSlot, //
    },
    trace,
};

/// Why a request did not go out on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IssueError {
    /// This link is no use, another one may be.
    Link,
    /// The driver did not like it: the end of this link, and of the request, if the
    /// driver of another link says the same.
    Refused(Error),
    /// This link's queue is full for the moment.
    Full,
    /// The request, or the moment, is no good: the caller gets this.
    Request(Error),
}

impl From<PostError> for IssueError {
    fn from(e: PostError) -> Self {
        match e {
            PostError::Refused(e) if e == ENOMEM.to_errno() => Self::Full,
            // A device that is broken, whatever it is asked.
            PostError::Refused(e) if e == EIO.to_errno() || e == ENODEV.to_errno() => Self::Link,
            PostError::Refused(e) => Self::Refused(Error::from_errno(e)),
            PostError::Closed | PostError::Partial(_) => Self::Link,
            PostError::Full => Self::Full,
            PostError::Invalid => Self::Request(EINVAL),
        }
    }
}

impl From<Error> for IssueError {
    fn from(e: Error) -> Self {
        Self::Request(e)
    }
}

impl Link {
    /// The connection for a request: the service connection, a polled one, or the one
    /// of the CPU that took the permit.
    #[inline]
    fn con_of(&self, io: &Io) -> u16 {
        if let Some(con) = io.polled.and_then(|queue| self.core.polled_con(queue)) {
            return con;
        }
        let io_cons = self.core.io_cons();
        match (io.admin, io_cons) {
            (true, _) | (_, 0) => 0,
            // CAST: Less than `io_cons`. A division is for CPUs that have no connection.
            (false, n) if io.cpu < u32::from(n) => 1 + io.cpu as u16,
            (false, n) => 1 + (io.cpu % u32::from(n)) as u16,
        }
    }

    /// Requests in flight on the connection for `io`. Any context.
    pub(crate) fn inflight_beside(&self, io: &Io) -> u64 {
        self.core.inflight_on(self.con_of(io))
    }

    /// Sends request `id`. When it returns without error the completion will
    /// come, or has come already.
    pub(crate) fn issue(&self, id: u16, io: &Io) -> Result<(), IssueError> {
        let core = &*self.core;
        let tables = core.tables.as_ref().ok_or(IssueError::Link)?;
        let request = tables.requests.get(usize::from(id)).ok_or(EINVAL)?;
        let geometry = core.geometry().ok_or(IssueError::Link)?;
        let layout = Layout::new(geometry, io.dir, io.data_len, io.usr_len)
            .map_err(|e| Error::from_errno(e.to_errno()))?;
        let con = self.con_of(io);
        let qp = self
            .endpoint(con)
            .and_then(Endpoint::qp)
            .ok_or(IssueError::Link)?;
        let out = Outgoing {
            core,
            tables,
            request,
            qp,
            layout,
            id,
            con,
        };
        match layout.dir() {
            Dir::Write => out.write(io),
            Dir::Read => out.read(io),
        }?;
        // The request may be over by now.
        trace::issue(core, con, id, io);
        core.path.stats().issued(
            io.dir,
            io.data_len.saturating_add(io.usr_len),
            io.sg.nents(),
            io.failover,
        );
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

/// A request on its way out.
struct Outgoing<'a> {
    core: &'a LinkCore,
    tables: &'a Tables,
    request: &'a Request,
    qp: &'a QueuePair,
    layout: Layout,
    id: u16,
    con: u16,
}

impl Outgoing<'_> {
    /// Where the request is written to: the part of the chunk behind the place
    /// of the data, or the whole.
    fn target(&self) -> Result<(Remote, u32)> {
        let chunk = self.tables.chunks.get(usize::from(self.id)).ok_or(EINVAL)?;
        let geometry = self.core.geometry().ok_or(EINVAL)?;
        let imm = self
            .layout
            .imm(geometry, self.id)
            .map_err(|e| Error::from_errno(e.to_errno()))?;
        Ok((
            Remote {
                addr: chunk
                    .addr
                    .load(Relaxed)
                    .wrapping_add(u64::from(self.layout.write_off())),
                rkey: chunk.rkey.load(Relaxed),
            },
            imm,
        ))
    }

    /// Puts the protocol's message behind the user's; returns both.
    fn header(&self, msg: &[u8]) -> Result<Sge<'_>> {
        let slot = MessageSlot::of(self.id);
        let region = self.tables.messages.get(slot.region).ok_or(EINVAL)?;
        let usr_len = usize::from(self.layout.usr_len());
        // Not `Region::write()`, which hands over what it writes: all of it is, next.
        region.pages().write(slot.offset + usr_len, msg)?;
        let len = self.layout.header_len() as usize;
        region.sync_for_device(slot.offset, len);
        region.sge(slot.offset, len)
    }

    /// Puts the request in flight and posts it; on failure everything is as
    /// before, and `Err` says so.
    #[inline(always)]
    fn post<const N: usize>(
        &self,
        chain: &mut Chain<'_, N>,
        needs: Needs,
        token: Option<u32>,
    ) -> Result<(), IssueError> {
        let now_ns = time::now_ns();
        let mut started = None;
        // With the queue locked: a server may answer what it has not got yet, and the key must
        // not be taken back before it was registered.
        let begin = || {
            let gen = self.request.state.start(self.con, needs);
            let ok = match &gen {
                Ok(gen) => {
                    self.request.sent_gen.store(gen.as_u32(), Relaxed);
                    self.core.count_inflight(self.con, 1);
                    self.request.stamp.set(self.layout.dir(), now_ns);
                    true
                }
                Err(_) => false,
            };
            started = Some(gen);
            ok
        };
        // From there on completions may come, and the request may be somebody
        // else's before the post has returned.
        match chain.post_with(token, begin) {
            Ok(()) => Ok(()),
            Err(e) if e.is_partial() => {
                // A part is on its way. The queue pair is in error state; the
                // request is looked after with the others in flight.
                self.core.fail("posting a request", e_to_errno(e));
                Ok(())
            }
            Err(e) => {
                let gen = match started {
                    Some(Ok(gen)) => gen,
                    // Nothing has begun.
                    Some(Err(_)) => {
                        self.request.mapped.undo();
                        return Err(IssueError::Request(EBUSY));
                    }
                    None => {
                        self.request.mapped.undo();
                        return Err(e.into());
                    }
                };
                if self.request.state.abort(gen).is_err() {
                    // A server answered what it never got: it is over, and was
                    // completed.
                    return Ok(());
                }
                self.core.count_inflight(self.con, -1);
                self.request.mapped.undo();
                if matches!(e, PostError::Refused(e) if e != ENOMEM.to_errno()) {
                    self.core.fail("posting a request", e_to_errno(e));
                }
                Err(e.into())
            }
        }
    }

    fn write(&self, io: &Io) -> Result<(), IssueError> {
        let mut msg = [0u8; WriteMsg::SIZE];
        WriteMsg {
            usr_len: self.layout.usr_len(),
        }
        .write(&mut msg)
        .map_err(|_| EINVAL)?;
        let header = self.header(&msg)?;
        let (to, imm) = self.target()?;
        let token = Some(u32::from(self.id));

        if self.layout.data_len() == 0 {
            let sges = Sges::from(header);
            return self.post(
                Chain::<1>::new(self.qp).rdma_write_imm(&sges, to, imm),
                Needs::response(),
                None,
            );
        }

        let domain = self.qp.domain();
        let map = Fresh::map(io, domain, Direction::ToDevice)?;
        let segments = map.sg()?.segments() as usize;
        let direct = self
            .qp
            .max_sges()
            .min(MAX_SEND_SGES as usize)
            .saturating_sub(1);
        if segments <= direct {
            // The common case: no registration, one work request, and nobody
            // but our own device ever reads the memory.
            let mut sges = Sges::<{ MAX_SEND_SGES as usize }>::new();
            sges.push_mapped(domain, map.sg()?)?;
            sges.push(header)?;
            map.keep(&self.request.mapped)?;
            return self.post(
                Chain::<1>::new(self.qp).rdma_write_imm(&sges, to, imm),
                Needs::response().and_sent(),
                token,
            );
        }

        let mr = &self.request.mr;
        let remote = mr.map_sg(map.sg()?, SEGMENT_SIZE, self.layout.data_len())?;
        let mut sges = Sges::<2>::new();
        sges.push(mr.sge()?)?;
        sges.push(header)?;
        map.keep(&self.request.mapped)?;
        self.request.rkey.store(remote.rkey, Relaxed);
        self.post(
            Chain::<2>::new(self.qp)
                .reg_mr(mr, Access::LOCAL_READ)
                .rdma_write_imm(&sges, to, imm),
            Needs::response().and_sent().and_invalidated(),
            token,
        )
    }

    fn read(&self, io: &Io) -> Result<(), IssueError> {
        let (to, imm) = self.target()?;
        let usr_len = self.layout.usr_len();
        let mut msg = [0u8; ReadMsg::MAX_SIZE];

        if self.layout.data_len() == 0 {
            let n = ReadMsg {
                usr_len,
                dest: None,
            }
            .write(&mut msg)
            .map_err(|_| EINVAL)?;
            let sges = Sges::from(self.header(msg.get(..n).ok_or(EINVAL)?)?);
            return self.post(
                Chain::<1>::new(self.qp).rdma_write_imm(&sges, to, imm),
                Needs::response(),
                None,
            );
        }

        let map = Fresh::map(io, self.qp.domain(), Direction::FromDevice)?;
        let mr = &self.request.mr;
        let len = self.layout.data_len();
        let remote = mr.map_sg(map.sg()?, SEGMENT_SIZE, len)?;
        let n = ReadMsg {
            usr_len,
            dest: Some(ReadDest {
                desc: SgDesc {
                    addr: remote.addr,
                    rkey: remote.rkey,
                    len,
                },
                need_inval: true,
            }),
        }
        .write(&mut msg)
        .map_err(|_| EINVAL)?;
        let sges = Sges::from(self.header(msg.get(..n).ok_or(EINVAL)?)?);
        map.keep(&self.request.mapped)?;
        self.request.rkey.store(remote.rkey, Relaxed);
        self.post(
            Chain::<2>::new(self.qp)
                .reg_mr(mr, Access::REMOTE_WRITE)
                .rdma_write_imm(&sges, to, imm),
            Needs::response().and_invalidated(),
            None,
        )
    }
}

fn e_to_errno(e: PostError) -> i32 {
    Error::from(e).to_errno()
}
