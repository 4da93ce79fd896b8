// SPDX-License-Identifier: GPL-2.0

//! `/sys/kernel/debug/rtrs_server`: current connections and requests, for humans.
//!
//! * `connections`: the addresses at which servers listen; all connections, including those of
//!   handshakes; and the paths that have none.
//! * `requests`: all requests that are not answered, with their age. Those in an inbox count as the
//!   user's, unless it is held.

use kernel::{
    fmt,
    prelude::*,
    sync::Arc, //
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
    path::Path,
    registry, //
};

static CONNECTIONS: File = File::new(this_module!(), connections);
static REQUESTS: File = File::new(this_module!(), requests);

/// Makes the directory. May sleep.
pub(crate) fn init() -> Result<DebugFiles> {
    DebugFiles::new(c"rtrs_server", &CONNECTIONS, &REQUESTS)
}

fn for_each_path(mut f: impl FnMut(&Arc<Path>) -> Result) -> fmt::Result {
    let mut show = || -> Result {
        for session in registry::get()?.sessions()?.iter() {
            for path in session.all_paths()?.iter() {
                f(path)?;
            }
        }
        Ok(())
    };
    show().map_err(|_| fmt::Error)
}

fn connections(f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut table = Table::of_connections(f);
    registry::get()
        .map_err(|_| fmt::Error)?
        .each_listening(|addr| table.listening(addr));
    for_each_path(|path| {
        let src = addr_text(path.addrs.src.as_ref())?;
        let dst = addr_text(Some(&path.addrs.dst))?;
        let hca = path.hca();
        let cells = PathCells {
            device: hca.as_ref().map_or("-", |(name, _)| name.as_str()),
            port: hca.as_ref().map_or(0, |(_, port)| *port),
            src: &src,
            dst: &dst,
            session: match path.session.name() {
                "" => "-",
                name => name,
            },
            state: path.state().as_str(),
        };
        table.connections(&cells, |f| path.for_each_connection(f))
    })?;
    table.end()
}

fn requests(f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut table = Table::of_requests(f);
    for_each_path(|path| {
        let session = path.session.name();
        table.requests(session, path.cname.to_str()?, |f| path.for_each_request(f));
        Ok(())
    })?;
    table.end()
}
