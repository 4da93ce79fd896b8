// SPDX-License-Identifier: GPL-2.0

//! Conversion of parsed addresses to socket addresses, and back.

use kernel::prelude::*;
use rtrs_bindings::ib::{
    interface_index,
    SockAddr, //
};

use crate::addr::{
    Addr,
    AddrPair,
    Scope, //
};

/// Converts `addr` to the socket address to connect to, or from, with `port`.
///
/// # Errors
///
/// `ENODEV` for the scope of an interface that does not exist.
pub fn from_addr(addr: &Addr, port: u16) -> Result<SockAddr> {
    match addr {
        Addr::V4(ip) => Ok(SockAddr::v4(*ip, port)),
        Addr::V6 { ip, scope } => {
            let scope = match scope {
                Scope::None => 0,
                Scope::Index(index) => *index,
                Scope::Name(name) => interface_index(name.as_cstr())?,
            };
            Ok(SockAddr::v6(*ip, port, scope))
        }
        Addr::Gid(gid) => Ok(SockAddr::gid(*gid, port)),
    }
}

/// The address that logs and files show: without port and scope.
pub fn to_addr(addr: &SockAddr) -> Option<Addr> {
    if let Some(ip) = addr.as_v4() {
        Some(Addr::V4(ip))
    } else if let Some((ip, _)) = addr.as_v6() {
        Some(Addr::V6 {
            ip,
            scope: Scope::None,
        })
    } else {
        addr.as_gid().map(Addr::Gid)
    }
}

/// Parses `[src{,|@}]dst`, and puts `port` into the destination.
///
/// # Errors
///
/// `EINVAL` for any other text, `ENODEV` for the scope of an interface that does not exist.
pub fn parse_pair(text: &[u8], port: u16) -> Result<(Option<SockAddr>, SockAddr)> {
    let pair = AddrPair::parse(text).map_err(|_| EINVAL)?;
    let src = match &pair.src {
        // The connection manager chooses the source port.
        Some(src) => Some(from_addr(src, 0)?),
        None => None,
    };
    Ok((src, from_addr(&pair.dst, port)?))
}
