// SPDX-License-Identifier: GPL-2.0

//! Connections, queue pairs and memory, as far as the cases need them.
//!
//! This file and its modules have all `unsafe` code of the program. All types are bound to the
//! thread that made them; several threads may use the libraries, each with its own objects. An
//! object holds everything that it needs, so that objects are freed in the right order. The device
//! may write to registered memory at any time, so this memory is only copied from and to.

use std::{
    cell::{Cell, RefCell},
    io,
    net::{IpAddr, SocketAddr},
    ptr::{self, NonNull},
    rc::Rc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{bail, Context, Result};

mod event;
mod memory;

pub use self::{
    event::{Channel, Event, EventKind},
    memory::{Domain, Mr, Remote, Slice},
};

#[allow(
    dead_code,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    unsafe_op_in_unsafe_fn
)]
mod raw {
    include!(concat!(env!("OUT_DIR"), "/raw.rs"));
}

/// Pause between polls of a completion queue.
const POLL_INTERVAL: Duration = Duration::from_micros(500);

/// Retries of an unacknowledged message, and of one without a receive (7: for ever).
const RETRY: u8 = 7;

/// The result of a call that returns -1 and sets errno.
fn check(ret: i32, what: &'static str) -> Result<()> {
    if ret == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error()).context(what)
}

/// The result of a call that returns the error number itself.
fn check_errno(ret: i32, what: &'static str) -> Result<()> {
    if ret == 0 {
        return Ok(());
    }
    Err(io::Error::from_raw_os_error(ret)).context(what)
}

/// A pointer from a call that returns NULL and sets errno.
fn check_ptr<T>(ptr: *mut T, what: &'static str) -> Result<NonNull<T>> {
    NonNull::new(ptr)
        .ok_or_else(io::Error::last_os_error)
        .context(what)
}

/// Socket address in C's form.
enum SockAddr {
    V4(raw::sockaddr_in),
    V6(raw::sockaddr_in6),
}

impl SockAddr {
    fn new(addr: SocketAddr) -> Self {
        match addr.ip() {
            IpAddr::V4(ip) => {
                let mut sin = raw::sockaddr_in {
                    sin_family: raw::AF_INET as u16,
                    sin_port: addr.port().to_be(),
                    ..Default::default()
                };
                sin.sin_addr.s_addr = u32::from_ne_bytes(ip.octets());
                Self::V4(sin)
            }
            IpAddr::V6(ip) => {
                let mut sin6 = raw::sockaddr_in6 {
                    sin6_family: raw::AF_INET6 as u16,
                    sin6_port: addr.port().to_be(),
                    ..Default::default()
                };
                sin6.sin6_addr.__in6_u.__u6_addr8 = ip.octets();
                Self::V6(sin6)
            }
        }
    }

    fn as_ptr(&mut self) -> *mut raw::sockaddr {
        match self {
            Self::V4(sin) => ptr::from_mut(sin).cast(),
            Self::V6(sin6) => ptr::from_mut(sin6).cast(),
        }
    }
}

/// Sizes of a queue pair.
#[derive(Clone, Copy, Debug)]
pub struct QueueSize {
    /// Sends in flight.
    pub send: u32,
    /// Receives posted.
    pub recv: u32,
}

/// Completion queue and domain of a queue pair.
struct Queue {
    cq: NonNull<raw::ibv_cq>,
    /// Memory that the device may use as long as the queue pair exists.
    used: RefCell<Vec<Rc<Mr>>>,
    sends: Cell<u64>,
    _domain: Rc<Domain>,
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: The queue pair is destroyed before, see `Id::drop`.
        unsafe { raw::ibv_destroy_cq(self.cq.as_ptr()) };
    }
}

/// A connection, also one in the making, or a listener.
pub struct Id {
    raw: NonNull<raw::rdma_cm_id>,
    queue: Option<Queue>,
    channel: Rc<Channel>,
}

impl Id {
    /// Makes a new one.
    pub fn new(channel: &Rc<Channel>) -> Result<Self> {
        let mut raw = ptr::null_mut();
        // SAFETY: The channel is alive and will be as long as the id, `raw` is writable.
        let ret = unsafe {
            raw::rdma_create_id(
                channel.raw.as_ptr(),
                &mut raw,
                ptr::null_mut(),
                raw::RDMA_PS_TCP,
            )
        };
        check(ret, "rdma_create_id")?;
        Ok(Self {
            raw: check_ptr(raw, "rdma_create_id")?,
            queue: None,
            channel: channel.clone(),
        })
    }

    /// The key that events use for this connection.
    pub fn key(&self) -> usize {
        self.raw.addr().get()
    }

    /// The channel of its events.
    pub fn channel(&self) -> &Rc<Channel> {
        &self.channel
    }

    /// Binds to an address.
    pub fn bind(&self, addr: SocketAddr) -> Result<()> {
        let mut addr = SockAddr::new(addr);
        // SAFETY: The id is alive, and the address for as long as the call.
        let ret = unsafe { raw::rdma_bind_addr(self.raw.as_ptr(), addr.as_ptr()) };
        check(ret, "rdma_bind_addr")
    }

    /// Listens for connections at an address.
    pub fn listen(&self, addr: SocketAddr, backlog: i32) -> Result<()> {
        self.bind(addr)?;
        // SAFETY: The id is alive.
        let ret = unsafe { raw::rdma_listen(self.raw.as_ptr(), backlog) };
        check(ret, "rdma_listen")
    }

    /// Starts to resolve an address.
    pub fn resolve_addr(&self, addr: SocketAddr, timeout: Duration) -> Result<()> {
        let mut addr = SockAddr::new(addr);
        // SAFETY: The id is alive, and the address for as long as the call; the source address
        // may be left to the library.
        let ret = unsafe {
            raw::rdma_resolve_addr(
                self.raw.as_ptr(),
                ptr::null_mut(),
                addr.as_ptr(),
                millis(timeout),
            )
        };
        check(ret, "rdma_resolve_addr")
    }

    /// Starts to resolve the route.
    pub fn resolve_route(&self, timeout: Duration) -> Result<()> {
        // SAFETY: The id is alive.
        let ret = unsafe { raw::rdma_resolve_route(self.raw.as_ptr(), millis(timeout)) };
        check(ret, "rdma_resolve_route")
    }

    /// Makes a protection domain for the device of this connection.
    pub fn new_domain(&self) -> Result<Rc<Domain>> {
        // SAFETY: The id is alive.
        let verbs = unsafe { self.raw.as_ref() }.verbs;
        if verbs.is_null() {
            bail!("the connection has no device yet");
        }
        // SAFETY: Librdmacm keeps the device open until the program ends.
        let raw = unsafe { raw::ibv_alloc_pd(verbs) };
        Ok(Rc::new(Domain {
            raw: check_ptr(raw, "ibv_alloc_pd")?,
        }))
    }

    /// Makes a queue pair for the connection.
    pub fn create_qp(&mut self, domain: &Rc<Domain>, size: QueueSize) -> Result<()> {
        if self.queue.is_some() {
            bail!("there is a queue pair already");
        }
        // SAFETY: The id is alive.
        let verbs = unsafe { self.raw.as_ref() }.verbs;
        // Soft RoCE rounds each queue up to a power of two: nearly twice as many may be in flight.
        let entries = i32::try_from(2 * (size.send + size.recv)).context("size of a queue")?;
        // SAFETY: The device is open, see `new_domain`; no channel, no context, vector 0.
        let cq = unsafe { raw::ibv_create_cq(verbs, entries, ptr::null_mut(), ptr::null_mut(), 0) };
        // From here on dropping it destroys it.
        let queue = Queue {
            cq: check_ptr(cq, "ibv_create_cq")?,
            used: RefCell::new(Vec::new()),
            sends: Cell::new(0),
            _domain: domain.clone(),
        };
        let mut attr = raw::ibv_qp_init_attr {
            send_cq: queue.cq.as_ptr(),
            recv_cq: queue.cq.as_ptr(),
            cap: raw::ibv_qp_cap {
                max_send_wr: size.send,
                max_recv_wr: size.recv,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            qp_type: raw::IBV_QPT_RC,
            sq_sig_all: 1,
            ..Default::default()
        };
        // SAFETY: All objects are alive, and the completion queue outlives the queue pair.
        let ret = unsafe { raw::rdma_create_qp(self.raw.as_ptr(), domain.raw.as_ptr(), &mut attr) };
        check(ret, "rdma_create_qp")?;
        self.queue = Some(queue);
        Ok(())
    }

    fn param(private: &[u8]) -> Result<raw::rdma_conn_param> {
        Ok(raw::rdma_conn_param {
            private_data: private.as_ptr().cast(),
            private_data_len: u8::try_from(private.len()).context("private data")?,
            retry_count: RETRY,
            rnr_retry_count: RETRY,
            ..Default::default()
        })
    }

    /// Asks the other side to connect, and for reads: if it was not asked, the queue pair there
    /// permits none.
    pub fn connect(&self, private: &[u8]) -> Result<()> {
        let mut param = Self::param(private)?;
        param.initiator_depth = 1;
        // SAFETY: The id is alive, and the private data for as long as the call.
        let ret = unsafe { raw::rdma_connect(self.raw.as_ptr(), &mut param) };
        check(ret, "rdma_connect")
    }

    /// Asks to connect without a queue pair: an acceptance is not confirmed.
    pub fn connect_without_qp(&self, private: &[u8], number: u32) -> Result<()> {
        let mut param = Self::param(private)?;
        param.qp_num = number;
        // SAFETY: The id is alive, and the private data for as long as the call.
        let ret = unsafe { raw::rdma_connect(self.raw.as_ptr(), &mut param) };
        check(ret, "rdma_connect")
    }

    /// Accepts a connection.
    pub fn accept(&self, private: &[u8]) -> Result<()> {
        let mut param = Self::param(private)?;
        // SAFETY: The id is alive, and the private data for as long as the call.
        let ret = unsafe { raw::rdma_accept(self.raw.as_ptr(), &mut param) };
        check(ret, "rdma_accept")
    }

    /// Refuses a connection.
    pub fn reject(&self, private: &[u8]) -> Result<()> {
        let len = u8::try_from(private.len()).context("private data")?;
        // SAFETY: The id is alive, and the private data for as long as the call.
        let ret = unsafe { raw::rdma_reject(self.raw.as_ptr(), private.as_ptr().cast(), len) };
        check(ret, "rdma_reject")
    }

    /// Ends the connection.
    pub fn disconnect(&self) -> Result<()> {
        // SAFETY: The id is alive.
        let ret = unsafe { raw::rdma_disconnect(self.raw.as_ptr()) };
        check(ret, "rdma_disconnect")
    }

    /// Lets the queue pair send reads, whether or not the other side has offered to serve any. Only
    /// soft RoCE takes this from a queue pair that is connected.
    pub fn allow_reads(&self) -> Result<()> {
        let (_, qp) = self.queue()?;
        let mut attr = raw::ibv_qp_attr {
            max_rd_atomic: 1,
            ..Default::default()
        };
        let mask = raw::IBV_QP_MAX_QP_RD_ATOMIC as i32;
        // SAFETY: The queue pair is alive, and the attribute that the mask names is set.
        let ret = unsafe { raw::ibv_modify_qp(ptr::from_ref(qp).cast_mut(), &mut attr, mask) };
        check_errno(ret, "ibv_modify_qp")
    }

    /// Whether it has a queue pair.
    pub fn has_queue(&self) -> bool {
        self.queue.is_some()
    }

    fn queue(&self) -> Result<(&Queue, &raw::ibv_qp)> {
        let queue = self.queue.as_ref().context("there is no queue pair")?;
        // SAFETY: The id is alive.
        let qp = unsafe { self.raw.as_ref() }.qp;
        // SAFETY: The queue pair was made together with the queue, and is destroyed with the id.
        let qp = unsafe { qp.as_ref() }.context("there is no queue pair")?;
        Ok((queue, qp))
    }

    /// Posts memory for the next message.
    pub fn post_recv(&self, token: u64, slice: Option<Slice<'_>>) -> Result<()> {
        let (queue, qp) = self.queue()?;
        let mut sge = slice.as_ref().map(|s| s.sge(queue)).transpose()?;
        let mut wr = raw::ibv_recv_wr {
            wr_id: token,
            sg_list: sge.as_mut().map_or(ptr::null_mut(), ptr::from_mut),
            num_sge: i32::from(slice.is_some()),
            ..Default::default()
        };
        let mut bad = ptr::null_mut();
        // SAFETY: Contexts live as long as their queue pairs.
        let post = unsafe { (*qp.context).ops.post_recv }.context("no post_recv")?;
        // SAFETY: Queue pair and work request are valid; the memory is held by `queue`.
        let ret = unsafe { post(ptr::from_ref(qp).cast_mut(), &mut wr, &mut bad) };
        check_errno(ret, "ibv_post_recv")
    }

    /// Posts an operation; returns the token of its completion.
    pub fn post_send(&self, op: Send, slice: Option<Slice<'_>>) -> Result<u64> {
        let (queue, qp) = self.queue()?;
        let token = SEND_TOKEN | queue.sends.get();
        queue.sends.set(queue.sends.get() + 1);
        let mut sge = slice.as_ref().map(|s| s.sge(queue)).transpose()?;
        let mut wr = raw::ibv_send_wr {
            wr_id: token,
            sg_list: sge.as_mut().map_or(ptr::null_mut(), ptr::from_mut),
            num_sge: i32::from(slice.is_some()),
            ..Default::default()
        };
        let (opcode, imm) = match op {
            Send::Msg => (raw::IBV_WR_SEND, 0),
            Send::MsgImm(imm) => (raw::IBV_WR_SEND_WITH_IMM, imm),
            Send::MsgInv(_) => (raw::IBV_WR_SEND_WITH_INV, 0),
            Send::Write(_) => (raw::IBV_WR_RDMA_WRITE, 0),
            Send::WriteImm(_, imm) => (raw::IBV_WR_RDMA_WRITE_WITH_IMM, imm),
            Send::Read(_) => (raw::IBV_WR_RDMA_READ, 0),
        };
        wr.opcode = opcode;
        match op {
            Send::MsgInv(rkey) => wr.__bindgen_anon_1.invalidate_rkey = rkey,
            _ => wr.__bindgen_anon_1.imm_data = imm.to_be(),
        }
        if let Send::Write(to) | Send::WriteImm(to, _) | Send::Read(to) = op {
            wr.wr.rdma = raw::ibv_send_wr__bindgen_ty_2__bindgen_ty_1 {
                remote_addr: to.addr,
                rkey: to.rkey,
            };
        }
        let mut bad = ptr::null_mut();
        // SAFETY: Contexts live as long as their queue pairs.
        let post = unsafe { (*qp.context).ops.post_send }.context("no post_send")?;
        // SAFETY: Queue pair and work request are valid; the memory is held by `queue`.
        let ret = unsafe { post(ptr::from_ref(qp).cast_mut(), &mut wr, &mut bad) };
        check_errno(ret, "ibv_post_send")?;
        Ok(token)
    }

    /// The next completion, if there is one.
    pub fn poll(&self) -> Result<Option<Completion>> {
        let (queue, qp) = self.queue()?;
        let mut wc = raw::ibv_wc::default();
        // SAFETY: Contexts live as long as their queue pairs.
        let poll = unsafe { (*qp.context).ops.poll_cq }.context("no poll_cq")?;
        // SAFETY: The completion queue is alive, there is room for one completion.
        match unsafe { poll(queue.cq.as_ptr(), 1, &mut wc) } {
            0 => return Ok(None),
            1 => {}
            _ => bail!("ibv_poll_cq failed"),
        }
        // SAFETY: Both members are plain numbers; the flags tell whether it is this one.
        let imm = unsafe { wc.__bindgen_anon_1.imm_data };
        let has_imm = wc.wc_flags & raw::IBV_WC_WITH_IMM != 0;
        Ok(Some(Completion {
            token: wc.wr_id,
            status: wc.status,
            len: wc.byte_len as usize,
            imm: has_imm.then(|| u32::from_be(imm)),
            by_write: wc.opcode == raw::IBV_WC_RECV_RDMA_WITH_IMM,
        }))
    }

    /// The next completion within `timeout`.
    pub fn wait(&self, timeout: Duration) -> Result<Option<Completion>> {
        let end = Instant::now() + timeout;
        loop {
            if let Some(done) = self.poll()? {
                return Ok(Some(done));
            }
            if Instant::now() >= end {
                return Ok(None);
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        if self.queue.is_some() {
            // SAFETY: There is a queue pair, made by `create_qp`.
            unsafe { raw::rdma_destroy_qp(self.raw.as_ptr()) };
        }
        // SAFETY: The program owns the id, and its events are acknowledged at once.
        unsafe { raw::rdma_destroy_id(self.raw.as_ptr()) };
    }
}

/// A time in the unit of the library.
fn millis(time: Duration) -> i32 {
    i32::try_from(time.as_millis()).unwrap_or(i32::MAX)
}

/// Marks tokens of sends; those of receives are up to the caller.
const SEND_TOKEN: u64 = 1 << 63;

/// An operation of a queue pair.
#[derive(Clone, Copy, Debug)]
pub enum Send {
    /// A message.
    Msg,
    /// A message with an immediate value.
    MsgImm(u32),
    /// A message that invalidates a key of the other side.
    MsgInv(u32),
    /// A write to memory of the other side.
    Write(Remote),
    /// The same with an immediate value.
    WriteImm(Remote, u32),
    /// A read from memory of the other side.
    Read(Remote),
}

/// How an operation ended.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// Token of the receive or send.
    pub token: u64,
    /// The status as the verbs number it; see [`Completion::text`].
    pub status: u32,
    /// Bytes received.
    pub len: usize,
    /// The immediate value received.
    pub imm: Option<u32>,
    /// Whether it came with a write; `len` is then the length of the write, and no message was
    /// received.
    pub by_write: bool,
}

impl Completion {
    /// Whether it is the end of a send.
    pub fn is_send(&self) -> bool {
        self.token & SEND_TOKEN != 0
    }

    /// Whether it succeeded.
    pub fn is_ok(&self) -> bool {
        self.status == raw::IBV_WC_SUCCESS
    }

    /// Whether the device of the other side has refused it.
    pub fn is_refused(&self) -> bool {
        matches!(
            self.status,
            raw::IBV_WC_REM_INV_REQ_ERR | raw::IBV_WC_REM_ACCESS_ERR | raw::IBV_WC_REM_OP_ERR
        )
    }

    /// Whether it ended only because the connection did.
    pub fn is_flush(&self) -> bool {
        self.status == raw::IBV_WC_WR_FLUSH_ERR
    }

    /// The status in words.
    pub fn text(&self) -> String {
        // SAFETY: Any number is allowed.
        let text = unsafe { raw::ibv_wc_status_str(self.status) };
        // SAFETY: The function returns a constant string.
        let text = unsafe { std::ffi::CStr::from_ptr(text) };
        text.to_string_lossy().into_owned()
    }
}
