// SPDX-License-Identifier: GPL-2.0

//! The attacker's actions in one session, as a value.
//!
//! A script has everything that does not depend on the server's answers. Addresses and keys do: the
//! script names them, and [`View`] has their values when a step is executed. Nothing here
//! communicates.

use crate::proto::RemoteBuf;

/// The values of a script's names at some time.
pub struct View<'a> {
    /// Number of chunks.
    pub depth: u16,
    /// Size of a chunk in bytes.
    pub chunk_size: u32,
    /// The chunks as currently known.
    pub chunks: &'a [RemoteBuf],
    /// The chunks with their previous keys.
    pub stale: &'a [RemoteBuf],
    /// Chunks of other sessions, past and present.
    pub foreign: &'a [RemoteBuf],
    /// The attacker's memory.
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
    /// This address.
    Raw(u64),
    /// This far from the start of a chunk.
    Begin(u16, i64),
    /// This far from the end of a chunk.
    End(u16, i64),
    /// This far from the start of another session's chunk.
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
    /// This key.
    Raw(u32),
    /// The key of a chunk.
    Chunk(u16),
    /// The same with some bits changed.
    Xor(u16, u32),
    /// The previous key of a chunk.
    Stale(u16),
    /// The key of another session's chunk.
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
    /// From the start.
    Begin(u32),
    /// From the end.
    End(i32),
}

/// An immediate value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// This value.
    Raw(u32),
    /// A request in an existing chunk, with the offset of its message.
    Request(u16, Off),
    /// A request in a chunk this far beyond the last one.
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
        // A value that does not fit is no request any more; raw values cover that.
        (buf_id.wrapping_shl(28 - bits) | off) & 0x0fff_ffff
    }
}

/// A change to the bytes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Writes a little endian number of at most 8 bytes.
    Set(usize, usize, u64),
    /// Adds to the number in place.
    Add(usize, usize, i64),
    /// Fills some bytes with a value.
    Fill(usize, usize, u8),
    /// Flips a bit.
    Flip(usize),
    /// Shortens the message to this many bytes.
    Truncate(usize),
    /// Appends this many bytes of a value.
    Extend(usize, u8),
}

impl Mutation {
    /// Changes the message; anything outside of it is ignored.
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

/// The bytes of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Offset at which address and key of the attacker's memory are put.
    pub own: Option<usize>,
    /// Changes that follow.
    pub mutations: Vec<Mutation>,
}

impl Body {
    /// The bytes that are sent.
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

/// An operation on a connection.
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

/// An action of the attacker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Asks to connect; waits for the outcome, or does not.
    Connect(Body, bool),
    /// Sends something on a connection, this many times.
    Send(u8, Op, Body, u16),
    /// Waits until the chunks are known, the path is gone, or this many milliseconds have passed.
    Info(u32),
    /// Handles arriving messages for some milliseconds.
    Pause(u32),
    /// Ends a connection in an orderly way.
    Disconnect(u8),
    /// Destroys a connection without notice.
    Destroy(u8),
}

/// The required end of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// The server decides, in time: it answers an honest request or ends the path.
    Either,
    /// Everything works.
    Served,
    /// The server ends the path.
    Closed,
}

/// The script of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Kind of the attack.
    pub kind: &'static str,
    /// The actions.
    pub steps: Vec<Step>,
    /// The required end.
    pub expect: Expect,
    /// All is right before the chunks are sent, so the server must send them.
    pub starts_well: bool,
    /// Whether the attacker disconnects in the end.
    pub polite: bool,
}
