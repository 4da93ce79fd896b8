// SPDX-License-Identifier: GPL-2.0

//! What an attacker does in one session, as a value.
//!
//! A script says everything that does not depend on the server's answers. What does, addresses and
//! keys, it says by name; [`View`] has what these stand for when a step is done. Nothing in here
//! talks to anybody.

use crate::proto::RemoteBuf;

/// What names in a script stand for at some time.
pub struct View<'a> {
    /// Number of chunks.
    pub depth: u16,
    /// Bytes of a chunk.
    pub chunk_size: u32,
    /// The chunks as they are known now.
    pub chunks: &'a [RemoteBuf],
    /// The chunks with the keys they had before these.
    pub stale: &'a [RemoteBuf],
    /// Chunks of other sessions, past and present.
    pub foreign: &'a [RemoteBuf],
    /// Memory of the attacker.
    pub own: RemoteBuf,
}

impl View<'_> {
    fn chunk(&self, n: u16) -> RemoteBuf {
        pick(self.chunks, n)
    }
}

fn pick(from: &[RemoteBuf], n: u16) -> RemoteBuf {
    let n = usize::from(n).checked_rem(from.len()).unwrap_or(0);
    from.get(n).copied().unwrap_or_default()
}

/// A place in the server's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addr {
    /// This very address.
    Raw(u64),
    /// So far from the begin of a chunk.
    Begin(u16, i64),
    /// So far from the end of a chunk.
    End(u16, i64),
    /// So far from the begin of a chunk of somebody else.
    Foreign(u16, i64),
}

impl Addr {
    /// The address.
    pub fn get(self, view: &View<'_>) -> u64 {
        match self {
            Self::Raw(addr) => addr,
            Self::Begin(n, off) => view.chunk(n).addr.wrapping_add_signed(off),
            Self::End(n, off) => view
                .chunk(n)
                .addr
                .wrapping_add(u64::from(view.chunk_size))
                .wrapping_add_signed(off),
            Self::Foreign(n, off) => pick(view.foreign, n).addr.wrapping_add_signed(off),
        }
    }
}

/// A key to memory of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// This very key.
    Raw(u32),
    /// The key of a chunk.
    Chunk(u16),
    /// The same with some bits changed.
    Xor(u16, u32),
    /// The key a chunk had before.
    Stale(u16),
    /// The key of a chunk of somebody else.
    Foreign(u16),
}

impl Key {
    /// The key.
    pub fn get(self, view: &View<'_>) -> u32 {
        match self {
            Self::Raw(key) => key,
            Self::Chunk(n) => view.chunk(n).rkey,
            Self::Xor(n, bits) => view.chunk(n).rkey ^ bits,
            Self::Stale(n) => pick(view.stale, n).rkey,
            Self::Foreign(n) => pick(view.foreign, n).rkey,
        }
    }
}

/// An offset within a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Off {
    /// From the begin.
    Begin(u32),
    /// From the end.
    End(i32),
}

/// An immediate value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// This very value.
    Raw(u32),
    /// A request: which chunk there is, and where in it the message is.
    Request(u16, Off),
    /// A request for so many chunks beyond the last one.
    Beyond(u16, Off),
}

impl Value {
    /// The value.
    pub fn get(self, view: &View<'_>) -> u32 {
        let depth = u32::from(view.depth.max(1));
        let (buf_id, off) = match self {
            Self::Raw(raw) => return raw,
            Self::Request(n, off) => (u32::from(n) % depth, off),
            Self::Beyond(n, off) => (depth + u32::from(n), off),
        };
        let off = match off {
            Off::Begin(off) => off,
            Off::End(off) => view.chunk_size.wrapping_add_signed(off),
        };
        let bits = u32::BITS - (depth - 1).leading_zeros();
        // What does not fit is no longer a request; there are raw values for that.
        (buf_id.wrapping_shl(28 - bits) | off) & 0x0fff_ffff
    }
}

/// A change to the bytes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Puts a little endian number of some bytes, at most 8, there.
    Set(usize, usize, u64),
    /// Adds to the number that is there.
    Add(usize, usize, i64),
    /// Fills some bytes with a value.
    Fill(usize, usize, u8),
    /// Turns a bit around.
    Flip(usize),
    /// Leaves only so many bytes.
    Truncate(usize),
    /// Adds so many bytes of that value.
    Extend(usize, u8),
}

impl Mutation {
    /// Changes the message; what is outside of it stays out of reach.
    pub fn apply(self, msg: &mut Vec<u8>) {
        match self {
            Self::Set(at, width, value) => put(msg, at, width, value),
            Self::Add(at, width, delta) => {
                let value = get(msg, at, width).wrapping_add_signed(delta);
                put(msg, at, width, value);
            }
            Self::Fill(at, len, value) => {
                for byte in msg.iter_mut().skip(at).take(len) {
                    *byte = value;
                }
            }
            Self::Flip(bit) => {
                if let Some(byte) = msg.get_mut(bit / 8) {
                    *byte ^= 1 << (bit % 8);
                }
            }
            Self::Truncate(len) => msg.truncate(len),
            Self::Extend(len, value) => msg.resize(msg.len() + len, value),
        }
    }
}

fn get(msg: &[u8], at: usize, width: usize) -> u64 {
    let mut raw = [0; 8];
    for (to, from) in raw.iter_mut().zip(msg.iter().skip(at).take(width)) {
        *to = *from;
    }
    u64::from_le_bytes(raw)
}

fn put(msg: &mut [u8], at: usize, width: usize, value: u64) {
    let raw = value.to_le_bytes();
    for (to, from) in msg.iter_mut().skip(at).take(width).zip(raw) {
        *to = from;
    }
}

/// What is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Where address and key of the attacker's memory go.
    pub own: Option<usize>,
    /// What is changed afterwards.
    pub mutations: Vec<Mutation>,
}

impl Body {
    /// The bytes as they are sent.
    pub fn get(&self, view: &View<'_>) -> Vec<u8> {
        let mut msg = self.bytes.clone();
        if let Some(at) = self.own {
            put(&mut msg, at, 8, view.own.addr);
            put(&mut msg, at + 8, 4, u64::from(view.own.rkey));
        }
        for mutation in &self.mutations {
            mutation.apply(&mut msg);
        }
        msg
    }
}

/// What a connection is made to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A message.
    Msg,
    /// A message with a value.
    MsgImm(Value),
    /// A message that invalidates a key.
    MsgInv(Key),
    /// A write.
    Write(Addr, Key),
    /// A write with a value.
    WriteImm(Addr, Key, Value),
    /// A read.
    Read(Addr, Key),
}

/// Something the attacker does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Asks to connect; waits for the outcome or does not.
    Connect(Body, bool),
    /// Sends something on a connection, so many times.
    Send(u8, Op, Body, u16),
    /// Waits until the chunks are known, or the path is gone, or so many milliseconds are over.
    Info(u32),
    /// Looks at what arrives for some milliseconds.
    Pause(u32),
    /// Ends a connection in an orderly way.
    Disconnect(u8),
    /// Lets a connection vanish.
    Destroy(u8),
}

/// What has to become of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Whatever the server likes, in time: it answers an honest request or ends the path.
    Either,
    /// All of it works.
    Served,
    /// The server ends the path.
    Closed,
}

/// All of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// What sort of attack it is.
    pub kind: &'static str,
    /// What is done.
    pub steps: Vec<Step>,
    /// What has to become of it.
    pub expect: Expect,
    /// Nothing is wrong with it before the chunks are told, so they have to be.
    pub starts_well: bool,
    /// The attacker says goodbye.
    pub polite: bool,
}
