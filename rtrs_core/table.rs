// SPDX-License-Identifier: GPL-2.0

//! Human-readable tables in debugfs, which client and server have in common.
//!
//! A module walks its own sessions and paths, and passes what it finds to a [`Table`].
//!
//! # Context
//!
//! Rows are written in any context; the rest may sleep.

use core::fmt;
use kernel::{
    prelude::*,
    str::CString, //
};
use rtrs_bindings::{
    debugfs::{
        Directory,
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

use crate::{
    addr::Addr,
    proto::DataDir, //
};

/// A module's directory in debugfs, with its tables. Dropping it waits for tasks that are reading
/// them.
///
/// A table that is open keeps the module loaded.
pub struct DebugFiles {
    _dir: Directory,
}

impl DebugFiles {
    /// Creates the directory. Sleeps. A missing debugfs is not an error.
    ///
    /// # Errors
    ///
    /// `EINVAL` for files that are not static variables of the module that they belong to.
    pub fn new(name: &CStr, connections: &'static File, requests: &'static File) -> Result<Self> {
        let dir = Directory::new(name);
        dir.file(c"connections", connections)?;
        dir.file(c"requests", requests)?;
        Ok(Self { _dir: dir })
    }
}

/// A table that is being written. After a line that could not be written, all others are left out.
pub struct Table<'a, 'f> {
    out: &'a mut fmt::Formatter<'f>,
    result: fmt::Result,
}

impl<'a, 'f> Table<'a, 'f> {
    /// Begins a table of connections.
    pub fn of_connections(out: &'a mut fmt::Formatter<'f>) -> Self {
        Self::new(out, ConnectionHead)
    }

    /// Begins a table of requests.
    pub fn of_requests(out: &'a mut fmt::Formatter<'f>) -> Self {
        Self::new(out, RequestHead)
    }

    fn new(out: &'a mut fmt::Formatter<'f>, head: impl fmt::Display) -> Self {
        let result = write!(out, "{head}");
        Self { out, result }
    }

    fn add(&mut self, line: impl fmt::Display) {
        if self.result.is_ok() {
            self.result = write!(self.out, "{line}");
        }
    }

    /// A row for an address on which the server listens.
    pub fn listening(&mut self, addr: &SockAddr) {
        self.add(ListenRow(addr));
    }

    /// A row for each connection of a path, with which `each` calls the function that it gets. If
    /// there is none, the row is for the path.
    ///
    /// # Errors
    ///
    /// Those of `each`.
    pub fn connections(
        &mut self,
        cells: &PathCells<'_>,
        each: impl FnOnce(&mut dyn FnMut(Connection)) -> Result,
    ) -> Result {
        let mut any = false;

        each(&mut |con| {
            any = true;
            self.add(ConnectionRow(cells, Some(con)));
        })?;
        if !any {
            self.add(ConnectionRow(cells, None));
        }
        Ok(())
    }

    /// A row for the requests of a session that wait for a path, if there are any.
    pub fn parked(&mut self, session: &str, count: u32) {
        if count != 0 {
            self.add(ParkedRow(session, count));
        }
    }

    /// A row for each request of a path, with which `each` calls the function that it gets.
    pub fn requests(
        &mut self,
        session: &str,
        path: &str,
        each: impl FnOnce(&mut dyn FnMut(Flying)),
    ) {
        each(&mut |request| {
            self.add(RequestRow {
                session,
                path,
                request,
            })
        });
    }

    /// The table is complete. Returns the error of the first line that could not be written.
    pub fn end(self) -> fmt::Result {
        self.result
    }
}

/// Heading of a table of [`ConnectionRow`]s.
struct ConnectionHead;

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

/// The columns that all connections of a path have in common.
pub struct PathCells<'a> {
    /// The RDMA device.
    pub device: &'a str,
    /// Port of the device.
    pub port: u32,
    /// The client's address, as [`addr_text`] returns it.
    pub src: &'a CStr,
    /// The server's address, likewise.
    pub dst: &'a CStr,
    /// The session's name.
    pub session: &'a str,
    /// The path's state.
    pub state: &'a str,
}

/// The text for an address, or for one that is not known. May sleep.
///
/// # Errors
///
/// `ENOMEM`.
pub fn addr_text(addr: Option<&Addr>) -> Result<CString> {
    Ok(match addr {
        Some(addr) => CString::try_from_fmt(fmt!("{addr}"))?,
        None => CString::try_from_fmt(fmt!("-"))?,
    })
}

/// The displayed name of the connection manager's port space of an address.
fn space(addr: &SockAddr) -> &'static str {
    match PortSpace::of(addr) {
        PortSpace::Tcp => "TCP",
        PortSpace::Ib => "IB",
    }
}

/// A connection.
pub struct Connection {
    /// The transport that carries its messages.
    pub transport: Transport,
    /// Port of the client's address.
    pub src_port: u16,
    /// Port of the server's address.
    pub dst_port: u16,
    /// Namespace of the ports.
    pub space: &'static str,
    /// Number of the connection on the path.
    pub cid: u16,
    /// The number of the queue pair.
    pub qp: u32,
    /// Requests in flight.
    pub inflight: u64,
    /// Number of work requests on the send queue, and the size of that queue.
    pub send: (u32, u32),
    /// The underlying network interface, if there is one.
    pub interface: Option<InterfaceName>,
}

impl Connection {
    /// The current state of `ep`, an endpoint of the client, if it has a queue pair.
    pub fn connected<H: Handler>(ep: &Endpoint<H>, inflight: u64) -> Option<Self> {
        Self::new(ep, inflight, ep.local(), ep.peer())
    }

    /// The current state of `ep`, an endpoint of the server, if it has a queue pair.
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

/// A row for a connection, or for a path without connections.
struct ConnectionRow<'a>(&'a PathCells<'a>, Option<Connection>);

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
        let [src, dst] = [src, dst].map(|addr| addr.to_str().unwrap_or("?"));

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

/// A row in the same table for an address on which the server listens.
struct ListenRow<'a>(&'a SockAddr);

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
struct RequestHead;

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
    /// Number of the request, which is that of the client's permit and of the server's chunk.
    pub id: usize,
    /// Number of the connection.
    pub cid: u16,
    /// Direction, as the client sees it; a server does not know it before it has read the message.
    pub dir: Option<DataDir>,
    /// Age of the request in nanoseconds.
    pub age_ns: u64,
    /// The event that it waits for.
    pub waits_for: &'static str,
}

/// A row for a session, with the number of its requests that wait for a path.
struct ParkedRow<'a>(&'a str, u32);

impl fmt::Display for ParkedRow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<20} {:<48} {:>5} {:>4} {:<5} {:>12} path: {}",
            self.0, "-", "-", "-", "-", "-", self.1
        )
    }
}

/// A row for a request, with the names of its session and path.
struct RequestRow<'a> {
    session: &'a str,
    path: &'a str,
    request: Flying,
}

impl fmt::Display for RequestRow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dir = match self.request.dir {
            Some(DataDir::Read) => "read",
            Some(DataDir::Write) => "write",
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
