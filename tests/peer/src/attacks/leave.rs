// SPDX-License-Identifier: GPL-2.0

//! Clients that leave at a wrong time or in a wrong way.

use std::{thread::sleep, time::Duration};

use anyhow::Result;

use super::{busy::RNBD_IO, case, Attack, Case, CONS};
use crate::{client::Session, proto::WriteMsg};

pub(super) const CASES: &[Case] = &[
    case("leave-busy", "disconnects with requests in flight", |a| {
        let mut s = a.start()?;
        for buf_id in 0..32 {
            s.send_honest(1 + usize::from(buf_id % 2), buf_id)?;
        }
        s.disconnect();
        Ok(())
    }),
    case("vanish-busy", "ends with requests in flight", |a| {
        let mut s = a.start()?;
        for buf_id in 0..32 {
            s.send_honest(1 + usize::from(buf_id % 2), buf_id)?;
        }
        Ok(())
    }),
    case(
        "leave-early",
        "disconnects right after the question for chunks",
        |a| {
            for _ in 0..5 {
                let who = a.identity();
                let mut s = a.connect(&who, CONS)?;
                s.ask(&who.question())?;
                s.disconnect();
            }
            Ok(())
        },
    ),
    case(
        "silent-full",
        "takes none of a thousand answers on the service connection, and is silent then",
        silent_full,
    ),
    case("leave-one", "disconnects one connection of three", |a| {
        let mut s = a.start()?;
        s.con(2)?.id.disconnect()?;
        a.closed(&mut s)
    }),
];

/// More than the server's queue has room for: then there is none for its heartbeats either. Soft
/// RoCE repeats what finds no receive for ever.
const ANSWERS: usize = 1100;

/// The server gives up a client that is silent for 25 to 30 s.
const SILENT: Duration = Duration::from_secs(40);

fn silent_full(a: &mut Attack<'_>) -> Result<()> {
    let who = a.identity();
    let mut s = Session::connect(a.job.addr, &who, a.job.patience)?;
    s.get_chunks(&who.question())?;
    for cid in 1..CONS {
        s.con(cid.into())?.post_recvs()?;
    }
    // A write to a device that is not open: its answer is an immediate value, with nothing that has
    // to stay until it is sent.
    let mut usr = [0; 32];
    usr[..2].copy_from_slice(&RNBD_IO.to_le_bytes());
    usr[4..8].copy_from_slice(&[0xff; 4]);
    // CAST: Its size.
    let usr_len = usr.len() as u16;
    let msg = [&usr[..], &WriteMsg { usr_len }.to_bytes()].concat();
    let depth = s.geometry.queue_depth();
    for _ in 0..ANSWERS.div_ceil(depth.into()) {
        for buf_id in 0..depth {
            let imm = s.imm(buf_id.into(), usr_len.into());
            s.write_imm(0, buf_id, 0, &msg, imm)?;
        }
        // A chunk may be used again when its answer is in the queue.
        sleep(Duration::from_millis(500));
        let _ = s.answer(0, Duration::ZERO)?;
    }
    a.report.sent(format!("{ANSWERS} requests"));
    a.gone(&mut s, SILENT)
}
