// SPDX-License-Identifier: GPL-2.0

//! The user message, which tells the server how to handle a request.
//!
//! | offset | |
//! |---|---|
//! | 0 | magic, 4 bytes |
//! | 4 | how to answer, 1 byte, and one of zero |
//! | 6 | errno to answer with, positive, 2 bytes |
//! | 8 | seed, 8 bytes |
//! | 16 | length of the data, 4 bytes |
//! | 20 | length of the message, 4 bytes |
//! | 24 | delay in milliseconds, 4 bytes |
//! | 28 | zero, 4 bytes |
//! | 32 | pattern |
//!
//! A shorter message is pattern only; the fields then follow from its length and that of the data.
//! All numbers are little endian.

use kernel::prelude::*;

use crate::pattern::Pattern;

/// Bytes of the fixed part.
const SIZE: usize = 32;
const MAGIC: u32 = 0x5453_5452;

/// The message or the data are not as expected: `EBADMSG`.
pub(crate) const CORRUPT: i32 = -74;

/// When and where a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// At once, in the server's task.
    Now,
    /// By a work item, after the delay.
    Work,
    /// In the interrupt of a timer, after the delay.
    Timer,
    /// On a command.
    Hold,
    /// After the server's task has slept until a command.
    Sleep,
}

impl How {
    /// Parses `word`.
    pub(crate) fn parse(word: &str) -> Result<Self> {
        match word {
            "now" => Ok(Self::Now),
            "work" => Ok(Self::Work),
            "timer" => Ok(Self::Timer),
            "hold" => Ok(Self::Hold),
            "sleep" => Ok(Self::Sleep),
            _ => Err(EINVAL),
        }
    }

    fn from_byte(byte: u8) -> Result<Self> {
        [Self::Now, Self::Work, Self::Timer, Self::Hold, Self::Sleep]
            .into_iter()
            // CAST: The discriminant.
            .find(|how| *how as u8 == byte)
            .ok_or(EINVAL)
    }
}

/// How the server handles a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) how: How,
    /// Positive errno of the answer, or 0.
    pub(crate) errno: u16,
    pub(crate) seed: u64,
    pub(crate) data_len: u32,
    pub(crate) msg_len: u32,
    pub(crate) delay_ms: u32,
}

impl Order {
    /// The values that hold if the message is too short for the fields.
    fn implied(data_len: u32, msg_len: u32) -> Self {
        Self {
            how: How::Now,
            errno: 0,
            seed: (u64::from(data_len) << 32) | u64::from(msg_len),
            data_len,
            msg_len,
            delay_ms: 0,
        }
    }

    /// The order as the server will read it.
    pub(crate) fn effective(self) -> Self {
        // CAST: 32.
        if self.msg_len < SIZE as u32 {
            Self::implied(self.data_len, self.msg_len)
        } else {
            self
        }
    }

    /// Writes the message, which fills `msg`.
    pub(crate) fn write(&self, msg: &mut [u8]) {
        let order = self.effective();
        let pattern = Pattern::of_message(order.seed);
        let Some((head, rest)) = msg.split_first_chunk_mut::<SIZE>() else {
            return pattern.fill(0, msg);
        };
        // CAST: The discriminant.
        let how = [order.how as u8, 0];
        let fields: [&[u8]; 8] = [
            &MAGIC.to_le_bytes(),
            &how,
            &order.errno.to_le_bytes(),
            &order.seed.to_le_bytes(),
            &order.data_len.to_le_bytes(),
            &order.msg_len.to_le_bytes(),
            &order.delay_ms.to_le_bytes(),
            &[0; 4],
        ];
        let bytes = fields.iter().flat_map(|field| field.iter());
        head.iter_mut()
            .zip(bytes)
            .for_each(|(to, from)| *to = *from);
        pattern.fill(SIZE, rest);
    }

    /// Reads the message of a request with `data_len` bytes of data.
    ///
    /// # Errors
    ///
    /// [`CORRUPT`] if any byte or length is not as it was sent.
    pub(crate) fn read(msg: &[u8], data_len: usize) -> Result<Self> {
        let corrupt = || Error::from_errno(CORRUPT);
        let msg_len = u32::try_from(msg.len())?;
        let data_len = u32::try_from(data_len)?;
        let Some((head, rest)) = msg.split_first_chunk::<SIZE>() else {
            let order = Self::implied(data_len, msg_len);
            return match Pattern::of_message(order.seed).mismatch(0, msg) {
                None => Ok(order),
                Some(_) => Err(corrupt()),
            };
        };
        let mut head = Reader(head);
        let magic = u32::from_le_bytes(head.take()?);
        let [how, zero] = head.take()?;
        let order = Self {
            how: How::from_byte(how).map_err(|_| corrupt())?,
            errno: u16::from_le_bytes(head.take()?),
            seed: u64::from_le_bytes(head.take()?),
            data_len: u32::from_le_bytes(head.take()?),
            msg_len: u32::from_le_bytes(head.take()?),
            delay_ms: u32::from_le_bytes(head.take()?),
        };
        let zeroes = u32::from_le_bytes(head.take()?);
        let good = magic == MAGIC
            && (zero, zeroes) == (0, 0)
            && (order.data_len, order.msg_len) == (data_len, msg_len)
            && Pattern::of_message(order.seed)
                .mismatch(SIZE, rest)
                .is_none();
        if good {
            Ok(order)
        } else {
            Err(corrupt())
        }
    }
}

/// Reads fields from the start of a message.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk().ok_or(EINVAL)?;
        self.0 = rest;
        Ok(*field)
    }
}
