// SPDX-License-Identifier: GPL-2.0

//! The fields of a client's messages, and numbers to put into them.

/// A field of a message: its offset and length in bytes.
pub type Field = (usize, usize);

/// The fields of a request to connect.
pub const CONN_REQ: &[Field] = &[
    (0, 1),
    (1, 1),
    (2, 2),
    (4, 2),
    (6, 2),
    (8, 2),
    (10, 2),
    (12, 16),
    (28, 16),
    (44, 1),
    (45, 1),
    (46, 4),
    (50, 6),
];
/// The fields of the question for chunks.
pub const INFO_REQ: &[Field] = &[(0, 2), (2, 255), (257, 15)];
/// The fields of a request to write, from the start of its message.
pub const WRITE: &[Field] = &[(0, 2), (2, 2)];
/// The fields of a request to read.
pub const READ: &[Field] = &[(0, 2), (2, 2), (4, 2), (6, 2), (8, 8), (16, 4), (20, 4)];

/// Numbers that are often limits.
pub const LIMITS: &[u64] = &[
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    15,
    16,
    36,
    64,
    128,
    255,
    256,
    272,
    511,
    512,
    513,
    4095,
    4096,
    4097,
    8192,
    16384,
    32767,
    32768,
    65535,
    65536,
    131_071,
    131_072,
    131_073,
    1 << 28,
    (1 << 28) - 1,
    (1 << 31) - 1,
    1 << 31,
    u32::MAX as u64,
    u32::MAX as u64 + 1,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
    u64::MAX - 4095,
];
