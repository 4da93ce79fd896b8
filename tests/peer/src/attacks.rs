// SPDX-License-Identifier: GPL-2.0

//! Clients that are not as they should be, for the server under test.
//!
//! What is expected is that the server refuses with an error number, ends the path that broke the
//! protocol, or takes no notice; and that an honest request still works where the path stays.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{bail, Context, Result};
use rand::{rngs::StdRng, Rng, RngCore, SeedableRng};

use crate::{
    client::{proto, Con, Identity, Outcome, Session, RNBD_SESS_INFO_SIZE},
    proto::{
        errno::{ECONNRESET, EEXIST, ENXIO},
        Imm, IoErrno, CM_REJ_CONSUMER_DEFINED,
    },
    report::Report,
    verbs::{Remote, Send},
};

mod grab;

/// Connections of a path, unless the case says otherwise.
const CONS: u16 = 3;

/// How many half-made sessions there are at a time.
const HALF_OPEN: usize = 64;

/// How long the server gives a client for its handshake.
const HANDSHAKE: Duration = Duration::from_secs(30);

/// Messages of a flood.
const FLOOD: usize = 3000;

/// What to run.
pub struct Job<'a> {
    /// Where the server is.
    pub addr: SocketAddr,
    /// Which case.
    pub case: &'a str,
    /// Begin of the random numbers.
    pub seed: u64,
    /// How long the server may take to answer or to end a path.
    pub patience: Duration,
    /// Name of somebody else's session.
    pub victim: &'a str,
}

/// A case.
pub struct Case {
    /// How it is called.
    pub name: &'static str,
    /// What it does.
    pub about: &'static str,
    run: fn(&mut Attack<'_>) -> Result<()>,
}

struct Attack<'a> {
    job: &'a Job<'a>,
    rng: StdRng,
    report: Report,
}

/// Runs a case.
pub fn run(job: &Job<'_>) -> Result<Report> {
    let case = CASES
        .iter()
        .find(|case| case.name == job.case)
        .with_context(|| format!("no case {} of a client", job.case))?;
    // Different cases are different clients, also with the same seed.
    let salt = case.name.bytes().fold(0u64, |salt, byte| {
        salt.wrapping_mul(0x100_0000_01b3) ^ u64::from(byte)
    });
    let mut attack = Attack {
        job,
        rng: StdRng::seed_from_u64(job.seed ^ salt),
        report: Report::new("client", case.name),
    };
    attack.report.fact("seed", job.seed);
    if let Err(e) = (case.run)(&mut attack) {
        attack.report.wrong(format!("{e:#}"));
    }
    Ok(attack.report)
}

const fn case(
    name: &'static str,
    about: &'static str,
    run: fn(&mut Attack<'_>) -> Result<()>,
) -> Case {
    Case { name, about, run }
}

/// All cases.
pub const CASES: &[Case] = &[
    case("honest", "breaks no rule", |a| {
        let mut s = a.start()?;
        for n in 0..8 {
            s.ping(usize::from(1 + n % 2), n)?;
        }
        s.disconnect();
        Ok(())
    }),
    // Requests to connect.
    case("no-private-data", "asks to connect with no message", |a| {
        a.refused_raw(&[], ECONNRESET)
    }),
    case(
        "short-private-data",
        "asks to connect with 8 bytes of the message",
        |a| {
            let msg = a.identity().request(0)?;
            a.refused_raw(&msg[..8], ECONNRESET)
        },
    ),
    case(
        "bad-magic",
        "asks to connect with a wrong magic number",
        |a| a.refused_patch(2, &[0xbe, 0x1b]),
    ),
    case(
        "bad-version",
        "asks to connect with another major version",
        |a| a.refused_patch(4, &[0x00, 0x03]),
    ),
    case("cid-of-nobody", "asks for connection 3 of 3", |a| {
        a.refused_patch(6, &[3, 0])
    }),
    case("no-cons", "asks for a path of no connections", |a| {
        a.refused_patch(8, &[0, 0])
    }),
    case("one-con", "asks for a path of one connection", |a| {
        a.refused_patch(8, &[1, 0])
    }),
    case("many-cons", "asks for a path of 5000 connections", |a| {
        a.refused_patch(8, &5000u16.to_le_bytes())
    }),
    case(
        "unknown-session",
        "joins a session that is not there",
        |a| {
            let mut who = a.identity();
            who.first = false;
            let msg = who.request(0)?;
            a.refused_raw(&msg, ENXIO)
        },
    ),
    case("cid-taken", "asks for connection 0 twice", |a| {
        let who = a.identity();
        let s = a.connect(&who, 1)?;
        a.refused_raw(&who.request(0)?, ECONNRESET)?;
        s.disconnect();
        Ok(())
    }),
    case("cons-change", "asks for 3, then for 4 connections", |a| {
        let mut who = a.identity();
        let s = a.connect(&who, 1)?;
        who.cons = 4;
        a.refused_raw(&who.request(1)?, ECONNRESET)?;
        s.disconnect();
        Ok(())
    }),
    case(
        "same-addresses",
        "adds a path that goes the same way",
        |a| {
            let mut who = a.identity();
            let mut s = a.start_as(&who)?;
            a.rng.fill_bytes(&mut who.path);
            a.refused_raw(&who.request(0)?, EEXIST)?;
            a.alive(&mut s)
        },
    ),
    case("same-attempt", "connects again as the same attempt", |a| {
        let who = a.identity();
        let mut s = a.start_as(&who)?;
        a.refused_raw(&who.request(0)?, ECONNRESET)?;
        a.alive(&mut s)
    }),
    case(
        "take-over",
        "comes back while the server has it connected",
        |a| {
            let mut who = a.identity();
            let mut old = a.start_as(&who)?;
            who.attempt += 1;
            let mut new = a.start_as(&who)?;
            a.gone(&mut old, a.job.patience)?;
            a.alive(&mut new)
        },
    ),
    case(
        "half-open",
        "makes one connection of three, 64 times",
        half_open,
    ),
    case(
        "crowd",
        "makes first connections, more than may be allowed",
        grab::crowd,
    ),
    case(
        "leftovers",
        "asks for more data than its request has as an answer",
        grab::leftovers,
    ),
    // The question for chunks.
    case("info-short", "asks for chunks with 100 bytes", |a| {
        a.info(|msg| msg.truncate(100))
    }),
    case("info-empty", "asks for chunks with no bytes", |a| {
        a.info(Vec::clear)
    }),
    case("info-long", "asks for chunks with 273 bytes", |a| {
        a.info(|msg| msg.push(0))
    }),
    case("info-type", "asks for chunks with another type", |a| {
        a.info(|msg| msg[0] = 2)
    }),
    case("info-no-name", "asks for chunks without a name", |a| {
        a.info(|msg| msg[2..].fill(0))
    }),
    case("info-slash", "has a slash in its name", |a| {
        a.info(|msg| msg[3] = b'/')
    }),
    case("info-dot", "is called ..", |a| {
        a.info(|msg| {
            msg[2..].fill(0);
            msg[2..4].copy_from_slice(b"..");
        })
    }),
    case("info-control", "has a line feed in its name", |a| {
        a.info(|msg| msg[3] = b'\n')
    }),
    case("info-no-end", "has a name without an end", |a| {
        a.info(|msg| msg[2..].fill(b'x'))
    }),
    case(
        "info-early",
        "asks for chunks on the first of 3 connections",
        |a| {
            let who = a.identity();
            let mut s = a.connect(&who, 1)?;
            s.ask(&who.question())?;
            a.closed(&mut s)
        },
    ),
    case("info-twice", "asks for chunks again", |a| {
        let who = a.identity();
        let mut s = a.start_as(&who)?;
        s.ask(&who.question())?;
        a.closed(&mut s)
    }),
    case(
        "info-by-value",
        "sends a value in place of the question",
        |a| {
            let who = a.identity();
            let mut s = a.connect(&who, CONS)?;
            s.post(0, Send::WriteImm(Remote::default(), 0), &[])?;
            a.closed(&mut s)
        },
    ),
    case(
        "info-with-value",
        "sends a value along with the question",
        |a| {
            let who = a.identity();
            let mut s = a.connect(&who, CONS)?;
            s.post(0, Send::MsgImm(1 << 28), &who.question())?;
            a.closed(&mut s)
        },
    ),
    case(
        "name-taken",
        "takes the name of somebody else's session",
        |a| {
            let mut who = a.identity();
            who.name = a.job.victim.as_bytes().to_vec();
            let mut s = a.connect(&who, CONS)?;
            s.ask(&who.question())?;
            a.closed(&mut s)
        },
    ),
    case(
        "io-before-info",
        "sends a request before it knows chunks",
        |a| {
            let who = a.identity();
            let mut s = a.connect(&who, CONS)?;
            s.post(1, Send::WriteImm(Remote::default(), 0), &[])?;
            // There is nobody to receive it: it waits. The server must not.
            std::thread::sleep(Duration::from_millis(300));
            s.disconnect();
            a.gone(&mut s, a.job.patience)
        },
    ),
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
    case("same-chunk-twice", "uses a chunk that is in use", |a| {
        let mut s = a.start()?;
        s.send_honest(1, 5)?;
        let imm = s.imm(5, 2 * RNBD_SESS_INFO_SIZE as u32);
        for cid in [1, 2, 1, 2] {
            s.post(cid, Send::WriteImm(Remote::default(), imm), &[])?;
        }
        // The first one may have its answer.
        a.gone(&mut s, a.job.patience)
    }),
    // Messages where none are expected.
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
    // Memory of others.
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
    // Ends.
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
    case("leave-one", "disconnects one connection of three", |a| {
        let mut s = a.start()?;
        s.con(2)?.id.disconnect()?;
        a.closed(&mut s)
    }),
];

/// A write message.
fn write_msg(usr_len: u16) -> Vec<u8> {
    [2u16.to_le_bytes(), usr_len.to_le_bytes()].concat()
}

/// A read message.
fn read_msg(usr_len: u16, flags: u16, descs: &[[u8; 16]]) -> Vec<u8> {
    let mut msg = Vec::new();
    // No more than a few.
    for field in [3, usr_len, flags, descs.len() as u16] {
        msg.extend(field.to_le_bytes());
    }
    msg.extend(descs.concat());
    msg
}

/// A descriptor of that length for our memory.
fn desc(s: &Session, len: u32) -> [u8; 16] {
    let to = s.read_desc(len).unwrap_or_default();
    let mut raw = [0; 16];
    raw[..8].copy_from_slice(&to.addr.to_le_bytes());
    raw[8..12].copy_from_slice(&to.rkey.to_le_bytes());
    raw[12..].copy_from_slice(&len.to_le_bytes());
    raw
}

/// That many bytes of data or user message, then a message.
fn with_user(len: usize, msg: &[u8]) -> Vec<u8> {
    let mut all = vec![0xa5; len];
    all.extend(msg);
    all
}

/// Half-made paths are given up by the server, all of them.
fn half_open(a: &mut Attack<'_>) -> Result<()> {
    let mut all = Vec::new();
    let begin = Instant::now();
    for _ in 0..HALF_OPEN {
        let who = a.identity();
        all.push(a.connect(&who, 1)?);
    }
    a.report.sent(format!("{HALF_OPEN} first connections"));
    for s in &mut all {
        a.gone(s, HANDSHAKE + a.job.patience)?;
    }
    // CAST: some ten thousand.
    a.report.fact("gone_ms", begin.elapsed().as_millis() as u64);
    Ok(())
}

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

impl Attack<'_> {
    /// Somebody new.
    fn identity(&mut self) -> Identity {
        let mut who = Identity {
            name: format!(
                "attack-{}-{:06x}",
                self.job.case,
                self.rng.random::<u32>() >> 8
            )
            .into_bytes(),
            session: [0; 16],
            path: [0; 16],
            attempt: 1,
            first: true,
            cons: CONS,
        };
        self.rng.fill_bytes(&mut who.session);
        self.rng.fill_bytes(&mut who.path);
        who
    }

    fn connect(&mut self, who: &Identity, count: u16) -> Result<Session> {
        Session::connect_some(self.job.addr, who, count, self.job.patience)
    }

    /// A session that works.
    fn start(&mut self) -> Result<Session> {
        let who = self.identity();
        self.start_as(&who)
    }

    fn start_as(&mut self, who: &Identity) -> Result<Session> {
        let mut s = Session::connect(self.job.addr, who, self.job.patience)?;
        s.start(&who.question())?;
        s.ping(1, 0)?;
        Ok(s)
    }

    /// Such a request to connect has to be refused with that error number.
    fn refused_raw(&mut self, msg: &[u8], errno: i32) -> Result<()> {
        self.report
            .sent(format!("a request of {} bytes to connect", msg.len()));
        match Con::connect(self.job.addr, msg, None, self.job.patience)? {
            Outcome::Up(..) => self.report.wrong("the connection was accepted"),
            Outcome::Silence => self.report.wrong("there was no answer"),
            Outcome::Rejected(reason, got) => {
                self.report.got(format!("reject {reason}, errno {got}"));
                self.report.fact("errno", got);
                if reason != CM_REJ_CONSUMER_DEFINED || got != -errno {
                    self.report
                        .wrong(format!("refused, but not with {}", -errno));
                }
            }
        }
        Ok(())
    }

    /// An otherwise honest request with some bytes changed.
    fn refused_patch(&mut self, off: usize, bytes: &[u8]) -> Result<()> {
        let mut msg = self.identity().request(0)?;
        msg[off..off + bytes.len()].copy_from_slice(bytes);
        self.refused_raw(&msg, ECONNRESET)
    }

    /// A question for chunks, changed, on a path that is complete.
    fn info(&mut self, change: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let who = self.identity();
        let mut s = self.connect(&who, CONS)?;
        let mut msg = who.question().to_vec();
        change(&mut msg);
        s.ask(&msg)?;
        self.report
            .sent(format!("a question of {} bytes", msg.len()));
        self.closed(&mut s)
    }

    /// A value and nothing else.
    fn value(&mut self, cid: usize, imm: u32) -> Result<()> {
        self.send(cid, Send::WriteImm(Remote::default(), imm), &[])
    }

    fn send(&mut self, cid: usize, op: Send, data: &[u8]) -> Result<()> {
        let mut s = self.start()?;
        s.post(cid, op, data)?;
        self.report.sent(format!("{op:?} on connection {cid}"));
        self.closed(&mut s)
    }

    /// A request: offset of its message, offset of the write, what is written.
    fn request(&mut self, make: impl FnOnce(&Session) -> (u32, usize, Vec<u8>)) -> Result<()> {
        let mut s = self.start()?;
        let (off, at, data) = make(&s);
        let imm = s.imm(3, off);
        s.write_imm(1, 3, at, &data, imm)?;
        self.report
            .sent(format!("{} bytes at {at}, message at {off}", data.len()));
        self.closed(&mut s)
    }

    /// A write without a value.
    fn write_to(&mut self, to: impl FnOnce(&Session) -> Result<Remote>) -> Result<()> {
        let mut s = self.start()?;
        let to = to(&s)?;
        s.post(1, Send::Write(to), &[0x5a; 8])?;
        self.report.sent("8 bytes where they do not belong");
        self.closed(&mut s)
    }

    /// The server has to end the path.
    fn closed(&mut self, s: &mut Session) -> Result<()> {
        self.gone(s, self.job.patience)?;
        // What had been sent ended one way or the other.
        for cid in 0..s.cons.len() {
            while let Some(done) = s.con(cid)?.id.poll()? {
                if !done.is_ok() && !done.is_flush() {
                    self.report
                        .got(format!("connection {cid}: {}", done.text()));
                }
                let value = done.imm.and_then(|imm| Imm::decode(imm).ok());
                if done.is_ok() && matches!(value, Some(Imm::IoRsp { .. })) {
                    self.report.wrong(format!(
                        "an answer on connection {cid}, {} bytes, value {:x?}",
                        done.len, done.imm
                    ));
                }
            }
        }
        Ok(())
    }

    fn gone(&mut self, s: &mut Session, limit: Duration) -> Result<()> {
        match s.wait_gone(limit)? {
            Some(took) => {
                self.report
                    .got(format!("disconnected after {} ms", took.as_millis()));
            }
            None => self.report.wrong("the server did not end the path"),
        }
        Ok(())
    }

    /// The path has to work as ever.
    fn alive(&mut self, s: &mut Session) -> Result<()> {
        for cid in 1..s.cons.len() {
            s.ping(cid, 11)?;
        }
        self.report.got("an answer to an honest request");
        s.disconnect();
        Ok(())
    }
}
