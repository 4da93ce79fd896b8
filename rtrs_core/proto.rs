// SPDX-License-Identifier: GPL-2.0

//! The RTRS wire protocol, as typed values.
//!
//! Nothing in here depends on the kernel: the same files are compiled into the modules and into the
//! host tests (`tests/host`). Everything that a peer sends is parsed exactly once, by one of the
//! `parse` functions below, into a value of a type that documents what was checked; later code
//! never sees a raw wire integer again.
//!
//! The layouts, constants and limits are described in `Documentation/protocol.rst`.
//!
//! All functions may be called from any context: they do not allocate, lock, sleep or panic.

pub mod conn;
pub mod errno;
pub mod error;
pub mod geometry;
pub mod heartbeat;
pub mod imm;
pub mod info;
pub mod io;
pub mod name;
pub mod request;

pub use self::{
    conn::{
        reject_errno,
        Capabilities,
        ConnAccept,
        ConnReject,
        ConnReq,
        MostSent,
        PathWait, //
    },
    errno::{
        IoErrno,
        RejectErrno, //
    },
    error::ProtoError,
    geometry::{
        Geometry,
        RemoteBuf, //
    },
    heartbeat::{
        Heartbeat,
        Liveness, //
    },
    imm::{
        next_key_number,
        returned_of,
        success_number,
        success_of,
        Imm,
        ImmCodec,
        IoTarget, //
    },
    info::{
        InfoReq,
        InfoRsp, //
    },
    io::{
        next_rkey,
        DataDir,
        ReadDest,
        ReadMsg,
        RkeyRsp,
        SgDesc,
        WriteMsg, //
    },
    name::SessionName,
    request::{
        ChunkImm,
        Kind,
        Layout,
        Request,
        Room, //
    },
};

/// Magic number of both connection messages, from `Documentation/protocol.rst`.
pub const MAGIC: u16 = 0x1BBD;

/// Protocol version of this implementation: major in the high byte, minor in the low byte.
pub const VERSION: u16 = 0x0200;

/// Default port in the TCP port space, as used by RNBD.
pub const DEFAULT_PORT: u16 = 1234;

/// The most paths that one session may have.
pub const MAX_PATHS: usize = 128;

/// The most connections (QPs) that one path may have, including the service connection.
pub const MAX_CONS_PER_PATH: u16 = 4096;

/// The fewest connections that a path can work with: the service connection and one for IO.
pub const MIN_CONS_PER_PATH: u16 = 2;

/// The most scatter list segments (pages of 4 KiB) of one client request.
pub const MAX_SEGMENTS: u32 = 128;

/// Number of receives that a server keeps posted on the service connection: the credit that a
/// client may rely on.
pub const SERVICE_QUEUE_DEPTH: u16 = 512;

/// The most bytes of data of a write that may come as a message.
pub const SENT_DATA: u32 = 4096;

/// The most bytes of such a message behind the first [`SENT_DATA`] ones.
pub const SENT_REST: u32 = 512;

/// Listen backlog of the server.
pub const LISTEN_BACKLOG: u16 = 64;

/// Reject reason of the connection manager for rejects with a message of this protocol.
pub const CM_REJ_CONSUMER_DEFINED: u32 = 28;

/// A field of messages of a fixed size: `LEN` bytes at `OFF`. A field beyond the end of its message
/// does not compile.
struct Field<const OFF: usize, const LEN: usize>;

impl<const OFF: usize, const LEN: usize> Field<OFF, LEN> {
    /// Reads the field.
    fn get<const SIZE: usize>(&self, msg: &[u8; SIZE]) -> [u8; LEN] {
        const { assert!(OFF <= SIZE && LEN <= SIZE - OFF) };
        // There is one, by the assertion.
        let field = msg.get(OFF..).and_then(<[u8]>::first_chunk);
        field.copied().unwrap_or([0; LEN])
    }

    /// Writes the field.
    fn set<const SIZE: usize>(&self, msg: &mut [u8; SIZE], bytes: [u8; LEN]) {
        const { assert!(OFF <= SIZE && LEN <= SIZE - OFF) };
        // There is one, by the assertion.
        if let Some(field) = msg.get_mut(OFF..).and_then(<[u8]>::first_chunk_mut) {
            *field = bytes;
        }
    }
}
