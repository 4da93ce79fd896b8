// SPDX-License-Identifier: GPL-2.0

//! Clients that misbehave, for the server under test.
//!
//! The server has to refuse the client with an error number, end the path that broke the protocol,
//! or ignore the attack. Where the path stays, an honest request must still work.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use anyhow::{Context, Result};
use rand::{rngs::StdRng, Rng, RngCore, SeedableRng};

use crate::{
    client::{Con, Identity, Outcome, Session},
    proto::{errno::ECONNRESET, Capabilities, Imm, PathWait, CM_REJ_CONSUMER_DEFINED},
    report::Report,
    verbs::{Remote, Send},
};

mod busy;
mod grab;
mod handshake;
mod info;
mod leave;
mod memory;
mod request;
mod sent;

/// Connections of a path, unless the case says otherwise.
const CONS: u16 = 3;

/// The parameters of a run.
pub struct Job<'a> {
    /// Address of the server.
    pub addr: SocketAddr,
    /// Source address of attackers, if it matters.
    pub from: Option<IpAddr>,
    /// Source address of attackers that have to come from another one.
    pub other: Option<IpAddr>,
    /// Name of the case.
    pub case: &'a str,
    /// Seed of the random numbers.
    pub seed: u64,
    /// How long the server may take to answer or to end a path.
    pub patience: Duration,
    /// Name of an honest client's session.
    pub victim: &'a str,
}

/// A case.
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// Its description.
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
    let case = cases()
        .find(|case| case.name == job.case)
        .with_context(|| format!("no case {} of a client", job.case))?;
    // Different cases are different clients, even with the same seed.
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

/// All cases, in the order of the parts they attack.
pub fn cases() -> impl Iterator<Item = &'static Case> {
    [
        handshake::CASES,
        grab::CASES,
        info::CASES,
        request::CASES,
        memory::CASES,
        sent::honest::CASES,
        sent::CASES,
        busy::CASES,
        leave::CASES,
    ]
    .into_iter()
    .flatten()
}

impl Attack<'_> {
    /// The identity of a new client.
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
            capabilities: Capabilities::default(),
            path_wait: PathWait::Unsaid,
            from: self.job.from,
        };
        self.rng.fill_bytes(&mut who.session);
        self.rng.fill_bytes(&mut who.path);
        who
    }

    /// The identity of another client that uses this session name.
    fn named(&mut self, name: &[u8]) -> Identity {
        Identity {
            name: name.to_vec(),
            ..self.identity()
        }
    }

    fn connect(&mut self, who: &Identity, count: u16) -> Result<Session> {
        Session::connect_some(self.job.addr, who, count, self.job.patience)
    }

    /// Starts a session that works.
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

    /// The server must refuse this request to connect with `errno`.
    fn refused_raw(&mut self, msg: &[u8], errno: i32) -> Result<()> {
        self.report
            .sent(format!("a request of {} bytes to connect", msg.len()));
        match Con::connect(self.job.addr, self.job.from, msg, None, self.job.patience)? {
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

    /// Sends an otherwise honest request with some bytes changed.
    fn refused_patch(&mut self, off: usize, bytes: &[u8]) -> Result<()> {
        let mut msg = self.identity().request(0);
        msg[off..off + bytes.len()].copy_from_slice(bytes);
        self.refused_raw(&msg, ECONNRESET)
    }

    /// Sends a changed question for chunks on a complete path.
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

    /// Sends a value alone.
    fn value(&mut self, cid: usize, imm: u32) -> Result<()> {
        self.send(cid, Send::WriteImm(Remote::default(), imm), &[])
    }

    fn send(&mut self, cid: usize, op: Send, data: &[u8]) -> Result<()> {
        let mut s = self.start()?;
        s.post(cid, op, data)?;
        self.report.sent(format!("{op:?} on connection {cid}"));
        self.closed(&mut s)
    }

    /// Sends a request: offset of its message, offset of the write, and the bytes.
    fn request(&mut self, make: impl FnOnce(&Session) -> (u32, usize, Vec<u8>)) -> Result<()> {
        let mut s = self.start()?;
        let (off, at, data) = make(&s);
        let imm = s.imm(3, off);
        s.write_imm(1, 3, at, &data, imm)?;
        self.report
            .sent(format!("{} bytes at {at}, message at {off}", data.len()));
        self.closed(&mut s)
    }

    /// Sends a write without a value.
    fn write_to(&mut self, to: impl FnOnce(&Session) -> Result<Remote>) -> Result<()> {
        let mut s = self.start()?;
        let to = to(&s)?;
        s.post(1, Send::Write(to), &[0x5a; 8])?;
        self.report.sent("8 bytes where they do not belong");
        self.closed(&mut s)
    }

    /// The server must end the path.
    fn closed(&mut self, s: &mut Session) -> Result<()> {
        self.gone(s, self.job.patience)?;
        // Everything sent before has ended, in success or failure.
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

    /// The path must work as before.
    fn alive(&mut self, s: &mut Session) -> Result<()> {
        for cid in 1..s.cons.len() {
            s.ping(cid, 11)?;
        }
        self.report.got("an answer to an honest request");
        s.disconnect();
        Ok(())
    }
}
