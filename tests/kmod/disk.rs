// SPDX-License-Identifier: GPL-2.0

//! A disk in memory, for the drivers in `tests/packages/users`: the user message of a request is
//! its first sector, as 8 bytes in little endian.
//!
//! # Locking
//!
//! The mutex protects the content while a request is copied.

use kernel::{
    new_mutex,
    prelude::*,
    sync::Mutex, //
};
use rtrs_server::api::{
    DataDir,
    Operation, //
};

const SECTOR_SHIFT: u32 = 9;

/// The content, from the first sector.
#[pin_data]
pub(crate) struct Disk {
    #[pin]
    bytes: Mutex<KVVec<u8>>,
}

impl Disk {
    /// Makes a disk full of zeroes. Sleeps.
    pub(crate) fn new(sectors: u32) -> Result<Pin<KBox<Self>>> {
        let len = usize::try_from(sectors)? << SECTOR_SHIFT;
        let bytes = KVVec::from_elem(0, len, GFP_KERNEL)?;
        KBox::pin_init(
            pin_init!(Self { bytes <- new_mutex!(bytes, "rtrs_test_disk") }),
            GFP_KERNEL,
        )
    }

    /// Moves the data of a request. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a message that is no sector, and for data beyond the end.
    pub(crate) fn execute(&self, op: &Operation) -> Result {
        let sector = <[u8; 8]>::try_from(op.usr()).map_err(|_| EINVAL)?;
        let start = u64::from_le_bytes(sector)
            .checked_mul(1 << SECTOR_SHIFT)
            .and_then(|start| usize::try_from(start).ok())
            .ok_or(EINVAL)?;
        let end = start.checked_add(op.data_len()).ok_or(EINVAL)?;
        let mut bytes = self.bytes.lock();
        let data = bytes.get_mut(start..end).ok_or(EINVAL)?;
        match op.dir() {
            DataDir::Write => op.read_data(0, data),
            DataDir::Read => op.write_data(0, data),
        }
    }
}
