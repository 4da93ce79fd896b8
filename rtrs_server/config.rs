// SPDX-License-Identifier: GPL-2.0

//! Module parameters, checked.

use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};

use rtrs_bindings::param::module_params;
use rtrs_core::proto::Geometry;

module_params! {
    /// Keys change with every request.
    static ALWAYS_INVALIDATE: bool = "always_invalidate", true,
        "Invalidate the key of a chunk for every request, so that the client cannot change what is being processed (default: Y)";
    /// Bytes of a chunk.
    static MAX_CHUNK_SIZE: int = "max_chunk_size", 131072,
        "Bytes of a chunk, which holds data and header of a request: a power of two of at least 8192 (default: 131072)",
        |size| match size {
            8192.. if size.count_ones() == 1 => Ok(()),
            _ => Err("must be a power of two of at least 8192"),
        };
    /// Chunks of a session.
    static SESS_QUEUE_DEPTH: int = "sess_queue_depth", 512,
        "Chunks of a session, which is how many requests it can have at a time: 1 to 65535 (default: 512)",
        |depth| match depth {
            1..=65535 => Ok(()),
            _ => Err("must be 1 to 65535"),
        };
    /// How long a session without paths is kept.
    static SESSION_LINGER: int = "session_linger",  30,
        "Seconds a session that lost its last path is kept for a client that comes back, 0: not at all (default: 30)",
        |secs| match secs {
            0..=3600 => Ok(()),
            _ => Err("must be 0 to 3600"),
        };
}

/// What a server offers to all its clients.
pub(crate) struct Config {
    /// Sizes.
    pub(crate) geometry: Geometry,
    /// Keys change with every request.
    pub(crate) always_invalidate: bool,
    /// How long a session without paths is kept, in seconds.
    pub(crate) linger_secs: u32,
}

impl Config {
    /// What the parameters say.
    pub(crate) fn from_params() -> Result<Self> {
        Ok(Self {
            geometry: geometry()?,
            always_invalidate: ALWAYS_INVALIDATE.get(),
            linger_secs: SESSION_LINGER.get().unsigned_abs(),
        })
    }
}

fn geometry() -> Result<Geometry> {
    let (depth, size) = (SESS_QUEUE_DEPTH.get(), MAX_CHUNK_SIZE.get());
    // A page for the header, as clients know it, but never more than half of a chunk, which with
    // large pages it would be.
    let header = u32::try_from(PAGE_SIZE)?.min(size.unsigned_abs() / 2);

    Geometry::server(i64::from(depth), i64::from(size), header).map_err(|e| {
        pr_err!(
            "sess_queue_depth={depth} max_chunk_size={size}: {}\n",
            e.as_str()
        );
        EINVAL
    })
}

/// Refuses parameters that do not go together.
pub(crate) fn init() -> Result {
    geometry().map(|_| ())
}
