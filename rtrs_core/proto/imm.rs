// SPDX-License-Identifier: GPL-2.0

//! Immediate values: the 32 bits that come with every RDMA write and most sends.
//!
//! Bits 31..28 are the type, bits 27..0 the payload; big endian on the wire. The numbers in here
//! are in host order: the code that fills the work request or reads the completion converts them.

use super::{
    errno::IoErrno,
    error::ProtoError, //
};

/// Width of the payload in bits.
pub const PAYLOAD_BITS: u32 = 28;

/// Mask of the payload.
pub const PAYLOAD_MASK: u32 = (1 << PAYLOAD_BITS) - 1;

/// Width of the message id of an answer in bits.
pub const MSG_ID_BITS: u32 = 19;

const MSG_ID_MASK: u32 = (1 << MSG_ID_BITS) - 1;

const TYPE_IO_REQ: u32 = 0;
const TYPE_IO_RSP: u32 = 1;
const TYPE_IO_RSP_W_INV: u32 = 2;
const TYPE_IO_RSP_NEXT_KEY: u32 = 3;
const TYPE_HB_MSG: u32 = 8;
const TYPE_HB_ACK: u32 = 9;

/// A decoded immediate value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Imm {
    /// Client to server: a request was written.
    IoReq {
        /// Buffer id and offset, which the session's [`ImmCodec`] decodes.
        payload: u32,
    },
    /// Server to client: a request was answered.
    IoRsp {
        /// The permit (and buffer) id of the request, below 2^19.
        msg_id: u32,
        /// Outcome.
        errno: IoErrno,
        /// The server claims to have invalidated the request's key. The proof is the invalidated
        /// key in a receive completion.
        inval: bool,
    },
    /// Server to client: a request was carried out, and its chunk has its [next
    /// key](super::next_rkey). Only sent to a client that [counts
    /// keys](super::Capabilities::counts_keys).
    IoRspNextKey {
        /// As that of [`Imm::IoRsp`].
        msg_id: u32,
    },
    /// Either direction: a heartbeat; answer it with [`Imm::HbAck`].
    Hb,
    /// Either direction: answer to a heartbeat.
    HbAck,
}

/// The message id of a plain answer in host order: an [`Imm::IoRsp`] without an error and without
/// `inval`.
#[inline(always)]
pub const fn success_of(raw: u32) -> Option<u32> {
    match success_number(raw) {
        msg_id @ 0..=MSG_ID_MASK => Some(msg_id),
        _ => None,
    }
}

/// The message id, if `raw` is such an answer; otherwise a number that no request has, as all
/// message ids are below 2^19. For a search among the requests, which compares the number anyway.
#[inline(always)]
pub const fn success_number(raw: u32) -> u32 {
    // An errno field of 0 is success.
    raw.wrapping_sub(TYPE_IO_RSP << PAYLOAD_BITS)
}

/// As [`success_of`], for an answer with `inval`.
#[inline(always)]
pub const fn returned_of(raw: u32) -> Option<u32> {
    if raw >> MSG_ID_BITS != TYPE_IO_RSP_W_INV << (PAYLOAD_BITS - MSG_ID_BITS) {
        return None;
    }
    Some(raw & MSG_ID_MASK)
}

/// The message id of an [`Imm::IoRspNextKey`] in host order; for all other values a number that no
/// request has, as that of [`success_number`].
#[inline(always)]
pub const fn next_key_number(raw: u32) -> u32 {
    raw.wrapping_sub(TYPE_IO_RSP_NEXT_KEY << PAYLOAD_BITS)
}

impl Imm {
    /// Decodes a value in host order.
    ///
    /// The payload of a heartbeat has no meaning and is ignored.
    ///
    /// # Errors
    ///
    /// [`ProtoError::ImmType`] for an unknown type, [`ProtoError::MsgId`] for an
    /// [`Imm::IoRspNextKey`] with a message id beyond 19 bits.
    #[inline(always)]
    pub const fn decode(raw: u32) -> Result<Self, ProtoError> {
        let payload = raw & PAYLOAD_MASK;
        let imm_type = raw >> PAYLOAD_BITS;

        match imm_type {
            TYPE_IO_REQ => Ok(Self::IoReq { payload }),
            TYPE_IO_RSP | TYPE_IO_RSP_W_INV => Ok(Self::IoRsp {
                msg_id: payload & MSG_ID_MASK,
                errno: IoErrno::from_field(payload >> MSG_ID_BITS),
                inval: imm_type == TYPE_IO_RSP_W_INV,
            }),
            TYPE_IO_RSP_NEXT_KEY if payload <= MSG_ID_MASK => {
                Ok(Self::IoRspNextKey { msg_id: payload })
            }
            TYPE_IO_RSP_NEXT_KEY => Err(ProtoError::MsgId),
            TYPE_HB_MSG => Ok(Self::Hb),
            TYPE_HB_ACK => Ok(Self::HbAck),
            _ => Err(ProtoError::ImmType),
        }
    }

    /// The payload of [`Imm::IoReq`], if it is one.
    #[inline(always)]
    pub const fn request(raw: u32) -> Option<u32> {
        const { assert!(TYPE_IO_REQ == 0) };
        if raw <= PAYLOAD_MASK {
            Some(raw)
        } else {
            None
        }
    }

    /// Encodes into host order.
    ///
    /// # Errors
    ///
    /// [`ProtoError::ImmBits`] for a payload beyond 28 bits, [`ProtoError::MsgId`] for a message
    /// id beyond 19 bits.
    #[inline(always)]
    pub const fn encode(self) -> Result<u32, ProtoError> {
        match self {
            Self::IoReq { payload } => {
                if payload > PAYLOAD_MASK {
                    return Err(ProtoError::ImmBits);
                }
                Ok((TYPE_IO_REQ << PAYLOAD_BITS) | payload)
            }
            Self::IoRsp {
                msg_id,
                errno,
                inval,
            } => {
                if msg_id > MSG_ID_MASK {
                    return Err(ProtoError::MsgId);
                }
                let imm_type = if inval {
                    TYPE_IO_RSP_W_INV
                } else {
                    TYPE_IO_RSP
                };
                Ok((imm_type << PAYLOAD_BITS) | (errno.to_field() << MSG_ID_BITS) | msg_id)
            }
            Self::IoRspNextKey { msg_id } => {
                if msg_id > MSG_ID_MASK {
                    return Err(ProtoError::MsgId);
                }
                Ok((TYPE_IO_RSP_NEXT_KEY << PAYLOAD_BITS) | msg_id)
            }
            Self::Hb => Ok(TYPE_HB_MSG << PAYLOAD_BITS),
            Self::HbAck => Ok(TYPE_HB_ACK << PAYLOAD_BITS),
        }
    }
}

/// Number of bits needed to count `n` things from zero: ceil(log2(n)), 0 for `n` of 0 and 1.
pub const fn index_bits(n: u32) -> u32 {
    match n {
        0 => 0,
        n => u32::BITS - (n - 1).leading_zeros(),
    }
}

/// The location of a request in the server's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IoTarget {
    /// The number of the chunk, below the queue depth.
    pub buf_id: u16,
    /// Offset of the message in the chunk in bytes, below the chunk size.
    pub off: u32,
}

/// Encodes buffer ids and offsets in the payload of [`Imm::IoReq`], and decodes them.
///
/// # Invariants
///
/// `queue_depth` and `chunk_size` are not zero, and an index below each of them fits side by side
/// in `PAYLOAD_BITS`: `index_bits(queue_depth) + index_bits(chunk_size) <= PAYLOAD_BITS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImmCodec {
    queue_depth: u16,
    chunk_size: u32,
    off_bits: u32,
    /// Mask of `off_bits` bits.
    off_mask: u32,
}

impl ImmCodec {
    /// A codec for `queue_depth` chunks of `chunk_size` bytes.
    ///
    /// # Errors
    ///
    /// [`ProtoError::QueueDepth`] or [`ProtoError::ChunkSize`] if one is zero,
    /// [`ProtoError::ImmBits`] if they do not fit together.
    pub const fn new(queue_depth: u16, chunk_size: u32) -> Result<Self, ProtoError> {
        if queue_depth == 0 {
            return Err(ProtoError::QueueDepth);
        }
        if chunk_size == 0 {
            return Err(ProtoError::ChunkSize);
        }

        let buf_bits = index_bits(queue_depth as u32);
        if buf_bits + index_bits(chunk_size) > PAYLOAD_BITS {
            return Err(ProtoError::ImmBits);
        }

        // No underflow: a 16-bit number has at most 16 index bits.
        let off_bits = PAYLOAD_BITS - buf_bits;
        // INVARIANT: Checked above.
        Ok(Self {
            queue_depth,
            chunk_size,
            off_bits,
            off_mask: (1 << off_bits) - 1,
        })
    }

    /// The payload for offset `off` of chunk `buf_id`.
    ///
    /// # Errors
    ///
    /// [`ProtoError::BufId`] or [`ProtoError::Offset`] if there is no such chunk or offset.
    #[inline(always)]
    pub const fn encode(&self, buf_id: u16, off: u32) -> Result<u32, ProtoError> {
        if buf_id >= self.queue_depth {
            return Err(ProtoError::BufId);
        }
        if off >= self.chunk_size {
            return Err(ProtoError::Offset);
        }

        // With a depth of one there are no buffer bits and the id is 0; a shift by 28 is in range.
        Ok(((buf_id as u32) << self.off_bits) | off)
    }

    /// Decodes a received payload.
    ///
    /// # Errors
    ///
    /// [`ProtoError::ImmBits`], [`ProtoError::BufId`] or [`ProtoError::Offset`] if it is not a
    /// location in the session's chunks.
    #[inline(always)]
    pub const fn decode(&self, payload: u32) -> Result<IoTarget, ProtoError> {
        if payload > PAYLOAD_MASK {
            return Err(ProtoError::ImmBits);
        }

        let (buf_id, off) = self.split(payload);
        if buf_id >= self.queue_depth as u32 {
            return Err(ProtoError::BufId);
        }
        if off >= self.chunk_size {
            return Err(ProtoError::Offset);
        }

        Ok(IoTarget {
            // CAST: Less than the queue depth, which has 16 bits.
            buf_id: buf_id as u16,
            off,
        })
    }

    /// Decodes a received payload without checks, for a caller that checks chunk and offset itself.
    #[inline(always)]
    pub const fn split(&self, payload: u32) -> (u32, u32) {
        // No overflow: 12 to 28 bits.
        (payload.wrapping_shr(self.off_bits), payload & self.off_mask)
    }

    /// Queue depth of the session.
    pub const fn queue_depth(&self) -> u16 {
        self.queue_depth
    }

    /// Chunk size of the session in bytes.
    pub const fn chunk_size(&self) -> u32 {
        self.chunk_size
    }
}
