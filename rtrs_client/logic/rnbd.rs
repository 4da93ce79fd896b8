// SPDX-License-Identifier: GPL-2.0

//! RNBD's messages, as far as is needed to open its devices again.
//!
//! A message is recognised by its type *and* its size, as RNBD's messages have fixed sizes. All
//! others are no messages of RNBD.

/// Bytes of the message that begins a session, and of its answer.
pub const INFO_SIZE: usize = 36;
/// Bytes of the message that opens a device.
pub const OPEN_SIZE: usize = 264;
/// Bytes of the answer to it.
pub const OPENED_SIZE: usize = 56;
/// Bytes of the message that closes a device.
const CLOSE_SIZE: usize = 8;
/// Bytes of the message of a request for a device.
pub const IO_SIZE: usize = 32;

const SESS_INFO: u16 = 0;
const SESS_INFO_RSP: u16 = 1;
const OPEN: u16 = 2;
const OPEN_RSP: u16 = 3;
const IO: u16 = 4;
const CLOSE: u16 = 5;

/// Offset of the number of a device in messages that have one, and in the answer that gives it.
pub const ID_OFFSET: usize = 4;
/// Offset of the operation in the message of a request; the operation is in the lowest byte.
const RW_OFFSET: usize = 16;
const OP_FLUSH: u8 = 2;
/// Offset of the name of a device, and its maximum length, with the byte that ends it.
const NAME_OFFSET: usize = 6;
const NAME_SIZE: usize = 255;

/// A message of RNBD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// Begins the session: [`Info`].
    Info,
    /// Opens a device: [`Open`].
    Open,
    /// Closes the device with this number.
    Close(u32),
    /// A request for the device with this number.
    Io(u32),
    /// Acknowledged data of the device with this number must be made safe.
    Flush(u32),
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_le_bytes(*bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}

impl Message {
    /// Parses a message; `None` if it is no message of RNBD.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        match (u16_at(bytes, 0)?, bytes.len()) {
            (SESS_INFO, INFO_SIZE) => Some(Self::Info),
            (OPEN, OPEN_SIZE) => Open::parse(bytes).map(|_| Self::Open),
            (CLOSE, CLOSE_SIZE) => Some(Self::Close(u32_at(bytes, ID_OFFSET)?)),
            (IO, IO_SIZE) => {
                let id = u32_at(bytes, ID_OFFSET)?;
                match bytes.get(RW_OFFSET)? {
                    &OP_FLUSH => Some(Self::Flush(id)),
                    _ => Some(Self::Io(id)),
                }
            }
            _ => None,
        }
    }
}

/// The message that begins a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info([u8; INFO_SIZE]);

impl Info {
    /// Parses a message; `None` if it is another one.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let fits = bytes.len() == INFO_SIZE && u16_at(bytes, 0) == Some(SESS_INFO);
        fits.then_some(Self(*bytes.first_chunk()?))
    }

    /// Returns the bytes to send.
    pub const fn bytes(&self) -> &[u8; INFO_SIZE] {
        &self.0
    }
}

/// Returns the version in the answer to [`Info`]; `None` if it is another message.
pub fn version(answer: &[u8]) -> Option<u8> {
    if answer.len() == INFO_SIZE && u16_at(answer, 0) == Some(SESS_INFO_RSP) {
        answer.get(4).copied()
    } else {
        None
    }
}

/// The message that opens a device: its name and mode, with all other bytes cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open([u8; OPEN_SIZE]);

impl Open {
    /// The message of no device.
    pub const NONE: Self = Self([0; OPEN_SIZE]);

    /// Parses a message; `None` if it is another one.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != OPEN_SIZE || u16_at(bytes, 0) != Some(OPEN) {
            return None;
        }
        let name = bytes.get(NAME_OFFSET..NAME_OFFSET + NAME_SIZE)?;
        let len = name.iter().position(|&byte| byte == 0)?;
        if len == 0 {
            return None;
        }
        let end = NAME_OFFSET + len;
        let mut open = Self::NONE;

        open.0.get_mut(..end)?.copy_from_slice(bytes.get(..end)?);
        // Padding of the header, and of the mode.
        for at in [2, 3, 5] {
            *open.0.get_mut(at)? = 0;
        }
        Some(open)
    }

    /// Returns the bytes to send.
    pub const fn bytes(&self) -> &[u8; OPEN_SIZE] {
        &self.0
    }

    /// Whether it is opened for reading only.
    pub const fn is_read_only(&self) -> bool {
        self.0[4] == 0
    }

    /// The name of the device.
    pub fn name(&self) -> &[u8] {
        let name = self.0.get(NAME_OFFSET..).unwrap_or(&[]);
        name.split(|&byte| byte == 0).next().unwrap_or(&[])
    }
}

/// The answer to [`Open`]: the properties of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened([u8; OPENED_SIZE]);

/// The difference between two answers for one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The number of sectors.
    Size,
    /// The sizes of its blocks.
    Blocks,
    /// The kind of its cache.
    Cache,
    /// The support for discarding and writing zeroes.
    Discard,
}

impl Difference {
    /// For the log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Size => "has another size",
            Self::Blocks => "has other block sizes",
            Self::Cache => "has another kind of cache",
            Self::Discard => "discards and writes zeroes differently",
        }
    }
}

impl Opened {
    /// The answer for no device.
    pub const NONE: Self = Self([0; OPENED_SIZE]);

    /// Parses an answer; `None` if it is another message.
    pub fn parse(answer: &[u8]) -> Option<Self> {
        let bytes: &[u8; OPENED_SIZE] = answer.first_chunk()?;
        let fits = answer.len() == OPENED_SIZE && u16_at(answer, 0) == Some(OPEN_RSP);
        fits.then_some(Self(*bytes))
    }

    /// The server's number of the device.
    pub fn id(&self) -> u32 {
        u32_at(&self.0, ID_OFFSET).unwrap_or(u32::MAX)
    }

    /// Whether an acknowledged write may be lost with the power.
    pub fn has_volatile_cache(&self) -> bool {
        self.0[45] & 2 != 0
    }

    /// Returns the reason why requests for one device must not be sent to the other. Values that
    /// RNBD does not depend on (segments, sectors of a request, whether it rotates) may differ.
    pub fn difference(&self, other: &Self) -> Option<Difference> {
        let (a, b) = (&self.0, &other.0);
        if u64_at(a, 8) != u64_at(b, 8) {
            Some(Difference::Size)
        } else if u32_at(a, 36) != u32_at(b, 36) {
            Some(Difference::Blocks)
        } else if a.get(45) != b.get(45) {
            Some(Difference::Cache)
        } else if a.get(20..36) != b.get(20..36) || u16_at(a, 42) != u16_at(b, 42) {
            Some(Difference::Discard)
        } else {
            None
        }
    }
}
