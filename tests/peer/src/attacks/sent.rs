// SPDX-License-Identifier: GPL-2.0

//! Writes that are sent as messages, and break the protocol; [`honest`] has those that do not.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use anyhow::{bail, Result};
use rand::RngCore;

use super::{
    busy::{disk_has, slow_read},
    case,
    memory::COPY_MAX,
    request::{desc, read_msg, write_msg},
    Attack, Case,
};
use crate::{
    client::{info_message, proto, write_of, Answer, Identity, Session},
    proto::{Imm, IoErrno, MostSent, ReadMsg, WriteMsg, SENT_DATA, SENT_REST},
    verbs::{Remote, Send},
};

pub(super) mod honest;

/// The most data, and the longest message. CAST: Small constants.
const DATA: usize = SENT_DATA as usize;
const LONGEST: usize = (SENT_DATA + SENT_REST) as usize;

/// Requests at a time on each connection, unless the case says otherwise.
const MOST: u32 = 16;

pub(super) const CASES: &[Case] = &[
    // Values.
    case("sent-no-value", "sends a write without a value", |a| {
        refused_op(a, 1, |_| Ok((Send::Msg, a_write())))
    }),
    case(
        "sent-inval",
        "sends a write that invalidates the key of its chunk",
        |a| refused_op(a, 1, |s| Ok((Send::MsgInv(s.chunk(3)?.rkey), a_write()))),
    ),
    case("sent-hb", "sends a write with a heartbeat's value", |a| {
        let imm = Imm::Hb.encode().map_err(proto)?;
        refused(a, |_| (imm, a_write()))
    }),
    case("sent-hb-ack", "sends one with that of its answer", |a| {
        let imm = Imm::HbAck.encode().map_err(proto)?;
        refused(a, |_| (imm, Vec::new()))
    }),
    case("sent-answer", "sends one with that of an answer", |a| {
        let imm = Imm::IoRsp {
            msg_id: 3,
            errno: IoErrno::SUCCESS,
            inval: false,
        };
        let imm = imm.encode().map_err(proto)?;
        refused(a, |_| (imm, a_write()))
    }),
    case(
        "sent-key-answer",
        "sends one with that of an answer with a key to be counted",
        |a| refused(a, |_| (3 << 28, a_write())),
    ),
    case(
        "sent-imm-type",
        "sends one with a value of unknown type",
        |a| refused(a, |_| (15 << 28, a_write())),
    ),
    case(
        "sent-buf-id",
        "sends one for a chunk that is not there",
        |a| {
            refused(a, |s| {
                let off = a_write().len() - WriteMsg::SIZE;
                // CAST: Less than a page.
                let depth = u32::from(s.geometry.queue_depth());
                (s.imm(depth, off as u32), a_write())
            })
        },
    ),
    // Offsets and lengths.
    case(
        "sent-off-less",
        "has its message before the end of what it sends",
        |a| refused_at(a, a_write(), -1),
    ),
    case("sent-off-more", "has it behind", |a| {
        refused_at(a, a_write(), 1)
    }),
    case("sent-off-zero", "has it at the start", |a| {
        refused(a, |s| (s.imm(3, 0), a_write()))
    }),
    case("sent-off-far", "has it behind the chunk", |a| {
        refused(a, |s| (s.imm(3, s.geometry.chunk_size()), a_write()))
    }),
    case("sent-off-end", "has it at the end of the chunk", |a| {
        refused(a, |s| (s.imm(3, s.geometry.chunk_size() - 4), a_write()))
    }),
    case(
        "sent-off-page",
        "has it across the end of the page, and sends a page",
        |a| refused(a, |s| (s.imm(3, SENT_DATA - 2), vec![2; DATA])),
    ),
    case(
        "sent-off-rest",
        "has it behind the longest message that can be sent",
        |a| refused(a, |s| (s.imm(3, SENT_DATA + SENT_REST), a_write())),
    ),
    case("sent-long", "sends a byte more than it says", |a| {
        refused(a, |s| {
            let imm = s.write_value(3, &a_write());
            (imm, [a_write(), vec![0]].concat())
        })
    }),
    case(
        "sent-stale",
        "sends less than it says, to receives that have all of it of earlier messages",
        stale,
    ),
    case("sent-empty", "sends nothing", |a| {
        refused(a, |s| (s.write_value(3, &a_write()), Vec::new()))
    }),
    case("sent-less", "sends half of its message", |a| {
        refused(a, |s| (s.imm(3, 0), vec![2, 0]))
    }),
    case("sent-too-long", "sends a byte more than fits", |a| {
        let usr_len = (LONGEST + 1 - DATA - WriteMsg::SIZE) as u16;
        let msg = [vec![0; LONGEST + 1 - WriteMsg::SIZE], write_msg(usr_len)].concat();
        refused(a, |s| (s.write_value(3, &msg), msg))
    }),
    case("sent-twice-too-long", "sends 64 KiB", |a| {
        refused(a, |s| (s.imm(3, 40), vec![2; 1 << 16]))
    }),
    // Messages.
    case("sent-msg-type", "sends a message of unknown type", |a| {
        refused(a, |s| (s.imm(3, 0), vec![9, 0, 0, 0]))
    }),
    case("sent-usr-len", "has more for the user than it sends", |a| {
        let msg = [vec![0; 16], write_msg(17)].concat();
        refused(a, |s| (s.write_value(3, &msg), msg))
    }),
    case(
        "sent-usr-len-header",
        "has more for the user than headers may have",
        |a| {
            refused(a, |s| {
                let len = s.geometry.max_hdr_size() as usize;
                // CAST: Less than 64 KiB.
                let msg = [vec![0; len], write_msg(len as u16)].concat();
                (s.write_value(3, &msg), msg)
            })
        },
    ),
    case(
        "sent-too-much",
        "sends more data than may be sent, in a message that is not too long",
        |a| {
            for len in [
                DATA + 1,
                DATA + 200,
                LONGEST - info_message().len() - WriteMsg::SIZE,
            ] {
                let mut s = start(a, MOST)?;
                s.send_info_sent(1, 90, len)?;
                a.report.sent(format!("{len} bytes of data"));
                a.closed(&mut s)?;
            }
            Ok(())
        },
    ),
    case("sent-read", "sends a read", |a| {
        refused(a, |s| {
            let msg = [&info_message()[..], &a_read(s, 36, 36)].concat();
            (s.imm(3, 72), msg)
        })
    }),
    case(
        "sent-read-place",
        "sends a read with the place of its data",
        |a| {
            refused(a, |s| {
                let msg = [&[0; 36][..], &info_message(), &a_read(s, 36, 36)].concat();
                (s.imm(3, 72), msg)
            })
        },
    ),
    case(
        "sent-read-part",
        "sends the first bytes of a read, the rest of which it has written",
        read_part,
    ),
    case("sent-flood", "sends nothing but faulty messages", |a| {
        let mut s = start(a, MOST)?;
        for buf_id in 0..50 {
            let imm = s.imm(buf_id, 100);
            s.post(1, Send::MsgImm(imm), &[2; 50])?;
        }
        a.closed(&mut s)
    }),
    case(
        "sent-busy",
        "sends a write for a chunk whose request a slow disk has",
        busy,
    ),
    case(
        "sent-busy-elsewhere",
        "sends a faulty message for a chunk whose request over another path a slow disk has",
        busy_elsewhere,
    ),
    // Connections.
    case(
        "sent-on-service",
        "does so on the service connection",
        |a| {
            refused_op(a, 0, |s| {
                Ok((Send::MsgImm(s.write_value(3, &a_write())), a_write()))
            })
        },
    ),
    case(
        "sent-nothing-on-service",
        "sends a value without data there",
        |a| refused_op(a, 0, |s| Ok((Send::MsgImm(s.imm(3, 0)), Vec::new()))),
    ),
    case("sent-plain", "does so without having said so", |a| {
        let s = a.start()?;
        not_taken(a, s)
    }),
    case(
        "sent-untaken",
        "does so although the server takes none",
        |a| {
            let s = untaken(a)?;
            not_taken(a, s)
        },
    ),
    case("sent-untaken-empty", "does so without data", |a| {
        let mut s = untaken(a)?;
        let imm = s.imm(3, 0);
        s.post(1, Send::MsgImm(imm), &[])?;
        a.closed(&mut s)
    }),
    case(
        "sent-io-zero",
        "does so where it has not said so, but on another connection",
        |a| {
            let who = sender(a, MOST);
            let mut s = start_by(a, &who, &[0, 1, 2], |cid| match cid {
                1 => None,
                _ => Some(MOST),
            })?;
            if !s.takes_sends {
                bail!("the server takes no sent writes");
            }
            for _ in 0..50 {
                s.send_info_sent(2, 3, DATA)?;
                good(a, &mut s, 2, 3)?;
                s.send_info_write(1, 3, DATA)?;
                good(a, &mut s, 1, 3)?;
            }
            not_taken(a, s)
        },
    ),
    case(
        "sent-io-only",
        "does so where it has said so, but not on the first connection",
        |a| {
            let who = sender(a, MOST);
            let s = start_by(a, &who, &[0, 1, 2], |cid| match cid {
                0 => None,
                _ => Some(MOST),
            })?;
            not_taken(a, s)
        },
    ),
];

/// The identity of a client that sends writes, with at most that many requests at a time on each
/// connection.
fn sender(a: &mut Attack<'_>, most: u32) -> Identity {
    let mut who = a.identity();
    who.capabilities.keeps_keys = true;
    who.capabilities.sends = Some(MostSent::of(most));
    who
}

/// Starts a session of such a client, which the server has to let send.
fn start(a: &mut Attack<'_>, most: u32) -> Result<Session> {
    let who = sender(a, most);
    start_as(a, &who)
}

fn start_as(a: &mut Attack<'_>, who: &Identity) -> Result<Session> {
    let s = a.start_as(who)?;
    if !s.takes_sends {
        bail!("the server takes no sent writes");
    }
    Ok(s)
}

/// Makes the connections in this order, with what each of them says, and starts the session.
fn start_by(
    a: &Attack<'_>,
    who: &Identity,
    order: &[u16],
    said: impl Fn(u16) -> Option<u32>,
) -> Result<Session> {
    let ask = |cid| {
        let mut who = who.clone();
        who.capabilities.sends = said(cid).map(MostSent::of);
        who.request(cid)
    };
    let mut s = Session::connect_by(a.job.addr, who, order, ask, a.job.patience)?;
    s.start(&who.question())?;
    s.ping(1, 0)?;
    Ok(s)
}

/// Starts a session of a client to which the server does not say that it takes what it can send.
fn untaken(a: &mut Attack<'_>) -> Result<Session> {
    let mut who = sender(a, MOST);
    let s = a.start_as(&who)?;
    if !s.takes_sends {
        return Ok(s);
    }
    s.disconnect();
    who = sender(a, MOST);
    who.capabilities.keeps_keys = false;
    a.start_as(&who)
}

/// A write that can be sent.
fn a_write() -> Vec<u8> {
    write_of(COPY_MAX, &info_message())
}

/// The message of a read.
fn a_read(s: &Session, usr_len: u16, len: u32) -> Vec<u8> {
    read_msg(usr_len, 0, &[desc(s, len)])
}

/// The path must end over this operation, with these bytes.
fn refused_op(
    a: &mut Attack<'_>,
    cid: usize,
    make: impl FnOnce(&Session) -> Result<(Send, Vec<u8>)>,
) -> Result<()> {
    let mut s = start(a, MOST)?;
    let (op, bytes) = make(&s)?;
    s.post(cid, op, &bytes)?;
    a.report.sent(format!(
        "{op:x?} with {} bytes on connection {cid}",
        bytes.len()
    ));
    a.closed(&mut s)
}

/// The same for a message with a value.
fn refused(a: &mut Attack<'_>, make: impl FnOnce(&Session) -> (u32, Vec<u8>)) -> Result<()> {
    refused_op(a, 1, |s| {
        let (imm, bytes) = make(s);
        Ok((Send::MsgImm(imm), bytes))
    })
}

/// The same for a write with another offset.
fn refused_at(a: &mut Attack<'_>, msg: Vec<u8>, by: i32) -> Result<()> {
    refused(a, |s| {
        let imm = s.write_value(3, &msg).wrapping_add_signed(by);
        (imm, msg)
    })
}

/// Connection 1 has no receives for sent writes: the path must end over one.
fn not_taken(a: &mut Attack<'_>, mut s: Session) -> Result<()> {
    s.send_sent(1, 3, &a_write())?;
    a.report.sent("a message on a connection that takes none");
    a.closed(&mut s)
}

/// The answer to a request of chunk `buf_id`, which must be right.
fn good(a: &Attack<'_>, s: &mut Session, cid: usize, buf_id: u16) -> Result<Answer> {
    let Some(answer) = s.answer(cid, a.job.patience)? else {
        bail!("no answer: {:?}", s.failed);
    };
    if answer.buf_id != u32::from(buf_id) || answer.errno != 0 {
        bail!("{answer:?} for chunk {buf_id}");
    }
    Ok(answer)
}

/// There must be nothing more.
fn no_more(s: &mut Session) -> Result<()> {
    for cid in 0..s.cons.len() {
        if let Some(answer) = s.answer(cid, Duration::ZERO)? {
            bail!("{answer:?} to no request");
        }
    }
    Ok(())
}

/// Starts another path of the session, from the next address.
fn second_of(a: &mut Attack<'_>, who: &Identity) -> Result<Session> {
    let IpAddr::V4(addr) = a.job.addr.ip() else {
        bail!("not with this address");
    };
    let mut who = who.clone();
    a.rng.fill_bytes(&mut who.path);
    who.first = false;
    who.from = Some(Ipv4Addr::from(u32::from(addr) + 1).into());
    start_as(a, &who)
}

/// The receives have all the bytes that a message lacks. It must not be completed by them.
fn stale(a: &mut Attack<'_>) -> Result<()> {
    let mut s = start(a, MOST)?;
    // More than there are receives.
    for _ in 0..3 * MOST + 64 {
        s.send_info_sent(1, 3, DATA)?;
        good(a, &mut s, 1, 3)?;
    }
    let msg = a_write();
    let imm = s.write_value(3, &msg);
    s.post(1, Send::MsgImm(imm), &msg[..DATA + 8])?;
    a.report.sent("a message without its end");
    a.closed(&mut s)
}

/// The message has as many bytes as a write. With what is behind it in the chunk it would be a read
/// of 20 bytes.
fn read_part(a: &mut Attack<'_>) -> Result<()> {
    let mut s = start(a, MOST)?;
    let usr = info_message();
    let (len, off) = (ReadMsg::MAX_SIZE - WriteMsg::SIZE, ReadMsg::MAX_SIZE + 32);
    if off != len + usr.len() {
        bail!("the layout is another one");
    }
    // CAST: Small numbers.
    let read = a_read(&s, usr.len() as u16, len as u32);
    let chunk = s.chunk(3)?;
    let to = Remote {
        addr: chunk.addr + off as u64,
        rkey: chunk.rkey,
    };
    s.fill(len, 0xa5)?;
    s.post(1, Send::Write(to), &read)?;
    let msg = [&vec![0; len], &usr[..], &read[..WriteMsg::SIZE]].concat();
    s.send_sent(1, 3, &msg)?;
    a.report.sent("a part of a read");
    if let Some(answer) = s.answer(1, a.job.patience / 5)? {
        let data = s.read_back(len)?;
        a.report
            .wrong(format!("{answer:?} to a read, and {data:02x?}"));
        return Ok(());
    }
    a.closed(&mut s)
}

/// A chunk has one request at a time.
fn busy(a: &mut Attack<'_>) -> Result<()> {
    let mut s = start(a, MOST)?;
    let io = slow_read(a, &mut s, COPY_MAX)?;
    s.send_read(1, 5, &io, COPY_MAX)?;
    disk_has(a, "1")?;
    s.send_info_sent(2, 5, DATA)?;
    a.closed(&mut s)?;
    disk_has(a, "0")
}

/// The other path has done nothing wrong.
fn busy_elsewhere(a: &mut Attack<'_>) -> Result<()> {
    let who = sender(a, MOST);
    let mut first = start_as(a, &who)?;
    let mut second = second_of(a, &who)?;
    let io = slow_read(a, &mut first, COPY_MAX)?;
    first.send_read(1, 5, &io, COPY_MAX)?;
    disk_has(a, "1")?;
    let imm = second.imm(5, 77);
    second.post(1, Send::MsgImm(imm), &a_write())?;
    a.closed(&mut second)?;
    good(a, &mut first, 1, 5)?;
    disk_has(a, "0")?;
    a.alive(&mut first)
}
