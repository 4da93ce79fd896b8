// SPDX-License-Identifier: GPL-2.0

//! Memory of requests that the server's user has, on disks that take their time.

use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};

use super::{
    case,
    memory::{whole, COPY_MAX, KEYED},
    Attack, Case,
};
use crate::{
    client::{write_of, Session},
    verbs::{Remote, Send},
};

pub(super) const CASES: &[Case] = &[
    case(
        "same-chunk-twice",
        "uses a chunk whose request a slow disk has",
        chunk_twice,
    ),
    case(
        "live-key",
        "writes to the data of a request that a slow disk has",
        live_key,
    ),
    case(
        "same-behind-user",
        "writes to its chunk while a slow disk reads into it",
        |a| behind_user(a, COPY_MAX),
    ),
    case(
        "same-behind-large",
        "does so while the disk reads more data than are copied",
        |a| behind_user(a, 16 * COPY_MAX),
    ),
    case(
        "same-behind-write",
        "changes the data of a write that waits for a disk",
        |a| {
            let s = a.start()?;
            behind_write(a, s, false)
        },
    ),
    case(
        "same-behind-answer",
        "names a chunk again, elsewhere, while the answer with its key has to wait",
        behind_answer,
    ),
    case(
        "same-held",
        "asks for many data on a connection without receives",
        held,
    ),
    case(
        "same-before-key",
        "writes over a request while the invalidation of its key has to wait",
        before_key,
    ),
    case(
        "large-changed",
        "writes over the message of a large write while the invalidation of its key has to wait",
        before_late,
    ),
];

/// A disk of zeroes. Each request takes a second.
pub(super) const SLOW_DISK: &str = "nullb1";

/// A disk that has one request at a time, for three seconds: another one waits in the call of the
/// server's user, and its data are not read before.
const ONE_AT_A_TIME: &str = "nullb2";

/// Types of RNBD's messages.
const RNBD_OPEN: u16 = 2;
pub(super) const RNBD_IO: u16 = 4;
const RNBD_CLOSE: u16 = 5;

/// Modes of access to a disk, and the operation of a write.
const RNBD_READ_ONLY: u8 = 0;
pub(super) const RNBD_READ_WRITE: u8 = 1;
pub(super) const RNBD_WRITE: u32 = 1;

/// Makes the message to RNBD for a read of `len` bytes of the slow disk, which this opens.
pub(super) fn slow_read(a: &Attack<'_>, s: &mut Session, len: usize) -> Result<[u8; 32]> {
    // Another session may still have it.
    open_disk(a, s, SLOW_DISK, RNBD_READ_ONLY, len)
}

/// Makes the message to RNBD for a read of the first `len` bytes of `disk`, which this opens.
pub(super) fn open_disk(
    a: &Attack<'_>,
    s: &mut Session,
    disk: &str,
    access: u8,
    len: usize,
) -> Result<[u8; 32]> {
    // Type, access mode, name.
    let mut open = [0; 264];
    open[..2].copy_from_slice(&RNBD_OPEN.to_le_bytes());
    open[4] = access;
    let name = format!("/dev/{disk}");
    open[6..6 + name.len()].copy_from_slice(name.as_bytes());
    s.send_read(0, 4, &open, 256)?;
    let answer = s.answer(0, a.job.patience)?.context("no answer")?;
    if answer.errno != 0 {
        bail!("{answer:?} to opening the disk");
    }
    let device = s.read_back(8)?;

    // Type, device, sector, operation (read), length.
    let mut io = [0; 32];
    io[..2].copy_from_slice(&RNBD_IO.to_le_bytes());
    io[4..8].copy_from_slice(&device[4..8]);
    // CAST: A few pages.
    io[20..24].copy_from_slice(&(len as u32).to_le_bytes());
    Ok(io)
}

/// Closes the disk of the request `io`, so that another session can open it for writing.
fn close_disk(a: &Attack<'_>, s: &mut Session, io: &[u8; 32]) -> Result<()> {
    // Type, device.
    let mut close = [0; 8];
    close[..2].copy_from_slice(&RNBD_CLOSE.to_le_bytes());
    close[4..].copy_from_slice(&io[4..8]);
    s.send_write(0, 4, &write_of(0, &close))?;
    let answer = s.answer(0, a.job.patience)?.context("no answer")?;
    if answer.errno != 0 {
        bail!("{answer:?} to closing the disk");
    }
    Ok(())
}

/// Waits until the slow disk has a read, or none.
pub(super) fn disk_has(a: &Attack<'_>, count: &str) -> Result<()> {
    reads_of(a, SLOW_DISK, count)
}

/// Waits until `disk` has that many reads.
fn reads_of(a: &Attack<'_>, disk: &str, count: &str) -> Result<()> {
    let inflight = format!("/sys/block/{disk}/inflight");
    let end = Instant::now() + a.job.patience;
    while std::fs::read_to_string(&inflight)?
        .split_whitespace()
        .next()
        != Some(count)
    {
        if Instant::now() >= end {
            bail!("the disk never had {count} reads");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// A chunk has one request at a time, whatever the connection.
fn chunk_twice(a: &mut Attack<'_>) -> Result<()> {
    const CHUNK: u16 = 5;

    let mut s = a.start()?;
    let io = slow_read(a, &mut s, COPY_MAX)?;
    s.send_read(1, CHUNK, &io, COPY_MAX)?;
    disk_has(a, "1")?;
    // Writes nothing: the first one's message is still there. CAST: Both are a few pages.
    let imm = s.imm(CHUNK.into(), (COPY_MAX + io.len()) as u32);
    s.post(2, Send::WriteImm(Remote::default(), imm), &[])?;
    a.closed(&mut s)?;
    disk_has(a, "0")
}

/// Data that are not copied stay as they are while the user has them: the key is not valid then.
fn live_key(a: &mut Attack<'_>) -> Result<()> {
    const CHUNK: u16 = KEYED;
    const LEN: usize = 2 * COPY_MAX;

    let mut s = a.start()?;
    let io = slow_read(a, &mut s, LEN)?;
    let chunk = s.chunk(CHUNK)?;
    s.send_read(1, CHUNK, &io, LEN)?;
    disk_has(a, "1")?;
    s.post(2, Send::Write(whole(chunk)), &[0x5a; 8])?;
    a.closed(&mut s)?;
    disk_has(a, "0")
}

/// Data that the client writes meanwhile must not come back as data that the disk has read.
fn behind_user(a: &mut Attack<'_>, len: usize) -> Result<()> {
    let mut s = a.start()?;
    let io = slow_read(a, &mut s, len)?;
    s.fill(len, 0xa5)?;
    let chunk = s.chunk(5)?;
    let to = whole(chunk);
    s.post(1, Send::Write(to), &[0x5a; COPY_MAX])?;
    s.send_read(1, 5, &io, len)?;
    // The disk has copied its data when it has taken the request, which it then keeps.
    disk_has(a, "1")?;
    if s.answer(1, Duration::ZERO)?.is_some() {
        bail!("the disk is not slow");
    }
    s.post(1, Send::Write(to), &[0x5a; COPY_MAX])?;
    let answer = s.answer(1, a.job.patience)?.context("no answer")?;
    if answer.errno != 0 {
        bail!("{answer:?} to the read");
    }
    let data = s.read_back(len)?;
    let wrong = data.iter().filter(|&&byte| byte != 0).count();
    a.report.fact("changed", wrong);
    if wrong != 0 {
        a.report.wrong(format!("{wrong} bytes are not the disk's"));
    }
    a.alive(&mut s)
}

/// A write has the data that it came with, whatever the client writes to the chunk while the user
/// has the request and has not read them. It is written to its chunk, or `sent`.
pub(super) fn behind_write(a: &mut Attack<'_>, mut s: Session, sent: bool) -> Result<()> {
    const LEN: usize = COPY_MAX;
    const CHUNK: u16 = 6;

    let read = open_disk(a, &mut s, ONE_AT_A_TIME, RNBD_READ_WRITE, LEN)?;
    let mut write = read;
    write[16..20].copy_from_slice(&RNBD_WRITE.to_le_bytes());
    let mut message = write_of(LEN, &write);
    message[..LEN].fill(0xa5);
    let chunk = s.chunk(CHUNK)?;

    s.send_read(1, 5, &read, LEN)?;
    reads_of(a, ONE_AT_A_TIME, "1")?;
    match sent {
        true => s.send_sent(2, CHUNK, &message)?,
        false => s.send_write(2, CHUNK, &message)?,
    }
    std::thread::sleep(Duration::from_millis(500));
    s.post(1, Send::Write(whole(chunk)), &[0x5a; LEN])?;
    // Comes behind that.
    s.ping(1, 0)?;
    if s.answer(1, Duration::ZERO)?.is_some() {
        bail!("the disk is not slow");
    }
    for cid in [1, 2] {
        let answer = s.answer(cid, a.job.patience)?.context("no answer")?;
        if answer.errno != 0 {
            bail!("{answer:?}");
        }
    }
    s.send_read(1, 5, &read, LEN)?;
    let answer = s.answer(1, a.job.patience)?.context("no answer")?;
    if answer.errno != 0 {
        bail!("{answer:?} to reading it again");
    }
    let data = s.read_back(LEN)?;
    let wrong = data.iter().filter(|&&byte| byte != 0xa5).count();
    a.report.fact("changed", wrong);
    if wrong != 0 {
        a.report
            .wrong(format!("{wrong} bytes are not those of the write"));
    }
    close_disk(a, &mut s, &read)?;
    a.alive(&mut s)
}

/// Chunks of the requests that fill a send queue with their answers. The answers, and what is
/// behind them, wait until receives are posted. Each answer is two packets. If soft RoCE has to
/// send a message again, it registers the memory of the messages behind it twice, and fails over
/// that, unless 128 packets stop it before.
const FILLERS: core::ops::Range<u16> = 10..80;

/// A session without receives on connection 1: the server's answers there have to wait.
fn start_stuck(a: &mut Attack<'_>) -> Result<Session> {
    let who = a.identity();
    let mut s = Session::connect(a.job.addr, &who, a.job.patience)?;
    s.get_chunks(&who.question())?;
    for cid in [0, 2] {
        s.con(cid)?.post_recvs()?;
    }
    Ok(s)
}

/// Whether the next answers on connection 1 are those for `chunks`, without an error. If not, that is
/// reported.
fn answers_come(
    a: &mut Attack<'_>,
    s: &mut Session,
    chunks: impl Iterator<Item = u16>,
) -> Result<bool> {
    for chunk in chunks {
        let answer = s.answer(1, a.job.patience)?.context("no answer")?;
        if answer.buf_id != u32::from(chunk) || answer.errno != 0 {
            a.report.wrong(format!("{answer:?} for chunk {chunk}"));
            return Ok(false);
        }
    }
    Ok(true)
}

/// Answers with many data are under way, and cannot be sent: further requests of the connection wait, those
/// of another one do not.
fn held(a: &mut Attack<'_>) -> Result<()> {
    /// These have private pages, so that their answers register nothing.
    const CHUNKS: core::ops::Range<u16> = 0..16;
    const LEN: usize = 16 * COPY_MAX;
    /// The default of `ahead_max` is this many of them. The server stops with the next answer.
    const AHEAD: u16 = 8;
    const HELD: usize = (CHUNKS.end - AHEAD - 1) as usize;

    let mut s = start_stuck(a)?;
    for chunk in CHUNKS {
        s.send_info_request(1, chunk, LEN)?;
    }
    let end = Instant::now() + a.job.patience;
    loop {
        let requests = std::fs::read_to_string("/sys/kernel/debug/rtrs_server/requests")?;
        let ours = requests
            .lines()
            .filter(|line| line.contains("attack-same-held"));
        let held = ours.filter(|line| line.contains("sent data")).count();
        if held == HELD {
            break;
        }
        if Instant::now() >= end {
            bail!("{held} of {HELD} requests are held:\n{requests}");
        }
        std::thread::sleep(a.job.patience / 50);
    }
    s.send_info_request(2, CHUNKS.end, LEN)?;
    let answer = s.answer(2, a.job.patience)?.context("no answer")?;
    if answer.errno != 0 {
        bail!("{answer:?} on the other connection");
    }
    s.con(1)?.post_recvs()?;
    if !answers_come(a, &mut s, CHUNKS)? {
        return Ok(());
    }
    a.alive(&mut s)
}

/// The server takes a request with more data than it copies from private memory, apart from the
/// data: what the client writes there while it still has a key must make no difference.
fn before_key(a: &mut Attack<'_>) -> Result<()> {
    /// The key of this chunk is invalidated late. `LEN` is the length of its data.
    const CHUNK: u16 = KEYED;
    const LEN: usize = 2 * COPY_MAX;
    /// The chunk of a request that needs no invalidation.
    const BEHIND: u16 = 9;

    let mut s = start_stuck(a)?;
    let io = slow_read(a, &mut s, LEN)?;
    let mut small = io;
    // CAST: A few pages.
    small[20..24].copy_from_slice(&(COPY_MAX as u32).to_le_bytes());
    s.fill(LEN, 0xa5)?;
    for chunk in FILLERS {
        s.send_honest(1, chunk)?;
    }
    std::thread::sleep(a.job.patience / 50);
    s.send_read(1, CHUNK, &io, LEN)?;
    s.send_read(1, BEHIND, &small, COPY_MAX)?;
    // The server takes requests in their order: it has taken both.
    disk_has(a, "1")?;
    let chunk = s.chunk(CHUNK)?;
    // User message and message are behind the place of the data. CAST: A few pages.
    let to = Remote {
        addr: chunk.addr + LEN as u64,
        rkey: chunk.rkey,
    };
    s.post(2, Send::Write(to), &[0x5a; 56])?;
    // Comes behind the write, which would have been refused if the key were not valid any more.
    s.ping(2, 0)?;
    s.con(1)?.post_recvs()?;
    if !answers_come(a, &mut s, FILLERS.chain([BEHIND, CHUNK]))? {
        return Ok(());
    }
    let data = s.read_back(LEN)?;
    if data.iter().any(|&byte| byte != 0) {
        a.report.wrong("the data are not the disk's");
    }
    a.alive(&mut s)
}

/// The server reads the message of a write with so many data when the key is invalid: what it reads is
/// what the client has written last.
fn before_late(a: &mut Attack<'_>) -> Result<()> {
    /// The key of this chunk is invalidated late. `LEN` is the length of its data.
    const CHUNK: u16 = 8;
    const LEN: usize = 4 * COPY_MAX;
    /// The chunk of a request that needs no invalidation.
    const BEHIND: u16 = 9;

    let mut s = start_stuck(a)?;
    let small = slow_read(a, &mut s, COPY_MAX)?;
    for chunk in FILLERS {
        s.send_honest(1, chunk)?;
    }
    std::thread::sleep(a.job.patience / 50);
    s.send_info_write(1, CHUNK, LEN)?;
    s.send_read(1, BEHIND, &small, COPY_MAX)?;
    // The server takes requests in their order: it has taken both.
    disk_has(a, "1")?;
    let chunk = s.chunk(CHUNK)?;
    // User message and message are behind the data. CAST: A few pages.
    let to = Remote {
        addr: chunk.addr + LEN as u64,
        rkey: chunk.rkey,
    };
    s.post(2, Send::Write(to), &[0x5a; 56])?;
    // Comes behind the write, which would have been refused if the key were not valid any more.
    s.ping(2, 0)?;
    s.con(1)?.post_recvs()?;
    // The invalidation is behind them.
    if !answers_come(a, &mut s, FILLERS)? {
        return Ok(());
    }
    a.closed(&mut s)?;
    disk_has(a, "0")
}

/// The answer makes the chunk's key valid. On another connection the invalidation must not come
/// before that, even if the answer has to wait: it would fail here, and on other devices leave the
/// key valid while the user has the chunk.
fn behind_answer(a: &mut Attack<'_>) -> Result<()> {
    /// Its answer waits behind those that find no receive. It has more data than is copied.
    const CHUNK: u16 = KEYED;
    const LEN: usize = 2 * COPY_MAX;
    let mut s = start_stuck(a)?;
    let io = slow_read(a, &mut s, LEN)?;
    // The disk has the request, so its key has been invalidated, and that is not what waits.
    s.send_read(1, CHUNK, &io, LEN)?;
    disk_has(a, "1")?;
    for chunk in FILLERS {
        s.send_honest(1, chunk)?;
    }
    disk_has(a, "0")?;
    std::thread::sleep(a.job.patience / 50);
    // Its message is still there; the write goes to a chunk that is free.
    s.send_read_by(2, 0, CHUNK, &[0; 32], LEN)?;
    if let Some(answer) = s.answer(2, a.job.patience / 5)? {
        bail!("{answer:?} before the key could be invalidated");
    }
    if !s.failed.is_empty() || s.cons[2].is_gone()? {
        bail!("the path is gone: {:?}", s.failed);
    }
    s.con(1)?.post_recvs()?;
    let answers = FILLERS.chain([CHUNK]).map(|chunk| (1, chunk));
    for (cid, chunk) in answers.chain([(2, CHUNK)]) {
        let answer = s.answer(cid, a.job.patience)?.context("no answer")?;
        if answer.buf_id != u32::from(chunk) || answer.errno != 0 {
            bail!("{answer:?} for chunk {chunk}");
        }
    }
    a.alive(&mut s)
}
