// SPDX-License-Identifier: GPL-2.0

//! What RNBD says: as much of its messages as it takes to open its devices again.
//!
//! A message is known by its type *and* its size, as those of RNBD are of fixed size. Whatever does
//! not fit is no message of RNBD's.

/// Bytes of the message that begins a session, and of its answer.
pub const INFO_SIZE: usize = 36;
/// Bytes of the message that opens a device.
pub const OPEN_SIZE: usize = 264;
/// Bytes of its answer.
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

/// Where the number of a device is in messages that have one, and in the answer that gives it.
pub const ID_OFFSET: usize = 4;
/// Where in the message of a request it says what is to be done, in its lowest byte.
const RW_OFFSET: usize = 16;
const OP_FLUSH: u8 = 2;
/// Where the name of a device is, and how long it may be, with the byte that ends it.
const NAME_OFFSET: usize = 6;
const NAME_SIZE: usize = 255;

/// A message of RNBD's.
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
    /// What the device with this number has acknowledged is to be safe.
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
    /// Reads a message; `None` for what is none of RNBD's.
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
    /// Reads one; `None` for what is none.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let fits = bytes.len() == INFO_SIZE && u16_at(bytes, 0) == Some(SESS_INFO);
        fits.then_some(Self(*bytes.first_chunk()?))
    }

    /// As it goes out.
    pub const fn bytes(&self) -> &[u8; INFO_SIZE] {
        &self.0
    }
}

/// The version that the answer to [`Info`] says; `None` if it is no such answer.
pub fn version(answer: &[u8]) -> Option<u8> {
    if answer.len() == INFO_SIZE && u16_at(answer, 0) == Some(SESS_INFO_RSP) {
        answer.get(4).copied()
    } else {
        None
    }
}

/// The message that opens a device: its name and how, and nothing that was in the message by chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open([u8; OPEN_SIZE]);

impl Open {
    /// Of no device.
    pub const NONE: Self = Self([0; OPEN_SIZE]);

    /// Reads one; `None` for what is none.
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
        // Padding of the header, and behind the mode.
        for at in [2, 3, 5] {
            *open.0.get_mut(at)? = 0;
        }
        Some(open)
    }

    /// As it goes out.
    pub const fn bytes(&self) -> &[u8; OPEN_SIZE] {
        &self.0
    }

    /// Whether nothing is written to it.
    pub const fn is_read_only(&self) -> bool {
        self.0[4] == 0
    }

    /// The name of the device.
    pub fn name(&self) -> &[u8] {
        let name = self.0.get(NAME_OFFSET..).unwrap_or(&[]);
        name.split(|&byte| byte == 0).next().unwrap_or(&[])
    }
}

/// The answer to [`Open`]: what there is behind the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened([u8; OPENED_SIZE]);

/// In what two answers for one name differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The device has more sectors, or fewer.
    Size,
    /// Sizes of its blocks.
    Blocks,
    /// It has a volatile cache, or none, or another kind.
    Cache,
    /// What it can do of discarding and writing zeroes.
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
    /// Of no device.
    pub const NONE: Self = Self([0; OPENED_SIZE]);

    /// Reads an answer; `None` for what is none.
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

    /// Why what was sent to the one device must not go to the other. Numbers that RNBD does not go by
    /// (segments, sectors of a request, whether it rotates) may differ.
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
