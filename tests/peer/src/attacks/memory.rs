// SPDX-License-Identifier: GPL-2.0

//! Memory of others: chunks by other means than requests.

use std::time::Duration;

use anyhow::{bail, Result};

use super::{case, Attack, Case};
use crate::verbs::{Remote, Send};

pub(super) const CASES: &[Case] = &[
    case("write-behind", "writes behind a chunk", |a| {
        a.write_to(|s| {
            let chunk = s.chunk(s.geometry.queue_depth() - 1)?;
            Ok(Remote {
                addr: chunk.addr + u64::from(s.geometry.chunk_size()) - 4,
                rkey: chunk.rkey,
            })
        })
    }),
    case("write-before", "writes before a chunk", |a| {
        a.write_to(|s| {
            let chunk = s.chunk(0)?;
            Ok(Remote {
                addr: chunk.addr.wrapping_sub(4),
                rkey: chunk.rkey,
            })
        })
    }),
    case(
        "write-nowhere",
        "writes with a key that does not exist",
        |a| {
            a.write_to(|s| {
                let chunk = s.chunk(0)?;
                Ok(Remote {
                    addr: chunk.addr,
                    rkey: chunk.rkey ^ 0x00ff_0000,
                })
            })
        },
    ),
    case(
        "stale-key",
        "writes with the key of an answered request",
        |a| {
            let mut s = a.start()?;
            if !s.new_rkey {
                bail!("keys stay the same with always_invalidate=N");
            }
            let chunk = s.chunk(9)?;
            s.ping(1, 9)?;
            let to = Remote {
                addr: chunk.addr,
                rkey: chunk.rkey,
            };
            s.post(1, Send::Write(to), &[0x5a; 8])?;
            a.closed(&mut s)
        },
    ),
    case(
        "foreign-key",
        "writes with the key of another session",
        |a| {
            let mut other = a.start()?;
            let chunk = other.chunk(0)?;
            a.write_to(|_| {
                Ok(Remote {
                    addr: chunk.addr,
                    rkey: chunk.rkey,
                })
            })?;
            a.alive(&mut other)
        },
    ),
    case(
        "read-chunk-directly",
        "reads a chunk by RDMA",
        read_directly,
    ),
    case("invalidate", "invalidates the key of its own chunk", |a| {
        let mut s = a.start()?;
        let rkey = s.chunk(2)?.rkey;
        s.post(1, Send::MsgInv(rkey), &[])?;
        a.closed(&mut s)
    }),
    case(
        "invalidate-on-service",
        "the same on the service connection",
        |a| {
            let mut s = a.start()?;
            let rkey = s.chunk(2)?.rkey;
            s.post(0, Send::MsgInv(rkey), &[])?;
            a.closed(&mut s)
        },
    ),
];

/// The device may refuse, or the server's, or the read may never be sent as the server offers no
/// resources for it: all is well but data.
fn read_directly(a: &mut Attack<'_>) -> Result<()> {
    let mut s = a.start()?;
    let chunk = s.chunk(0)?;
    let from = Remote {
        addr: chunk.addr,
        rkey: chunk.rkey,
    };
    let token = match s.post(1, Send::Read(from), &[0; 64]) {
        Ok(token) => token,
        Err(e) => {
            a.report.got(format!("not even posted: {e:#}"));
            return a.alive(&mut s);
        }
    };
    // Earlier ones may still be to come.
    loop {
        match s.con(1)?.id.wait(Duration::from_secs(1))? {
            Some(done) if done.token != token => continue,
            Some(done) if done.is_ok() => a.report.wrong("the server let it be read"),
            Some(done) => a.report.got(done.text()),
            None => a.report.got("nothing"),
        }
        break;
    }
    s.disconnect();
    a.gone(&mut s, a.job.patience)
}
