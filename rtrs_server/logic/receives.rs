// SPDX-License-Identifier: GPL-2.0

//! How many receives a connection has, and what their memory is counted as.

use rtrs_core::{
    proto::{
        MostSent,
        SENT_DATA,
        SENT_REST, //
    },
    qp_size::RECV_BATCH, //
};

/// Permits of a word of a client's bitmap: all of them may be in use on the connection of one CPU.
const WORD: u32 = 64;

/// Receives of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Receives {
    /// All receives.
    pub posted: u32,
    /// The receives that the client does not count on.
    pub spare: u32,
}

impl Receives {
    /// As many as there is room for, with `counted_on` that the client counts on.
    pub fn of(room: u32, counted_on: u32) -> Self {
        let posted = room.min(counted_on.saturating_add(RECV_BATCH));
        Self {
            posted,
            spare: posted.saturating_sub(counted_on),
        }
    }
}

/// The most receives for sent writes that a client can count on, on each of `io` connections of a path
/// with `depth` chunks: what a client needs that spreads its requests by the words of its permits. One
/// that asks for more waits for its own answers.
pub fn most_counted_on(depth: u16, io: u16) -> u32 {
    let depth = u32::from(depth);
    let words = depth.div_ceil(WORD).div_ceil(io.max(1).into());

    words.saturating_mul(WORD).min(depth)
}

/// The receives that a client can count on, on a connection where it has up to `most` requests at a
/// time, as it says.
pub fn counted_on(depth: u16, io: u16, most: MostSent) -> u32 {
    most.requests().min(most_counted_on(depth, io))
}

/// Bytes of memory of `receives` receives for sent writes.
pub fn memory(receives: u32) -> u64 {
    u64::from(receives).saturating_mul((SENT_DATA + SENT_REST).into())
}
