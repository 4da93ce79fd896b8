// SPDX-License-Identifier: GPL-2.0

//! A client of the server under test, as honest as the code that uses it: connections, the question
//! for chunks, requests.

mod con;

use std::{
    net::{IpAddr, SocketAddr},
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::{anyhow, bail, Context, Result};

use crate::{
    proto::{
        next_rkey, Capabilities, ConnAccept, ConnReq, Geometry, Imm, InfoReq, InfoRsp, PathWait,
        ProtoError, ReadDest, ReadMsg, RemoteBuf, RkeyRsp, SgDesc, WriteMsg,
    },
    verbs::{Mr, Remote, Send},
};

use self::con::RECV_SIZE;
pub use self::con::{Con, Outcome};

/// Token of the answer with the chunks.
const INFO_TOKEN: u64 = 1 << 32;

/// RNBD's first message in a session, and its answer: the server's user understands them.
const RNBD_SESS_INFO: u16 = 0;
const RNBD_SESS_INFO_RSP: u16 = 1;
/// The size of both.
pub const RNBD_SESS_INFO_SIZE: usize = 36;

/// Converts an error of the protocol to one of the program.
pub fn proto(e: ProtoError) -> anyhow::Error {
    anyhow!("{}", e.as_str())
}

/// The identity that the client claims.
#[derive(Clone)]
pub struct Identity {
    /// The session's name.
    pub name: Vec<u8>,
    /// The session.
    pub session: [u8; 16],
    /// The path's uuid.
    pub path: [u8; 16],
    /// Number of the attempt.
    pub attempt: u16,
    /// Whether the session may be a new one.
    pub first: bool,
    /// Number of connections.
    pub cons: u16,
    /// What the client says that it can do.
    pub capabilities: Capabilities,
    /// How long the client claims to wait for a path.
    pub path_wait: PathWait,
    /// Source address, if it matters.
    pub from: Option<IpAddr>,
}

impl Identity {
    /// The request for a connection, without checks.
    pub fn request(&self, cid: u16) -> [u8; ConnReq::SIZE] {
        ConnReq {
            cid,
            cid_num: self.cons,
            recon_cnt: self.attempt,
            path_uuid: self.path,
            session_uuid: self.session,
            first_conn: self.first,
            capabilities: self.capabilities,
            path_wait: self.path_wait,
        }
        .to_bytes()
    }

    /// The question for chunks, with the name unchecked.
    pub fn question(&self) -> [u8; InfoReq::SIZE] {
        let mut msg = [0; InfoReq::SIZE];
        for (to, from) in msg[2..].iter_mut().zip(&self.name) {
            *to = *from;
        }
        msg
    }
}

/// An answer of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The chunk of the request.
    pub buf_id: u32,
    /// 0 or a negative error number.
    pub errno: i32,
    /// Whether it came with a write.
    pub by_write: bool,
}

/// A path of a session.
pub struct Session {
    /// Connections, the service connection first.
    pub cons: Vec<Con>,
    /// The sizes that the server has offered.
    pub geometry: Geometry,
    /// Whether keys change with each request.
    pub new_rkey: bool,
    /// Whether answers may leave the key out.
    pub keeps_keys: bool,
    /// Whether answers may leave out the next key.
    pub counts_keys: bool,
    /// Whether the server takes writes that are sent.
    pub takes_sends: bool,
    /// Whether reads ask for the invalidation of their key.
    pub need_inval: bool,
    /// Addresses and keys of the chunks.
    pub chunks: Vec<RemoteBuf>,
    /// Time to wait for the server.
    pub patience: Duration,
    /// Failed completions.
    pub failed: Vec<String>,
    tx: Rc<Mr>,
    tx_next: usize,
    rx: Rc<Mr>,
}

/// Size of the memory for requests, and of that for read data.
const TX_SIZE: usize = 1 << 20;
const RX_SIZE: usize = 1 << 18;

/// A write of `len` bytes, all 0, with the message `usr` for the user.
pub fn write_of(len: usize, usr: &[u8]) -> Vec<u8> {
    // CAST: Less than a page.
    let usr_len = usr.len() as u16;
    [&vec![0; len], usr, &WriteMsg { usr_len }.to_bytes()].concat()
}

/// RNBD's first message.
pub fn info_message() -> [u8; RNBD_SESS_INFO_SIZE] {
    let mut usr = [0; RNBD_SESS_INFO_SIZE];
    usr[..2].copy_from_slice(&RNBD_SESS_INFO.to_le_bytes());
    // Version of RNBD's protocol.
    usr[4] = 2;
    usr
}

impl Session {
    /// Makes all connections; the chunks are not yet known.
    pub fn connect(addr: SocketAddr, who: &Identity, patience: Duration) -> Result<Self> {
        Self::connect_some(addr, who, who.cons, patience)
    }

    /// Makes only `count` of the connections.
    pub fn connect_some(
        addr: SocketAddr,
        who: &Identity,
        count: u16,
        patience: Duration,
    ) -> Result<Self> {
        let order: Vec<u16> = (0..count).collect();
        Self::connect_by(addr, who, &order, |cid| who.request(cid), patience)
    }

    /// Makes the connections of `order`, all from 0 on, with the message that `ask` returns for
    /// each.
    pub fn connect_by(
        addr: SocketAddr,
        who: &Identity,
        order: &[u16],
        ask: impl Fn(u16) -> [u8; ConnReq::SIZE],
        patience: Duration,
    ) -> Result<Self> {
        let mut cons: Vec<(u16, Con)> = Vec::new();
        let mut accept = None;
        for &cid in order {
            let domain = cons.first().map(|(_, con)| con.domain());
            match Con::connect(addr, who.from, &ask(cid), domain, patience)? {
                Outcome::Up(con, msg) => {
                    if cid == 0 {
                        accept = Some(ConnAccept::parse(&msg).map_err(proto)?);
                    }
                    cons.push((cid, con));
                }
                Outcome::Rejected(reason, errno) => {
                    bail!("connection {cid} was refused: reason {reason}, errno {errno}")
                }
                Outcome::Silence => bail!("no answer for connection {cid}"),
            }
        }
        cons.sort_by_key(|(cid, _)| *cid);
        let cons: Vec<Con> = cons.into_iter().map(|(_, con)| con).collect();
        let accept = accept.context("no connection")?;
        let domain = cons.first().context("no connection")?.domain();
        Ok(Self {
            geometry: Geometry::from_accept(&accept).map_err(proto)?,
            new_rkey: accept.new_rkey,
            keeps_keys: who.capabilities.keeps_keys,
            counts_keys: who.capabilities.keeps_keys && who.capabilities.counts_keys,
            takes_sends: accept.takes_sends,
            need_inval: false,
            chunks: Vec::new(),
            patience,
            failed: Vec::new(),
            tx: domain.memory(TX_SIZE)?,
            tx_next: 0,
            rx: domain.memory(RX_SIZE)?,
            cons,
        })
    }

    /// A connection.
    pub fn con(&self, cid: usize) -> Result<&Con> {
        self.cons.get(cid).context("no such connection")
    }

    /// Copies bytes to memory that the device can send from.
    fn stage(&mut self, data: &[u8]) -> Result<(usize, usize)> {
        if self.tx_next + data.len() > TX_SIZE {
            // The device has long sent the first bytes.
            self.tx_next = 0;
        }
        let off = self.tx_next;
        self.tx.write(off, data)?;
        self.tx_next += data.len().next_multiple_of(64);
        Ok((off, data.len()))
    }

    /// The memory of the last post, `len` bytes: a read by RDMA changes it.
    pub fn staged(&self, len: usize) -> Result<Vec<u8>> {
        let off = self.tx_next.checked_sub(len.next_multiple_of(64));
        self.tx.read(off.context("nothing was posted")?, len)
    }

    /// Posts an operation on a connection; returns the token of its completion.
    pub fn post(&mut self, cid: usize, op: Send, data: &[u8]) -> Result<u64> {
        let (off, len) = self.stage(data)?;
        let slice = (len != 0).then(|| self.tx.slice(off, len));
        self.con(cid)?.id.post_send(op, slice)
    }

    /// Asks for the chunks with the message `question`.
    pub fn ask(&mut self, question: &[u8]) -> Result<()> {
        self.post(0, Send::Msg, question)?;
        Ok(())
    }

    /// Asks for the chunks, and receives them; then answers can arrive on all connections.
    pub fn start(&mut self, question: &[u8]) -> Result<()> {
        self.get_chunks(question)?;
        for con in &self.cons {
            con.post_recvs()?;
        }
        Ok(())
    }

    /// Asks for the chunks, and receives them; answers to requests must wait for receives.
    pub fn get_chunks(&mut self, question: &[u8]) -> Result<()> {
        let mr = self.ask_for_chunks(question)?;
        if !self.take_chunks(&mr, self.patience)? {
            bail!("no chunks: {:?}", self.failed);
        }
        Ok(())
    }

    /// Asks for the chunks; returns the memory for the answer.
    pub fn ask_for_chunks(&mut self, question: &[u8]) -> Result<Rc<Mr>> {
        let size = InfoRsp::size(self.geometry.queue_depth());
        let service = self.con(0)?;
        let mr = service.domain().memory(size)?;
        service.id.post_recv(INFO_TOKEN, Some(mr.slice(0, size)))?;
        self.ask(question)?;
        Ok(mr)
    }

    /// Waits for the answer; returns whether it is there.
    pub fn take_chunks(&mut self, mr: &Mr, wait: Duration) -> Result<bool> {
        let mut failed = Vec::new();
        let done = self
            .con(0)?
            .next_recv(wait, |done| failed.push(done.text()))?;
        self.failed.append(&mut failed);
        let Some(done) = done else { return Ok(false) };
        let msg = mr.read(0, done.len)?;
        let mut chunks = vec![RemoteBuf::default(); usize::from(self.geometry.queue_depth())];
        let rsp = InfoRsp::parse(&msg).map_err(proto)?;
        self.geometry
            .for_each_chunk(rsp.descs(), |id, buf| {
                if let Some(chunk) = chunks.get_mut(usize::from(id)) {
                    *chunk = buf;
                }
            })
            .map_err(proto)?;
        self.chunks = chunks;
        Ok(true)
    }

    /// Address and key of a chunk.
    pub fn chunk(&self, buf_id: u16) -> Result<RemoteBuf> {
        let chunk = self.chunks.get(usize::from(buf_id));
        chunk.copied().context("no such chunk")
    }

    /// The immediate value for a place in a chunk, without checks.
    pub fn imm(&self, buf_id: u32, off: u32) -> u32 {
        let depth = u32::from(self.geometry.queue_depth());
        let bits = u32::BITS - (depth - 1).leading_zeros();
        (buf_id << (28 - bits)) | off
    }

    /// Writes bytes to an offset of a chunk, with an immediate value.
    pub fn write_imm(
        &mut self,
        cid: usize,
        buf_id: u16,
        off: usize,
        data: &[u8],
        imm: u32,
    ) -> Result<()> {
        let chunk = self.chunk(buf_id)?;
        let to = Remote {
            addr: chunk.addr.wrapping_add(off as u64),
            rkey: chunk.rkey,
        };
        self.post(cid, Send::WriteImm(to, imm), data)?;
        Ok(())
    }

    /// A descriptor for `len` bytes of memory to read into.
    pub fn read_desc(&self, len: u32) -> Result<SgDesc> {
        let to = self.rx.remote(0)?;
        Ok(SgDesc {
            addr: to.addr,
            rkey: to.rkey,
            len,
        })
    }

    /// The data that was read.
    pub fn read_back(&self, len: usize) -> Result<Vec<u8>> {
        self.rx.read(0, len)
    }

    /// Clears the memory to read into.
    pub fn clear(&self, len: usize) -> Result<()> {
        self.rx.write(0, &vec![0; len])
    }

    /// Fills the memory to read into.
    pub fn fill(&self, len: usize, byte: u8) -> Result<()> {
        self.rx.write(0, &vec![byte; len])
    }

    /// Sends an honest request: a read of RNBD's answer to its first message.
    pub fn send_honest(&mut self, cid: usize, buf_id: u16) -> Result<()> {
        self.send_info_request(cid, buf_id, RNBD_SESS_INFO_SIZE)
    }

    /// The same, with room for an answer of `len` bytes.
    pub fn send_info_request(&mut self, cid: usize, buf_id: u16, len: usize) -> Result<()> {
        self.send_read(cid, buf_id, &info_message(), len)
    }

    /// The same, as a write of `len` bytes.
    pub fn send_info_write(&mut self, cid: usize, buf_id: u16, len: usize) -> Result<()> {
        self.send_write(cid, buf_id, &write_of(len, &info_message()))
    }

    /// Sends the write `msg`.
    pub fn send_write(&mut self, cid: usize, buf_id: u16, msg: &[u8]) -> Result<()> {
        let imm = self.write_value(buf_id, msg);
        self.write_imm(cid, buf_id, 0, msg, imm)
    }

    /// The same, sent as a message.
    pub fn send_info_sent(&mut self, cid: usize, buf_id: u16, len: usize) -> Result<()> {
        self.send_sent(cid, buf_id, &write_of(len, &info_message()))
    }

    /// Sends the write `msg` as a message.
    pub fn send_sent(&mut self, cid: usize, buf_id: u16, msg: &[u8]) -> Result<()> {
        let imm = self.write_value(buf_id, msg);
        self.post(cid, Send::MsgImm(imm), msg)?;
        Ok(())
    }

    /// The immediate value for the write `msg`, the message of which is at its end.
    pub fn write_value(&self, buf_id: u16, msg: &[u8]) -> u32 {
        // CAST: Less than a chunk.
        let off = msg.len().saturating_sub(WriteMsg::SIZE) as u32;
        self.imm(buf_id.into(), off)
    }

    /// Sends a read of `len` bytes with the message `usr` for the user.
    pub fn send_read(&mut self, cid: usize, buf_id: u16, usr: &[u8], len: usize) -> Result<()> {
        self.send_read_by(cid, buf_id, buf_id, usr, len)
    }

    /// The same, with a value that names chunk `named`, while the message goes to chunk `buf_id`.
    pub fn send_read_by(
        &mut self,
        cid: usize,
        buf_id: u16,
        named: u16,
        usr: &[u8],
        len: usize,
    ) -> Result<()> {
        let size = usr.len();
        let dest = ReadDest {
            desc: self.read_desc(len as u32)?,
            need_inval: self.need_inval,
        };
        let msg = [usr, &ReadMsg::with_data(size as u16, &dest)].concat();
        let imm = self.imm(u32::from(named), (len + size) as u32);
        self.write_imm(cid, buf_id, len, &msg, imm)
    }

    /// The next answer on a connection; new keys are recorded.
    pub fn answer(&mut self, cid: usize, timeout: Duration) -> Result<Option<Answer>> {
        let end = Instant::now() + timeout;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let mut failed = Vec::new();
            let con = self.con(cid)?;
            let done = con.next_recv(left, |done| failed.push(done.text()))?;
            self.failed.append(&mut failed);
            let Some(done) = done else { return Ok(None) };
            let con = self.con(cid)?;
            let body = con.received(done.token)?;
            con.repost_recv(done.token)?;
            let Some(imm) = done.imm else {
                bail!("a message without a value");
            };
            match Imm::decode(imm).map_err(proto)? {
                Imm::IoRsp { msg_id, errno, .. } => {
                    if self.new_rkey && done.by_write && !self.keeps_keys {
                        bail!("an answer without a key");
                    }
                    if self.new_rkey && !done.by_write {
                        let rsp =
                            RkeyRsp::parse(&body[..done.len.min(RECV_SIZE)]).map_err(proto)?;
                        if u32::from(rsp.buf_id) != msg_id {
                            bail!("key for chunk {} in an answer for {msg_id}", rsp.buf_id);
                        }
                        let chunk = self.chunks.get_mut(usize::from(rsp.buf_id));
                        chunk.context("key for no chunk")?.rkey = rsp.rkey;
                    }
                    return Ok(Some(Answer {
                        buf_id: msg_id,
                        errno: errno.to_kernel(),
                        by_write: done.by_write,
                    }));
                }
                Imm::Hb => {
                    let ack = Imm::HbAck.encode().map_err(proto)?;
                    self.post(cid, Send::WriteImm(Remote::default(), ack), &[])?;
                }
                Imm::HbAck => {}
                Imm::IoRspNextKey { msg_id } => {
                    if !self.new_rkey || !self.counts_keys || !done.by_write {
                        bail!("a key that cannot be counted");
                    }
                    let chunk = self.chunks.get_mut(msg_id as usize);
                    let rkey = &mut chunk.context("key for no chunk")?.rkey;
                    *rkey = next_rkey(*rkey);
                    return Ok(Some(Answer {
                        buf_id: msg_id,
                        errno: 0,
                        by_write: true,
                    }));
                }
                Imm::IoReq { .. } => bail!("a request from a server"),
            }
        }
    }

    /// Checks the path by one honest request and its answer.
    pub fn ping(&mut self, cid: usize, buf_id: u16) -> Result<Answer> {
        self.clear(RNBD_SESS_INFO_SIZE)?;
        self.send_honest(cid, buf_id)?;
        let Some(answer) = self.answer(cid, self.patience)? else {
            bail!("no answer to an honest request: {:?}", self.failed);
        };
        if answer.buf_id != u32::from(buf_id) || answer.errno != 0 {
            bail!("{answer:?} to an honest request for chunk {buf_id}");
        }
        let data = self.read_back(RNBD_SESS_INFO_SIZE)?;
        if data[..2] != RNBD_SESS_INFO_RSP.to_le_bytes() {
            bail!("the answer to an honest request is {:02x?}", &data[..8]);
        }
        Ok(answer)
    }

    /// Waits until the server has ended all connections; returns how long that took.
    pub fn wait_gone(&mut self, timeout: Duration) -> Result<Option<Duration>> {
        let begin = Instant::now();
        loop {
            let mut all = true;
            for con in &mut self.cons {
                all &= con.is_gone()?;
            }
            if all {
                return Ok(Some(begin.elapsed()));
            }
            if begin.elapsed() >= timeout {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends all connections in an orderly way.
    pub fn disconnect(&self) {
        for con in &self.cons {
            // It may be gone already, which is no failure.
            let _ = con.id.disconnect();
        }
    }
}
