// SPDX-License-Identifier: GPL-2.0

//! Queue depth, chunk and header sizes. Both sides must agree on them before any IO.

use super::{
    conn::ConnAccept,
    error::ProtoError,
    imm::ImmCodec,
    io::{
        SgDesc, //
    },
};

/// The smallest chunk that a server may offer, in bytes.
pub const MIN_SERVER_CHUNK: u32 = 8192;

/// The largest chunk that a server may offer, in bytes: the most that the page allocator gives in
/// one piece.
pub const MAX_SERVER_CHUNK: u32 = 4 << 20;

/// The smallest useful header size in bytes: the largest message and a little for the user.
pub const MIN_HDR_SIZE: u32 = 64;

/// The smallest maximum IO size in bytes: one sector.
pub const MIN_IO_SIZE: u32 = 512;

/// Size of a client's segment in bytes, the page size of its memory registrations.
pub const SEGMENT_SIZE: u32 = 4096;

/// One chunk of the server as a client sees it over one path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RemoteBuf {
    /// Address of the first byte, as the key defines addresses.
    pub addr: u64,
    /// Remote key.
    pub rkey: u32,
}

/// The checked limits of a path.
///
/// # Invariants
///
/// `max_io_size + max_hdr_size` is `codec.chunk_size()`, both parts have their minimum, and the
/// invariants of [`ImmCodec`] hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    max_io_size: u32,
    max_hdr_size: u32,
    codec: ImmCodec,
}

impl Geometry {
    /// Checks the configuration of the server: the number of chunks, and the bytes per chunk, of
    /// which `max_hdr_size` are reserved for user message and message.
    ///
    /// # Errors
    ///
    /// [`ProtoError::QueueDepth`] outside of 1..=65535; [`ProtoError::ChunkSize`] if it is not a
    /// power of two in 8 KiB..=4 MiB; [`ProtoError::HeaderSize`] if it is below 64 bytes or more
    /// than half of the chunk; [`ProtoError::ImmBits`] if the numbers together exceed the 28 bits
    /// of an immediate value, which also limits a session to 256 MiB.
    pub fn server(
        queue_depth: i64,
        chunk_size: i64,
        max_hdr_size: u32,
    ) -> Result<Self, ProtoError> {
        let queue_depth = u16::try_from(queue_depth).map_err(|_| ProtoError::QueueDepth)?;
        let chunk_size = u32::try_from(chunk_size).map_err(|_| ProtoError::ChunkSize)?;

        if !chunk_size.is_power_of_two()
            || !(MIN_SERVER_CHUNK..=MAX_SERVER_CHUNK).contains(&chunk_size)
        {
            return Err(ProtoError::ChunkSize);
        }
        if max_hdr_size < MIN_HDR_SIZE || max_hdr_size > chunk_size / 2 {
            return Err(ProtoError::HeaderSize);
        }

        // INVARIANT: The header is at most half of the chunk, so 4 KiB or more are left for data.
        Ok(Self {
            max_io_size: chunk_size - max_hdr_size,
            max_hdr_size,
            codec: ImmCodec::new(queue_depth, chunk_size)?,
        })
    }

    /// Checks the limits in a server's answer to the first connection of a path.
    ///
    /// # Errors
    ///
    /// [`ProtoError::HeaderSize`] or [`ProtoError::IoSize`] for a size below its minimum,
    /// [`ProtoError::ChunkSize`] if their sum wraps, [`ProtoError::QueueDepth`] if it is zero,
    /// [`ProtoError::ImmBits`] as for [`Geometry::server`].
    pub fn from_accept(accept: &ConnAccept) -> Result<Self, ProtoError> {
        if accept.max_hdr_size < MIN_HDR_SIZE {
            return Err(ProtoError::HeaderSize);
        }
        if accept.max_io_size < MIN_IO_SIZE {
            return Err(ProtoError::IoSize);
        }
        let chunk_size = accept
            .max_io_size
            .checked_add(accept.max_hdr_size)
            .ok_or(ProtoError::ChunkSize)?;

        // INVARIANT: Checked above.
        Ok(Self {
            max_io_size: accept.max_io_size,
            max_hdr_size: accept.max_hdr_size,
            codec: ImmCodec::new(accept.queue_depth, chunk_size)?,
        })
    }

    /// The message that tells a client these limits.
    pub fn to_accept(&self, new_rkey: bool) -> ConnAccept {
        ConnAccept {
            queue_depth: self.queue_depth(),
            max_io_size: self.max_io_size,
            max_hdr_size: self.max_hdr_size,
            new_rkey,
            kept: false,
            orders_copies: false,
            inval_answers: false,
            takes_sends: false,
        }
    }

    /// Checks that a path with these limits may join a session of `session_depth` permits, or
    /// come back to it.
    ///
    /// The depth must be the same, since a permit is a buffer id on every path. Sizes may differ
    /// per path; every request is laid out for the path that carries it ([`Layout::new`]).
    ///
    /// # Errors
    ///
    /// [`ProtoError::QueueDepthChanged`].
    ///
    /// [`Layout::new`]: super::request::Layout::new
    pub fn check_session_depth(&self, session_depth: u16) -> Result<(), ProtoError> {
        if self.queue_depth() != session_depth {
            return Err(ProtoError::QueueDepthChanged);
        }
        Ok(())
    }

    /// Number of chunks.
    pub const fn queue_depth(&self) -> u16 {
        self.codec.queue_depth()
    }

    /// Size of a chunk in bytes.
    pub const fn chunk_size(&self) -> u32 {
        self.codec.chunk_size()
    }

    /// Maximum size of the data of one request in bytes, as the server announces it.
    pub const fn max_io_size(&self) -> u32 {
        self.max_io_size
    }

    /// Maximum size of user message plus message in bytes.
    pub const fn max_hdr_size(&self) -> u32 {
        self.max_hdr_size
    }

    /// The codec for immediate values of requests.
    pub const fn codec(&self) -> &ImmCodec {
        &self.codec
    }

    /// Size of all chunks together in bytes, at most 256 MiB.
    pub const fn total_size(&self) -> u64 {
        // CAST: Widening. No overflow: 48 bits.
        self.queue_depth() as u64 * self.chunk_size() as u64
    }

    /// Maximum size of the data in bytes of a client's request with up to `max_segments` segments.
    pub fn client_io_size(&self, max_segments: u32) -> u32 {
        self.max_io_size
            .min(max_segments.saturating_mul(SEGMENT_SIZE))
    }

    /// Assigns buffer ids to the descriptors of an info answer.
    ///
    /// A descriptor covers one or more whole chunks, and buffer ids are consecutive across all
    /// descriptors. The server chooses how many chunks each descriptor covers; the numbers need not
    /// be equal. `each` is called with every buffer id in order, once, and not at all on error.
    ///
    /// # Errors
    ///
    /// [`ProtoError::DescCount`] for more descriptors than chunks, [`ProtoError::DescLen`] for one
    /// that is not a multiple of the chunk size, [`ProtoError::DescAddr`] for one that wraps,
    /// [`ProtoError::DescTotal`] if they cover fewer or more chunks than there are.
    pub fn for_each_chunk(
        &self,
        descs: impl Iterator<Item = SgDesc> + Clone,
        mut each: impl FnMut(u16, RemoteBuf),
    ) -> Result<(), ProtoError> {
        let chunk_size = self.chunk_size();
        let mut count: u32 = 0;
        let mut total: u64 = 0;

        for desc in descs.clone() {
            count = count.saturating_add(1);
            if count > u32::from(self.queue_depth()) {
                return Err(ProtoError::DescCount);
            }
            // `chunk_size` is not zero, by the invariant of the codec.
            if desc.len == 0 || desc.len.checked_rem(chunk_size) != Some(0) {
                return Err(ProtoError::DescLen);
            }
            // The last byte must exist; the byte after it need not.
            if desc.addr.checked_add(u64::from(desc.len - 1)).is_none() {
                return Err(ProtoError::DescAddr);
            }
            total = total.saturating_add(u64::from(desc.len));
        }
        if total != self.total_size() {
            return Err(ProtoError::DescTotal);
        }

        let chunks = descs.flat_map(|desc| {
            (0..desc.len.checked_div(chunk_size).unwrap_or_default()).map(move |i| RemoteBuf {
                // No wrap: within the range checked above.
                addr: desc
                    .addr
                    .wrapping_add(u64::from(i).wrapping_mul(u64::from(chunk_size))),
                rkey: desc.rkey,
            })
        });
        for (buf_id, buf) in (0..self.queue_depth()).zip(chunks) {
            each(buf_id, buf);
        }
        Ok(())
    }
}
