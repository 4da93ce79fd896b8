// SPDX-License-Identifier: GPL-2.0

//! The info exchange: the client sends the name of its session, the server the locations of its
//! chunks.

use super::{
    error::ProtoError,
    io::{
        check_type,
        SgDesc,
        MSG_INFO_REQ,
        MSG_INFO_RSP, //
    },
    name::SessionName,
    wire, //
};

/// The first message on the service connection, from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InfoReq {
    /// Name of the session.
    pub name: SessionName,
}

impl InfoReq {
    /// Size of the message in bytes.
    pub const SIZE: usize = 272;

    /// Parses a received message, exactly [`InfoReq::SIZE`] bytes.
    ///
    /// # Errors
    ///
    /// [`ProtoError::Length`], [`ProtoError::MsgType`] or [`ProtoError::Name`].
    pub fn parse(buf: &[u8]) -> Result<Self, ProtoError> {
        if buf.len() != Self::SIZE {
            return Err(ProtoError::Length);
        }
        check_type(buf, MSG_INFO_REQ)?;

        let name: [u8; SessionName::FIELD_SIZE] = wire::get(buf, 2)?;
        Ok(Self {
            name: SessionName::from_field(&name)?,
        })
    }

    /// Writes the message and returns its size in bytes.
    ///
    /// # Errors
    ///
    /// [`ProtoError::BufferTooSmall`].
    pub fn write(&self, buf: &mut [u8]) -> Result<usize, ProtoError> {
        let msg = wire::zeroed(buf, Self::SIZE)?;
        wire::put(msg, 0, &MSG_INFO_REQ.to_le_bytes())?;
        wire::put(msg, 2, self.name.as_bytes())?;
        Ok(Self::SIZE)
    }
}

/// The answer to [`InfoReq`]: descriptors of the chunks, still in the receive buffer.
///
/// # Invariants
///
/// `descs` holds whole descriptors, as many as the message announces.
#[derive(Clone, Copy, Debug)]
pub struct InfoRsp<'a> {
    descs: &'a [u8],
}

impl<'a> InfoRsp<'a> {
    /// Size in bytes of a message without descriptors.
    pub const HEAD_SIZE: usize = 8;

    /// Size in bytes of a message with `descs` descriptors; this is the size of the receive buffer
    /// that a client needs for a queue depth of `descs`.
    pub const fn size(descs: u16) -> usize {
        // No overflow: at most 8 + 16 * 65535.
        Self::HEAD_SIZE + SgDesc::SIZE * descs as usize
    }

    /// Parses a received message; bytes after the last descriptor are ignored.
    ///
    /// # Errors
    ///
    /// [`ProtoError::Length`], also if the message ends within the descriptors;
    /// [`ProtoError::MsgType`], [`ProtoError::DescCount`] if there are none.
    pub fn parse(buf: &'a [u8]) -> Result<Self, ProtoError> {
        if buf.len() < Self::HEAD_SIZE {
            return Err(ProtoError::Length);
        }
        check_type(buf, MSG_INFO_RSP)?;

        let count = wire::get_u16(buf, 2)?;
        if count == 0 {
            return Err(ProtoError::DescCount);
        }
        let descs = buf
            .get(Self::HEAD_SIZE..Self::size(count))
            .ok_or(ProtoError::Length)?;

        // INVARIANT: Cut to `count` descriptors.
        Ok(Self { descs })
    }

    /// Number of descriptors.
    pub fn count(&self) -> usize {
        self.descs.len() / SgDesc::SIZE
    }

    /// The descriptors in order.
    pub fn descs(&self) -> impl Iterator<Item = SgDesc> + Clone + 'a {
        self.descs
            .chunks_exact(SgDesc::SIZE)
            // A chunk of exactly 16 bytes always has a descriptor at 0, so none is skipped.
            .filter_map(|raw| SgDesc::get(raw, 0).ok())
    }

    /// Writes a message with all of `descs` and returns its size in bytes.
    ///
    /// # Errors
    ///
    /// [`ProtoError::BufferTooSmall`], or [`ProtoError::DescCount`] if there are none or more than
    /// the count field can hold.
    pub fn write(
        descs: impl IntoIterator<Item = SgDesc>,
        buf: &mut [u8],
    ) -> Result<usize, ProtoError> {
        wire::zeroed(buf, Self::HEAD_SIZE)?;

        let mut count: u16 = 0;
        for desc in descs {
            wire::put(buf, Self::size(count), desc.to_bytes().as_flattened())?;
            count = count.checked_add(1).ok_or(ProtoError::DescCount)?;
        }
        if count == 0 {
            return Err(ProtoError::DescCount);
        }

        wire::put(buf, 0, &MSG_INFO_RSP.to_le_bytes())?;
        wire::put(buf, 2, &count.to_le_bytes())?;
        Ok(Self::size(count))
    }
}
