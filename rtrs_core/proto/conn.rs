// SPDX-License-Identifier: GPL-2.0

//! The messages in the private data of the connection manager: request, accept, reject.

use core::num::NonZeroU32;

use super::{
    errno::RejectErrno,
    error::ProtoError,
    MAGIC,
    MAX_CONS_PER_PATH,
    MIN_CONS_PER_PATH,
    VERSION, //
};

/// The first four bytes of a message after those that are reserved.
const fn head() -> [u8; 4] {
    // CAST: Widening. The magic number, and behind it the version.
    (MAGIC as u32 | (VERSION as u32) << 16).to_le_bytes()
}

/// Checks magic and major version; the minor version is for compatible additions.
fn check_head(theirs: [u8; 4]) -> Result<(), ProtoError> {
    let [magic @ .., _, major] = theirs;
    if magic != MAGIC.to_le_bytes() {
        return Err(ProtoError::Magic);
    }
    if u16::from(major) != VERSION >> 8 {
        return Err(ProtoError::Version);
    }
    Ok(())
}

/// What a client can do beyond mainline's, which neither sets nor reads these bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// An answer need not carry a key: without one the chunk's key is unchanged, unless it says that it
    /// is the next one. Mainline's client would lose a receive.
    pub keeps_keys: bool,
    /// The message that invalidates the key of a read may be the answer: it brings the chunk's key,
    /// and says success. Mainline's client would wait for another message.
    pub inval_answers: bool,
    /// As [`inval_answers`](Self::inval_answers), if keys of chunks do not change. The client must
    /// receive into memory if the server [answers](ConnAccept::inval_answers) in this way.
    pub inval_answers_always: bool,
    /// An answer may say that the chunk has its [next key](super::next_rkey), and not tell it.
    /// Ignored without [`keeps_keys`](Self::keeps_keys). Mainline's client would not know the value.
    pub counts_keys: bool,
    /// Writes of few data may come as messages. Set on the first connection if the client can send
    /// such; on each other one it says how many requests the server has to have receives for.
    pub sends: Option<MostSent>,
}

/// The most requests that a client has at a time on one connection: a power of two from 4 to 65536.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MostSent(
    /// The exponent less one: 1 to 15, so that it fits four bits.
    u8,
);

impl MostSent {
    /// The lowest number that is at least `requests`, of which there are at most 65536.
    pub fn of(requests: u32) -> Self {
        // CAST: At most 16.
        let exponent = requests.clamp(4, 1 << 16).next_power_of_two().ilog2() as u8;
        Self(exponent.saturating_sub(1))
    }

    /// The number.
    pub fn requests(self) -> u32 {
        2u32.checked_shl(self.0.into()).unwrap_or(u32::MAX)
    }

    /// Converts from four bits; 0 is none.
    fn from_bits(bits: u8) -> Option<Self> {
        (bits != 0).then_some(Self(bits))
    }
}

impl Capabilities {
    const KEEPS_KEYS: u8 = 1 << 0;
    const INVAL_ANSWERS: u8 = 1 << 1;
    const INVAL_ANSWERS_ALWAYS: u8 = 1 << 2;
    const COUNTS_KEYS: u8 = 1 << 3;
    const SENDS_SHIFT: u8 = 4;

    /// Converts from the byte of the message.
    fn from_byte([bits]: [u8; 1]) -> Self {
        Self {
            keeps_keys: bits & Self::KEEPS_KEYS != 0,
            inval_answers: bits & Self::INVAL_ANSWERS != 0,
            inval_answers_always: bits & Self::INVAL_ANSWERS_ALWAYS != 0,
            counts_keys: bits & Self::COUNTS_KEYS != 0,
            sends: MostSent::from_bits(bits >> Self::SENDS_SHIFT),
        }
    }

    /// The byte of the message.
    fn to_byte(self) -> [u8; 1] {
        let bit = |set, bit| if set { bit } else { 0 };

        [bit(self.keeps_keys, Self::KEEPS_KEYS)
            | bit(self.inval_answers, Self::INVAL_ANSWERS)
            | bit(self.inval_answers_always, Self::INVAL_ANSWERS_ALWAYS)
            | bit(self.counts_keys, Self::COUNTS_KEYS)
            | self.sends.map_or(0, |most| most.0 << Self::SENDS_SHIFT)]
    }
}

/// How long requests of a session wait at the client while the session has no path.
///
/// Not known to mainline: its client does not wait and writes zero, and its server does not read
/// the field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathWait {
    /// They do not wait, or the time is not known.
    #[default]
    Unsaid,
    /// The number of seconds, less than [`u32::MAX`].
    Secs(NonZeroU32),
    /// Until there is a path.
    Forever,
}

impl PathWait {
    /// Converts from a number of seconds, as in [`to_secs`](Self::to_secs).
    pub fn from_secs(secs: u32) -> Self {
        match NonZeroU32::new(secs) {
            None => Self::Unsaid,
            Some(NonZeroU32::MAX) => Self::Forever,
            Some(secs) => Self::Secs(secs),
        }
    }

    /// The number of seconds; 0 if unknown, [`u32::MAX`] for ever.
    pub fn to_secs(self) -> u32 {
        match self {
            Self::Unsaid => 0,
            Self::Secs(secs) => secs.get(),
            Self::Forever => u32::MAX,
        }
    }
}

/// The request for one connection of a path, from the client.
///
/// The message is 56 bytes of private data. For the IP families `rdma_cm` puts its own 36-byte
/// header in front, which makes 92 bytes, the maximum of InfiniBand. For `AF_IB` there is no such
/// header: the message starts at offset 0, where `rdma_cm` overwrites byte 0 with its version,
/// zero. Therefore the first two bytes are reserved and always written as zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnReq {
    /// This connection's index in the path; 0 is the service connection.
    pub cid: u16,
    /// Number of connections of the path, 2..=4096.
    pub cid_num: u16,
    /// Number of the connection attempt of this path, counted from 1.
    pub recon_cnt: u16,
    /// Identity of the path, which it keeps when it reconnects.
    pub path_uuid: [u8; 16],
    /// Identity of the session.
    pub session_uuid: [u8; 16],
    /// The server may create the session if it does not know it.
    pub first_conn: bool,
    /// None for mainline.
    pub capabilities: Capabilities,
    /// Only sent by connection 0; [`PathWait::Unsaid`] on the others, which use the field
    /// otherwise.
    pub path_wait: PathWait,
}

/// The fields of a [`ConnReq`].
mod req {
    use crate::proto::Field;

    pub(super) const HEAD: Field<2, 4> = Field;
    pub(super) const CID: Field<6, 2> = Field;
    pub(super) const CID_NUM: Field<8, 2> = Field;
    pub(super) const RECON_CNT: Field<10, 2> = Field;
    pub(super) const PATH_UUID: Field<12, 16> = Field;
    pub(super) const SESSION_UUID: Field<28, 16> = Field;
    pub(super) const FIRST_CONN: Field<44, 1> = Field;
    pub(super) const CAPABILITIES: Field<45, 1> = Field;
    pub(super) const PATH_WAIT: Field<46, 4> = Field;
}

impl ConnReq {
    /// Size of the message in bytes.
    pub const SIZE: usize = 56;

    /// Parses private data. More than [`ConnReq::SIZE`] bytes are accepted, since transports pad.
    ///
    /// # Errors
    ///
    /// [`ProtoError::Length`], [`ProtoError::Magic`], [`ProtoError::Version`],
    /// [`ProtoError::ConnCount`], [`ProtoError::ConnId`], checked in this order.
    pub fn parse(buf: &[u8]) -> Result<Self, ProtoError> {
        let msg: &[u8; Self::SIZE] = buf.first_chunk().ok_or(ProtoError::Length)?;
        check_head(req::HEAD.get(msg))?;

        let cid = u16::from_le_bytes(req::CID.get(msg));
        let path_wait = match cid {
            0 => PathWait::from_secs(u32::from_le_bytes(req::PATH_WAIT.get(msg))),
            _ => PathWait::Unsaid,
        };
        let this = Self {
            cid,
            cid_num: u16::from_le_bytes(req::CID_NUM.get(msg)),
            recon_cnt: u16::from_le_bytes(req::RECON_CNT.get(msg)),
            path_uuid: req::PATH_UUID.get(msg),
            session_uuid: req::SESSION_UUID.get(msg),
            first_conn: u8::from_le_bytes(req::FIRST_CONN.get(msg)) & 1 != 0,
            capabilities: Capabilities::from_byte(req::CAPABILITIES.get(msg)),
            path_wait,
        };
        this.check()?;
        Ok(this)
    }

    /// The message's bytes. Connection numbers that [`ConnReq::parse`] refuses are not noticed
    /// here.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        // Reserved fields are zero.
        let mut msg = [0; Self::SIZE];
        req::HEAD.set(&mut msg, head());
        req::CID.set(&mut msg, self.cid.to_le_bytes());
        req::CID_NUM.set(&mut msg, self.cid_num.to_le_bytes());
        req::RECON_CNT.set(&mut msg, self.recon_cnt.to_le_bytes());
        req::PATH_UUID.set(&mut msg, self.path_uuid);
        req::SESSION_UUID.set(&mut msg, self.session_uuid);
        req::FIRST_CONN.set(&mut msg, [u8::from(self.first_conn)]);
        req::CAPABILITIES.set(&mut msg, self.capabilities.to_byte());
        if self.cid == 0 {
            req::PATH_WAIT.set(&mut msg, self.path_wait.to_secs().to_le_bytes());
        }
        msg
    }

    fn check(&self) -> Result<(), ProtoError> {
        if !(MIN_CONS_PER_PATH..=MAX_CONS_PER_PATH).contains(&self.cid_num) {
            return Err(ProtoError::ConnCount);
        }
        if self.cid >= self.cid_num {
            return Err(ProtoError::ConnId);
        }
        Ok(())
    }
}

/// Bit of the flags word of an accept: every answer carries a new key for its chunk.
const FLAG_NEW_RKEY: u32 = 1 << 1;

/// Bit of the flags word of an accept: the server still has the session, and the state that its
/// user keeps for it. Not known to mainline, which neither sets nor reads it.
const FLAG_KEPT: u32 = 1 << 16;

/// Bit of the flags word of an accept: a copy of a request that comes over another path, or over
/// the same path after a reconnect, waits until the first copy is over. Not known to mainline,
/// which does not order them.
const FLAG_ORDERS_COPIES: u32 = 1 << 17;

/// Bit of the flags word of an accept: the message that invalidates the key of a read may be its
/// answer, although keys of chunks do not change. Not known to mainline.
const FLAG_INVAL_ANSWERS: u32 = 1 << 18;

/// Bit of the flags word of an accept: writes of few data may come as messages. Not known to
/// mainline.
const FLAG_TAKES_SENDS: u32 = 1 << 19;

/// The server's answer to an accepted connection request.
///
/// The numbers are claims of the server; [`Geometry::from_accept`] checks them and makes limits of
/// them. Only those of connection 0 count.
///
/// [`Geometry::from_accept`]: super::geometry::Geometry::from_accept
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnAccept {
    /// Number of chunks.
    pub queue_depth: u16,
    /// Maximum size of the data of one request in bytes.
    pub max_io_size: u32,
    /// Maximum size of user message plus message in bytes.
    pub max_hdr_size: u32,
    /// The server invalidates the key of a chunk with each request (`always_invalidate`) and
    /// answers with a message that holds the new one.
    pub new_rkey: bool,
    /// The server still has the session, with the state that its user keeps for it. Never set by
    /// mainline, which forgets a session with its last path.
    pub kept: bool,
    /// A request that is sent again does not execute concurrently with its first copy. Never set by
    /// mainline.
    pub orders_copies: bool,
    /// Reads may be answered by the message that invalidates their key, although keys of chunks do
    /// not change. Only said to a client that [can](Capabilities::inval_answers_always) take it.
    pub inval_answers: bool,
    /// Writes of few data may come as messages on the connections that say how many. Only said to a client
    /// that [can](Capabilities::sends) send them.
    pub takes_sends: bool,
}

/// The fields of a [`ConnAccept`], and of a [`ConnReject`], which has the first two.
mod answer {
    use crate::proto::Field;

    pub(super) const HEAD: Field<0, 4> = Field;
    pub(super) const ERRNO: Field<4, 2> = Field;
    pub(super) const QUEUE_DEPTH: Field<6, 2> = Field;
    pub(super) const MAX_IO_SIZE: Field<8, 4> = Field;
    pub(super) const MAX_HDR_SIZE: Field<12, 4> = Field;
    pub(super) const FLAGS: Field<16, 4> = Field;
}

impl ConnAccept {
    /// Size of the message in bytes.
    pub const SIZE: usize = 56;

    /// Parses the private data of an established connection. More than [`ConnAccept::SIZE`] bytes
    /// are accepted, since InfiniBand pads to 196. Unknown flags are ignored.
    ///
    /// # Errors
    ///
    /// [`ProtoError::Length`], [`ProtoError::Magic`], [`ProtoError::Version`],
    /// [`ProtoError::AcceptErrno`], checked in this order.
    pub fn parse(buf: &[u8]) -> Result<Self, ProtoError> {
        let msg: &[u8; Self::SIZE] = buf.first_chunk().ok_or(ProtoError::Length)?;
        check_head(answer::HEAD.get(msg))?;
        if answer::ERRNO.get(msg) != [0; 2] {
            return Err(ProtoError::AcceptErrno);
        }

        let flags = u32::from_le_bytes(answer::FLAGS.get(msg));
        Ok(Self {
            queue_depth: u16::from_le_bytes(answer::QUEUE_DEPTH.get(msg)),
            max_io_size: u32::from_le_bytes(answer::MAX_IO_SIZE.get(msg)),
            max_hdr_size: u32::from_le_bytes(answer::MAX_HDR_SIZE.get(msg)),
            new_rkey: flags & FLAG_NEW_RKEY != 0,
            kept: flags & FLAG_KEPT != 0,
            orders_copies: flags & FLAG_ORDERS_COPIES != 0,
            inval_answers: flags & FLAG_INVAL_ANSWERS != 0,
            takes_sends: flags & FLAG_TAKES_SENDS != 0,
        })
    }

    /// The message's bytes.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut flags = 0;
        if self.new_rkey {
            flags |= FLAG_NEW_RKEY;
        }
        if self.kept {
            flags |= FLAG_KEPT;
        }
        if self.orders_copies {
            flags |= FLAG_ORDERS_COPIES;
        }
        if self.inval_answers {
            flags |= FLAG_INVAL_ANSWERS;
        }
        if self.takes_sends {
            flags |= FLAG_TAKES_SENDS;
        }

        let mut msg = [0; Self::SIZE];
        answer::HEAD.set(&mut msg, head());
        answer::QUEUE_DEPTH.set(&mut msg, self.queue_depth.to_le_bytes());
        answer::MAX_IO_SIZE.set(&mut msg, self.max_io_size.to_le_bytes());
        answer::MAX_HDR_SIZE.set(&mut msg, self.max_hdr_size.to_le_bytes());
        answer::FLAGS.set(&mut msg, flags.to_le_bytes());
        msg
    }
}

/// The server's reason for refusing a connection request.
///
/// Only valid in a reject with the reason "consumer defined" ([`CM_REJ_CONSUMER_DEFINED`]); other
/// reasons belong to the connection manager and carry no message of this protocol.
///
/// [`CM_REJ_CONSUMER_DEFINED`]: super::CM_REJ_CONSUMER_DEFINED
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnReject {
    /// The reason.
    pub errno: RejectErrno,
}

impl ConnReject {
    /// Size of the message in bytes.
    pub const SIZE: usize = 56;

    /// Parses the private data of a reject. More than [`ConnReject::SIZE`] bytes are accepted,
    /// since InfiniBand pads to 148.
    ///
    /// # Errors
    ///
    /// [`ProtoError::Length`], [`ProtoError::Magic`], [`ProtoError::Version`], checked in this
    /// order. An invalid errno is not an error here, see [`RejectErrno::from_field`].
    pub fn parse(buf: &[u8]) -> Result<Self, ProtoError> {
        let msg: &[u8; Self::SIZE] = buf.first_chunk().ok_or(ProtoError::Length)?;
        check_head(answer::HEAD.get(msg))?;

        Ok(Self {
            errno: RejectErrno::from_field(u16::from_le_bytes(answer::ERRNO.get(msg))),
        })
    }

    /// The message's bytes.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut msg = [0; Self::SIZE];
        answer::HEAD.set(&mut msg, head());
        answer::ERRNO.set(&mut msg, self.errno.to_field().to_le_bytes());
        msg
    }
}

/// The errno of a consumer defined reject: that of its message, or `ECONNRESET` if the private data
/// is not a reject message of this protocol.
pub fn reject_errno(buf: &[u8]) -> RejectErrno {
    match ConnReject::parse(buf) {
        Ok(reject) => reject.errno,
        Err(_) => RejectErrno::CONNRESET,
    }
}
