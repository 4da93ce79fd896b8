// SPDX-License-Identifier: GPL-2.0

//! Little endian access to message bytes. What has a fixed place in a message of a fixed size is
//! checked when it is compiled, everything else when it runs.

use super::error::ProtoError;

/// Writes `bytes` at `off`.
pub(super) fn put(buf: &mut [u8], off: usize, bytes: &[u8]) -> Result<(), ProtoError> {
    let end = off
        .checked_add(bytes.len())
        .ok_or(ProtoError::BufferTooSmall)?;
    let dst = buf.get_mut(off..end).ok_or(ProtoError::BufferTooSmall)?;

    // PANIC: `dst` was cut to the length of `bytes`.
    dst.copy_from_slice(bytes);
    Ok(())
}

/// A field of messages of a fixed size: `LEN` bytes at `OFF`. A field beyond the end of its message
/// does not compile.
pub(super) struct Field<const OFF: usize, const LEN: usize>;

impl<const OFF: usize, const LEN: usize> Field<OFF, LEN> {
    /// Reads the field.
    pub(super) fn get<const SIZE: usize>(&self, msg: &[u8; SIZE]) -> [u8; LEN] {
        const { assert!(OFF <= SIZE && LEN <= SIZE - OFF) };
        // There is one, by the assertion.
        let field = msg.get(OFF..).and_then(<[u8]>::first_chunk);
        field.copied().unwrap_or([0; LEN])
    }

    /// Writes the field.
    pub(super) fn set<const SIZE: usize>(&self, msg: &mut [u8; SIZE], bytes: [u8; LEN]) {
        const { assert!(OFF <= SIZE && LEN <= SIZE - OFF) };
        // There is one, by the assertion.
        if let Some(field) = msg.get_mut(OFF..).and_then(<[u8]>::first_chunk_mut) {
            *field = bytes;
        }
    }
}
