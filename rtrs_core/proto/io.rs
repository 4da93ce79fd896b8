// SPDX-License-Identifier: GPL-2.0

//! The messages of an IO: write and read request, descriptor, answer with a new key.

use super::{
    error::ProtoError,
    request::Kind,
    Field, //
};

/// Message types, the first two bytes of every message that is sent or written.
pub(super) const MSG_INFO_REQ: u16 = 0;
pub(super) const MSG_INFO_RSP: u16 = 1;
const MSG_WRITE: u16 = 2;
const MSG_READ: u16 = 3;
const MSG_RKEY_RSP: u16 = 4;

/// Flag of a read request: the server shall invalidate the descriptor's key with the answer.
const FLAG_NEED_INVAL: u16 = 1 << 0;

/// Checks the message type at the start of `buf`.
pub(super) fn check_type(buf: &[u8], msg_type: u16) -> Result<(), ProtoError> {
    match buf.first_chunk() {
        None => Err(ProtoError::Length),
        Some(bytes) if u16::from_le_bytes(*bytes) != msg_type => Err(ProtoError::MsgType),
        Some(_) => Ok(()),
    }
}

/// Direction of the data of a request, named from the client's side.
///
/// The values are those of `READ` and `WRITE` in the kernel, which the C API passes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DataDir {
    /// Data from the server to the client.
    Read = 0,
    /// Data from the client to the server.
    Write = 1,
}

/// The destination of the data of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dest {
    /// There is no destination: the data comes with the request, or there is none.
    None,
    /// The data goes to the client. The client's key stays valid.
    Keep,
    /// The data goes to the client. The client's key is invalidated with the answer.
    Invalidate,
}

/// The message of a request, each field of which is read once.
// Plain fields: the compiler decodes nested options byte by byte.
pub(super) struct Message {
    pub(super) dir: DataDir,
    pub(super) usr_len: u16,
    pub(super) dest: Dest,
    /// The address in the descriptor. Without a descriptor all its fields are zero; with one,
    /// `desc_len` is not.
    pub(super) addr: u64,
    pub(super) rkey: u32,
    pub(super) desc_len: u32,
    /// Size of the message in bytes.
    pub(super) size: usize,
}

impl Message {
    /// The maximum size of a message in bytes.
    const MAX: usize = ReadMsg::MAX_SIZE;

    /// Parses the message at the start of `buf`, of which only `room` bytes count. Unknown flags
    /// are ignored.
    ///
    /// # Errors
    ///
    /// As for [`ReadMsg::parse`] and [`WriteMsg::parse`].
    #[inline(always)]
    pub(super) fn parse(buf: &[u8], room: usize) -> Result<Self, ProtoError> {
        match buf.first_chunk() {
            Some(all) if room >= Self::MAX => Self::of(all, Self::MAX),
            _ => Self::short(buf, room),
        }
    }

    /// Parses less than the longest message.
    #[cold]
    fn short(buf: &[u8], room: usize) -> Result<Self, ProtoError> {
        let mut bytes = [0; Self::MAX];
        let len = buf.len().min(room).min(Self::MAX);

        for (to, from) in bytes.iter_mut().zip(buf.iter().take(len)) {
            *to = *from;
        }
        Self::of(&bytes, len)
    }

    /// Parses the first `len` bytes.
    #[inline(always)]
    fn of(bytes: &[u8; Self::MAX], len: usize) -> Result<Self, ProtoError> {
        let fields = word(bytes, 0);
        // CAST: The fields, 16 bits each.
        let (msg_type, usr_len) = (fields as u16, (fields >> 16) as u16);
        let (flags, count) = ((fields >> 32) as u16, (fields >> 48) as u16);
        if len < size_of::<u16>() {
            return Err(ProtoError::Length);
        }
        let (dir, least) = match msg_type {
            MSG_READ => (DataDir::Read, ReadMsg::SIZE_NO_DESC),
            MSG_WRITE => (DataDir::Write, WriteMsg::SIZE),
            _ => return Err(ProtoError::MsgType),
        };
        if len < least {
            return Err(ProtoError::Length);
        }
        let need_inval = flags & FLAG_NEED_INVAL != 0;
        let mut this = Self {
            dir,
            usr_len,
            dest: Dest::None,
            addr: 0,
            rkey: 0,
            desc_len: 0,
            size: least,
        };
        match (dir, count) {
            (DataDir::Write, _) => {}
            (DataDir::Read, 0) if need_inval => return Err(ProtoError::Inval),
            (DataDir::Read, 0) => {}
            (DataDir::Read, 1) if len < ReadMsg::MAX_SIZE => return Err(ProtoError::Length),
            (DataDir::Read, 1) => {
                let key_and_len = word(bytes, 2);
                this.dest = match need_inval {
                    true => Dest::Invalidate,
                    false => Dest::Keep,
                };
                this.addr = word(bytes, 1);
                // CAST: The lower and the upper half.
                this.rkey = key_and_len as u32;
                this.desc_len = (key_and_len >> 32) as u32;
                this.size = ReadMsg::MAX_SIZE;
                if this.desc_len == 0 {
                    return Err(ProtoError::DescLen);
                }
            }
            (DataDir::Read, _) => return Err(ProtoError::DescCount),
        }
        Ok(this)
    }
}

/// The kind of a usual request, from the first word of its message: a read of data or a write.
/// Unknown flags are ignored.
#[inline(always)]
pub(super) fn usual(head: u64) -> Option<Kind> {
    const READ_ONE: u32 = (MSG_READ as u32) << 16 | 1;
    // CAST: The type and, in the lower half, the number of descriptors.
    let type_and_count = head.rotate_left(16) as u32;

    if type_and_count == READ_ONE {
        return Some(match head >> 32 & u64::from(FLAG_NEED_INVAL) {
            0 => Kind::Read,
            _ => Kind::ReadInval,
        });
    }
    // CAST: The lower half.
    is_write(head as u32).then_some(Kind::Write)
}

/// Whether a message that begins with these four bytes is a write.
#[inline(always)]
pub(super) fn is_write(head: u32) -> bool {
    // CAST: The type is the lowest 16 bits.
    head as u16 == MSG_WRITE
}

/// The length of the user message of a write that begins with these four bytes. For any other message it
/// is a number of more than 16 bits, so that one comparison with a limit is for both.
#[inline(always)]
pub(super) fn usr_len_of_write(head: u32) -> u32 {
    // Of a write only the length is left.
    (head ^ u32::from(MSG_WRITE)).rotate_left(16)
}

/// Word `n` of a message.
#[inline(always)]
fn word(bytes: &[u8; Message::MAX], n: usize) -> u64 {
    // No overflow: 0, 1 or 2.
    let word = bytes.get(n.wrapping_mul(8)..).and_then(<[u8]>::first_chunk);
    word.map_or(0, |word| u64::from_le_bytes(*word))
}

/// A piece of the sender's memory that the receiver may access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SgDesc {
    /// Address as the key defines it (iova).
    pub addr: u64,
    /// Remote key.
    pub rkey: u32,
    /// Length in bytes.
    pub len: u32,
}

impl SgDesc {
    /// Size of a descriptor in bytes.
    pub const SIZE: usize = 16;

    /// Reads a descriptor.
    pub(super) fn parse(raw: &[u8; Self::SIZE]) -> Self {
        Self {
            addr: u64::from_le_bytes(Field::<0, 8>.get(raw)),
            rkey: u32::from_le_bytes(Field::<8, 4>.get(raw)),
            len: u32::from_le_bytes(Field::<12, 4>.get(raw)),
        }
    }

    /// The bytes of the descriptor as they are stored, in words.
    #[inline(always)]
    pub(super) const fn to_bytes(self) -> [[u8; 8]; 2] {
        // CAST: Widening.
        let key_and_len = self.rkey as u64 | (self.len as u64) << 32;
        [self.addr.to_le_bytes(), key_and_len.to_le_bytes()]
    }
}

/// A write request; its data and user message precede it in the chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteMsg {
    /// Length of the user message in bytes.
    pub usr_len: u16,
}

impl WriteMsg {
    /// Size of the message in bytes.
    pub const SIZE: usize = 4;

    /// Parses the start of `buf`.
    ///
    /// # Errors
    ///
    /// [`ProtoError::Length`] or [`ProtoError::MsgType`].
    pub fn parse(buf: &[u8]) -> Result<Self, ProtoError> {
        check_type(buf, MSG_WRITE)?;
        Ok(Self {
            usr_len: Message::parse(buf, usize::MAX)?.usr_len,
        })
    }

    /// The message's bytes.
    #[inline(always)]
    pub const fn to_bytes(&self) -> [u8; Self::SIZE] {
        // CAST: Widening. Both fields are written with one store.
        (MSG_WRITE as u32 | (self.usr_len as u32) << 16).to_le_bytes()
    }
}

/// The destination of the data of a read request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadDest {
    /// The client's memory; never of length zero.
    pub desc: SgDesc,
    /// The server shall invalidate the key of `desc` with the answer.
    pub need_inval: bool,
}

/// A read request; the user message precedes it in the chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadMsg {
    /// Length of the user message in bytes.
    pub usr_len: u16,
    /// The destination of the data; `None` for a request without data.
    pub dest: Option<ReadDest>,
}

impl ReadMsg {
    /// Size in bytes of a message without a descriptor.
    pub const SIZE_NO_DESC: usize = 8;

    /// Size in bytes of a message with a descriptor.
    pub const MAX_SIZE: usize = Self::SIZE_NO_DESC + SgDesc::SIZE;

    /// Parses the start of `buf`. Unknown flags are ignored.
    ///
    /// # Errors
    ///
    /// [`ProtoError::Length`], [`ProtoError::MsgType`]; [`ProtoError::DescCount`] for more than
    /// one descriptor, [`ProtoError::Inval`] for an invalidation without a descriptor,
    /// [`ProtoError::DescLen`] for an empty one.
    pub fn parse(buf: &[u8]) -> Result<Self, ProtoError> {
        check_type(buf, MSG_READ)?;

        let message = Message::parse(buf, usize::MAX)?;
        let to = |need_inval| {
            let desc = SgDesc {
                addr: message.addr,
                rkey: message.rkey,
                len: message.desc_len,
            };
            Some(ReadDest { desc, need_inval })
        };
        Ok(Self {
            usr_len: message.usr_len,
            dest: match message.dest {
                Dest::None => None,
                Dest::Keep => to(false),
                Dest::Invalidate => to(true),
            },
        })
    }

    /// The bytes of a message without a descriptor.
    #[inline(always)]
    pub const fn without_data(usr_len: u16) -> [u8; Self::SIZE_NO_DESC] {
        Self::start(usr_len, 0, 0).to_le_bytes()
    }

    /// The bytes of a message with a descriptor, which must not be empty.
    #[inline(always)]
    pub fn with_data(usr_len: u16, dest: &ReadDest) -> [u8; Self::MAX_SIZE] {
        let flags = if dest.need_inval { FLAG_NEED_INVAL } else { 0 };
        let [addr, key_and_len] = dest.desc.to_bytes();
        let mut bytes = [0; Self::MAX_SIZE];
        let words = [
            Self::start(usr_len, flags, 1).to_le_bytes(),
            addr,
            key_and_len,
        ];
        // PANIC: `bytes` is as long as `words`.
        bytes.copy_from_slice(words.as_flattened());
        bytes
    }

    /// The fields before the descriptor.
    #[inline(always)]
    const fn start(usr_len: u16, flags: u16, sg_cnt: u16) -> u64 {
        // CAST: Widening.
        MSG_READ as u64 | (usr_len as u64) << 16 | (flags as u64) << 32 | (sg_cnt as u64) << 48
    }
}

const _: () = assert!(ReadMsg::MAX_SIZE == 24);

/// The key that follows `rkey`, for a client that [counts keys](super::Capabilities::counts_keys): the
/// part that consumers choose, the low byte, is one higher.
#[inline(always)]
pub const fn next_rkey(rkey: u32) -> u32 {
    rkey & !0xff | rkey.wrapping_add(1) & 0xff
}

/// The body of an answer that tells the chunk's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RkeyRsp {
    /// The number of the chunk; must equal the message id of the answer's immediate value, if there
    /// is one.
    pub buf_id: u16,
    /// The chunk's key, a new one if it changes, valid for the path that the answer came over.
    pub rkey: u32,
}

impl RkeyRsp {
    /// Size of the message in bytes.
    pub const SIZE: usize = 8;

    /// Parses a received message, exactly [`RkeyRsp::SIZE`] bytes.
    ///
    /// # Errors
    ///
    /// [`ProtoError::Length`] or [`ProtoError::MsgType`].
    #[inline(always)]
    pub fn parse(buf: &[u8]) -> Result<Self, ProtoError> {
        let msg: [u8; Self::SIZE] = buf.try_into().map_err(|_| ProtoError::Length)?;
        let word = u64::from_le_bytes(msg);
        // CAST: All three fields are read with one load: the lowest 16 bits of it, the next 16, the
        // rest.
        if word as u16 != MSG_RKEY_RSP {
            return Err(ProtoError::MsgType);
        }
        Ok(Self {
            buf_id: (word >> 16) as u16,
            rkey: (word >> 32) as u32,
        })
    }

    /// The second half of the message's bytes, with the key `rkey`. The first half is the same for all
    /// messages with one `buf_id`.
    #[inline(always)]
    pub const fn rkey_bytes(rkey: u32) -> [u8; Self::SIZE / 2] {
        rkey.to_le_bytes()
    }

    /// The message's bytes.
    pub const fn to_bytes(&self) -> [u8; Self::SIZE] {
        // CAST: Widening. All three fields are written with one store.
        (MSG_RKEY_RSP as u64 | (self.buf_id as u64) << 16 | (self.rkey as u64) << 32).to_le_bytes()
    }
}
