// SPDX-License-Identifier: GPL-2.0

//! A server that really serves, except for what its plan says. The client under test has to survive
//! it, and to do its IO over another path.

mod answer;
mod named;
mod plan;

use std::{
    cell::Cell,
    collections::{BTreeMap, HashMap},
    fs,
    net::SocketAddr,
    path::{Path as FilePath, PathBuf},
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use serde_json::json;

use answer::{read_desc, Request};
pub use named::NAMED;
use plan::{InfoHow, Memory, Plan, Say};

use crate::{
    client::proto,
    proto::{
        errno::ENXIO, ConnAccept, ConnReject, ConnReq, Geometry, Imm, InfoReq, InfoRsp,
        RejectErrno, SgDesc,
    },
    verbs::{Channel, Completion, Domain, Event, EventKind, Id, Mr, QueueSize, Remote, Send},
};

/// Longest wait for events at a time.
const TICK: Duration = Duration::from_millis(1);

/// Pending requests to connect.
const BACKLOG: i32 = 64;

/// Sizes of the queues.
const QUEUES: QueueSize = QueueSize {
    send: 256,
    recv: 128,
};
const RECVS: u64 = 64;

/// The sizes that the server offers.
const DEPTH: u16 = 16;
const CHUNK: u32 = 131_072;
const HEADER: u32 = 4096;

/// Time that a random path lasts.
const LIFE: Duration = Duration::from_millis(1500);

/// Size of the memory for messages to send.
const TX_SIZE: usize = 256 << 10;

/// The answer to reads, EIO: the server does not have the data that should be read.
pub(crate) const READ_ERRNO: u32 = 5;

/// Token of the question for chunks.
const INFO_TOKEN: u64 = 1 << 32;

/// The parameters of a run.
pub struct Job<'a> {
    /// Address to listen at.
    pub addr: SocketAddr,
    /// The case; without one, random plans.
    pub case: Option<&'a str>,
    /// Whether the chunks keep their keys: then answers are writes of a value.
    pub old_keys: bool,
    /// Whether it says that reads may be answered by the message that invalidates their key,
    /// although chunks keep theirs.
    pub inval_answers: bool,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Number of the first plan.
    pub first: u64,
    /// Number of plans; after them all paths are served. A case goes on.
    pub plans: u64,
    /// Limit on the time of the run.
    pub timeout: Duration,
    /// File to make once the server listens.
    pub ready: Option<&'a FilePath>,
    /// File that tells the server to serve all paths, once it exists.
    pub honest: Option<PathBuf>,
    /// Whether to print what each path meets.
    pub verbose: bool,
}

struct Con {
    id: Id,
    cid: u16,
    path: [u8; 16],
    /// Whether it is up, and so can be disconnected: the client's confirmation may come after its
    /// first message on another connection.
    up: bool,
    /// Whether to disconnect as soon as it is up.
    leaving: bool,
    gone: bool,
    /// Whether there was no room to send for too long.
    stuck: Cell<bool>,
}

impl Con {
    fn leave_if_wanted(&self) {
        if self.up && self.leaving {
            // It may have ended already.
            let _ = self.id.disconnect();
        }
    }
}

/// One attempt of a path.
struct Path {
    plan: Plan,
    /// Connections by number; clients may make them in any order.
    keys: BTreeMap<u16, usize>,
    chunks: Rc<Mr>,
    info: Rc<Mr>,
    requests: usize,
    /// Where the data of the last read went, by chunk.
    last: HashMap<u16, SgDesc>,
    mute: bool,
    /// When it ends, if nothing ends it before.
    end: Option<Instant>,
}

struct Rogue<'a> {
    job: &'a Job<'a>,
    plan: Option<Plan>,
    /// Whether the plan's memory loss has happened.
    forgot: bool,
    /// Whether the server knows no session.
    knows_none: bool,
    geometry: Geometry,
    cons: HashMap<usize, Con>,
    paths: HashMap<[u8; 16], Path>,
    domain: Option<Rc<Domain>>,
    tx: Option<Rc<Mr>>,
    tx_next: usize,
    made: u64,
    up: u64,
    answered: u64,
    /// Messages for which there was no room.
    lost: u64,
    /// Messages to send, or receives, that ended with an error.
    failed: u64,
}

/// Runs the server until its time is over or it is told to end.
pub fn run(job: &Job<'_>) -> Result<bool> {
    let plan = match job.case {
        Some(name) => {
            let case = NAMED.iter().find(|case| case.name == name);
            Some((case
                .with_context(|| format!("no case {name} of a rogue"))?
                .plan)())
        }
        None => None,
    };
    let mut rogue = Rogue {
        job,
        plan,
        forgot: false,
        knows_none: false,
        geometry: Geometry::server(i64::from(DEPTH), i64::from(CHUNK), HEADER).map_err(proto)?,
        cons: HashMap::new(),
        paths: HashMap::new(),
        domain: None,
        tx: None,
        tx_next: 0,
        made: 0,
        up: 0,
        answered: 0,
        lost: 0,
        failed: 0,
    };
    let channel = Channel::new()?;
    let listener = Id::new(&channel)?;
    listener.listen(job.addr, BACKLOG)?;
    if let Some(ready) = job.ready {
        fs::write(ready, "").with_context(|| format!("cannot write {}", ready.display()))?;
    }
    let begin = Instant::now();
    let mut told = begin;
    while begin.elapsed() < job.timeout {
        while let Some(event) = channel.next(TICK)? {
            rogue.event(event)?;
        }
        let keys: Vec<usize> = rogue.cons.keys().copied().collect();
        for key in keys {
            rogue.poll(key)?;
        }
        rogue.cons.retain(|_, con| !con.gone);
        rogue.end_paths();
        if told.elapsed() >= Duration::from_secs(5) {
            told = Instant::now();
            rogue.tell();
        }
    }
    rogue.tell();
    Ok(true)
}

impl Rogue<'_> {
    fn tell(&self) {
        let all = json!({
            "ok": true, "role": "rogue", "seed": self.job.seed, "paths": self.made,
            "up": self.up, "answered": self.answered, "lost": self.lost, "failed": self.failed,
        });
        println!("{all}");
    }

    fn honest_now(&self) -> bool {
        self.job.honest.as_ref().is_some_and(|file| file.exists())
    }

    /// Ends random paths whose time is over. Served paths go on while all paths are served.
    fn end_paths(&mut self) {
        let now = Instant::now();
        let honest = self.honest_now();
        let over = |(uuid, path): (&[u8; 16], &mut Path)| {
            let over = |end: &mut Instant| *end <= now && !(honest && path.plan.is_honest());
            path.end.take_if(over).map(|_| *uuid)
        };
        let uuids: Vec<_> = self.paths.iter_mut().filter_map(over).collect();
        for uuid in uuids {
            self.leave(uuid, 0);
        }
    }

    fn next_plan(&mut self) -> Plan {
        let index = self.job.first + self.made;
        let honest = self.honest_now();
        let plan = match &self.plan {
            _ if honest => Plan::default(),
            Some(plan) => plan.clone(),
            None if self.made >= self.job.plans => Plan::default(),
            None => plan::plan(self.job.seed, index),
        };
        self.made += 1;
        if self.job.verbose {
            println!("{}", json!({"index": index, "plan": format!("{plan:?}")}));
        }
        plan
    }

    fn event(&mut self, event: Event) -> Result<()> {
        if let Some(id) = event.new_id {
            // A client that cannot be accepted any more has gone meanwhile.
            if let Err(e) = self.connect_request(id, &event.private) {
                if self.job.verbose {
                    println!("{}", json!({"accept": format!("{e:#}")}));
                }
            }
            return Ok(());
        }
        match event.kind {
            EventKind::Established => {
                if let Some(con) = self.cons.get_mut(&event.key) {
                    con.up = true;
                    con.leave_if_wanted();
                }
            }
            EventKind::Disconnected
            | EventKind::Rejected
            | EventKind::Unreachable
            | EventKind::Error => {
                if let Some(con) = self.cons.get_mut(&event.key) {
                    let _ = con.id.disconnect();
                    con.gone = true;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn connect_request(&mut self, mut id: Id, private: &[u8]) -> Result<()> {
        let Ok(req) = ConnReq::parse(private) else {
            return id.reject(&[]);
        };
        if self.is_unknown(&req) {
            let errno = RejectErrno::from_kernel(-ENXIO);
            return id.reject(&ConnReject { errno }.to_bytes());
        }
        let domain = match &self.domain {
            Some(domain) => domain.clone(),
            None => {
                let domain = id.new_domain()?;
                self.tx = Some(domain.memory(TX_SIZE)?);
                self.domain.insert(domain).clone()
            }
        };
        if req.cid == 0 {
            let mut plan = self.next_plan();
            if req.recon_cnt > 1 {
                plan.admin = None;
            }
            let path = Path {
                plan,
                keys: BTreeMap::new(),
                chunks: domain.memory(usize::from(DEPTH) * CHUNK as usize)?,
                info: domain.memory(InfoReq::SIZE)?,
                requests: 0,
                last: HashMap::new(),
                mute: false,
                // The client would wait for a missing answer for as long as it gets heartbeats.
                end: self.job.case.is_none().then(|| Instant::now() + LIFE),
            };
            self.paths.insert(req.path_uuid, path);
        }
        let Some(path) = self.paths.get_mut(&req.path_uuid) else {
            return id.reject(&[]);
        };
        let accept = ConnAccept {
            orders_copies: path.plan.ours,
            inval_answers: self.job.inval_answers,
            kept: path.plan.ours && req.recon_cnt > 1,
            ..self.geometry.to_accept(!self.job.old_keys)
        };
        let mut msg = accept.to_bytes().to_vec();
        if req.cid == 0 {
            for mutation in &path.plan.accept {
                mutation.apply(&mut msg);
            }
        }
        id.create_qp(&domain, QUEUES)?;
        if req.cid == 0 {
            id.post_recv(INFO_TOKEN, Some(path.info.slice(0, InfoReq::SIZE)))?;
        }
        for token in 0..RECVS {
            id.post_recv(token, None)?;
        }
        id.accept(&msg)?;
        let key = id.key();
        path.keys.insert(req.cid, key);
        self.cons.insert(
            key,
            Con {
                id,
                cid: req.cid,
                path: req.path_uuid,
                up: false,
                leaving: false,
                gone: false,
                stuck: Cell::new(false),
            },
        );
        Ok(())
    }

    /// Whether a path's session is unknown, or claimed to be.
    fn is_unknown(&mut self, req: &ConnReq) -> bool {
        let memory = self.plan.as_ref().map_or(Memory::Sound, |plan| plan.memory);

        if req.cid != 0 || memory == Memory::Sound {
            return false;
        }
        if req.first_conn {
            self.knows_none = false;
            return false;
        }
        if !self.forgot && req.recon_cnt > 1 {
            self.forgot = true;
            if memory == Memory::Confused {
                return true;
            }
            self.knows_none = true;
            for path in self.paths.values_mut() {
                path.mute = true;
            }
        }
        self.knows_none
    }

    fn poll(&mut self, key: usize) -> Result<()> {
        loop {
            let Some(con) = self.cons.get(&key) else {
                return Ok(());
            };
            let Some(done) = con.id.poll()? else {
                return Ok(());
            };
            self.failed += u64::from(!done.is_ok() && !done.is_flush());
            if done.is_send() || !done.is_ok() {
                continue;
            }
            let (cid, uuid) = (con.cid, con.path);
            // Messages from before the client's new attempt get no answer on the new connection.
            let current = self.paths.get(&uuid).and_then(|path| path.keys.get(&cid));
            if current != Some(&key) {
                continue;
            }
            if done.token == INFO_TOKEN {
                self.tell_chunks(uuid)?;
                continue;
            }
            let _ = con.id.post_recv(done.token, None);
            self.received(uuid, cid, &done)?;
        }
    }

    /// Sends on the connection with this number; numbers beyond the last start again at 0. What
    /// cannot be sent is lost.
    fn post(&mut self, uuid: [u8; 16], cid: u16, op: Send, data: &[u8]) -> Result<()> {
        let Some(path) = self.paths.get(&uuid) else {
            return Ok(());
        };
        let cid = usize::from(cid) % path.keys.len().max(1);
        let Some(con) = path
            .keys
            .values()
            .nth(cid)
            .and_then(|key| self.cons.get(key))
        else {
            return Ok(());
        };
        let tx = self.tx.clone().context("no memory")?;
        if self.tx_next + data.len() > TX_SIZE {
            self.tx_next = 0;
        }
        let at = self.tx_next;
        tx.write(at, data)?;
        self.tx_next += data.len().next_multiple_of(64);
        let end = Instant::now() + Duration::from_millis(50);
        loop {
            let slice = (!data.is_empty()).then(|| tx.slice(at, data.len()));
            if con.id.post_send(op, slice).is_ok() {
                return Ok(());
            }
            if con.gone || con.stuck.get() || Instant::now() >= end {
                // A completion queue that has overflowed never has room again. Other paths must not
                // wait for each of hundreds of messages.
                con.stuck.set(true);
                self.lost += 1;
                return Ok(());
            }
            // Completions make room; receives among them are given up.
            while con.id.poll()?.is_some() {}
        }
    }

    fn tell_chunks(&mut self, uuid: [u8; 16]) -> Result<()> {
        let Some(path) = self.paths.get(&uuid) else {
            return Ok(());
        };
        let to = path.chunks.remote(0)?;
        let descs = (0..DEPTH).map(|n| SgDesc {
            addr: to.addr + u64::from(n) * u64::from(CHUNK),
            rkey: to.rkey,
            len: CHUNK,
        });
        let mut msg = vec![0; InfoRsp::size(DEPTH)];
        InfoRsp::write(descs, &mut msg).map_err(proto)?;
        for mutation in &path.plan.info {
            mutation.apply(&mut msg);
        }
        let plan = path.plan.clone();
        self.up += 1;
        match plan.info_how {
            InfoHow::Once => self.post(uuid, 0, Send::Msg, &msg)?,
            InfoHow::Twice => {
                self.post(uuid, 0, Send::Msg, &msg)?;
                self.post(uuid, 0, Send::Msg, &msg)?;
            }
            InfoHow::OtherCon => self.post(uuid, 1, Send::Msg, &msg)?,
            InfoHow::WithValue(imm) => self.post(uuid, 0, Send::MsgImm(imm), &msg)?,
            InfoHow::OnlyValue(imm) => {
                self.post(uuid, 0, Send::WriteImm(Remote::default(), imm), &[])?;
            }
            InfoHow::AfterValue(imm) => {
                self.post(uuid, 0, Send::WriteImm(Remote::default(), imm), &[])?;
                self.post(uuid, 0, Send::Msg, &msg)?;
            }
            InfoHow::ThenLeave(cid) => {
                self.post(uuid, 0, Send::Msg, &msg)?;
                self.leave(uuid, cid);
            }
        }
        for say in &plan.unasked {
            self.say(uuid, 0, None, say)?;
        }
        Ok(())
    }

    fn leave(&mut self, uuid: [u8; 16], cid: u16) {
        if let Some(path) = self.paths.get(&uuid) {
            let cid = usize::from(cid) % path.keys.len().max(1);
            if let Some(con) = path
                .keys
                .values()
                .nth(cid)
                .and_then(|key| self.cons.get_mut(key))
            {
                con.leaving = true;
                con.leave_if_wanted();
            }
        }
    }

    fn received(&mut self, uuid: [u8; 16], cid: u16, done: &Completion) -> Result<()> {
        let Some(path) = self.paths.get_mut(&uuid) else {
            return Ok(());
        };
        let Some(imm) = done.imm else { return Ok(()) };
        match Imm::decode(imm) {
            Ok(Imm::Hb) if !path.mute => {
                let ack = Imm::HbAck.encode().map_err(proto)?;
                self.post(uuid, cid, Send::WriteImm(Remote::default(), ack), &[])
            }
            Ok(Imm::IoReq { payload }) => {
                let Ok(target) = self.geometry.codec().decode(payload) else {
                    return Ok(());
                };
                let right = vec![Say::Right];
                let all = match &path.plan.admin {
                    Some(admin) if cid == 0 => admin,
                    _ => {
                        let n = path.requests;
                        path.requests += 1;
                        let last = path.plan.answers.len().saturating_sub(1);
                        path.plan.answers.get(n.min(last)).unwrap_or(&right)
                    }
                };
                let all = all.clone();
                let at = usize::from(target.buf_id) * CHUNK as usize + target.off as usize;
                let read = read_desc(&path.chunks, at)?;
                let last = match read {
                    Some(desc) => path.last.insert(target.buf_id, desc),
                    None => path.last.remove(&target.buf_id),
                };
                let request = Request {
                    buf_id: target.buf_id,
                    read,
                    last,
                };
                for say in &all {
                    self.say(uuid, cid, Some(&request), say)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
