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
use rtrs_core::table::{
    addr_text,
    DebugFiles,
    PathCells,
    Table, //
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

fn connections(f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut table = Table::of_connections(f);
    for_each_path(|session, path| {
        let (via, device) = (path.via(), path.device_name());
        let src = addr_text(path.src_addr().as_ref())?;
        let dst = addr_text(path.dst_addr().as_ref())?;
        let cells = PathCells {
            device: device.as_ref().map_or("-", |name| name.as_str()),
            port: via.as_ref().map_or(0, |via| via.port),
            src: &src,
            dst: &dst,
            session: session.name().as_str(),
            state: path.status(|s| s.machine.state()).as_str(),
        };
        // From here on the code must not sleep.
        let guard = rcu::read_lock();
        table.connections(&cells, |f| {
            if let Some(link) = path.link(&guard) {
                link.for_each_connection(f);
            }
            Ok(())
        })
    })?;
    table.end()
}

fn requests(f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut table = Table::of_requests(f);
    for session in client::sessions().map_err(|_| fmt::Error)?.iter() {
        table.parked(session.name().as_str(), session.parked());
    }
    for_each_path(|session, path| {
        let path_name = CString::try_from_fmt(fmt!("{}", PathName(path)))?;
        let guard = rcu::read_lock();
        if let Some(link) = path.link(&guard) {
            table.requests(session.name().as_str(), path_name.to_str()?, |f| {
                link.for_each_flying(f)
            });
        }
        Ok(())
    })?;
    table.end()
}
