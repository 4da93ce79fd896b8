// SPDX-License-Identifier: GPL-2.0

//! `/sys/kernel/debug/rtrs_client`: current connections and requests, for humans.
//!
//! * `connections`: all connections, and the paths that have none.
//! * `requests`: all requests in flight, with their age, and the number of those that wait for a
//!   path.

use kernel::{
    fmt,
    prelude::*,
    str::CString,
    sync::{
        rcu,
        Arc, //
    },
};
use rtrs_bindings::{
    compat::this_module,
    debugfs::File, //
};
use rtrs_core::{
    addr::Addr,
    table::{
        ConnectionHead,
        ConnectionRow,
        DebugFiles,
        ParkedRow,
        PathCells,
        RequestHead,
        RequestRow, //
    },
};

use crate::{
    client,
    path::{
        Path,
        PathName, //
    },
    session::Session, //
};

static CONNECTIONS: File = File::new(this_module!(), connections);
static REQUESTS: File = File::new(this_module!(), requests);

/// Makes the directory. May sleep.
pub(crate) fn init() -> Result<DebugFiles> {
    DebugFiles::new(c"rtrs_client", &CONNECTIONS, &REQUESTS)
}

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

fn connections(f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{ConnectionHead}")?;
    for_each_path(|session, path| {
        let (via, device) = (path.via(), path.device_name());
        let (src, dst) = (addr_text(path.src_addr())?, addr_text(path.dst_addr())?);
        let cells = PathCells {
            device: device.as_ref().map_or("-", |name| name.as_str()),
            port: via.as_ref().map_or(0, |via| via.port),
            src: src.to_str()?,
            dst: dst.to_str()?,
            session: session.name().as_str(),
            state: path.status(|s| s.machine.state()).as_str(),
        };
        // From here on the code must not sleep.
        let guard = rcu::read_lock();
        let Some(link) = path.link(&guard) else {
            return Ok(write!(f, "{}", ConnectionRow(&cells, None))?);
        };
        let mut result = Ok(());
        link.for_each_connection(|con| {
            if result.is_ok() {
                result = write!(f, "{}", ConnectionRow(&cells, Some(con)));
            }
        });
        Ok(result?)
    })
}

fn requests(f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{RequestHead}")?;
    for session in client::sessions().map_err(|_| fmt::Error)?.iter() {
        match session.parked() {
            0 => {}
            parked => write!(f, "{}", ParkedRow(session.name().as_str(), parked))?,
        }
    }
    for_each_path(|session, path| {
        let path_name = CString::try_from_fmt(fmt!("{}", PathName(path)))?;
        let path_name = path_name.to_str()?;
        let guard = rcu::read_lock();
        let Some(link) = path.link(&guard) else {
            return Ok(());
        };
        let mut result = Ok(());
        link.for_each_flying(|request| {
            let row = RequestRow {
                session: session.name().as_str(),
                path: path_name,
                request,
            };
            if result.is_ok() {
                result = write!(f, "{row}");
            }
        });
        Ok(result?)
    })
}
