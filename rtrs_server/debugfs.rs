// SPDX-License-Identifier: GPL-2.0

//! `/sys/kernel/debug/rtrs_server`: current connections and requests, for humans.
//!
//! * `connections`: the addresses at which servers listen; all connections, including those of
//!   handshakes; and the paths that have none.
//! * `requests`: all requests that are not answered, with their age. Those in an inbox count as the
//!   user's.

use kernel::{
    fmt,
    prelude::*,
    str::CString,
    sync::Arc, //
};
use rtrs_bindings::{
    compat::this_module,
    debugfs::File, //
};
use rtrs_core::table::{
    ConnectionHead,
    ConnectionRow,
    DebugFiles,
    ListenRow,
    PathCells,
    RequestHead,
    RequestRow, //
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
    write!(f, "{ConnectionHead}")?;
    let mut result = Ok(());
    registry::get()
        .map_err(|_| fmt::Error)?
        .each_listening(|addr| {
            if result.is_ok() {
                result = write!(f, "{}", ListenRow(addr));
            }
        });
    result?;
    for_each_path(|path| {
        let src = match &path.addrs.src {
            Some(src) => CString::try_from_fmt(fmt!("{}", src))?,
            None => CString::try_from_fmt(fmt!("-"))?,
        };
        let dst = CString::try_from_fmt(fmt!("{}", path.addrs.dst))?;
        let hca = path.hca();
        let cells = PathCells {
            device: hca.map_or("-", |(name, _)| name.as_str()),
            port: hca.map_or(0, |(_, port)| *port),
            src: src.to_str()?,
            dst: dst.to_str()?,
            session: match path.session.name() {
                "" => "-",
                name => name,
            },
            state: path.state().as_str(),
        };
        let mut result = Ok(());
        let mut any = false;
        path.for_each_connection(|con| {
            any = true;
            if result.is_ok() {
                result = write!(f, "{}", ConnectionRow(&cells, Some(con)));
            }
        })?;
        if !any {
            result = write!(f, "{}", ConnectionRow(&cells, None));
        }
        Ok(result?)
    })
}

fn requests(f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{RequestHead}")?;
    for_each_path(|path| {
        let name = path.cname.to_str()?;
        let mut result = Ok(());
        path.for_each_request(|request| {
            let row = RequestRow {
                session: path.session.name(),
                path: name,
                request,
            };
            if result.is_ok() {
                result = write!(f, "{row}");
            }
        });
        Ok(result?)
    })
}
