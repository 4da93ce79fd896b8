// SPDX-License-Identifier: GPL-2.0

//! Very many clients that begin to connect and never finish. The server must drop all of them by
//! itself, and in time.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    rc::Rc,
    sync::{
        atomic::{AtomicU64, Ordering},
        Mutex, PoisonError,
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{bail, Result};
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::json;

use crate::{
    client::Identity,
    proto::{reject_errno, Capabilities, PathWait, CM_REJ_CONSUMER_DEFINED},
    verbs::{Channel, Domain, Event, EventKind, Id, QueueSize},
};

const RESOLVE: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_millis(2);

/// These clients send nothing.
const QUEUES: QueueSize = QueueSize { send: 1, recv: 1 };

/// Number of connections that a client announces by default. With another number it makes all but
/// one of them.
pub const CONS: u16 = 3;

/// Number of connections that a client makes by default, in turn; `None` is one that is accepted
/// and never confirmed.
const PATTERN: [Option<u16>; 8] = [
    Some(1),
    Some(2),
    Some(1),
    Some(3),
    Some(1),
    None,
    Some(1),
    Some(2),
];

/// Numbers of queue pairs that do not exist. The connection manager treats two with the same number
/// as one.
const NO_QP: u32 = 0x00c0_0000;

/// Longest delay of the end.
const HOLD: Duration = Duration::from_secs(120);

/// The parameters of a run.
pub struct Job {
    /// Address of the server.
    pub addr: SocketAddr,
    /// Seed of the clients' identities.
    pub seed: u64,
    /// Number of clients.
    pub count: u64,
    /// Source address of the first client, if it matters.
    pub from: Option<IpAddr>,
    /// Number of connections that a client announces.
    pub cons: u16,
    /// Number of source addresses, from that one on, that are used in turn.
    pub sources: u32,
    /// Number of clients that begin at a time.
    pub workers: u64,
    /// Pause of each of these before its next client.
    pub pause: Duration,
    /// Time after its acceptance for which a client may still be connected.
    pub deadline: Duration,
    /// No client leaves before this file exists.
    pub hold: Option<PathBuf>,
}

impl Job {
    /// Source address of client `number`.
    fn source(&self, number: u32) -> Option<SocketAddr> {
        let turn = number % self.sources.max(1);
        let ip = match self.from? {
            IpAddr::V4(first) => Ipv4Addr::from(u32::from(first).wrapping_add(turn)).into(),
            IpAddr::V6(first) => Ipv6Addr::from(u128::from(first).wrapping_add(turn.into())).into(),
        };
        Some(SocketAddr::new(ip, 0))
    }
}

#[derive(Default)]
struct Tally {
    accepted: u64,
    refused: BTreeMap<String, u64>,
    gone: u64,
    longest: Duration,
    left: u64,
    wrong: Vec<String>,
}

struct Link {
    id: Id,
    since: Instant,
    state: State,
}

#[derive(PartialEq, Eq)]
enum State {
    Asked,
    Up,
    /// Accepted, but not confirmed to the server, which gets nothing more from the client.
    Unconfirmed,
    Over,
}

/// Returns whether each client was answered. A client that is still connected in the end need not
/// be the server's fault: the server sends one disconnect and forgets the client, and if all are
/// sent at a time some get lost. Only the server can tell what it still holds for them while they
/// wait.
pub fn run(job: &Job) -> Result<bool> {
    let tally = Mutex::new(Tally::default());
    let begin = Instant::now();

    let done = AtomicU64::new(0);
    thread::scope(|scope| {
        for n in 0..job.workers {
            let (tally, done) = (&tally, &done);
            scope.spawn(move || {
                let mut own = Tally::default();
                let links = work(job, n, &mut own).unwrap_or_else(|e| {
                    own.wrong.push(format!("{e:#}"));
                    Vec::new()
                });
                let mut all = tally.lock().unwrap_or_else(PoisonError::into_inner);
                all.accepted += own.accepted;
                all.gone += own.gone;
                all.left += own.left;
                all.longest = all.longest.max(own.longest);
                all.wrong.append(&mut own.wrong);
                for (why, n) in own.refused {
                    *all.refused.entry(why).or_default() += n;
                }
                if done.fetch_add(1, Ordering::Relaxed) + 1 == job.workers {
                    println!("{}", json!({"role": "half-open", "all": "waiting"}));
                }
                drop(all);
                hold(job);
                drop(links);
            });
        }
    });
    let tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
    let ok = tally.wrong.is_empty() && tally.accepted != 0;
    let all = json!({
        "ok": ok,
        "role": "half-open",
        "clients": job.count,
        "accepted": tally.accepted,
        "refused": tally.refused,
        "gone": tally.gone,
        "left": tally.left,
        "longest_ms": tally.longest.as_millis() as u64,
        "seconds": begin.elapsed().as_secs(),
        "wrong": tally.wrong,
    });
    println!("{all}");
    Ok(ok)
}

fn hold(job: &Job) {
    let end = Instant::now() + HOLD;
    while job.hold.as_ref().is_some_and(|file| !file.exists()) && Instant::now() < end {
        thread::sleep(Duration::from_millis(50));
    }
}

fn work(job: &Job, first: u64, tally: &mut Tally) -> Result<Vec<Link>> {
    let mut rng = ChaCha8Rng::seed_from_u64(job.seed);
    rng.set_stream(first);
    let channel = Channel::new()?;
    let mut domain = None;
    let mut links = Vec::new();

    for n in (first..job.count).step_by(job.workers.max(1) as usize) {
        let mut who = Identity {
            name: format!("half-{n}").into_bytes(),
            session: [0; 16],
            path: [0; 16],
            attempt: 1,
            first: true,
            cons: job.cons,
            capabilities: Capabilities::default(),
            path_wait: PathWait::Unsaid,
            from: None,
        };
        rng.fill_bytes(&mut who.session);
        rng.fill_bytes(&mut who.path);
        let how = match job.cons {
            CONS => PATTERN.get(n as usize % PATTERN.len()).copied().flatten(),
            cons => Some(cons.saturating_sub(1)),
        };
        for cid in 0..how.unwrap_or(1) {
            let msg = who.request(cid);
            begin(
                job,
                &channel,
                &mut domain,
                &mut links,
                tally,
                &msg,
                how.is_some(),
                // CAST: Some thousands.
                n as u32,
            )?;
        }
        thread::sleep(job.pause);
    }
    // The last requests still have to be answered, and each has its own time.
    let waits = |link: &Link| match link.state {
        State::Asked => link.since.elapsed() <= 2 * job.deadline,
        State::Up => link.since.elapsed() <= job.deadline,
        State::Unconfirmed | State::Over => false,
    };
    while links.iter().any(waits) {
        pump(&channel, &mut links, tally, TICK)?;
    }
    let asked = links.iter().filter(|l| l.state == State::Asked).count();
    if asked != 0 {
        bail!("{asked} requests were not answered");
    }
    tally.left += links.iter().filter(|l| l.state == State::Up).count() as u64;
    Ok(links)
}

/// Makes one connection; the answer may come later.
#[expect(clippy::too_many_arguments)]
fn begin(
    job: &Job,
    channel: &Rc<Channel>,
    domain: &mut Option<Rc<Domain>>,
    links: &mut Vec<Link>,
    tally: &mut Tally,
    msg: &[u8],
    confirm: bool,
    number: u32,
) -> Result<()> {
    let mut id = Id::new(channel)?;
    if let Some(from) = job.source(number) {
        id.bind(from)?;
    }
    id.resolve_addr(job.addr, RESOLVE)?;
    expect(channel, links, tally, &id, EventKind::AddrResolved)?;
    id.resolve_route(RESOLVE)?;
    expect(channel, links, tally, &id, EventKind::RouteResolved)?;
    if confirm {
        let domain = match domain {
            Some(domain) => domain.clone(),
            None => domain.insert(id.new_domain()?).clone(),
        };
        id.create_qp(&domain, QUEUES)?;
        id.connect(msg)?;
    } else {
        id.connect_without_qp(msg, NO_QP | number)?;
    }
    links.push(Link {
        id,
        since: Instant::now(),
        state: State::Asked,
    });
    pump(channel, links, tally, Duration::ZERO)
}

fn expect(
    channel: &Rc<Channel>,
    links: &mut [Link],
    tally: &mut Tally,
    id: &Id,
    kind: EventKind,
) -> Result<()> {
    let end = Instant::now() + 2 * RESOLVE;
    while Instant::now() < end {
        match channel.next(TICK)? {
            Some(e) if e.key == id.key() && e.kind == kind => return Ok(()),
            Some(e) if e.key == id.key() => bail!("{:?} in place of {kind:?}", e.kind),
            Some(e) => take(&e, links, tally),
            None => {}
        }
    }
    bail!("waited in vain for {kind:?}")
}

fn pump(
    channel: &Rc<Channel>,
    links: &mut [Link],
    tally: &mut Tally,
    wait: Duration,
) -> Result<()> {
    let mut wait = wait;
    while let Some(event) = channel.next(wait)? {
        take(&event, links, tally);
        wait = Duration::ZERO;
    }
    Ok(())
}

fn take(event: &Event, links: &mut [Link], tally: &mut Tally) {
    let Some(link) = links.iter_mut().find(|l| l.id.key() == event.key) else {
        return;
    };
    match event.kind {
        EventKind::Established if link.state == State::Asked => {
            tally.accepted += 1;
            link.since = Instant::now();
            link.state = State::Up;
        }
        EventKind::Response if link.state == State::Asked => {
            tally.accepted += 1;
            link.state = State::Unconfirmed;
        }
        EventKind::Rejected => {
            let reason = u32::try_from(event.status).unwrap_or(0);
            let why = if reason == CM_REJ_CONSUMER_DEFINED {
                format!("errno {}", reject_errno(&event.private).to_kernel())
            } else {
                format!("reason {reason}")
            };
            if link.state == State::Asked {
                *tally.refused.entry(why).or_default() += 1;
            }
            link.state = State::Over;
        }
        EventKind::Unreachable | EventKind::Error if link.state == State::Asked => {
            *tally.refused.entry("no answer".into()).or_default() += 1;
            link.state = State::Over;
        }
        EventKind::Disconnected if link.state == State::Up => {
            tally.gone += 1;
            tally.longest = tally.longest.max(link.since.elapsed());
            link.state = State::Over;
        }
        _ => {}
    }
}
