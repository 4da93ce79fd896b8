// SPDX-License-Identifier: GPL-2.0

//! Reasons why a message that was received, or is about to be sent, is not valid.

use core::fmt;

use super::errno;

/// A violation of the protocol or of one of its limits.
///
/// The variant names the mistake, not its consequence: a bad value from the peer closes the path
/// that it came over, a bad value from the local user is an error of that user's call. The log line
/// and the counters in sysfs show the text ([`ProtoError::as_str`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProtoError {
    /// A message is shorter than its type requires, or has a length that its type cannot have.
    Length,
    /// The caller's output buffer cannot hold the message.
    BufferTooSmall,
    /// The magic number of a connection message is wrong.
    Magic,
    /// The peer speaks another major version.
    Version,
    /// A message type that does not exist, or is not allowed here.
    MsgType,
    /// An immediate value of unknown type.
    ImmType,
    /// A message id beyond the field or the queue depth.
    MsgId,
    /// A connection id that is not below the number of connections.
    ConnId,
    /// A number of connections outside of 2..=4096.
    ConnCount,
    /// A connection was accepted with an error code in the message.
    AcceptErrno,
    /// The queue depth is zero, or beyond 65535.
    QueueDepth,
    /// The queue depth differs from that of the session.
    QueueDepthChanged,
    /// The chunk size is not a power of two, too small or too large.
    ChunkSize,
    /// The header size is too small, or leaves no room for data.
    HeaderSize,
    /// The maximum IO size is too small or too large.
    IoSize,
    /// Buffer ids and offsets together do not fit the 28 bits of an immediate value.
    ImmBits,
    /// A buffer id that is not below the queue depth.
    BufId,
    /// An offset beyond the chunk.
    Offset,
    /// More than one descriptor in a request, or more descriptors than chunks.
    DescCount,
    /// A descriptor of an impossible length.
    DescLen,
    /// The range of a descriptor wraps around the address space.
    DescAddr,
    /// The descriptors together do not cover exactly the session's chunks.
    DescTotal,
    /// Invalidation was asked for where there is no key to invalidate.
    Inval,
    /// The user message is longer than the space before the message, or than allowed.
    UserLen,
    /// The data is longer than allowed, or has no destination.
    DataLen,
    /// The session name is empty, not terminated, or has forbidden characters.
    Name,
}

impl ProtoError {
    /// All variants, in the order of [`ProtoError::index`].
    pub const ALL: [Self; 26] = [
        Self::Length,
        Self::BufferTooSmall,
        Self::Magic,
        Self::Version,
        Self::MsgType,
        Self::ImmType,
        Self::MsgId,
        Self::ConnId,
        Self::ConnCount,
        Self::AcceptErrno,
        Self::QueueDepth,
        Self::QueueDepthChanged,
        Self::ChunkSize,
        Self::HeaderSize,
        Self::IoSize,
        Self::ImmBits,
        Self::BufId,
        Self::Offset,
        Self::DescCount,
        Self::DescLen,
        Self::DescAddr,
        Self::DescTotal,
        Self::Inval,
        Self::UserLen,
        Self::DataLen,
        Self::Name,
    ];

    /// A small dense number, for a table of counters with `ALL.len()` entries.
    pub const fn index(self) -> usize {
        // CAST: The enum has no fields, and its discriminants count from 0.
        self as usize
    }

    /// A short description without a trailing newline, for logs and sysfs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Length => "bad message length",
            Self::BufferTooSmall => "message does not fit the buffer",
            Self::Magic => "bad magic",
            Self::Version => "unsupported protocol version",
            Self::MsgType => "unexpected message type",
            Self::ImmType => "unknown immediate type",
            Self::MsgId => "bad message id",
            Self::ConnId => "bad connection id",
            Self::ConnCount => "bad number of connections",
            Self::AcceptErrno => "accepted with an error code",
            Self::QueueDepth => "bad queue depth",
            Self::QueueDepthChanged => "queue depth differs from the session's",
            Self::ChunkSize => "bad chunk size",
            Self::HeaderSize => "bad header size",
            Self::IoSize => "bad IO size",
            Self::ImmBits => "queue depth and chunk size exceed the immediate value",
            Self::BufId => "bad buffer id",
            Self::Offset => "offset beyond the chunk",
            Self::DescCount => "bad number of descriptors",
            Self::DescLen => "bad descriptor length",
            Self::DescAddr => "descriptor wraps around",
            Self::DescTotal => "descriptors do not match queue depth and chunk size",
            Self::Inval => "invalidation without a key",
            Self::UserLen => "bad user message length",
            Self::DataLen => "bad data length",
            Self::Name => "bad session name",
        }
    }

    /// The errno (negative) for a caller that has no better one to report.
    ///
    /// Bad lengths in a request of the local user give `-EMSGSIZE`. A mistake of the peer gives
    /// `-ECONNRESET`, the answer that `Documentation/protocol` lists for a malformed handshake.
    pub const fn to_errno(self) -> i32 {
        match self {
            Self::BufferTooSmall | Self::UserLen | Self::DataLen => -errno::EMSGSIZE,
            Self::Name => -errno::EINVAL,
            _ => -errno::ECONNRESET,
        }
    }
}

impl fmt::Display for ProtoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
