// SPDX-License-Identifier: GPL-2.0

//! `/sys/kernel/debug/rtrs_client`: what is on the wire, for humans.
//!
//! * `connections`: all connections, and the paths that have none.
//! * `requests`: all requests in flight, with their age.

use kernel::{
    debugfs::{
        Dir,
        File,
        Writer, //
    },
    fmt,
    prelude::*,
    str::CString,
    sync::{
        rcu,
        Arc, //
    },
};
use rtrs_core::{
    addr::Addr,
    proto::Dir as Direction, //
};

use crate::{
    client,
    path::{
        Path,
        PathName, //
    },
    session::Session, //
};

/// The directory.
pub(crate) struct Debugfs {
    // Dropped first: waits for readers.
    _connections: Pin<KBox<File<Connections>>>,
    _requests: Pin<KBox<File<Requests>>>,
}

impl Debugfs {
    /// Makes it. Sleeps. Without debugfs there is none, which is no error.
    pub(crate) fn new() -> Result<Self> {
        let dir = Dir::new(c"rtrs_client");
        Ok(Self {
            _connections: KBox::pin_init(
                dir.read_only_file(c"connections", Connections),
                GFP_KERNEL,
            )?,
            _requests: KBox::pin_init(dir.read_only_file(c"requests", Requests), GFP_KERNEL)?,
        })
    }
}

struct Connections;

struct Requests;

fn for_each_path(mut f: impl FnMut(&Session, &Arc<Path>) -> Result) -> fmt::Result {
    let mut result = Ok(());
    for session in client::sessions().map_err(|_| fmt::Error)?.iter() {
        session.for_each_path(|path| {
            if result.is_ok() {
                result = f(session, path);
            }
        });
    }
    result.map_err(|_| fmt::Error)
}

fn addr_text(addr: Option<Addr>) -> Result<CString> {
    Ok(match addr {
        Some(addr) => CString::try_from_fmt(fmt!("{addr}"))?,
        None => CString::try_from_fmt(fmt!("-"))?,
    })
}

impl Writer for Connections {
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<12} {:>4} {:<15} {:<24} {:<24} {:<20} {:>4} {:>8} {:<13} {:>8} {:>11}",
            "Device",
            "Port",
            "Netdev",
            "Source",
            "Destination",
            "Session",
            "CID",
            "QPN",
            "State",
            "Inflight",
            "SendQ"
        )?;
        for_each_path(|session, path| {
            let via = path.via();
            let device = match &via {
                Some(via) => via.name(),
                None => "-",
            };
            let port = via.as_ref().map_or(0, |via| via.port);
            let (src, dst) = (addr_text(path.src_addr())?, addr_text(path.dst_addr())?);
            let (src, dst) = (src.to_str()?, dst.to_str()?);
            let name = session.name().as_str();
            let state = path.status(|s| s.machine.state()).as_str();
            // From here on nothing sleeps.
            let guard = rcu::read_lock();
            let Some(link) = path.link(&guard) else {
                writeln!(
                    f,
                    "{device:<12} {port:>4} {:<15} {src:<24} {dst:<24} {name:<20} {:>4} {:>8} \
                     {state:<13} {:>8} {:>11}",
                    "-", "-", "-", "-", "-"
                )?;
                return Ok(());
            };
            let mut result = Ok(());
            link.for_each_connection(|con| {
                let interface = con.interface.as_ref().map_or("-", |name| name.as_str());
                let line = writeln!(
                    f,
                    "{device:<12} {port:>4} {interface:<15} {src:<24} {dst:<24} {name:<20} \
                     {:>4} {:>8} {state:<13} {:>8} {:>5}/{:<5}",
                    con.cid, con.qp, con.inflight, con.send_used, con.send_depth
                );
                if line.is_err() {
                    result = line;
                }
            });
            Ok(result?)
        })
    }
}

impl Writer for Requests {
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<20} {:<48} {:>5} {:>4} {:<5} {:>12} Waits for",
            "Session", "Path", "ID", "CID", "Dir", "Age/us"
        )?;
        for_each_path(|session, path| {
            let path_name = CString::try_from_fmt(fmt!("{}", PathName(path)))?;
            let path_name = path_name.to_str()?;
            let name = session.name().as_str();
            let guard = rcu::read_lock();
            let Some(link) = path.link(&guard) else {
                return Ok(());
            };
            let mut result = Ok(());
            link.for_each_flying(|request| {
                let dir = match request.dir {
                    Direction::Read => "read",
                    Direction::Write => "write",
                };
                let line = writeln!(
                    f,
                    "{name:<20} {path_name:<48} {:>5} {:>4} {dir:<5} {:>12} {}",
                    request.id,
                    request.cid,
                    request.age_ns / 1000,
                    request.waits_for
                );
                if line.is_err() {
                    result = line;
                }
            });
            Ok(result?)
        })
    }
}
