// SPDX-License-Identifier: GPL-2.0

//! Clients that ask for more than their share: places, other clients' data.

use std::time::Duration;

use anyhow::{bail, Result};

use super::{case, Attack, Case, CONS};
use crate::{
    client::{Con, Outcome, RNBD_SESS_INFO_SIZE},
    proto::{errno::EUSERS, CM_REJ_CONSUMER_DEFINED},
};

/// Sessions of a crowd.
const CROWD: usize = 24;

pub(super) const CASES: &[Case] = &[
    case(
        "crowd",
        "makes first connections, more than may be allowed",
        crowd,
    ),
    case(
        "leftovers",
        "asks for more data than its request has as an answer",
        leftovers,
    ),
];

/// More first connections at a time than the server may allow: each is accepted, or refused for
/// that reason.
fn crowd(a: &mut Attack<'_>) -> Result<()> {
    let mut all = Vec::new();
    let mut refused = 0;

    for _ in 0..CROWD {
        let msg = a.identity().request(0);
        match Con::connect(a.job.addr, a.job.from, &msg, None, a.job.patience)? {
            Outcome::Up(con, _) => all.push(con),
            Outcome::Rejected(CM_REJ_CONSUMER_DEFINED, errno) if errno == -EUSERS => refused += 1,
            Outcome::Rejected(reason, errno) => {
                bail!("refused for another reason: {reason}, errno {errno}")
            }
            Outcome::Silence => bail!("no answer"),
        }
    }
    a.report.sent(format!("{CROWD} first connections"));
    a.report.fact("refused", refused);
    Ok(())
}

/// What planted.sh fills free memory with.
const PLANTED: &[u8] = b"PLANTED";

/// Asks for much data when the server's user returns little, for every chunk: the rest must be
/// zeroes.
fn leftovers(a: &mut Attack<'_>) -> Result<()> {
    let who = a.identity();
    let mut s = a.connect(&who, CONS)?;
    s.start(&who.question())?;
    let depth = s.geometry.queue_depth();
    let len = s.geometry.max_io_size() as usize;
    let (mut leaked, mut planted) = (0, 0);

    for buf_id in 0..depth {
        s.fill(len, 0xa5)?;
        s.send_info_request(1, buf_id, len)?;
        match s.answer(1, a.job.patience)? {
            Some(answer) if answer.buf_id == u32::from(buf_id) && answer.errno == 0 => (),
            other => bail!("{other:?} for chunk {buf_id}"),
        }
        let data = s.read_back(len)?;
        let rest = data.get(RNBD_SESS_INFO_SIZE..).unwrap_or_default();
        let found = rest.iter().filter(|&&byte| byte != 0).count();
        if found != 0 && leaked == 0 {
            let text = rest.iter().filter(|byte| byte.is_ascii_graphic()).take(32);
            let text: String = text.map(|&byte| char::from(byte)).collect();
            a.report.got(format!("chunk {buf_id} has {text:?}"));
        }
        leaked += found;
        planted += u32::from(rest.windows(PLANTED.len()).any(|bytes| bytes == PLANTED));
    }
    a.report
        .sent(format!("requests for {len} bytes of {depth} chunks"));
    a.report.fact("depth", depth);
    a.report.fact("leaked", leaked);
    a.report.fact("planted", planted);
    if leaked != 0 {
        a.report.wrong(format!("{leaked} bytes of somebody else"));
    }
    s.disconnect();
    a.gone(&mut s, Duration::from_secs(5).max(a.job.patience))
}
