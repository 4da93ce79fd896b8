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
    Field, //
};

/// The type of either message.
const TYPE: Field<0, 2> = Field;

/// The name in an [`InfoReq`].
const NAME: Field<2, { SessionName::FIELD_SIZE }> = Field;

/// The number of descriptors in an [`InfoRsp`].
const COUNT: Field<2, 2> = Field;

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
        let msg: &[u8; Self::SIZE] = buf.try_into().map_err(|_| ProtoError::Length)?;
        check_type(msg, MSG_INFO_REQ)?;

        Ok(Self {
            name: SessionName::from_field(&NAME.get(msg))?,
        })
    }

    /// The message's bytes.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut msg = [0; Self::SIZE];
        TYPE.set(&mut msg, MSG_INFO_REQ.to_le_bytes());
        NAME.set(&mut msg, *self.name.as_field());
        msg
    }
}

/// Size in bytes of what precedes the descriptors in an [`InfoRsp`].
const HEAD_SIZE: usize = 8;

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
    /// Size in bytes of a message with `descs` descriptors; this is the size of the receive buffer
    /// that a client needs for a queue depth of `descs`.
    pub const fn size(descs: u16) -> usize {
        // No overflow: at most 8 + 16 * 65535.
        HEAD_SIZE + SgDesc::SIZE * descs as usize
    }

    /// Parses a received message; bytes after the last descriptor are ignored.
    ///
    /// # Errors
    ///
    /// [`ProtoError::Length`], also if the message ends within the descriptors;
    /// [`ProtoError::MsgType`], [`ProtoError::DescCount`] if there are none.
    pub fn parse(buf: &'a [u8]) -> Result<Self, ProtoError> {
        let head: &[u8; HEAD_SIZE] = buf.first_chunk().ok_or(ProtoError::Length)?;
        check_type(head, MSG_INFO_RSP)?;

        let count = u16::from_le_bytes(COUNT.get(head));
        if count == 0 {
            return Err(ProtoError::DescCount);
        }
        let descs = buf
            .get(HEAD_SIZE..Self::size(count))
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
            // None is skipped: all have exactly 16 bytes.
            .filter_map(|raw| raw.try_into().ok().map(SgDesc::parse))
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
        let mut count: u16 = 0;
        for desc in descs {
            put(buf, Self::size(count), desc.to_bytes().as_flattened())?;
            count = count.checked_add(1).ok_or(ProtoError::DescCount)?;
        }
        if count == 0 {
            return Err(ProtoError::DescCount);
        }

        let mut head = [0; HEAD_SIZE];
        TYPE.set(&mut head, MSG_INFO_RSP.to_le_bytes());
        COUNT.set(&mut head, count.to_le_bytes());
        put(buf, 0, &head)?;
        Ok(Self::size(count))
    }
}

/// Writes `bytes` at `off`.
fn put(buf: &mut [u8], off: usize, bytes: &[u8]) -> Result<(), ProtoError> {
    let end = off
        .checked_add(bytes.len())
        .ok_or(ProtoError::BufferTooSmall)?;
    let dst = buf.get_mut(off..end).ok_or(ProtoError::BufferTooSmall)?;

    // PANIC: `dst` was cut to the length of `bytes`.
    dst.copy_from_slice(bytes);
    Ok(())
}
