// SPDX-License-Identifier: GPL-2.0

//! Clients that send writes as they may: all of them have to be served.

use std::{
    collections::{BTreeSet, VecDeque},
    fs,
    time::Duration,
};

use anyhow::{bail, Context, Result};
use rand::RngCore;

use super::{good, no_more, second_of, sender, start, start_as, start_by, DATA, LONGEST, MOST};
use crate::{
    attacks::{
        busy::{
            behind_write, disk_has, open_disk, slow_read, RNBD_READ_WRITE, RNBD_WRITE, SLOW_DISK,
        },
        case,
        memory::COPY_MAX,
        Attack, Case, CONS,
    },
    client::{info_message, write_of, Session, RNBD_SESS_INFO_SIZE},
    proto::{MostSent, WriteMsg},
};

/// Numbers of bytes of data. With the 36 bytes of the user message behind them, the four of the
/// message are in the first page (from 4053 on without the next four), across its end, or behind
/// it. Then the user message is in the page, across its end (4061 to 4095), or behind it.
const SIZES: [usize; 14] = [
    0, 1, 512, 4000, 4052, 4053, 4056, 4057, 4059, 4060, 4061, 4080, 4095, DATA,
];

pub(in crate::attacks) const CASES: &[Case] = &[
    case(
        "sends-accept",
        "looks when a server says that it takes sent writes",
        accept,
    ),
    case("sends-sizes", "sends writes of all sizes", sizes),
    case("sends-user", "sends long messages for the user", user),
    case(
        "sends-many",
        "sends many writes at a time, and other requests among them",
        many,
    ),
    case("sends-data", "sends writes to a disk, and leaves", data),
    case(
        "sends-few-receives",
        "announces 4 requests at a time, and sends 60",
        |a| burst(a, 4, 60),
    ),
    case(
        "sends-many-receives",
        "announces 65536 requests at a time, and sends 90",
        |a| burst(a, 1 << 16, 90),
    ),
    case(
        "sends-in-any-order",
        "connects IO connections first",
        any_order,
    ),
    case(
        "sends-other-attempt",
        "announces something else with each attempt",
        other_attempt,
    ),
    case(
        "sends-before-info",
        "sends a write before it asks for chunks",
        before_info,
    ),
    case(
        "sends-second-path",
        "sends a write for a chunk whose request over another path a slow disk has",
        second_path,
    ),
    case(
        "sends-behind",
        "writes to the chunk of a sent write that waits for a disk",
        |a| {
            let s = start(a, MOST)?;
            behind_write(a, s, true)
        },
    ),
    case("sends-vanish", "ends with sent writes in flight", |a| {
        let mut s = start(a, MOST)?;
        for buf_id in 0..32 {
            s.send_info_sent(1 + usize::from(buf_id % 2), buf_id, DATA)?;
        }
        Ok(())
    }),
];

/// Only the first connection counts, and only with keys that change, and that the client keeps.
fn accept(a: &mut Attack<'_>) -> Result<()> {
    for keeps in [false, true] {
        for first in [None, Some(4), Some(1 << 16)] {
            for others in [None, Some(4)] {
                let mut who = sender(a, MOST);
                who.capabilities.keeps_keys = keeps;
                let said = |cid| if cid == 0 { first } else { others };
                let s = start_by(a, &who, &[0, 1, 2], said)?;
                if s.takes_sends != (keeps && first.is_some() && s.new_rkey) {
                    a.report.wrong(format!(
                        "takes_sends is {}: keeps {keeps}, said {first:?} and {others:?}",
                        s.takes_sends
                    ));
                }
                s.disconnect();
            }
        }
    }
    Ok(())
}

/// Uses one chunk for writes that are sent and written, and for reads.
fn sizes(a: &mut Attack<'_>) -> Result<()> {
    const CHUNK: u16 = 7;

    let mut s = start(a, MOST)?;
    for _ in 0..3 {
        for len in SIZES {
            for cid in [1, 2] {
                let key = s.chunk(CHUNK)?.rkey;
                s.send_info_sent(cid, CHUNK, len)?;
                let answer = good(a, &mut s, cid, CHUNK).with_context(|| format!("{len} bytes"))?;
                // Nothing else is asked for by a client that keeps keys.
                if !answer.by_write || s.chunk(CHUNK)?.rkey != key {
                    bail!("{answer:?} to {len} bytes, and another key");
                }
                s.ping(cid, CHUNK)?;
                s.send_info_write(cid, CHUNK, len)?;
                good(a, &mut s, cid, CHUNK)?;
                s.send_info_sent(3 - cid, CHUNK, len)?;
                good(a, &mut s, 3 - cid, CHUNK)?;
            }
        }
    }
    no_more(&mut s)?;
    a.alive(&mut s)
}

/// What is behind the data may be up to 512 bytes long.
fn user(a: &mut Attack<'_>) -> Result<()> {
    let mut s = start(a, MOST)?;
    let most = LONGEST - DATA - WriteMsg::SIZE;
    for usr_len in [37, 40, 318, 319, 320, 321, 400, most] {
        for len in [0, 1, 2000, DATA - usr_len, DATA - 1, DATA] {
            let mut usr = info_message().to_vec();
            usr.resize(usr_len, 0);
            s.send_sent(1, 3, &write_of(len, &usr))?;
            good(a, &mut s, 1, 3)
                .with_context(|| format!("{len} bytes, {usr_len} for the user"))?;
            s.ping(2, 3)?;
        }
    }
    a.alive(&mut s)
}

/// Several requests at a time, far more than there are receives.
fn many(a: &mut Attack<'_>) -> Result<()> {
    const COUNT: usize = 800;
    const AT_A_TIME: usize = 40;

    let mut who = sender(a, AT_A_TIME as u32);
    who.capabilities.counts_keys = true;
    let mut s = start_as(a, &who)?;
    s.clear(RNBD_SESS_INFO_SIZE)?;
    let mut free: VecDeque<u16> = (0..s.geometry.queue_depth()).collect();
    // Connections of the requests on their way, the oldest first, and their chunks.
    let mut cids = VecDeque::new();
    let mut used = BTreeSet::new();
    let mut sent = 0;
    while sent < COUNT || !cids.is_empty() {
        while sent < COUNT && cids.len() < AT_A_TIME {
            let buf_id = free.pop_front().context("no chunk is free")?;
            let (cid, len) = (1 + sent % 2, SIZES[sent % SIZES.len()]);
            match sent % 9 {
                0 => s.send_honest(cid, buf_id)?,
                3 => s.send_info_write(cid, buf_id, len)?,
                // The key of the chunk changes.
                6 => s.send_info_write(cid, buf_id, 2 * COPY_MAX)?,
                _ => s.send_info_sent(cid, buf_id, len)?,
            }
            cids.push_back(cid);
            used.insert((cid, buf_id));
            sent += 1;
        }
        let cid = cids.pop_front().context("nothing is on its way")?;
        let Some(answer) = s.answer(cid, a.job.patience)? else {
            bail!("no answer on connection {cid}: {:?}", s.failed);
        };
        // CAST: 16 bits.
        let buf_id = answer.buf_id as u16;
        if answer.errno != 0 || !used.remove(&(cid, buf_id)) {
            bail!("{answer:?} on connection {cid}");
        }
        free.push_back(buf_id);
    }
    no_more(&mut s)?;
    if s.read_back(RNBD_SESS_INFO_SIZE)?[..2] != [1, 0] {
        bail!("nothing was read");
    }
    a.report.sent(format!("{sent} requests"));
    a.alive(&mut s)
}

/// The chunk of the next answer, which is taken off those that are `left`.
fn on_disk(a: &Attack<'_>, s: &mut Session, cid: usize, left: &mut BTreeSet<u16>) -> Result<u16> {
    let answer = s.answer(cid, a.job.patience)?.context("no answer")?;
    if answer.errno != 0 {
        bail!("{answer:?}");
    }
    // CAST: 16 bits.
    let buf_id = answer.buf_id as u16;
    left.remove(&buf_id);
    Ok(buf_id)
}

/// The data that are sent are those that the disk gets, although it has many at a time.
fn data(a: &mut Attack<'_>) -> Result<()> {
    /// Places on the disk, behind those that other cases read, and their size.
    const BEGIN: u64 = 4 << 20;
    const SLOTS: usize = 32;
    const SLOT: usize = 4096;
    const SECTOR: usize = 512;
    /// The chunk of other requests.
    const OTHER: u16 = 50;

    let mut who = sender(a, MOST);
    who.capabilities.counts_keys = true;
    let mut s = start_as(a, &who)?;
    let io = open_disk(a, &mut s, SLOW_DISK, RNBD_READ_WRITE, 0)?;
    let place = |n: usize, len: usize| {
        let mut io = io;
        // CAST: Small numbers.
        let sector = (BEGIN + (n * SLOT) as u64) / SECTOR as u64;
        io[8..16].copy_from_slice(&sector.to_le_bytes());
        io[20..24].copy_from_slice(&(len as u32).to_le_bytes());
        io
    };
    let mut disk = vec![0; SLOTS * SLOT];
    // The second time over what the first one has left.
    for round in 0..2 {
        // CAST: A small number.
        let mut left: BTreeSet<u16> = (0..SLOTS as u16).collect();
        for n in 0..SLOTS {
            // CAST: A small number.
            let (cid, buf_id) = (1 + n % 2, n as u16);
            let len = SECTOR * (1 + (n + round) % (SLOT / SECTOR));
            let bytes = &mut disk[n * SLOT..n * SLOT + len];
            a.rng.fill_bytes(bytes);
            let mut usr = place(n, len);
            usr[16..20].copy_from_slice(&RNBD_WRITE.to_le_bytes());
            let mut msg = write_of(len, &usr);
            msg[..len].copy_from_slice(bytes);
            match n % 5 {
                4 => s.send_write(cid, buf_id, &msg)?,
                _ => s.send_sent(cid, buf_id, &msg)?,
            }
        }
        // While the disk has all of these, other messages use the receives.
        for _ in 0..100 {
            s.send_info_sent(1, OTHER, DATA)?;
            while on_disk(a, &mut s, 1, &mut left)? != OTHER {}
        }
        while let Some(n) = left.first() {
            on_disk(a, &mut s, 1 + usize::from(n % 2), &mut left)?;
        }
        let half = disk.len() / 2;
        for (n, wanted) in disk.chunks(half).enumerate() {
            s.send_read(1, 60, &place(n * SLOTS / 2, half), half)?;
            good(a, &mut s, 1, 60)?;
            let data = s.read_back(half)?;
            let wrong = data
                .iter()
                .zip(wanted)
                .filter(|(is, was)| is != was)
                .count();
            if wrong != 0 {
                a.report
                    .wrong(format!("{wrong} bytes are not those of the writes"));
            }
        }
    }
    a.report.got("the data of all writes");
    s.ping(1, 0)?;
    // The disk has the memory of some when their connections end.
    for n in 0..16 {
        let mut usr = place(usize::from(n), SLOT);
        usr[16..20].copy_from_slice(&RNBD_WRITE.to_le_bytes());
        s.send_sent(1, n, &write_of(SLOT, &usr))?;
    }
    std::thread::sleep(Duration::from_millis(300));
    s.disconnect();
    a.gone(&mut s, a.job.patience)
}

/// How often a receiver was not ready, as soft RoCE counts it. Other clients are counted, too.
fn not_ready() -> u64 {
    let devices = fs::read_dir("/sys/class/infiniband").into_iter().flatten();
    let count = |device: fs::DirEntry| -> Option<u64> {
        let file = device.path().join("ports/1/hw_counters/rcvd_rnr_err");
        fs::read_to_string(file).ok()?.trim().parse().ok()
    };
    devices.flatten().filter_map(count).sum()
}

/// All that is sent at a time is answered, although the client has said that it has less.
fn burst(a: &mut Attack<'_>, most: u32, count: u16) -> Result<()> {
    let mut s = start(a, most)?;
    let before = not_ready();
    for len in [1, DATA, 1, 4053] {
        for buf_id in 0..count {
            match buf_id % 10 {
                9 => s.send_info_write(1, buf_id, len)?,
                _ => s.send_info_sent(1, buf_id, len)?,
            }
        }
        let mut left: BTreeSet<u32> = (0..u32::from(count)).collect();
        while !left.is_empty() {
            let Some(answer) = s.answer(1, a.job.patience)? else {
                bail!("{} answers are missing: {:?}", left.len(), s.failed);
            };
            if answer.errno != 0 || !left.remove(&answer.buf_id) {
                bail!("{answer:?}");
            }
        }
    }
    no_more(&mut s)?;
    a.report.sent(format!("{count} requests at a time"));
    a.report.fact("not-ready", not_ready() - before);
    a.alive(&mut s)
}

/// What the first request to connect says counts, whichever connection it is for.
fn any_order(a: &mut Attack<'_>) -> Result<()> {
    for order in [[1, 0, 2], [2, 1, 0]] {
        let who = sender(a, MOST);
        let mut s = start_by(a, &who, &order, |_| Some(MOST))?;
        if !s.takes_sends {
            bail!("the server takes no sent writes");
        }
        for cid in [1, 2, 1, 2] {
            s.send_info_sent(cid, 3, DATA)?;
            good(a, &mut s, cid, 3)?;
        }
        a.alive(&mut s)?;

        // All say so but connection 0, or the one that is the first.
        for silent in [0, order[0]] {
            let who = sender(a, MOST);
            let said = |cid| (cid != silent).then_some(MOST);
            let mut s = start_by(a, &who, &order, said)?;
            a.report.got(format!(
                "takes_sends {}, silent {silent} of {order:?}",
                s.takes_sends
            ));
            for cid in [1, 2] {
                let cid_said = said(cid).is_some() && s.takes_sends;
                match cid_said {
                    true => s.send_info_sent(cid.into(), 3, DATA)?,
                    false => s.send_info_write(cid.into(), 3, DATA)?,
                }
                good(a, &mut s, cid.into(), 3)?;
            }
            a.alive(&mut s)?;
        }
    }
    Ok(())
}

/// Each attempt counts for itself.
fn other_attempt(a: &mut Attack<'_>) -> Result<()> {
    let mut who = sender(a, MOST);
    let mut old: Option<Session> = None;
    for said in [Some(4), None, Some(1 << 16), None, Some(64)] {
        who.capabilities.sends = said.map(MostSent::of);
        let mut s = a.start_as(&who)?;
        if s.takes_sends != said.is_some() {
            bail!("takes_sends is {} after {said:?}", s.takes_sends);
        }
        for cid in [1, 2] {
            match said {
                Some(_) => s.send_info_sent(cid, 3, DATA)?,
                None => s.send_info_write(cid, 3, DATA)?,
            }
            good(a, &mut s, cid, 3)?;
        }
        if let Some(mut old) = old.replace(s) {
            a.gone(&mut old, a.job.patience)?;
        }
        who.attempt += 1;
    }
    let mut last = old.context("no session")?;
    a.alive(&mut last)
}

/// The message finds no receive before. After that it is answered, or the path ends.
fn before_info(a: &mut Attack<'_>) -> Result<()> {
    let who = sender(a, MOST);
    let mut s = a.connect(&who, CONS)?;
    for cid in 1..s.cons.len() {
        s.con(cid)?.post_recvs()?;
    }
    s.send_info_sent(1, 3, DATA)?;
    a.report.sent("a message before the question");
    std::thread::sleep(Duration::from_millis(100));
    let mr = s.ask_for_chunks(&who.question())?;
    if s.take_chunks(&mr, a.job.patience)? {
        s.con(0)?.post_recvs()?;
        if let Some(answer) = s.answer(1, a.job.patience / 4)? {
            a.report.got(format!("{answer:?}"));
            return a.alive(&mut s);
        }
    }
    a.gone(&mut s, a.job.patience)
}

/// The write waits until the disk has done the request of the other path, which is given up.
fn second_path(a: &mut Attack<'_>) -> Result<()> {
    let who = sender(a, MOST);
    for len in [1, DATA] {
        let mut first = start_as(a, &who)?;
        let mut second = second_of(a, &who)?;
        let io = slow_read(a, &mut first, COPY_MAX)?;
        first.send_read(1, 5, &io, COPY_MAX)?;
        disk_has(a, "1")?;
        second.send_info_sent(1, 5, len)?;
        // These do not have to wait.
        for _ in 0..60 {
            second.send_info_sent(1, 6, DATA)?;
            good(a, &mut second, 1, 6)?;
        }
        good(a, &mut second, 1, 5)?;
        disk_has(a, "0")?;
        a.gone(&mut first, a.job.patience)?;
        a.alive(&mut second)?;
        a.gone(&mut second, a.job.patience)?;
    }
    Ok(())
}
