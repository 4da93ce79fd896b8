// SPDX-License-Identifier: GPL-2.0

//! Executes a script, and checks the result.

use std::{
    collections::HashMap,
    net::SocketAddr,
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::{bail, Context, Result};

use super::script::{Body, Expect, Op, Script, Step, View};
use crate::{
    client::{proto, RNBD_SESS_INFO_SIZE},
    proto::{
        errno::EUSERS, next_rkey, reject_errno, ConnAccept, Geometry, Imm, InfoRsp, ReadDest,
        ReadMsg, RemoteBuf, RkeyRsp, SgDesc, CM_REJ_CONSUMER_DEFINED,
    },
    verbs::{Channel, Domain, Event, EventKind, Id, Mr, QueueSize, Remote, Send},
};

/// Time that resolving addresses and routes may take.
const RESOLVE: Duration = Duration::from_secs(10);

/// Longest wait for events at a time.
const TICK: Duration = Duration::from_millis(2);

/// Sizes of the queues.
const QUEUES: QueueSize = QueueSize { send: 96, recv: 48 };

/// Receives of each connection, and their size; the answer with the chunks has memory of its own.
const RECVS: usize = 32;
const RECV_SIZE: usize = 64;
const INFO_TOKEN: u64 = 1 << 32;

/// Maximum number of connections of a script.
const LINKS: usize = 48;

/// Memory of the attacker in bytes.
const TX_SIZE: usize = 256 << 10;
const RX_SIZE: usize = 64 << 10;

/// Number of chunks of other sessions that are remembered.
const FOREIGN: usize = 64;

/// The end of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// The server refused everything: no connection was made.
    Refused,
    /// The same, because a quota was used up.
    OverQuota,
    /// Connections were made, chunks were not received.
    Unfinished,
    /// The path was up, and the server ended it.
    Closed,
    /// The path was up, and still was at the end.
    Served,
    /// The path was up, and the attacker broke its own connections.
    Broken,
}

impl End {
    /// The name in the result.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::OverQuota => "over_quota",
            Self::Unfinished => "unfinished",
            Self::Closed => "closed",
            Self::Served => "served",
            Self::Broken => "broken",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Asked,
    Up,
    Refused,
    Gone,
}

struct Link {
    id: Id,
    state: State,
    /// The attacker sent something that cannot be executed, so nothing after it is executed either.
    broken: bool,
    recv_at: usize,
}

/// Executes scripts, one after the other, with memory that is allocated once.
pub struct Worker {
    addr: SocketAddr,
    patience: Duration,
    domain: Option<Rc<Domain>>,
    memory: Option<Memory>,
    foreign: Vec<RemoteBuf>,
}

#[derive(Clone)]
struct Memory {
    tx: Rc<Mr>,
    rx: Rc<Mr>,
    recv: Rc<Mr>,
    info: Rc<Mr>,
}

impl Worker {
    /// A worker before its first script.
    pub fn new(addr: SocketAddr, patience: Duration) -> Self {
        Self {
            addr,
            patience,
            domain: None,
            memory: None,
            foreign: Vec::new(),
        }
    }

    /// Executes a script. An error is a failure of the server, or of this program.
    pub fn run(&mut self, script: &Script) -> Result<End> {
        let mut session = Session {
            channel: Channel::new()?,
            links: Vec::new(),
            geometry: None,
            new_rkey: false,
            chunks: Vec::new(),
            stale: Vec::new(),
            answers: HashMap::new(),
            tx_next: 0,
            over_quota: false,
            worker: self,
        };
        for step in &script.steps {
            session.step(step).with_context(|| format!("{step:?}"))?;
        }
        let end = session.settle(script)?;
        if script.polite {
            for link in &session.links {
                // It may be gone already, which is no failure.
                let _ = link.id.disconnect();
            }
        }
        let learned: Vec<_> = session.chunks.iter().take(4).copied().collect();
        drop(session);
        self.foreign.extend(learned);
        let over = self.foreign.len().saturating_sub(FOREIGN);
        self.foreign.drain(..over);
        Ok(end)
    }

    fn memory(&mut self, id: &Id) -> Result<(Rc<Domain>, Memory)> {
        let domain = match &self.domain {
            Some(domain) => domain.clone(),
            None => self.domain.insert(id.new_domain()?).clone(),
        };
        let memory = match &self.memory {
            Some(memory) => memory.clone(),
            None => self
                .memory
                .insert(Memory {
                    tx: domain.memory(TX_SIZE)?,
                    rx: domain.memory(RX_SIZE)?,
                    recv: domain.memory(LINKS * RECVS * RECV_SIZE)?,
                    info: domain.memory(InfoRsp::size(4096))?,
                })
                .clone(),
        };
        Ok((domain, memory))
    }
}

struct Session<'a> {
    // Connections are dropped before their channel.
    links: Vec<Link>,
    channel: Rc<Channel>,
    geometry: Option<Geometry>,
    new_rkey: bool,
    chunks: Vec<RemoteBuf>,
    stale: Vec<RemoteBuf>,
    /// Chunks with an answer, and its error number, 0 or negative.
    answers: HashMap<u32, i32>,
    tx_next: usize,
    over_quota: bool,
    worker: &'a mut Worker,
}

impl Session<'_> {
    fn step(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Connect(body, wait) => self.connect(&body.get(&self.view()?), *wait)?,
            Step::Send(n, op, body, times) => self.send(usize::from(*n), *op, body, *times)?,
            Step::Info(ms) => {
                let limit = Duration::from_millis(u64::from(*ms)).min(self.worker.patience);
                let end = Instant::now() + limit;
                while self.chunks.is_empty() && self.alive(0) && Instant::now() < end {
                    self.pump(TICK)?;
                }
            }
            Step::Pause(ms) => {
                let end = Instant::now() + Duration::from_millis(u64::from(*ms));
                while Instant::now() < end {
                    self.pump(TICK)?;
                }
            }
            Step::Disconnect(n) => {
                if let Some(link) = self.links.get(usize::from(*n)) {
                    let _ = link.id.disconnect();
                }
            }
            Step::Destroy(n) => {
                // The other connections keep their numbers. Asking for this one finds nothing.
                if let Some(link) = self.links.get_mut(usize::from(*n)) {
                    link.state = State::Gone;
                    link.id = Id::new(&self.channel)?;
                }
            }
        }
        self.pump(Duration::ZERO)
    }

    fn view(&self) -> Result<View<'_>> {
        let own = match &self.worker.memory {
            Some(memory) => memory.rx.remote(0)?,
            None => Remote::default(),
        };
        Ok(View {
            depth: self.geometry.map_or(1, |g| g.queue_depth()),
            chunk_size: self.geometry.map_or(8192, |g| g.chunk_size()),
            chunks: &self.chunks,
            stale: &self.stale,
            foreign: &self.worker.foreign,
            own: RemoteBuf {
                addr: own.addr,
                rkey: own.rkey,
            },
        })
    }

    fn alive(&self, n: usize) -> bool {
        matches!(
            self.links.get(n),
            Some(Link {
                state: State::Up | State::Asked,
                broken: false,
                ..
            })
        )
    }

    fn connect(&mut self, private: &[u8], wait: bool) -> Result<()> {
        if self.links.len() >= LINKS {
            bail!("too many connections");
        }
        let mut id = Id::new(&self.channel)?;
        id.resolve_addr(self.worker.addr, RESOLVE)?;
        self.expect(&id, EventKind::AddrResolved)?;
        id.resolve_route(RESOLVE)?;
        self.expect(&id, EventKind::RouteResolved)?;
        let (domain, memory) = self.worker.memory(&id)?;
        id.create_qp(&domain, QUEUES)?;
        let n = self.links.len();
        let recv_at = n * RECVS * RECV_SIZE;
        if n == 0 {
            id.post_recv(INFO_TOKEN, Some(memory.info.slice(0, memory.info.len())))?;
        }
        for token in 0..RECVS {
            let at = recv_at + token * RECV_SIZE;
            id.post_recv(token as u64, Some(memory.recv.slice(at, RECV_SIZE)))?;
        }
        id.connect(private)?;
        self.links.push(Link {
            id,
            state: State::Asked,
            broken: false,
            recv_at,
        });
        let end = Instant::now() + self.worker.patience;
        while wait && self.links[n].state == State::Asked {
            if Instant::now() >= end {
                bail!("no answer to a request to connect");
            }
            self.pump(TICK)?;
        }
        Ok(())
    }

    /// Waits for an event of a connection that is being made.
    fn expect(&mut self, id: &Id, kind: EventKind) -> Result<()> {
        let end = Instant::now() + 2 * RESOLVE;
        while Instant::now() < end {
            match self.channel.next(TICK)? {
                Some(event) if event.key == id.key() => {
                    if event.kind != kind {
                        bail!("{:?} ({}) in place of {kind:?}", event.kind, event.status);
                    }
                    return Ok(());
                }
                Some(event) => self.event(&event),
                None => {}
            }
        }
        bail!("waited in vain for {kind:?}")
    }

    fn event(&mut self, event: &Event) {
        let Some(n) = self.links.iter().position(|l| l.id.key() == event.key) else {
            return;
        };
        let state = match event.kind {
            EventKind::Established => {
                if n == 0 {
                    if let Ok(accept) = ConnAccept::parse(&event.private) {
                        self.geometry = Geometry::from_accept(&accept).ok();
                        self.new_rkey = accept.new_rkey;
                    }
                }
                State::Up
            }
            EventKind::Rejected => {
                let reason = u32::try_from(event.status).unwrap_or(0);
                self.over_quota |= reason == CM_REJ_CONSUMER_DEFINED
                    && reject_errno(&event.private).to_kernel() == -EUSERS;
                State::Refused
            }
            EventKind::Disconnected | EventKind::Unreachable | EventKind::Error => State::Gone,
            _ => return,
        };
        self.links[n].state = state;
    }

    /// Handles what has arrived, after waiting for events for `wait`.
    fn pump(&mut self, wait: Duration) -> Result<()> {
        let mut wait = wait;
        while let Some(event) = self.channel.next(wait)? {
            self.event(&event);
            wait = Duration::ZERO;
        }
        for n in 0..self.links.len() {
            self.poll(n)?;
        }
        Ok(())
    }

    fn poll(&mut self, n: usize) -> Result<()> {
        while self.links[n].id.has_queue() {
            let Some(done) = self.links[n].id.poll()? else {
                break;
            };
            if !done.is_ok() {
                self.links[n].broken = true;
                continue;
            }
            if done.is_send() {
                continue;
            }
            if done.token == INFO_TOKEN {
                if done.imm.is_none() {
                    self.info(done.len)?;
                }
                continue;
            }
            let at = self.links[n].recv_at + done.token as usize * RECV_SIZE;
            let (_, memory) = self.worker.memory(&self.links[n].id)?;
            let body = memory.recv.read(at, RECV_SIZE)?;
            let again = memory.recv.slice(at, RECV_SIZE);
            let _ = self.links[n].id.post_recv(done.token, Some(again));
            let Some(imm) = done.imm else { continue };
            match Imm::decode(imm) {
                Ok(Imm::IoRsp { msg_id, errno, .. }) => {
                    // An answer by a write leaves the key as it was.
                    if self.new_rkey && !done.by_write {
                        let rsp =
                            RkeyRsp::parse(&body[..done.len.min(RECV_SIZE)]).map_err(proto)?;
                        if let Some(chunk) = self.chunks.get_mut(usize::from(rsp.buf_id)) {
                            chunk.rkey = rsp.rkey;
                        }
                    }
                    self.answers.insert(msg_id, errno.to_kernel());
                }
                Ok(Imm::IoRspNextKey { msg_id }) => {
                    if let Some(chunk) = self.chunks.get_mut(msg_id as usize) {
                        chunk.rkey = next_rkey(chunk.rkey);
                    }
                    self.answers.insert(msg_id, 0);
                }
                Ok(Imm::Hb) => {
                    let ack = Imm::HbAck.encode().map_err(proto)?;
                    let op = Send::WriteImm(Remote::default(), ack);
                    let _ = self.links[n].id.post_send(op, None);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Handles the message with the chunks.
    fn info(&mut self, len: usize) -> Result<()> {
        let geometry = self.geometry.context("chunks without an offer")?;
        let mr = &self.worker.memory.as_ref().context("no memory")?.info;
        let msg = mr.read(0, len)?;
        let rsp = InfoRsp::parse(&msg).map_err(proto)?;
        let mut chunks = vec![RemoteBuf::default(); usize::from(geometry.queue_depth())];
        geometry
            .for_each_chunk(rsp.descs(), |id, buf| {
                if let Some(chunk) = chunks.get_mut(usize::from(id)) {
                    *chunk = buf;
                }
            })
            .map_err(proto)?;
        self.stale = chunks.clone();
        self.chunks = chunks;
        Ok(())
    }

    fn send(&mut self, n: usize, op: Op, body: &Body, times: u16) -> Result<()> {
        for _ in 0..times {
            if !self.alive(n) || self.links[n].state != State::Up {
                return Ok(());
            }
            let view = self.view()?;
            let data = body.get(&view);
            let remote = |addr: super::script::Addr, key: super::script::Key| Remote {
                addr: addr.get(&view),
                rkey: key.get(&view),
            };
            let op = match op {
                Op::Msg => Send::Msg,
                Op::MsgImm(value) => Send::MsgImm(value.get(&view)),
                Op::MsgInv(key) => Send::MsgInv(key.get(&view)),
                Op::Write(addr, key) => Send::Write(remote(addr, key)),
                Op::WriteImm(addr, key, value) => {
                    Send::WriteImm(remote(addr, key), value.get(&view))
                }
                Op::Read(addr, key) => Send::Read(remote(addr, key)),
            };
            self.post(n, op, &data)?;
            if matches!(op, Send::Read(_)) {
                // The server has no resources for reads: neither it nor later operations may ever
                // be sent.
                self.links[n].broken = true;
            }
        }
        Ok(())
    }

    /// Posts, if there is room soon. A full queue is the attacker's own problem.
    fn post(&mut self, n: usize, op: Send, data: &[u8]) -> Result<()> {
        if self.tx_next + data.len() > TX_SIZE {
            self.tx_next = 0;
        }
        let tx = self.worker.memory.as_ref().context("no memory")?.tx.clone();
        let at = self.tx_next;
        tx.write(at, data)?;
        self.tx_next += data.len().next_multiple_of(64);
        let end = Instant::now() + Duration::from_millis(200);
        loop {
            let slice = (!data.is_empty()).then(|| tx.slice(at, data.len()));
            if self.links[n].id.post_send(op, slice).is_ok() {
                return Ok(());
            }
            if !self.alive(n) || Instant::now() >= end {
                return Ok(());
            }
            self.pump(TICK)?;
        }
    }

    /// Sends a request that the server must answer: a read of RNBD's greeting.
    fn ping(&mut self, n: usize, buf_id: u16) -> Result<()> {
        let size = RNBD_SESS_INFO_SIZE;
        let mut greeting = [0; RNBD_SESS_INFO_SIZE];
        // Version of RNBD's protocol; the type is 0.
        greeting[4] = 2;
        let view = self.view()?;
        let chunk = view.chunks.get(usize::from(buf_id)).context("no chunk")?;
        let to = Remote {
            addr: chunk.addr.wrapping_add(size as u64),
            rkey: chunk.rkey,
        };
        let dest = ReadDest {
            desc: SgDesc {
                addr: view.own.addr,
                rkey: view.own.rkey,
                len: size as u32,
            },
            need_inval: false,
        };
        let msg = [&greeting[..], &ReadMsg::with_data(size as u16, &dest)].concat();
        let off = super::script::Off::Begin(2 * size as u32);
        let imm = super::script::Value::Request(buf_id, off).get(&view);
        self.answers.remove(&u32::from(buf_id));
        self.post(n, Send::WriteImm(to, imm), &msg)
    }

    /// The server must answer or end the path, both in time.
    fn settle(&mut self, script: &Script) -> Result<End> {
        self.pump(Duration::ZERO)?;
        if self.chunks.is_empty() {
            // The server cannot know the attacker's later intentions. Quotas hold for all clients.
            if script.expect == Expect::Served || (script.starts_well && !self.over_quota) {
                bail!("an honest question for chunks was not answered");
            }
            let up = self.links.iter().any(|link| link.state == State::Up);
            return Ok(match (up, self.over_quota) {
                (_, true) => End::OverQuota,
                (true, _) => End::Unfinished,
                (false, _) => End::Refused,
            });
        }
        let end = Instant::now() + self.worker.patience;
        if script.expect == Expect::Closed {
            while self.links.iter().any(|link| link.state == State::Up) {
                if Instant::now() >= end {
                    bail!("the server did not end the path");
                }
                self.pump(TICK)?;
            }
            return Ok(End::Closed);
        }

        // The first connections are those of the complete path.
        let depth = self.chunks.len() as u16;
        let mut broken = false;
        for n in 1..self.links.len().min(2) {
            let buf_id = depth.saturating_sub(1);
            if self.alive(n) {
                self.ping(n, buf_id)?;
            }
            // An error may be the answer to the attack's own request for that chunk: then there is
            // another one to come.
            while self.alive(n) && self.answers.get(&u32::from(buf_id)) != Some(&0) {
                if Instant::now() >= end {
                    match self.answers.get(&u32::from(buf_id)) {
                        Some(errno) => bail!("an honest request on connection {n} got {errno}"),
                        None => bail!("neither an answer nor an end on connection {n}"),
                    }
                }
                self.pump(TICK)?;
            }
            broken |= self.links[n].broken;
        }
        let all = self.links.iter().all(|link| link.state == State::Up);
        if script.expect == Expect::Served && (!all || broken) {
            bail!("an honest path was not served");
        }
        Ok(if !all {
            End::Closed
        } else if broken {
            End::Broken
        } else {
            End::Served
        })
    }
}
