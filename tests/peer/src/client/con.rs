// SPDX-License-Identifier: GPL-2.0

//! One connection to the server under test.

use std::{
    net::{IpAddr, SocketAddr},
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::{bail, Result};

use crate::{
    proto::{reject_errno, CM_REJ_CONSUMER_DEFINED},
    verbs::{Channel, Completion, Domain, EventKind, Id, Mr, QueueSize},
};

/// Time that resolving addresses and routes may take.
const RESOLVE: Duration = Duration::from_secs(5);

/// Sizes of the queues.
const QUEUES: QueueSize = QueueSize {
    send: 512,
    recv: 256,
};

/// Number of receives posted, each of [`RECV_SIZE`] bytes.
const RECVS: usize = 96;
pub(super) const RECV_SIZE: usize = 64;

/// The result of a request to connect.
pub enum Outcome {
    /// The connection is up; with the server's message.
    Up(Con, Vec<u8>),
    /// The request was refused: reason of the connection manager, error number of the server.
    Rejected(u32, i32),
    /// There was no answer.
    Silence,
}

/// One connection.
pub struct Con {
    /// The connection itself.
    pub id: Id,
    domain: Rc<Domain>,
    recv: Rc<Mr>,
    gone: bool,
}

impl Con {
    /// Connects with this message in the private data, from the address `from` if there is one.
    pub fn connect(
        addr: SocketAddr,
        from: Option<IpAddr>,
        private: &[u8],
        domain: Option<&Rc<Domain>>,
        patience: Duration,
    ) -> Result<Outcome> {
        let channel = Channel::new()?;
        let mut id = Id::new(&channel)?;
        if let Some(from) = from {
            id.bind(SocketAddr::new(from, 0))?;
        }
        id.resolve_addr(addr, RESOLVE)?;
        expect(&channel, EventKind::AddrResolved)?;
        id.resolve_route(RESOLVE)?;
        expect(&channel, EventKind::RouteResolved)?;
        let domain = match domain {
            Some(domain) => domain.clone(),
            None => id.new_domain()?,
        };
        id.create_qp(&domain, QUEUES)?;
        let recv = domain.memory(RECVS * RECV_SIZE)?;
        id.connect(private)?;
        let end = Instant::now() + patience;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Some(event) = channel.next(left)? else {
                return Ok(Outcome::Silence);
            };
            match event.kind {
                EventKind::Established => {
                    let con = Self {
                        id,
                        domain,
                        recv,
                        gone: false,
                    };
                    return Ok(Outcome::Up(con, event.private));
                }
                EventKind::Rejected => {
                    let reason = u32::try_from(event.status).unwrap_or(0);
                    let errno = if reason == CM_REJ_CONSUMER_DEFINED {
                        reject_errno(&event.private).to_kernel()
                    } else {
                        0
                    };
                    return Ok(Outcome::Rejected(reason, errno));
                }
                EventKind::Unreachable | EventKind::Error => return Ok(Outcome::Silence),
                _ => {}
            }
        }
    }

    /// The domain in which memory for this connection is registered.
    pub fn domain(&self) -> &Rc<Domain> {
        &self.domain
    }

    /// Posts receives for answers.
    pub fn post_recvs(&self) -> Result<()> {
        for token in 0..RECVS {
            self.repost_recv(token as u64)?;
        }
        Ok(())
    }

    /// Returns the memory of a receive.
    pub(super) fn received(&self, token: u64) -> Result<Vec<u8>> {
        // CAST: Below `RECVS`.
        self.recv.read(token as usize * RECV_SIZE, RECV_SIZE)
    }

    /// Posts a receive again.
    pub fn repost_recv(&self, token: u64) -> Result<()> {
        // CAST: Below `RECVS`.
        let off = token as usize * RECV_SIZE;
        self.id
            .post_recv(token, Some(self.recv.slice(off, RECV_SIZE)))
    }

    /// Whether the server has ended the connection.
    pub fn is_gone(&mut self) -> Result<bool> {
        while !self.gone {
            match self.id.channel().next(Duration::ZERO)? {
                // A server that ends a connection before it knows that it is up rejects it.
                Some(event)
                    if matches!(event.kind, EventKind::Disconnected | EventKind::Rejected) =>
                {
                    self.gone = true;
                }
                Some(_) => {}
                None => break,
            }
        }
        Ok(self.gone)
    }

    /// Returns the next completion of a receive, and passes failures of sends to `failed`.
    pub(super) fn next_recv(
        &self,
        timeout: Duration,
        mut failed: impl FnMut(Completion),
    ) -> Result<Option<Completion>> {
        let end = Instant::now() + timeout;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Some(done) = self.id.wait(left)? else {
                return Ok(None);
            };
            if done.is_send() || !done.is_ok() {
                if !done.is_ok() {
                    failed(done);
                    if !done.is_send() {
                        return Ok(None);
                    }
                }
                continue;
            }
            return Ok(Some(done));
        }
    }
}

/// Waits for an event of a connection that is being made.
fn expect(channel: &Rc<Channel>, kind: EventKind) -> Result<()> {
    match channel.next(2 * RESOLVE)? {
        Some(event) if event.kind == kind => Ok(()),
        Some(event) => bail!("{:?} ({}) in place of {kind:?}", event.kind, event.status),
        None => bail!("waited in vain for {kind:?}"),
    }
}
