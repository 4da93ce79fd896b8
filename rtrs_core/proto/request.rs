// SPDX-License-Identifier: GPL-2.0

//! Requests in a chunk: how a client lays out a request, and how a server parses it.
//!
//! A chunk holds, from its start: data, user message, message; the rest is unused. For a read the
//! place of the data is left free for the result. The immediate value contains the offset of the
//! message; everything else follows from the length of the user message in it.

use core::ops::Range;

use super::{
    error::ProtoError,
    geometry::Geometry,
    imm::Imm,
    io::{
        is_write,
        usr_len_of_write,
        usual,
        DataDir,
        Dest,
        Message,
        ReadDest,
        ReadMsg,
        SgDesc,
        WriteMsg, //
    },
    SENT_DATA, //
};

/// A request as received by a server, all lengths checked.
///
/// # Invariants
///
/// `data_len + usr_len + message` is at most the chunk size, `usr_len + message` at most the header
/// size. Only a read can have a destination, which is as long as the data; a read without a
/// destination has no data. Without a destination, address and key are 0.
// Plain fields: the value is stored, and nested options are stored byte by byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    addr: u64,
    rkey: u32,
    data_len: u32,
    usr_len: u16,
    kind: Kind,
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A read. The key of its destination stays valid.
    Read = 0,
    /// A read. The key of its destination must be invalidated with the answer.
    ReadInval = 1,
    /// A write.
    Write = 2,
    /// A read without data.
    ReadNothing = 3,
}

impl Kind {
    const fn of(dir: DataDir, dest: Dest) -> Self {
        match (dir, dest) {
            (DataDir::Write, _) => Self::Write,
            (DataDir::Read, Dest::None) => Self::ReadNothing,
            (DataDir::Read, Dest::Keep) => Self::Read,
            (DataDir::Read, Dest::Invalidate) => Self::ReadInval,
        }
    }

    /// Whether data go to the client with the answer.
    #[inline(always)]
    pub const fn has_data_back(self) -> bool {
        matches!(self, Self::Read | Self::ReadInval)
    }

    /// Whether the key of the destination must be invalidated with the answer.
    #[inline(always)]
    pub const fn wants_inval(self) -> bool {
        matches!(self, Self::ReadInval)
    }

    /// Direction of the data.
    #[inline(always)]
    pub const fn dir(self) -> DataDir {
        match self {
            Self::Write => DataDir::Write,
            _ => DataDir::Read,
        }
    }
}

impl Request {
    /// The most bytes of a message that must be copied for [`Request::parse`].
    pub const MAX_MSG: usize = ReadMsg::MAX_SIZE;

    /// A read of nothing.
    // INVARIANT: There is neither data nor a destination.
    pub const NOTHING: Self = Self {
        addr: 0,
        rkey: 0,
        data_len: 0,
        usr_len: 0,
        kind: Kind::ReadNothing,
    };

    /// Parses the usual requests, reads and writes of at least one byte, as
    /// [`Request::parse_written`] does, if their client has written `written` bytes, and their user
    /// message is shorter than `usr_room`. `message` is a copy of [`Request::MAX_MSG`] bytes at
    /// `off`, all of them in the chunk. Headers [must have room](Request::fits_usual) for such a
    /// user message.
    ///
    /// Returns `None` for all other requests, including invalid ones.
    #[inline(always)]
    pub fn parse_usual(
        usr_room: u32,
        off: u32,
        written: u32,
        message: [[u8; 8]; Self::MAX_MSG / 8],
    ) -> Option<Self> {
        let [head, addr, key_and_len] = message.map(u64::from_le_bytes);
        // CAST: The lower half holds the first two fields.
        let (usr_len, data_len) = usual_lengths(off, head as u32)?;
        let kind = usual(head)?;
        if usr_len >= usr_room {
            return None;
        }

        // INVARIANT: As in `parse_written()`.
        if kind != Kind::Write {
            // No overflow: 16 bits, and 24.
            // CAST: The constant is 24. The shift leaves the upper half.
            let header = usr_len.wrapping_add(ReadMsg::MAX_SIZE as u32);
            if header != written || (key_and_len >> 32) as u32 != data_len {
                return None;
            }
            return Some(Self {
                addr,
                // CAST: The lower half.
                rkey: key_and_len as u32,
                data_len,
                // CAST: 16 bits.
                usr_len: usr_len as u16,
                kind,
            });
        }
        // No overflow: within the chunk.
        // CAST: 4. 16 bits.
        if off.wrapping_add(WriteMsg::SIZE as u32) != written {
            return None;
        }
        Some(Self {
            data_len,
            usr_len: usr_len as u16,
            kind: Kind::Write,
            ..Self::NOTHING
        })
    }

    /// The same for a write, of which less has to be read. `head` is a copy of the first eight bytes at
    /// `off`.
    #[inline(always)]
    pub fn parse_write(usr_room: u32, off: u32, written: u32, head: [u8; 8]) -> Option<Self> {
        // CAST: The lower half holds the first two fields.
        let usr_len = usr_len_of_write(u64::from_le_bytes(head) as u32);
        if usr_len >= usr_room.min(1 << 16) || usr_len >= off {
            return None;
        }
        // No overflow: see above. It is not 0.
        let data_len = off.wrapping_sub(usr_len);
        // No overflow: `off` is less than the size of a chunk.
        // CAST: 4.
        if off.wrapping_add(WriteMsg::SIZE as u32) != written {
            return None;
        }
        // INVARIANT: As in `parse_usual()`.
        Some(Self {
            data_len,
            // CAST: 16 bits.
            usr_len: usr_len as u16,
            kind: Kind::Write,
            ..Self::NOTHING
        })
    }

    /// The same for a write of at most [`SENT_DATA`] bytes that came as a message.
    #[inline(always)]
    pub fn parse_sent(usr_room: u32, off: u32, written: u32, head: [u8; 8]) -> Option<Self> {
        Self::parse_write(usr_room, off, written, head).filter(|write| write.data_len <= SENT_DATA)
    }

    /// Whether a message with these first four bytes at `off` is one of a write that may be sent.
    pub fn may_be_sent(off: u32, head: [u8; WriteMsg::SIZE]) -> bool {
        let head = u32::from_le_bytes(head);
        let data_len = off.checked_sub(head >> 16);

        is_write(head) && data_len.is_some_and(|len| len <= SENT_DATA)
    }

    /// Whether a user message that is shorter than `usr_room`, with any message, fits the headers
    /// of a path with these limits.
    pub fn fits_usual(geometry: &Geometry, usr_room: u32) -> bool {
        // CAST: The constant is 24.
        usr_room.saturating_add(Self::MAX_MSG as u32) <= geometry.max_hdr_size()
    }

    /// The range in the chunk that the message at `off` may occupy: up to [`Request::MAX_MSG`]
    /// bytes, fewer at the end of the chunk.
    ///
    /// The caller copies the range to private memory and parses the copy, since the peer may write
    /// to the chunk at any time.
    ///
    /// # Errors
    ///
    /// [`ProtoError::Offset`] if not even the smallest message fits.
    #[inline(always)]
    pub fn msg_range(geometry: &Geometry, off: u32) -> Result<Range<usize>, ProtoError> {
        let chunk_size = to_usize(geometry.chunk_size());
        let off = to_usize(off);
        let room = chunk_size.checked_sub(off).ok_or(ProtoError::Offset)?;

        if room < WriteMsg::SIZE {
            return Err(ProtoError::Offset);
        }
        // No overflow: within the chunk.
        Ok(off..off.saturating_add(room.min(Self::MAX_MSG)))
    }

    /// Parses the message `msg`, a copy of [`Request::msg_range`], found at `off`.
    ///
    /// # Errors
    ///
    /// [`ProtoError::Offset`] if the message does not end within the chunk; those of
    /// [`ReadMsg::parse`] and [`WriteMsg::parse`]; [`ProtoError::UserLen`] if the user message is
    /// longer than the space before the message, or than the header size allows;
    /// [`ProtoError::DescLen`] if the descriptor is not exactly as long as the data;
    /// [`ProtoError::DataLen`] for a read with data but no descriptor. Each of them is a protocol
    /// violation, which a correct client does not commit.
    #[inline(always)]
    pub fn parse(geometry: &Geometry, off: u32, msg: &[u8]) -> Result<Self, ProtoError> {
        Ok(Self::parse_written(geometry, off, msg)?.0)
    }

    /// As [`Request::parse`]. Also returns how many bytes the client of such a request has written:
    /// all but the place of a read's data.
    ///
    /// # Errors
    ///
    /// As for [`Request::parse`].
    #[inline(always)]
    pub fn parse_written(
        geometry: &Geometry,
        off: u32,
        msg: &[u8],
    ) -> Result<(Self, u32), ProtoError> {
        let room = geometry
            .chunk_size()
            .checked_sub(off)
            .ok_or(ProtoError::Offset)?;
        // Bytes beyond the chunk are not part of the message, even if the caller copied them.
        let message = Message::parse(msg, to_usize(room))?;

        let data_len = off
            .checked_sub(u32::from(message.usr_len))
            .ok_or(ProtoError::UserLen)?;
        // CAST: At most 24. No overflow: 16 bits, and 24.
        let header = u32::from(message.usr_len).wrapping_add(message.size as u32);
        if header > geometry.max_hdr_size() {
            return Err(ProtoError::UserLen);
        }
        match message.dest {
            Dest::None if message.dir == DataDir::Read && data_len != 0 => {
                return Err(ProtoError::DataLen)
            }
            Dest::Keep | Dest::Invalidate if message.desc_len != data_len => {
                return Err(ProtoError::DescLen)
            }
            _ => (),
        }

        let written = match message.dir {
            DataDir::Read => header,
            // No overflow: within the chunk.
            DataDir::Write => header.wrapping_add(data_len),
        };
        // INVARIANT: The message was parsed from the bytes at `off` in the chunk; the rest was
        // checked above.
        let this = Self {
            addr: message.addr,
            rkey: message.rkey,
            data_len,
            usr_len: message.usr_len,
            kind: Kind::of(message.dir, message.dest),
        };
        Ok((this, written))
    }

    /// Direction of the data.
    #[inline(always)]
    pub const fn dir(&self) -> DataDir {
        self.kind.dir()
    }

    /// The kind of the request.
    #[inline(always)]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Length of the data in bytes.
    #[inline(always)]
    pub const fn data_len(&self) -> u32 {
        self.data_len
    }

    /// Length of the user message in bytes.
    #[inline(always)]
    pub const fn usr_len(&self) -> u16 {
        self.usr_len
    }

    /// The destination of a read's data; `None` for writes, and for reads without data.
    #[inline(always)]
    pub fn dest(&self) -> Option<ReadDest> {
        let need_inval = match self.kind {
            Kind::Write | Kind::ReadNothing => return None,
            Kind::Read => false,
            Kind::ReadInval => true,
        };
        Some(ReadDest {
            desc: SgDesc {
                addr: self.addr,
                rkey: self.rkey,
                len: self.data_len,
            },
            need_inval,
        })
    }

    /// The length of the data, and their address and key at the client if they
    /// [go there](Kind::has_data_back); otherwise these are 0.
    #[inline(always)]
    pub fn wanted(&self) -> (u32, u64, u32) {
        (self.data_len, self.addr, self.rkey)
    }

    /// The key that must be invalidated with the answer.
    pub const fn inval_rkey(&self) -> Option<u32> {
        match self.kind {
            Kind::ReadInval => Some(self.rkey),
            _ => None,
        }
    }

    /// The range of the data in the chunk.
    pub fn data_range(&self) -> Range<usize> {
        0..to_usize(self.data_len)
    }

    /// The range of the user message in the chunk.
    pub fn usr_range(&self) -> Range<usize> {
        let start = to_usize(self.data_len);

        // No overflow: within the chunk.
        start..start.wrapping_add(usize::from(self.usr_len))
    }

    /// The size of data and user message in bytes, which the statistics count.
    #[inline(always)]
    pub const fn total_len(&self) -> u32 {
        // CAST: Widening. No overflow: within the chunk.
        self.data_len.wrapping_add(self.usr_len as u32)
    }
}

/// The lengths of the user message and of the data of a request, the message of which is at `off` and
/// begins with `head`; `None` without data.
#[inline(always)]
fn usual_lengths(off: u32, head: u32) -> Option<(u32, u32)> {
    let usr_len = head >> 16;
    if usr_len >= off {
        return None;
    }
    // No overflow: see above. It is not 0.
    Some((usr_len, off.wrapping_sub(usr_len)))
}

/// The room in a chunk.
///
/// # Invariants
///
/// `header + data` is at most the chunk size of the limits that it was made of, and `header` fits
/// 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    header: u32,
    /// Both are compared with lengths in memory, for each request.
    data: usize,
    /// A user message shorter than this fits together with any message.
    too_long: usize,
}

impl Room {
    /// The room on a path with these limits, for requests of up to `max_segments` segments, with at
    /// most `header` bytes of user message and message.
    pub fn new(geometry: &Geometry, max_segments: u32, header: u32) -> Self {
        let header = geometry.max_hdr_size().min(header).min(u32::from(u16::MAX));
        // CAST: A small constant. The result is 0 if not even the message fits. No overflow: 16
        // bits.
        let too_long = (header + 1).saturating_sub(ReadMsg::MAX_SIZE as u32);
        // INVARIANT: The maximum sizes of header and data add up to the chunk size.
        Self {
            header,
            data: to_usize(geometry.client_io_size(max_segments)),
            too_long: to_usize(too_long),
        }
    }

    /// The most bytes of user message and message.
    pub const fn header(&self) -> u32 {
        self.header
    }

    /// The most bytes of data.
    pub const fn data(&self) -> u32 {
        // CAST: `new()` has widened it.
        self.data as u32
    }
}

/// The immediate value of requests in one chunk, without their offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkImm(u32);

impl ChunkImm {
    /// The value for chunk `buf_id` of a path with these limits.
    ///
    /// # Errors
    ///
    /// [`ProtoError::BufId`] if there is no such chunk.
    pub fn new(geometry: &Geometry, buf_id: u16) -> Result<Self, ProtoError> {
        let payload = geometry.codec().encode(buf_id, 0)?;

        Imm::IoReq { payload }.encode().map(Self)
    }

    /// The immediate value, in host order, for a request in this chunk with its message at `off`,
    /// which is [`Layout::off`] for a path with these limits.
    #[inline(always)]
    pub const fn at(self, off: u32) -> u32 {
        // The offset is less than the chunk size, so that it has its own bits.
        self.0 | off
    }
}

/// The layout of a client's request in a chunk.
///
/// # Invariants
///
/// As those of [`Request`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    dir: DataDir,
    data_len: u32,
    usr_len: u16,
}

impl Layout {
    /// Lays out a request for a path with this room.
    ///
    /// This must be repeated for every path that a request is tried on, since limits may differ. A
    /// read with data is assumed to carry its descriptor.
    ///
    /// # Errors
    ///
    /// [`ProtoError::UserLen`] if the user message does not fit, [`ProtoError::DataLen`] if the
    /// data does not. Both are `-EMSGSIZE`.
    #[inline(always)]
    pub const fn new(
        room: &Room,
        dir: DataDir,
        data_len: usize,
        usr_len: usize,
    ) -> Result<Self, ProtoError> {
        let msg_len = Self::message_len(dir, data_len);

        if usr_len.saturating_add(msg_len) > to_usize(room.header) {
            return Err(ProtoError::UserLen);
        }
        if data_len > room.data {
            return Err(ProtoError::DataLen);
        }
        // INVARIANT: By the invariants of the room.
        // CAST: Checked above.
        Ok(Self {
            dir,
            data_len: data_len as u32,
            usr_len: usr_len as u16,
        })
    }

    /// Lays out another request in place of this one. Returns `false`, without a change, if it does
    /// not fit. As [`new`](Self::new), for a caller that does not need the error.
    #[inline(always)]
    pub fn set(&mut self, room: &Room, dir: DataDir, data_len: usize, usr_len: usize) -> bool {
        // Usually there is room for the longest message.
        if data_len > room.data || usr_len >= room.too_long {
            return self.set_tight(room, dir, data_len, usr_len);
        }
        // INVARIANT, CAST: As for `new()`.
        self.dir = dir;
        self.data_len = data_len as u32;
        self.usr_len = usr_len as u16;
        true
    }

    /// As [`set`](Self::set), for a request that may not fit.
    #[cold]
    #[inline(never)]
    fn set_tight(&mut self, room: &Room, dir: DataDir, data_len: usize, usr_len: usize) -> bool {
        match Self::new(room, dir, data_len, usr_len) {
            Ok(new) => {
                *self = new;
                true
            }
            Err(_) => false,
        }
    }

    /// Size in bytes of the message of a request with `data_len` bytes of data.
    #[inline(always)]
    pub const fn message_len(dir: DataDir, data_len: usize) -> usize {
        match (dir, data_len) {
            (DataDir::Write, _) => WriteMsg::SIZE,
            (DataDir::Read, 0) => ReadMsg::SIZE_NO_DESC,
            (DataDir::Read, _) => ReadMsg::MAX_SIZE,
        }
    }

    /// Offset of the message in the chunk, and of the end of the user message, in bytes.
    #[inline(always)]
    pub const fn off(&self) -> u32 {
        // CAST: Widening. No overflow: within the chunk.
        self.data_len.wrapping_add(self.usr_len as u32)
    }

    /// Offset in the chunk where the RDMA write starts, in bytes: a read skips the place of its
    /// data.
    pub const fn write_off(&self) -> u32 {
        match self.dir {
            DataDir::Read => self.data_len,
            DataDir::Write => 0,
        }
    }

    /// Length of user message and message in bytes: the size needed in the header buffer.
    pub const fn header_len(&self) -> u32 {
        // CAST: Widening. No overflow: 16 bits and 8 bits.
        (self.usr_len as u32).wrapping_add(self.msg_len())
    }

    /// Length of the message in bytes; it starts at `usr_len` in the header buffer.
    pub const fn msg_len(&self) -> u32 {
        // CAST: 4, 8 or 24.
        Self::message_len(self.dir, to_usize(self.data_len)) as u32
    }

    /// Length of the user message in bytes.
    pub const fn usr_len(&self) -> u16 {
        self.usr_len
    }

    /// Length of the data in bytes.
    pub const fn data_len(&self) -> u32 {
        self.data_len
    }

    /// Direction of the data.
    pub const fn dir(&self) -> DataDir {
        self.dir
    }
}

/// Widens a length; `usize` has at least 32 bits wherever there is RDMA.
const fn to_usize(len: u32) -> usize {
    // CAST: See above.
    len as usize
}
