// SPDX-License-Identifier: GPL-2.0

//! Memory of other clients: access to chunks by other means than requests.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use anyhow::{bail, Context, Result};
use rand::RngCore;

use super::{case, Attack, Case};
use crate::{
    client::{Answer, Session},
    proto::{next_rkey, RemoteBuf},
    verbs::{Remote, Send},
};

/// The server's parameter `copy_max`.
pub(super) const COPY_MAX: usize = 4096;

/// A chunk without private pages for reads of more data than are copied: their keys change. The
/// first sixteen of each 64 have such pages (`private_chunks`).
pub(super) const KEYED: u16 = 90;

/// Long enough for a message to be refused by a device.
const LONG: Duration = Duration::from_secs(3);

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
            let chunk = s.chunk(KEYED)?;
            // More data than the server copies.
            if read_of(a, &mut s, KEYED, 2 * COPY_MAX, true)?.by_write {
                bail!("an answer without a key");
            }
            let to = whole(chunk);
            s.post(1, Send::Write(to), &[0x5a; 8])?;
            a.closed(&mut s)
        },
    ),
    case(
        "same-key",
        "has a key that was not invalidated told again, and writes with it",
        |a| {
            let mut s = a.start()?;
            let chunk = s.chunk(9)?;
            let answer = s.ping(1, 9)?;
            if answer.by_write == s.new_rkey || s.chunk(9)?.rkey != chunk.rkey {
                bail!("{answer:?}, and the key is {:x?}", s.chunk(9)?);
            }
            let to = whole(chunk);
            s.post(1, Send::Write(to), &[0x5a; 8])?;
            s.ping(1, 9)?;
            a.alive(&mut s)
        },
    ),
    case(
        "guess-key",
        "writes with the key that follows the one of an answered request",
        guess_key,
    ),
    case(
        "same-places",
        "is told places from which it cannot know others",
        places,
    ),
    case(
        "inval-answer",
        "would take an invalidation for the answer, and wants none",
        |a| {
            let mut who = a.identity();
            who.capabilities.inval_answers = true;
            who.capabilities.inval_answers_always = true;
            let mut s = a.start_as(&who)?;
            let changes = s.new_rkey;
            read_of(a, &mut s, KEYED, 2 * COPY_MAX, changes)?;
            a.alive(&mut s)
        },
    ),
    case(
        "same-large",
        "reads more data than are copied into private pages, and keeps its key",
        |a| {
            // The last of a group that has such pages.
            const CHUNK: u16 = 15;

            let mut s = a.start()?;
            let (chunk, changes) = (s.chunk(CHUNK)?, s.new_rkey);
            read_of(a, &mut s, CHUNK, 16 * COPY_MAX, false)?;
            s.post(1, Send::Write(whole(chunk)), &[0x5a; 8])?;
            // One page more than there are.
            read_of(a, &mut s, CHUNK, 17 * COPY_MAX, changes)?;
            a.alive(&mut s)
        },
    ),
    case(
        "inval-answer-key",
        "would, and wants a key invalidated that cannot be",
        |a| {
            let mut who = a.identity();
            who.capabilities.inval_answers = true;
            who.capabilities.inval_answers_always = true;
            let mut s = a.start_as(&who)?;
            // The attacker's device rejects the invalidation: a peer cannot invalidate the key of
            // memory that was registered by a user space program.
            s.need_inval = true;
            s.send_info_request(1, KEYED, 2 * COPY_MAX)?;
            if let Some(answer) = s.answer(1, LONG)? {
                bail!("{answer:?}");
            }
            if s.failed.is_empty() {
                bail!("the device took an invalidation");
            }
            a.report.got(s.failed.join(", "));
            s.disconnect();
            Ok(())
        },
    ),
    case("same-no-key", "needs no key that has not changed", |a| {
        let mut who = a.identity();
        who.capabilities.keeps_keys = true;
        let mut s = a.start_as(&who)?;
        let chunk = s.chunk(9)?;
        for cid in [1, 2, 1] {
            // Data and answer in one message.
            let answer = s.ping(cid, 9)?;
            if !answer.by_write || s.chunk(9)?.rkey != chunk.rkey {
                bail!("{answer:?}, and the key is {:x?}", s.chunk(9)?);
            }
        }
        // A changed key is in the answer.
        let told = s.new_rkey;
        let answer = read_of(a, &mut s, KEYED, 2 * COPY_MAX, told)?;
        if answer.by_write == told {
            bail!("{answer:?}");
        }
        a.alive(&mut s)
    }),
    case(
        "same-next-key",
        "counts the keys of its chunks, and is told those that do not follow",
        next_keys,
    ),
    case(
        "same-next-key-told",
        "would count keys, but wants to be told those that stay",
        |a| {
            let mut who = a.identity();
            who.capabilities.counts_keys = true;
            let mut s = a.start_as(&who)?;
            for _ in 0..3 {
                write_of(a, &mut s, KEYED, 2 * COPY_MAX, false)?;
                s.ping(1, KEYED)?;
            }
            a.alive(&mut s)
        },
    ),
    case(
        "last-key",
        "counts the keys of its chunks, and writes with the one before",
        |a| {
            let mut who = a.identity();
            who.capabilities.keeps_keys = true;
            who.capabilities.counts_keys = true;
            let mut s = a.start_as(&who)?;
            if !s.new_rkey {
                bail!("keys stay the same with always_invalidate=N");
            }
            let chunk = s.chunk(KEYED)?;
            write_of(a, &mut s, KEYED, 2 * COPY_MAX, true)?;
            s.post(1, Send::Write(whole(chunk)), &[0x5a; 8])?;
            a.closed(&mut s)
        },
    ),
    case(
        "foreign-key",
        "writes with the key of another session",
        |a| {
            let mut other = a.start()?;
            let chunk = other.chunk(0)?;
            a.write_to(|_| Ok(whole(chunk)))?;
            a.alive(&mut other)
        },
    ),
    case(
        "sibling-key",
        "writes with the key of another path of its session",
        sibling_key,
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

/// Reads `len` bytes by way of chunk `buf_id`, the key of which `changes` or not.
fn read_of(
    a: &Attack<'_>,
    s: &mut Session,
    buf_id: u16,
    len: usize,
    changes: bool,
) -> Result<Answer> {
    let before = s.chunk(buf_id)?.rkey;
    s.send_info_request(1, buf_id, len)?;
    let answer = s.answer(1, a.job.patience)?.context("no answer")?;
    let after = s.chunk(buf_id)?;
    if answer.errno != 0 || (after.rkey != before) != changes {
        bail!("{answer:?}, and the key is {after:x?}");
    }
    Ok(answer)
}

/// Writes `len` bytes, more than are copied, by way of chunk `buf_id`. If the key changes, it is
/// `counted` or told.
fn write_of(a: &Attack<'_>, s: &mut Session, buf_id: u16, len: usize, counted: bool) -> Result<()> {
    let before = s.chunk(buf_id)?.rkey;
    s.send_info_write(1, buf_id, len)?;
    let answer = s.answer(1, a.job.patience)?.context("no answer")?;
    let after = s.chunk(buf_id)?.rkey;
    let right = match (s.new_rkey, counted) {
        (true, true) => answer.by_write && after == next_rkey(before),
        (true, false) => !answer.by_write && after != before,
        (false, _) => answer.by_write && after == before,
    };
    if answer.errno != 0 || !right {
        bail!("{answer:?}, and the key was {before:x} and is {after:x}");
    }
    Ok(())
}

/// Uses a chunk with keys that are counted, in turn with keys that are told.
fn next_keys(a: &mut Attack<'_>) -> Result<()> {
    /// A chunk with private pages.
    const CHUNK: u16 = 3;

    let mut who = a.identity();
    who.capabilities.keeps_keys = true;
    who.capabilities.counts_keys = true;
    let mut s = a.start_as(&who)?;
    let changes = s.new_rkey;
    // More often than there are keys.
    for _ in 0..300 {
        write_of(a, &mut s, KEYED, 2 * COPY_MAX, true)?;
    }
    for _ in 0..3 {
        for buf_id in [CHUNK, KEYED] {
            // A key that was told is counted from there.
            read_of(a, &mut s, buf_id, 17 * COPY_MAX, changes)?;
            write_of(a, &mut s, buf_id, 2 * COPY_MAX, true)?;
            // One that stays is not told.
            read_of(a, &mut s, buf_id, COPY_MAX, false)?;
            write_of(a, &mut s, buf_id, 2 * COPY_MAX, true)?;
        }
        read_of(a, &mut s, CHUNK, 16 * COPY_MAX, false)?;
        write_of(a, &mut s, CHUNK, 2 * COPY_MAX, true)?;
    }
    a.alive(&mut s)
}

/// The whole of a chunk.
pub(super) fn whole(chunk: RemoteBuf) -> Remote {
    Remote {
        addr: chunk.addr,
        rkey: chunk.rkey,
    }
}

/// Uses a second path of the session, from the next address, which the host has as well.
fn sibling_key(a: &mut Attack<'_>) -> Result<()> {
    let mut who = a.identity();
    let mut first = a.start_as(&who)?;
    let chunk = first.chunk(0)?;
    let IpAddr::V4(addr) = a.job.addr.ip() else {
        bail!("not with this address");
    };
    a.rng.fill_bytes(&mut who.path);
    who.first = false;
    who.from = Some(Ipv4Addr::from(u32::from(addr) + 1).into());
    let mut second = a.start_as(&who)?;
    second.post(1, Send::Write(whole(chunk)), &[0x5a; 8])?;
    a.report.sent("8 bytes where the other path's belong");
    a.closed(&mut second)?;
    a.alive(&mut first)
}

/// Uses the key after the next one: a client that counts would have it before it is sent.
fn guess_key(a: &mut Attack<'_>) -> Result<()> {
    const CHUNK: u16 = KEYED;
    /// One guess in 255 is right by chance.
    const TRIES: usize = 3;

    let mut s = a.start()?;
    if !s.new_rkey {
        bail!("keys stay the same with always_invalidate=N");
    }
    for _ in 0..TRIES {
        let chunk = s.chunk(CHUNK)?;
        let guess = RemoteBuf {
            rkey: chunk.rkey & !0xff | u32::from((chunk.rkey as u8).wrapping_add(1)),
            ..chunk
        };
        s.send_info_request(1, CHUNK, 2 * COPY_MAX)?;
        let answer = s.answer(1, a.job.patience)?.context("no answer")?;
        if answer.errno != 0 || s.chunk(CHUNK)?.rkey == chunk.rkey {
            bail!("{answer:?}, and no new key");
        }
        if s.chunk(CHUNK)?.rkey != guess.rkey {
            s.post(1, Send::Write(whole(guess)), &[0x5a; 8])?;
            return a.closed(&mut s);
        }
    }
    a.report.wrong("keys can be counted");
    Ok(())
}

/// Addresses and keys of all memory with a key of its own.
fn registrations(s: &Session) -> Result<Vec<RemoteBuf>> {
    let mut found: Vec<RemoteBuf> = Vec::new();
    for id in 0..s.geometry.queue_depth() {
        let chunk = s.chunk(id)?;
        if found.last().is_none_or(|last| last.rkey != chunk.rkey) {
            found.push(chunk);
        }
    }
    Ok(found)
}

/// Neither addresses nor keys follow from others: not within a path, nor from one path to the next.
fn places(a: &mut Attack<'_>) -> Result<()> {
    let mut first = a.start()?;
    let mut second = a.start()?;
    let mut all = registrations(&first)?;
    let each = all.len();
    all.extend(registrations(&second)?);

    let ids: std::collections::BTreeSet<u64> = all.iter().map(|chunk| chunk.addr).collect();
    // Apart from the page offset, two addresses agree only by chance.
    let steps = all
        .windows(2)
        .filter(|w| w[1].addr.abs_diff(w[0].addr) < 1 << 32)
        .count();
    let keys = all
        .windows(2)
        .filter(|w| (w[1].rkey as u8).wrapping_sub(w[0].rkey as u8) <= 1)
        .count();
    a.report.fact("keys", each);
    a.report.fact("places", ids.len());
    if ids.len() != all.len() || steps > 1 {
        a.report.wrong(format!(
            "{} places of {}, {steps} of them beside the one before",
            ids.len(),
            all.len()
        ));
    }
    if all.iter().any(|chunk| chunk.addr % 4096 != 0) {
        a.report.wrong("a place is inside a page");
    }
    // A single pair of equal keys proves nothing.
    if all.len() > 16 && keys > all.len() / 4 {
        a.report.wrong(format!(
            "{keys} of {} keys follow the one before",
            all.len()
        ));
    }
    a.alive(&mut second)?;
    a.alive(&mut first)
}

/// The server's device must refuse the read, which is sent although the server offers no resources
/// for reads, and the server must end the path over that. Data would overwrite the pattern in
/// memory.
fn read_directly(a: &mut Attack<'_>) -> Result<()> {
    const LEN: usize = 64;

    let mut s = a.start()?;
    let chunk = s.chunk(0)?;
    let from = whole(chunk);
    s.con(1)?.id.allow_reads()?;
    let token = s.post(1, Send::Read(from), &[0xa5; LEN])?;
    a.report.sent("a read of a chunk");
    // Completions of earlier sends may still come.
    let done = loop {
        match s.con(1)?.id.wait(a.job.patience)? {
            Some(done) if done.token != token => {}
            Some(done) => break done,
            None => bail!("the read did not end"),
        }
    };
    a.report.got(done.text());
    if !done.is_refused() {
        a.report
            .wrong("the server's device did not refuse the read");
    }
    if s.staged(LEN)? != [0xa5; LEN] {
        a.report.wrong("something was read");
    }
    a.gone(&mut s, a.job.patience)
}
