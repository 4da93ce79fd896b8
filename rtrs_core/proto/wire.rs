// SPDX-License-Identifier: GPL-2.0

//! Little endian access to message bytes, with bounds checks.

use super::error::ProtoError;

/// Copies `N` bytes from `off`.
pub(super) fn get<const N: usize>(buf: &[u8], off: usize) -> Result<[u8; N], ProtoError> {
    let end = off.checked_add(N).ok_or(ProtoError::Length)?;
    let bytes = buf.get(off..end).ok_or(ProtoError::Length)?;

    bytes.try_into().map_err(|_| ProtoError::Length)
}

/// Reads a 16-bit field.
pub(super) fn get_u16(buf: &[u8], off: usize) -> Result<u16, ProtoError> {
    Ok(u16::from_le_bytes(get(buf, off)?))
}

/// Reads a 32-bit field.
pub(super) fn get_u32(buf: &[u8], off: usize) -> Result<u32, ProtoError> {
    Ok(u32::from_le_bytes(get(buf, off)?))
}

/// Reads a 64-bit field.
pub(super) fn get_u64(buf: &[u8], off: usize) -> Result<u64, ProtoError> {
    Ok(u64::from_le_bytes(get(buf, off)?))
}

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

/// Returns the first `len` bytes of `buf`, zeroed, so that reserved fields never contain stale
/// memory.
pub(super) fn zeroed(buf: &mut [u8], len: usize) -> Result<&mut [u8], ProtoError> {
    let msg = buf.get_mut(..len).ok_or(ProtoError::BufferTooSmall)?;

    msg.fill(0);
    Ok(msg)
}
