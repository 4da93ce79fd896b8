// SPDX-License-Identifier: GPL-2.0

//! Requests in a chunk: how a client lays one out, how a server takes one apart.
//!
//! A chunk holds, from its start: data, user message, message; what follows is unused. For a read
//! the place of the data is kept free and takes the result. The immediate value tells the offset
//! of the message, everything else follows from the user message's length in it.

use core::ops::Range;

use super::{
    error::ProtoError,
    geometry::Geometry,
    imm::Imm,
    io::{
        usual,
        Dest,
        Dir,
        Message,
        ReadDest,
        ReadMsg,
        SgDesc,
        WriteMsg, //
    },
};

/// A request as received by a server, all lengths checked.
///
/// # Invariants
///
/// `data_len + usr_len + message` is at most the chunk size, `usr_len + message` at most the
/// header size. If there is a destination then the direction is a read, and it is as long as the
/// data; a read without one has no data. Without a destination address and key are 0.
// Plain fields: it is kept, and options in options are stored byte by byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    addr: u64,
    rkey: u32,
    data_len: u32,
    usr_len: u16,
    kind: Kind,
}

/// What a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A read. The key of where it goes stays valid.
    Read = 0,
    /// A read. The key of where it goes is to be invalidated with the answer.
    ReadInval = 1,
    /// A write.
    Write = 2,
    /// A read without data.
    ReadNothing = 3,
}

impl Kind {
    const fn of(dir: Dir, dest: Dest) -> Self {
        match (dir, dest) {
            (Dir::Write, _) => Self::Write,
            (Dir::Read, Dest::None) => Self::ReadNothing,
            (Dir::Read, Dest::Keep) => Self::Read,
            (Dir::Read, Dest::Invalidate) => Self::ReadInval,
        }
    }

    /// Direction of the data.
    #[inline(always)]
    pub const fn dir(self) -> Dir {
        match self {
            Self::Write => Dir::Write,
            _ => Dir::Read,
        }
    }
}

impl Request {
    /// Most bytes of a message that have to be copied for [`Request::parse`].
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

    /// What [`Request::parse_written`] makes of the usual requests, writes and reads of data, if
    /// `written` is what their client has written. `message` is a copy of [`Request::MAX_MSG`]
    /// bytes, found at `off`, all of them in the chunk.
    ///
    /// `None` for all others, the wrong ones among them.
    #[inline(always)]
    pub fn parse_usual(
        geometry: &Geometry,
        off: u32,
        written: u32,
        message: [[u8; 8]; Self::MAX_MSG / 8],
    ) -> Option<Self> {
        let [head, addr, key_and_len] = message.map(u64::from_le_bytes);
        // CAST: The two fields that come first.
        let usr_len = head as u32 >> 16;
        let data_len = off.checked_sub(usr_len)?;
        let kind = usual(head)?;

        // INVARIANT: As in `parse_written()`.
        if kind != Kind::Write {
            // No overflow: 16 bits, and 24.
            // CAST: 24. The upper half.
            let header = usr_len.wrapping_add(ReadMsg::MAX_SIZE as u32);
            if header != written
                || header > geometry.max_hdr_size()
                || data_len == 0
                || (key_and_len >> 32) as u32 != data_len
            {
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
        // No overflow: 16 bits, and 4; and within the chunk.
        // CAST: 4. 16 bits.
        let header = usr_len.wrapping_add(WriteMsg::SIZE as u32);
        if off.wrapping_add(WriteMsg::SIZE as u32) != written || header > geometry.max_hdr_size() {
            return None;
        }
        Some(Self {
            data_len,
            usr_len: usr_len as u16,
            kind: Kind::Write,
            ..Self::NOTHING
        })
    }

    /// Where in the chunk the message at `off` may be: up to [`Request::MAX_MSG`] bytes, fewer at
    /// the end of the chunk.
    ///
    /// The caller copies them to private memory and parses the copy, since the peer may be able
    /// to write to the chunk at any time.
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
    /// longer than what precedes the message, or than the header size allows;
    /// [`ProtoError::DescLen`] if the descriptor is not exactly as long as the data;
    /// [`ProtoError::DataLen`] for a read with data but no descriptor. Each of them is a
    /// violation: an honest client makes none.
    #[inline(always)]
    pub fn parse(geometry: &Geometry, off: u32, msg: &[u8]) -> Result<Self, ProtoError> {
        Ok(Self::parse_written(geometry, off, msg)?.0)
    }

    /// [`Request::parse`], and how many bytes the client of such a request has written: all but the
    /// place of a read's data.
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
        // Bytes beyond the chunk are not part of the message, whatever the caller copied.
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
            Dest::None if message.dir == Dir::Read && data_len != 0 => {
                return Err(ProtoError::DataLen)
            }
            Dest::Keep | Dest::Invalidate if message.desc_len != data_len => {
                return Err(ProtoError::DescLen)
            }
            _ => (),
        }

        let written = match message.dir {
            Dir::Read => header,
            // No overflow: within the chunk.
            Dir::Write => header.wrapping_add(data_len),
        };
        // INVARIANT: The message was parsed out of what the chunk holds from `off`, the rest was
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
    pub const fn dir(&self) -> Dir {
        self.kind.dir()
    }

    /// What it is about.
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

    /// Where a read's data goes; `None` for writes, and for reads without data.
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

    /// Bytes of data that go to the client, and their address and key there: all 0 if it wants none.
    #[inline(always)]
    pub fn wanted(&self) -> (u32, u64, u32) {
        // Without data there are none.
        let len = match self.kind {
            Kind::Write => 0,
            _ => self.data_len,
        };
        (len, self.addr, self.rkey)
    }

    /// The key to invalidate with the answer.
    pub const fn inval_rkey(&self) -> Option<u32> {
        match self.kind {
            Kind::ReadInval => Some(self.rkey),
            _ => None,
        }
    }

    /// The data in the chunk.
    pub fn data_range(&self) -> Range<usize> {
        0..to_usize(self.data_len)
    }

    /// The user message in the chunk.
    pub fn usr_range(&self) -> Range<usize> {
        let start = to_usize(self.data_len);

        // No overflow: within the chunk.
        start..start.wrapping_add(usize::from(self.usr_len))
    }

    /// Data and user message, in bytes: what the statistics count.
    #[inline(always)]
    pub const fn total_len(&self) -> u32 {
        // CAST: Widening. No overflow: within the chunk.
        self.data_len.wrapping_add(self.usr_len as u32)
    }
}

/// What a chunk has room for.
///
/// # Invariants
///
/// `header + data` is at most the chunk size of the limits it was made of, and `header` fits 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    header: u32,
    data: u32,
    /// A user message of less bytes fits with any message.
    too_long: u32,
}

impl Room {
    /// Of a path with these limits, for requests of up to `max_segments` segments, whose user message
    /// and message have `header` bytes at most.
    pub fn new(geometry: &Geometry, max_segments: u32, header: u32) -> Self {
        let header = geometry.max_hdr_size().min(header).min(u32::from(u16::MAX));
        // CAST: A small constant. 0 if not even the message fits. No overflow: 16 bits.
        let too_long = (header + 1).saturating_sub(ReadMsg::MAX_SIZE as u32);
        // INVARIANT: The sizes of header and data are those of the chunk together.
        Self {
            header,
            data: geometry.client_io_size(max_segments),
            too_long,
        }
    }

    /// Most bytes of user message and message.
    pub const fn header(&self) -> u32 {
        self.header
    }

    /// Most bytes of data.
    pub const fn data(&self) -> u32 {
        self.data
    }
}

/// The immediate value of requests in one chunk, without their offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkImm(u32);

impl ChunkImm {
    /// Of chunk `buf_id` of a path with these limits.
    ///
    /// # Errors
    ///
    /// [`ProtoError::BufId`] if there is no such chunk.
    pub fn new(geometry: &Geometry, buf_id: u16) -> Result<Self, ProtoError> {
        let payload = geometry.codec().encode(buf_id, 0)?;

        Imm::IoReq { payload }.encode().map(Self)
    }

    /// The immediate value, in host order, for a request in this chunk whose message is at `off`, which
    /// is [`Layout::off`] for a path with these limits.
    #[inline(always)]
    pub const fn at(self, off: u32) -> u32 {
        // The offset is less than the size of the chunk: it has bits of its own.
        self.0 | off
    }
}

/// Where a client's request goes in a chunk.
///
/// # Invariants
///
/// As those of [`Request`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    dir: Dir,
    data_len: u32,
    usr_len: u16,
}

impl Layout {
    /// Lays out a request for a path with this room.
    ///
    /// It has to be done again for every path a request is tried on, since limits may differ.
    /// A read with data is assumed to carry its descriptor.
    ///
    /// # Errors
    ///
    /// [`ProtoError::UserLen`] if the user message does not fit, [`ProtoError::DataLen`] if the data
    /// does not. Both are `-EMSGSIZE`.
    #[inline(always)]
    pub const fn new(
        room: &Room,
        dir: Dir,
        data_len: usize,
        usr_len: usize,
    ) -> Result<Self, ProtoError> {
        let msg_len = Self::message_len(dir, data_len);

        if usr_len.saturating_add(msg_len) > to_usize(room.header) {
            return Err(ProtoError::UserLen);
        }
        if data_len > to_usize(room.data) {
            return Err(ProtoError::DataLen);
        }
        // INVARIANT: By those of the room.
        // CAST: Checked above.
        Ok(Self {
            dir,
            data_len: data_len as u32,
            usr_len: usr_len as u16,
        })
    }

    /// Lays out another request, in the place of this one; `false`, and as it was, if it does not
    /// fit. As [`new`](Self::new), for a caller that does not ask what is wrong.
    #[inline(always)]
    pub fn set(&mut self, room: &Room, dir: Dir, data_len: usize, usr_len: usize) -> bool {
        // As a rule there is room for the longest message.
        if data_len > to_usize(room.data) || usr_len >= to_usize(room.too_long) {
            return self.set_tight(room, dir, data_len, usr_len);
        }
        // INVARIANT, CAST: As for `new()`.
        self.dir = dir;
        self.data_len = data_len as u32;
        self.usr_len = usr_len as u16;
        true
    }

    /// The same, if it is not known to fit.
    #[cold]
    #[inline(never)]
    fn set_tight(&mut self, room: &Room, dir: Dir, data_len: usize, usr_len: usize) -> bool {
        match Self::new(room, dir, data_len, usr_len) {
            Ok(new) => {
                *self = new;
                true
            }
            Err(_) => false,
        }
    }

    /// Bytes of the message of a request with so much data.
    #[inline(always)]
    pub const fn message_len(dir: Dir, data_len: usize) -> usize {
        match (dir, data_len) {
            (Dir::Write, _) => WriteMsg::SIZE,
            (Dir::Read, 0) => ReadMsg::SIZE_NO_DESC,
            (Dir::Read, _) => ReadMsg::MAX_SIZE,
        }
    }

    /// Offset of the message in the chunk, and of the end of the user message, in bytes.
    #[inline(always)]
    pub const fn off(&self) -> u32 {
        // CAST: Widening. No overflow: within the chunk.
        self.data_len.wrapping_add(self.usr_len as u32)
    }

    /// Offset in the chunk where the RDMA write starts, in bytes: a read leaves the place of its
    /// data out.
    pub const fn write_off(&self) -> u32 {
        match self.dir {
            Dir::Read => self.data_len,
            Dir::Write => 0,
        }
    }

    /// Length of user message and message in bytes: what has to be in the header buffer.
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
    pub const fn dir(&self) -> Dir {
        self.dir
    }
}

/// Widens a length; `usize` has at least 32 bits wherever there is RDMA.
const fn to_usize(len: u32) -> usize {
    // CAST: See above.
    len as usize
}
