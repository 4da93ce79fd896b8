// SPDX-License-Identifier: GPL-2.0

//! Values, requests, messages and heartbeats that break the protocol, on a path that is up.

use std::time::Instant;

use anyhow::{bail, Result};

use super::{case, Attack, Case};
use crate::{
    client::{info_message, proto, Session, RNBD_SESS_INFO_SIZE},
    proto::{errno::ENOENT, heartbeat::ANSWERS, Imm, IoErrno},
    verbs::{Remote, Send},
};

/// Without a name, the directory of devices is opened.
const ENOTBLK: i32 = 15;

/// The place of the name in RNBD's message that opens a device. It has 255 bytes.
const OPEN_NAME: u16 = 6;

/// Number of messages of a flood.
const FLOOD: usize = 3000;

/// Bytes of data that servers do not copy.
const LARGE: u32 = 16 << 10;

pub(super) const CASES: &[Case] = &[
    // Values.
    case("imm-type", "sends a value of an unknown type", |a| {
        a.value(1, 5 << 28)
    }),
    case(
        "imm-type-service",
        "the same on the service connection",
        |a| a.value(0, 15 << 28),
    ),
    case("imm-answer", "sends an answer", |a| {
        let imm = Imm::IoRsp {
            msg_id: 0,
            errno: IoErrno::SUCCESS,
            inval: false,
        };
        let imm = imm.encode().map_err(proto)?;
        a.value(1, imm)
    }),
    case(
        "imm-answer-key",
        "sends an answer with a key to be counted",
        |a| a.value(1, 3 << 28),
    ),
    case(
        "buf-id",
        "sends a request in a chunk that is not there",
        |a| {
            let mut s = a.start()?;
            let depth = u32::from(s.geometry.queue_depth());
            if depth.is_power_of_two() {
                bail!("all values name a chunk with a queue depth of {depth}");
            }
            let imm = s.imm(depth, 0);
            s.write_imm(1, 0, 0, &write_msg(0), imm)?;
            a.closed(&mut s)
        },
    ),
    case("off-beyond", "has its message behind the chunk", |a| {
        a.request(|s| (s.geometry.chunk_size(), 0, write_msg(0)))
    }),
    case(
        "off-far",
        "has its message as far behind as can be said",
        |a| {
            a.request(|s| {
                let depth = u32::from(s.geometry.queue_depth());
                let bits = 28 - (u32::BITS - (depth - 1).leading_zeros());
                ((1 << bits) - 1, 0, write_msg(0))
            })
        },
    ),
    case(
        "off-at-end",
        "has 2 bytes of its message in the chunk",
        |a| {
            a.request(|s| {
                let end = s.geometry.chunk_size() - 2;
                (end, end as usize, vec![2, 0])
            })
        },
    ),
    case(
        "desc-at-end",
        "has the descriptor of a read behind the chunk",
        |a| {
            a.request(|s| {
                let end = s.geometry.chunk_size() - 8;
                (
                    end,
                    end as usize,
                    read_msg(0, 0, &[desc(s, 8)])[..8].to_vec(),
                )
            })
        },
    ),
    // Messages of requests.
    case("msg-type", "sends a message of an unknown type", |a| {
        a.request(|_| (0, 0, vec![9, 0, 0, 0]))
    }),
    case(
        "usr-len",
        "has a user message longer than what it wrote",
        |a| a.request(|_| (16, 0, with_user(16, &write_msg(17)))),
    ),
    case("usr-len-max", "has a user message of 64 KiB", |a| {
        a.request(|_| (16, 0, with_user(16, &write_msg(u16::MAX))))
    }),
    case(
        "usr-len-header",
        "has a user message longer than headers may be",
        |a| {
            a.request(|s| {
                let len = s.geometry.max_hdr_size();
                (len, 0, with_user(len as usize, &write_msg(len as u16)))
            })
        },
    ),
    case("never-written", "names a chunk it wrote nothing to", |a| {
        let mut s = a.start()?;
        let imm = s.imm(7, 64);
        s.post(1, Send::WriteImm(Remote::default(), imm), &[])?;
        a.closed(&mut s)
    }),
    case(
        "written-before",
        "names what an earlier request wrote",
        |a| {
            let mut s = a.start()?;
            s.ping(1, 7)?;
            let imm = s.imm(7, 2 * RNBD_SESS_INFO_SIZE as u32);
            s.post(1, Send::WriteImm(Remote::default(), imm), &[])?;
            a.closed(&mut s)
        },
    ),
    case("written-less", "wrote less than it says", |a| {
        let mut s = a.start()?;
        let imm = s.imm(3, 4096);
        s.write_imm(1, 3, 4096, &write_msg(512), imm)?;
        a.closed(&mut s)
    }),
    // Writes of so many data that they are read only when their key is invalid.
    case(
        "large-type",
        "has a message of an unknown type behind 16 KiB",
        |a| a.request(|_| (LARGE, 0, large(&[9, 0, 0, 0]))),
    ),
    case("large-read", "writes the 16 KiB that it reads", |a| {
        a.request(|s| (LARGE, 0, large(&read_msg(0, 0, &[desc(s, LARGE)]))))
    }),
    case(
        "large-usr-len",
        "has a user message longer than the 16 KiB that it wrote",
        |a| a.request(|_| (LARGE, 0, large(&write_msg(LARGE as u16 + 1)))),
    ),
    case(
        "large-more",
        "wrote 16 KiB, and says that they are 8",
        |a| {
            a.request(|_| {
                let mut all = large(&[0; 4]);
                let off = LARGE / 2;
                all[off as usize..][..4].copy_from_slice(&write_msg(0));
                (off, 0, all)
            })
        },
    ),
    case(
        "large-long-user",
        "has a user message of 400 bytes behind 16 KiB, which is honest",
        large_long_user,
    ),
    case(
        "large-to-the-end",
        "has its message close to the end of the chunk, which is honest",
        large_to_the_end,
    ),
    case(
        "large-open",
        "opens a device behind 16 KiB, whose name has no end",
        |a| large_open(a, OPEN_NAME + 254, ENOENT),
    ),
    case(
        "large-open-short",
        "opens a device there with a message of two bytes",
        |a| large_open(a, 2, ENOTBLK),
    ),
    case("read-more", "reads more than it asks for", |a| {
        a.request(|s| (8, 8, read_msg(0, 0, &[desc(s, 4096)])))
    }),
    case(
        "read-chunk",
        "reads a whole chunk for a small request",
        |a| a.request(|s| (36, 36, read_msg(0, 0, &[desc(s, s.geometry.chunk_size())]))),
    ),
    case("read-4gib", "reads 4 GiB", |a| {
        a.request(|s| (8, 8, read_msg(0, 0, &[desc(s, u32::MAX)])))
    }),
    case("read-less", "reads less than it asks for", |a| {
        a.request(|s| (4096, 4096, read_msg(0, 0, &[desc(s, 8)])))
    }),
    case("read-none", "reads data to nowhere", |a| {
        a.request(|_| (4096, 4096, read_msg(0, 0, &[])))
    }),
    case("read-zero", "reads no data to somewhere", |a| {
        a.request(|s| (0, 0, read_msg(0, 0, &[desc(s, 0)])))
    }),
    case("inval-nothing", "wants no key invalidated", |a| {
        a.request(|_| (0, 0, read_msg(0, 1, &[])))
    }),
    case("two-descs", "reads to two places", |a| {
        a.request(|s| (16, 16, read_msg(0, 0, &[desc(s, 8), desc(s, 8)])))
    }),
    case("many-descs", "reads to 65535 places", |a| {
        a.request(|s| {
            let mut msg = read_msg(0, 0, &[desc(s, 8)]);
            msg[6..8].fill(0xff);
            (8, 8, msg)
        })
    }),
    case("wrong-key", "wants data in memory that is not there", |a| {
        a.request(|s| {
            let mut bad = desc(s, 36);
            bad[8..12].copy_from_slice(&0xdead_beef_u32.to_le_bytes());
            let mut msg = vec![0; 36];
            msg[4] = 2;
            msg.extend(read_msg(36, 0, &[bad]));
            (72, 36, msg)
        })
    }),
    // Messages on connections that expect none.
    case("send-on-io", "sends a message on an IO connection", |a| {
        a.send(1, Send::Msg, &[0; 16])
    }),
    case("send-nothing-on-io", "sends an empty message there", |a| {
        a.send(1, Send::Msg, &[])
    }),
    case(
        "send-value-on-io",
        "sends an empty message with a value there",
        |a| a.send(1, Send::MsgImm(0), &[]),
    ),
    case(
        "send-on-service",
        "sends a message on the service connection",
        |a| a.send(0, Send::Msg, &[0; 16]),
    ),
    case(
        "send-nothing-on-service",
        "sends an empty message there",
        |a| a.send(0, Send::Msg, &[]),
    ),
    // Heartbeats.
    case("hb-on-io", "sends a heartbeat on an IO connection", |a| {
        let imm = Imm::Hb.encode().map_err(proto)?;
        a.value(1, imm)
    }),
    case(
        "hb-ack-on-io",
        "answers a heartbeat on an IO connection",
        |a| {
            let imm = Imm::HbAck.encode().map_err(proto)?;
            a.value(1, imm)
        },
    ),
    case("hb-ack-unasked", "answers heartbeats nobody sent", |a| {
        let mut s = a.start()?;
        let imm = Imm::HbAck.encode().map_err(proto)?;
        for _ in 0..100 {
            s.post(0, Send::WriteImm(Remote::default(), imm), &[])?;
        }
        a.alive(&mut s)
    }),
    case("hb-flood", "sends 3000 heartbeats", hb_flood),
    case(
        "hb-flood-unread",
        "sends heartbeats and has no room for answers",
        hb_unread,
    ),
];

/// A write message.
pub(super) fn write_msg(usr_len: u16) -> Vec<u8> {
    [2u16.to_le_bytes(), usr_len.to_le_bytes()].concat()
}

/// A read message.
pub(super) fn read_msg(usr_len: u16, flags: u16, descs: &[[u8; 16]]) -> Vec<u8> {
    let mut msg = Vec::new();
    // There are only a few.
    for field in [3, usr_len, flags, descs.len() as u16] {
        msg.extend(field.to_le_bytes());
    }
    msg.extend(descs.concat());
    msg
}

/// A descriptor with length `len` for the client's memory.
pub(super) fn desc(s: &Session, len: u32) -> [u8; 16] {
    let to = s.read_desc(len).unwrap_or_default();
    let mut raw = [0; 16];
    raw[..8].copy_from_slice(&to.addr.to_le_bytes());
    raw[8..12].copy_from_slice(&to.rkey.to_le_bytes());
    raw[12..].copy_from_slice(&len.to_le_bytes());
    raw
}

/// `len` bytes of data or user message, then a message.
fn with_user(len: usize, msg: &[u8]) -> Vec<u8> {
    let mut all = vec![0xa5; len];
    all.extend(msg);
    all
}

/// [`LARGE`] bytes of data, then a message.
fn large(msg: &[u8]) -> Vec<u8> {
    with_user(LARGE as usize, msg)
}

fn large_long_user(a: &mut Attack<'_>) -> Result<()> {
    const USER: u16 = 400;
    let mut s = a.start()?;
    // RNBD's question for the version, which may be longer than it is.
    let mut all = vec![0; LARGE as usize + usize::from(USER)];
    all[LARGE as usize + 4] = 2;
    all.extend(write_msg(USER));
    let imm = s.imm(3, LARGE + u32::from(USER));
    s.write_imm(1, 3, 0, &all, imm)?;
    a.report.sent(format!("{} bytes", all.len()));
    match s.answer(1, a.job.patience)? {
        Some(answer) if answer.buf_id == 3 && answer.errno == 0 => a.alive(&mut s),
        answer => bail!("{answer:?} to an honest write"),
    }
}

/// Puts a message `behind` bytes before the end of the chunk.
fn write_up_to(s: &mut Session, behind: usize) -> Result<()> {
    let rest = s.geometry.chunk_size() as usize - RNBD_SESS_INFO_SIZE - behind;
    s.send_info_write(1, 3, rest)
}

fn large_to_the_end(a: &mut Attack<'_>) -> Result<()> {
    let mut s = a.start()?;
    // The longest message that any request may have ends before the chunk, or not.
    for behind in [write_msg(0).len(), 24, 100] {
        write_up_to(&mut s, behind)?;
        match s.answer(1, a.job.patience)? {
            Some(answer) if answer.buf_id == 3 && answer.errno == 0 => (),
            answer => bail!("{answer:?} to a message {behind} bytes before the end of the chunk"),
        }
    }
    a.report.sent("3 writes");
    a.alive(&mut s)
}

/// Sends the first `user` bytes of a message that opens a device, which is answered by `errno`: the name ends
/// with the message, although neither the chunk nor an earlier message have a zero at its place.
fn large_open(a: &mut Attack<'_>, user: u16, errno: i32) -> Result<()> {
    /// `RNBD_MSG_OPEN`
    const OPEN: u16 = 2;
    /// The longest user message for which no memory is allocated.
    const LONG: u16 = 319;
    let mut s = a.start()?;
    let mut all = vec![b'a'; LARGE as usize + usize::from(LONG)];
    all[LARGE as usize..][..RNBD_SESS_INFO_SIZE].copy_from_slice(&info_message());
    all.extend(write_msg(LONG));
    let imm = s.imm(3, LARGE + u32::from(LONG));
    s.write_imm(1, 3, 0, &all, imm)?;
    match s.answer(1, a.job.patience)? {
        Some(answer) if answer.buf_id == 3 && answer.errno == 0 => (),
        answer => bail!("{answer:?} to an honest write"),
    }
    // Nothing is said of these bytes.
    let chunk = s.chunk(3)?;
    let to = Remote {
        addr: chunk.addr,
        rkey: chunk.rkey,
    };
    let all = vec![b'a'; s.geometry.chunk_size() as usize];
    s.post(1, Send::Write(to), &all)?;
    let mut all = vec![b'a'; LARGE as usize + usize::from(user)];
    all[LARGE as usize..][..2].copy_from_slice(&OPEN.to_le_bytes());
    all.extend(write_msg(user));
    let imm = s.imm(3, LARGE + u32::from(user));
    s.write_imm(1, 3, 0, &all, imm)?;
    a.report.sent(format!("{user} bytes of a message"));
    match s.answer(1, a.job.patience)? {
        Some(answer) if answer.buf_id == 3 && answer.errno == -errno => a.alive(&mut s),
        answer => bail!("{answer:?} to a device that cannot be opened"),
    }
}

fn hb_flood(a: &mut Attack<'_>) -> Result<()> {
    let mut s = a.start()?;
    let imm = Imm::Hb.encode().map_err(proto)?;
    let mut posted = 0;
    let mut acks = 0;
    let mut idle = Instant::now();
    while posted < FLOOD {
        if s.con(0)?
            .id
            .post_send(Send::WriteImm(Remote::default(), imm), None)
            .is_ok()
        {
            posted += 1;
            idle = Instant::now();
        } else if idle.elapsed() > a.job.patience {
            bail!("stuck after {posted} heartbeats");
        }
        while let Some(done) = s.con(0)?.id.poll()? {
            if !done.is_ok() {
                bail!("after {posted} heartbeats: {}", done.text());
            }
            if !done.is_send() {
                s.con(0)?.repost_recv(done.token)?;
                acks += 1;
            }
        }
    }
    a.report.sent(format!("{posted} heartbeats"));
    a.report.fact("acks", acks);
    a.alive(&mut s)
}

/// While [`ANSWERS`] answers wait for room, the server does not make another one.
fn hb_unread(a: &mut Attack<'_>) -> Result<()> {
    /// Fewer than the queue has room for.
    const COUNT: usize = 200;
    let who = a.identity();
    let mut s = Session::connect(a.job.addr, &who, a.job.patience)?;
    s.get_chunks(&who.question())?;
    for cid in 1..s.cons.len() {
        s.con(cid)?.post_recvs()?;
    }
    let imm = Imm::Hb.encode().map_err(proto)?;
    for _ in 0..COUNT {
        s.post(0, Send::WriteImm(Remote::default(), imm), &[])?;
    }
    a.report.sent(format!("{COUNT} heartbeats"));
    // The server has received all of them when the last one is acknowledged.
    let mut sent = 0;
    while sent < COUNT {
        match s.con(0)?.id.wait(a.job.patience)? {
            Some(done) if !done.is_ok() => bail!("after {sent} heartbeats: {}", done.text()),
            Some(done) if done.is_send() => sent += 1,
            Some(_) => bail!("an answer for which there was no room"),
            None => bail!("{sent} of {COUNT} heartbeats arrived"),
        }
    }
    s.con(0)?.post_recvs()?;
    let mut acks = 0;
    while let Some(done) = s.con(0)?.id.wait(a.job.patience / 5)? {
        if !done.is_ok() {
            bail!("instead of an answer: {}", done.text());
        }
        let value = done.imm.and_then(|imm| Imm::decode(imm).ok());
        acks += usize::from(value == Some(Imm::HbAck));
    }
    a.report.fact("acks", acks);
    // These are the answers that waited; no more came after them.
    if !(1..=ANSWERS as usize).contains(&acks) {
        a.report.wrong(format!("{acks} answers"));
    }
    a.alive(&mut s)
}
