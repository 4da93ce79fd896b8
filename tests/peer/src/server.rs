// SPDX-License-Identifier: GPL-2.0

//! Servers that misbehave, for the client under test.
//!
//! Each case has an action for a request to connect and one for the question for chunks. A round is
//! one attempt of a client, which starts with its connection 0. The client has to give up by
//! itself.

use std::{
    collections::HashMap,
    fs,
    net::SocketAddr,
    path::Path,
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::{anyhow, bail, Context, Result};

use crate::{
    proto::{
        errno::{EBUSY, ENOMEM},
        ConnAccept, ConnReject, ConnReq, Geometry, InfoReq, RejectErrno, MAGIC, VERSION,
    },
    report::Report,
    verbs::{Channel, Domain, Event, EventKind, Id, Mr, QueueSize},
};

/// Longest wait for events at a time.
const TICK: Duration = Duration::from_millis(5);

/// Pending requests to connect.
const BACKLOG: i32 = 64;

/// Sizes of the queues; a client under test is not expected to send much.
const QUEUES: QueueSize = QueueSize { send: 16, recv: 16 };

/// The default offer of the server.
fn offer() -> Result<[u8; ConnAccept::SIZE]> {
    let geometry =
        Geometry::server(64, 128 << 10, 4096).map_err(|e| anyhow!("offer: {}", e.as_str()))?;
    Ok(geometry.to_accept(true).to_bytes())
}

/// The action for a request to connect.
#[derive(Clone, Copy)]
enum OnConnect {
    /// Refuse without a reason.
    Refuse,
    /// Refuse with an error number.
    Reject(i32),
    /// Accept, with a changed message.
    Accept(fn(&mut [u8; ConnAccept::SIZE])),
    /// Accept with only this many bytes of the message.
    AcceptShort(usize),
    /// Accept connection 0 of a client that may send writes, and lack memory for them; refuse connection 0
    /// of a client that sends none, with another error number.
    LackMemoryForSends(Lack),
    /// Do not answer.
    Ignore,
}

/// When a server finds that it has no memory for sent writes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lack {
    /// With the first connection for them, which it refuses.
    Early,
    /// When it is asked for chunks: it ends all connections.
    Late,
}

/// A case.
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// Its description.
    pub about: &'static str,
    on_connect: OnConnect,
    /// Whether the client is expected to ask for chunks.
    wants_info: bool,
}

impl Case {
    const fn new(name: &'static str, about: &'static str, on_connect: OnConnect) -> Self {
        Self {
            name,
            about,
            on_connect,
            wants_info: false,
        }
    }
}

/// All cases.
pub const CASES: &[Case] = &[
    Case::new("refuse", "refuses without a reason", OnConnect::Refuse),
    Case::new(
        "reject-errno",
        "refuses with EBUSY",
        OnConnect::Reject(-EBUSY),
    ),
    Case::new(
        "reject-zero",
        "refuses with the error number 0",
        OnConnect::Reject(0),
    ),
    Case::new(
        "reject-positive",
        "refuses with the error number 1",
        OnConnect::Reject(1),
    ),
    Case::new(
        "no-room-for-sends",
        "takes sent writes, but has no memory for their receives",
        OnConnect::LackMemoryForSends(Lack::Early),
    ),
    Case::new(
        "no-room-for-sends-late",
        "takes sent writes, and ends all connections when it is asked for chunks",
        OnConnect::LackMemoryForSends(Lack::Late),
    ),
    Case::new(
        "wrong-magic",
        "accepts with a wrong magic number",
        OnConnect::Accept(|msg| put16(msg, 0, MAGIC ^ 1)),
    ),
    Case::new(
        "wrong-version",
        "accepts with another major version",
        OnConnect::Accept(|msg| put16(msg, 2, VERSION + 0x100)),
    ),
    Case::new(
        "accept-errno",
        "accepts with an error number",
        OnConnect::Accept(|msg| put16(msg, 4, (-EBUSY) as u16)),
    ),
    Case::new(
        "short-accept",
        "accepts with a message cut off behind the size of IO",
        OnConnect::AcceptShort(12),
    ),
    Case::new(
        "zero-queue-depth",
        "offers no chunks",
        OnConnect::Accept(|msg| put16(msg, 6, 0)),
    ),
    Case::new(
        "many-chunks",
        "offers 65535 small chunks, which could be",
        OnConnect::Accept(|msg| {
            put16(msg, 6, u16::MAX);
            put32(msg, 8, 4032);
            put32(msg, 12, 64);
        }),
    ),
    Case::new(
        "few-chunks",
        "offers 8 chunks, as a server could that is not the session's",
        OnConnect::Accept(|msg| put16(msg, 6, 8)),
    ),
    Case::new(
        "huge-queue-depth",
        "offers more chunks than immediate values can name",
        OnConnect::Accept(|msg| put16(msg, 6, u16::MAX)),
    ),
    Case::new(
        "zero-header",
        "offers no room for headers",
        OnConnect::Accept(|msg| put32(msg, 12, 0)),
    ),
    Case::new(
        "huge-header",
        "offers headers of nearly 4 GiB",
        OnConnect::Accept(|msg| put32(msg, 12, u32::MAX)),
    ),
    Case::new(
        "huge-io",
        "offers IO of 2 GiB",
        OnConnect::Accept(|msg| put32(msg, 8, 1 << 31)),
    ),
    Case::new(
        "zero-io",
        "offers IO of no bytes",
        OnConnect::Accept(|msg| put32(msg, 8, 0)),
    ),
    Case {
        wants_info: true,
        ..Case::new(
            "silent",
            "accepts, and never tells the chunks",
            OnConnect::Accept(|_| ()),
        )
    },
    Case::new(
        "no-accept",
        "never answers requests to connect",
        OnConnect::Ignore,
    ),
];

fn put16(msg: &mut [u8; ConnAccept::SIZE], off: usize, value: u16) {
    msg[off..off + 2].copy_from_slice(&value.to_le_bytes());
}

fn put32(msg: &mut [u8; ConnAccept::SIZE], off: usize, value: u32) {
    msg[off..off + 4].copy_from_slice(&value.to_le_bytes());
}

/// The parameters of a run.
pub struct Job<'a> {
    /// Address to listen at.
    pub addr: SocketAddr,
    /// Name of the case.
    pub case: &'a str,
    /// Number of rounds.
    pub count: u32,
    /// Limit on the time of all rounds.
    pub timeout: Duration,
    /// File to make once the server listens.
    pub ready: Option<&'a Path>,
}

/// A connection of a client.
struct Con {
    id: Id,
    cid: u16,
    since: Instant,
    /// Memory for the message expected on connection 0.
    info: Option<Rc<Mr>>,
}

struct Server<'a> {
    case: &'a Case,
    report: Report,
    cons: HashMap<usize, Con>,
    domain: Option<Rc<Domain>>,
    rounds: u32,
    info_seen: u32,
}

/// Runs a case.
pub fn run(job: &Job<'_>) -> Result<Report> {
    let case = CASES
        .iter()
        .find(|case| case.name == job.case)
        .with_context(|| format!("no case {} of a server", job.case))?;
    let mut server = Server {
        case,
        report: Report::new("server", case.name),
        cons: HashMap::new(),
        domain: None,
        rounds: 0,
        info_seen: 0,
    };

    let channel = Channel::new()?;
    let listener = Id::new(&channel)?;
    listener.listen(job.addr, BACKLOG)?;
    if let Some(ready) = job.ready {
        fs::write(ready, "").with_context(|| format!("cannot write {}", ready.display()))?;
    }
    let end = Instant::now() + job.timeout;
    while server.rounds < job.count && Instant::now() < end {
        if let Some(event) = channel.next(TICK)? {
            server.event(event)?;
        }
        server.poll()?;
    }

    let mut report = server.report;
    report.fact("rounds", server.rounds);
    if server.rounds < job.count {
        report.wrong(format!("{} of {} rounds", server.rounds, job.count));
    }
    if case.wants_info && server.info_seen < server.rounds {
        report.wrong("the client did not ask for chunks");
    }
    Ok(report)
}

impl Server<'_> {
    fn event(&mut self, event: Event) -> Result<()> {
        if let Some(id) = event.new_id {
            return self.connect_request(id, &event.private);
        }
        let Some(con) = self.cons.get(&event.key) else {
            return Ok(());
        };
        let what = format!("{:?} of connection {}", event.kind, con.cid);
        match event.kind {
            EventKind::Established => self.report.got(what),
            EventKind::Disconnected
            | EventKind::Rejected
            | EventKind::Unreachable
            | EventKind::Error => {
                let ms = con.since.elapsed().as_millis();
                self.report.got(format!("{what} after {ms} ms"));
                if let Some(con) = self.cons.remove(&event.key) {
                    // It may be half gone, which is no failure.
                    let _ = con.id.disconnect();
                    self.rounds += u32::from(con.cid == 0);
                }
            }
            EventKind::DeviceRemoval => bail!("the device went away"),
            _ => {}
        }
        Ok(())
    }

    fn connect_request(&mut self, id: Id, private: &[u8]) -> Result<()> {
        let req = match ConnReq::parse(private) {
            Ok(req) => req,
            Err(e) => {
                self.report.wrong(format!("request: {}", e.as_str()));
                return id.reject(&[]);
            }
        };
        self.report.got(format!(
            "request for connection {} of {}, attempt {}, first {}",
            req.cid, req.cid_num, req.recon_cnt, req.first_conn
        ));
        match self.case.on_connect {
            OnConnect::Refuse => {
                id.reject(&[])?;
                self.report.sent("reject without a message");
                self.rounds += 1;
            }
            OnConnect::Reject(errno) => {
                self.reject(id, errno)?;
                self.rounds += 1;
            }
            OnConnect::LackMemoryForSends(lack) => match (req.cid, req.capabilities.sends) {
                (cid, Some(_)) if cid == 0 || lack == Lack::Late => {
                    let mut msg = offer()?;
                    msg[18] |= 1 << 3;
                    self.accept(id, cid, &msg)?;
                }
                (_, Some(_)) => self.reject(id, -ENOMEM)?,
                (0, None) => {
                    self.reject(id, -EBUSY)?;
                    self.rounds += 1;
                }
                (_, None) => {
                    self.report
                        .wrong("a connection for writes that are not sent");
                    self.reject(id, -EBUSY)?;
                }
            },
            OnConnect::Accept(change) => {
                let mut msg = offer()?;
                change(&mut msg);
                self.accept(id, req.cid, &msg)?;
            }
            OnConnect::AcceptShort(len) => {
                let msg = offer()?;
                self.accept(id, req.cid, &msg[..len])?;
            }
            OnConnect::Ignore => self.remember(id, req.cid, None),
        }
        Ok(())
    }

    fn reject(&mut self, id: Id, errno: i32) -> Result<()> {
        let reject = ConnReject {
            errno: RejectErrno::CONNRESET,
        };
        let mut msg = reject.to_bytes();
        put16(&mut msg, 4, errno as u16);
        id.reject(&msg)?;
        self.report.sent(format!("reject with errno {errno}"));
        Ok(())
    }

    fn accept(&mut self, mut id: Id, cid: u16, msg: &[u8]) -> Result<()> {
        let domain = match &self.domain {
            Some(domain) => domain.clone(),
            None => {
                let domain = id.new_domain()?;
                self.domain = Some(domain.clone());
                domain
            }
        };
        id.create_qp(&domain, QUEUES)?;
        let info = if cid == 0 {
            let mr = domain.memory(InfoReq::SIZE)?;
            id.post_recv(0, Some(mr.slice(0, InfoReq::SIZE)))?;
            Some(mr)
        } else {
            None
        };
        id.accept(msg)?;
        self.report.sent(format!("accept of connection {cid}"));
        self.remember(id, cid, info);
        Ok(())
    }

    fn remember(&mut self, id: Id, cid: u16, info: Option<Rc<Mr>>) {
        let con = Con {
            cid,
            since: Instant::now(),
            info,
            id,
        };
        self.cons.insert(con.id.key(), con);
    }

    /// Checks for messages.
    fn poll(&mut self) -> Result<()> {
        let asked = self.info_seen;
        self.receive()?;
        let lacks = matches!(
            self.case.on_connect,
            OnConnect::LackMemoryForSends(Lack::Late)
        );
        if lacks && self.info_seen != asked {
            for con in self.cons.values() {
                con.id.disconnect()?;
            }
            self.report.sent("the end of all connections");
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<()> {
        for con in self.cons.values_mut() {
            let Some(mr) = &con.info else { continue };
            let Some(done) = con.id.poll()? else { continue };
            if done.is_send() || done.is_flush() {
                continue;
            }
            if !done.is_ok() {
                self.report.wrong(format!("receive: {}", done.text()));
                continue;
            }
            match InfoReq::parse(&mr.read(0, done.len.min(InfoReq::SIZE))?) {
                Ok(req) => {
                    self.report
                        .got(format!("question of {} for chunks", req.name));
                    self.info_seen += 1;
                }
                Err(e) => self
                    .report
                    .wrong(format!("question for chunks: {}", e.as_str())),
            }
        }
        Ok(())
    }
}
