// SPDX-License-Identifier: GPL-2.0

//! Tables for humans, in debugfs.

use core::fmt;
use kernel::prelude::*;
use rtrs_bindings::{
    debugfs::{
        Dir as Directory,
        File, //
    },
    ib::{
        Endpoint,
        Handler,
        InterfaceName,
        PortSpace,
        SockAddr,
        Transport, //
    },
};

use crate::proto::Dir;

/// A module's directory in debugfs, with its tables. Dropping it waits for who is reading them.
///
/// A table that is open keeps the module loaded.
pub struct Tables {
    _dir: Directory,
}

impl Tables {
    /// Makes it. Sleeps. Without debugfs there is none, which is no error.
    ///
    /// # Errors
    ///
    /// `EINVAL` for files that are not static variables of the module they are of.
    pub fn new(name: &CStr, connections: &'static File, requests: &'static File) -> Result<Self> {
        let dir = Directory::new(name);
        dir.file(c"connections", connections)?;
        dir.file(c"requests", requests)?;
        Ok(Self { _dir: dir })
    }
}

/// Heading of a table of [`ConnectionRow`]s.
pub struct ConnectionHead;

impl fmt::Display for ConnectionHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<6} {:<12} {:>4} {:<15} {:<24} {:>5} {:<24} {:>5} {:<5} {:<20} {:>4} {:>8} {:<13} \
             {:>8} {:>11}",
            "Type",
            "Device",
            "Port",
            "Netdev",
            "Source",
            "SPort",
            "Destination",
            "DPort",
            "Space",
            "Session",
            "CID",
            "QPN",
            "State",
            "Inflight",
            "SendQ"
        )
    }
}

/// What the connections of a path have in common.
pub struct PathCells<'a> {
    /// The RDMA device.
    pub device: &'a str,
    /// Its port.
    pub port: u32,
    /// Addresses.
    pub src: &'a str,
    /// Addresses.
    pub dst: &'a str,
    /// The session's name.
    pub session: &'a str,
    /// The path's state.
    pub state: &'a str,
}

/// Which namespace of the connection manager a port is in, as it is shown.
fn space(addr: &SockAddr) -> &'static str {
    match PortSpace::of(addr) {
        PortSpace::Tcp => "TCP",
        PortSpace::Ib => "IB",
    }
}

/// A connection.
pub struct Connection {
    /// What carries its messages.
    pub transport: Transport,
    /// Port of the client's address.
    pub src_port: u16,
    /// Port of the server's address.
    pub dst_port: u16,
    /// Namespace of the ports.
    pub space: &'static str,
    /// Its number on the path.
    pub cid: u16,
    /// The number of the queue pair.
    pub qp: u32,
    /// Requests in flight.
    pub inflight: u64,
    /// Work requests on the send queue, and how many fit.
    pub send: (u32, u32),
    /// The network interface below, if there is one.
    pub interface: Option<InterfaceName>,
}

impl Connection {
    /// What `ep`, which the client has, is now, if it has a queue pair.
    pub fn connected<H: Handler>(ep: &Endpoint<H>, inflight: u64) -> Option<Self> {
        Self::new(ep, inflight, ep.local(), ep.peer())
    }

    /// What `ep`, which the server has, is now, if it has a queue pair.
    pub fn accepted<H: Handler>(ep: &Endpoint<H>, inflight: u64) -> Option<Self> {
        Self::new(ep, inflight, ep.peer(), ep.local())
    }

    fn new<H: Handler>(
        ep: &Endpoint<H>,
        inflight: u64,
        src: Option<SockAddr>,
        dst: Option<SockAddr>,
    ) -> Option<Self> {
        let qp = ep.qp()?;

        Some(Self {
            transport: ep
                .device()
                .map_or(Transport::Other, |device| device.transport(ep.port())),
            src_port: src.as_ref().map_or(0, SockAddr::port),
            dst_port: dst.as_ref().map_or(0, SockAddr::port),
            space: dst.as_ref().map_or("-", space),
            cid: ep.index(),
            qp: qp.number(),
            inflight,
            send: (qp.send_used(), qp.send_depth()),
            interface: ep.interface(),
        })
    }
}

/// A connection, or a path without any.
pub struct ConnectionRow<'a>(pub &'a PathCells<'a>, pub Option<Connection>);

impl fmt::Display for ConnectionRow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PathCells {
            device,
            port,
            src,
            dst,
            session,
            state,
        } = self.0;

        match &self.1 {
            None => writeln!(
                f,
                "{:<6} {device:<12} {port:>4} {:<15} {src:<24} {:>5} {dst:<24} {:>5} {:<5} \
                 {session:<20} {:>4} {:>8} {state:<13} {:>8} {:>11}",
                "-", "-", "-", "-", "-", "-", "-", "-", "-"
            ),
            Some(con) => writeln!(
                f,
                "{:<6} {device:<12} {port:>4} {:<15} {src:<24} {:>5} {dst:<24} {:>5} {:<5} \
                 {session:<20} {:>4} {:>8} {state:<13} {:>8} {:>5}/{:<5}",
                con.transport.as_str(),
                con.interface.as_ref().map_or("-", |name| name.as_str()),
                con.src_port,
                con.dst_port,
                con.space,
                con.cid,
                con.qp,
                con.inflight,
                con.send.0,
                con.send.1
            ),
        }
    }
}

/// An address where connections are accepted, in the same table.
pub struct ListenRow<'a>(pub &'a SockAddr);

impl fmt::Display for ListenRow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<6} {:<12} {:>4} {:<15} {:<24} {:>5} {:<24} {:>5} {:<5} {:<20} {:>4} {:>8} {:<13} \
             {:>8} {:>11}",
            "-",
            "-",
            "-",
            "-",
            "*",
            self.0.port(),
            "*",
            "*",
            space(self.0),
            "-",
            "-",
            "-",
            "listening",
            "-",
            "-"
        )
    }
}

/// Heading of a table of [`RequestRow`]s.
pub struct RequestHead;

impl fmt::Display for RequestHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<20} {:<48} {:>5} {:>4} {:<5} {:>12} Waits for",
            "Session", "Path", "ID", "CID", "Dir", "Age/us"
        )
    }
}

/// A request in flight.
pub struct Flying {
    /// Its number, that of the client's permit and of the server's chunk.
    pub id: usize,
    /// The connection.
    pub cid: u16,
    /// Direction, as the client sees it; a server does not know it before it read the message.
    pub dir: Option<Dir>,
    /// Its age in nanoseconds.
    pub age_ns: u64,
    /// What it waits for.
    pub waits_for: &'static str,
}

/// A session, and how many of its requests wait for a path.
pub struct ParkedRow<'a>(pub &'a str, pub u32);

impl fmt::Display for ParkedRow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<20} {:<48} {:>5} {:>4} {:<5} {:>12} path: {}",
            self.0, "-", "-", "-", "-", "-", self.1
        )
    }
}

/// A request, with the names of its session and path.
pub struct RequestRow<'a> {
    /// The session's name.
    pub session: &'a str,
    /// The path's name.
    pub path: &'a str,
    /// The request.
    pub request: Flying,
}

impl fmt::Display for RequestRow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dir = match self.request.dir {
            Some(Dir::Read) => "read",
            Some(Dir::Write) => "write",
            None => "-",
        };

        writeln!(
            f,
            "{:<20} {:<48} {:>5} {:>4} {dir:<5} {:>12} {}",
            self.session,
            self.path,
            self.request.id,
            self.request.cid,
            self.request.age_ns / 1000,
            self.request.waits_for
        )
    }
}
