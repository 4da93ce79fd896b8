// SPDX-License-Identifier: GPL-2.0

//! Module parameters, checked, and the configuration of a server.

use kernel::{
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::atomic::{
        Acquire,
        Atomic,
        Release, //
    },
};

use rtrs_bindings::{
    pages::{
        total_ram,
        Pages, //
    },
    param::module_params, //
};
use rtrs_core::{
    addr::Addr,
    proto::{
        Capabilities,
        Geometry,
        SENT_DATA, //
    },
};

use crate::logic::{
    linger::Linger,
    listen::{
        self,
        ListenError,
        Overrides, //
    },
    quota::Resource,
    source::{
        Prefixes,
        Source, //
    },
};

module_params! {
    /// Keys change with every request.
    static ALWAYS_INVALIDATE: bool = "always_invalidate", true,
        "Invalidate the key of a chunk for every request, so that the client cannot change what is being processed (default: Y)";
    /// Data that is copied instead of having its chunk's key invalidated, in bytes.
    static COPY_MAX: int = "copy_max", 4096,
        "With always_invalidate, bytes of data up to which a request is copied, and the key of its chunk stays: 0 to 65536, 0: none is (default: 4096)",
        |bytes| match bytes {
            0..=65536 => Ok(()),
            _ => Err("must be 0 to 65536"),
        };
    /// Chunks that have private pages for reads of more data than are copied.
    static PRIVATE_CHUNKS: int = "private_chunks", 16,
        "With always_invalidate and copy_max, of each 64 chunks this many have private pages for reads of up to 64 KiB, during which the key of the chunk stays: 0 to 64 (default: 16)",
        |count| match count {
            0..=64 => Ok(()),
            _ => Err("must be 0 to 64"),
        };
    /// Bytes up to which an answer without data is copied to its work request.
    static INLINE_MAX: int = "inline_max", 128,
        "Bytes up to which an answer without data goes to the device in its work request, if there is room in those of the device: 0 to 256 (default: 128)",
        |bytes| match bytes {
            0..=256 => Ok(()),
            _ => Err("must be 0 to 256"),
        };
    /// Writes of few data may come as messages.
    static TAKE_SENDS: bool = "take_sends", true,
        "With always_invalidate and copy_max, let clients send writes of up to 4096 bytes as messages, which are received into private pages (default: Y)";
    /// Bytes of the data of answers that a connection has under way.
    static AHEAD_MAX: int = "ahead_max", 524_288,
        "With always_invalidate, bytes of data of answers of more than 4 KiB each that are under way on a connection when its further requests wait, 0: no limit (default: 524288)",
        |bytes| match bytes {
            0 | 65536..=1_073_741_824 => Ok(()),
            _ => Err("must be 0, or 65536 to 1073741824"),
        };
    /// Bytes of a chunk.
    static MAX_CHUNK_SIZE: int = "max_chunk_size", 131072,
        "Bytes of a chunk, which holds data and header of a request: a power of two, 8192 to 4194304 (default: 131072)",
        |size| match size {
            8192..=4194304 if size.count_ones() == 1 => Ok(()),
            _ => Err("must be a power of two, 8192 to 4194304"),
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
    /// How long it is kept if the client says how long it waits.
    static SESSION_LINGER_MAX: int = "session_linger_max",  3600,
        "Seconds at most, if they are more than session_linger, for a client that says how long it waits for a path (default: 3600)",
        |secs| match secs {
            0..=86_400 => Ok(()),
            _ => Err("must be 0 to 86400"),
        };
    /// How many bits of an IPv4 address make the source of a client.
    static SOURCE_PREFIX_V4: int = "source_prefix_v4", 32,
        "IPv4 clients whose addresses begin with the same number of bits are one source for the shares of a source: 0 to 32 (default: 32)",
        |bits| match bits {
            0..=32 => Ok(()),
            _ => Err("must be 0 to 32"),
        };
    /// How many bits of an IPv6 address make the source of a client.
    static SOURCE_PREFIX_V6: int = "source_prefix_v6", 64,
        "The same for IPv6, but for link-local addresses, each of which is one: 0 to 128 (default: 64)",
        |bits| match bits {
            0..=128 => Ok(()),
            _ => Err("must be 0 to 128"),
        };
    /// How often a path of one source may be started.
    static MAX_STARTS_PER_SOURCE: int = "max_starts_per_source", 64,
        "Paths that one source may start in a second, on average; so many as in 16 s at once, 0: no limit (default: 64)",
        |count| match count {
            0..=65536 => Ok(()),
            _ => Err("must be 0 to 65536"),
        };
    /// How long a client may take to connect a path.
    static HANDSHAKE_TIMEOUT_MS: int = "handshake_timeout_ms", 30_000,
        "Milliseconds a client has for the handshake of a path: 1000 to 600000 (default: 30000)",
        |ms| match ms {
            1_000..=600_000 => Ok(()),
            _ => Err("must be 1000 to 600000"),
        };
    /// Time after which an unacknowledged packet is sent again.
    static ACK_TIMEOUT: int = "ack_timeout", 0,
        "An unacknowledged packet is repeated after 4.096 us * 2^n, 0: as the connection manager has it (default: 0)",
        |n| match n {
            0..=31 => Ok(()),
            _ => Err("must be 0 to 31"),
        };
    /// Settings of single ports.
    static LISTEN: charp = "listen", c"",
        "What is different for servers on these ports: PORT:KEY=VALUE[:KEY=VALUE...][,PORT:...], with keys always_invalidate, sess_queue_depth, max_chunk_size (default: nothing)",
        check_listen;
    /// Sessions.
    static MAX_SESSIONS: int = "max_sessions", 1024,
        "Sessions at most: 1 to 4096 (default: 1024)",
        |max| within(Resource::Sessions, max, "must be 1 to 4096");
    /// Sessions of one source address.
    static MAX_SESSIONS_PER_SOURCE: int = "max_sessions_per_source", 256,
        "Sessions of one source address at most: 1 to 4096 (default: 256)",
        |max| within(Resource::SessionsPerSource, max, "must be 1 to 4096");
    /// Paths in their handshake.
    static MAX_HANDSHAKES: int = "max_handshakes", 1024,
        "Paths that are being connected at most: 1 to 65536 (default: 1024)",
        |max| within(Resource::Handshakes, max, "must be 1 to 65536");
    /// Paths of one source address in their handshake.
    static MAX_HANDSHAKES_PER_SOURCE: int = "max_handshakes_per_source", 256,
        "Paths of one source address that are being connected at most: 1 to 65536 (default: 256)",
        |max| within(Resource::HandshakesPerSource, max, "must be 1 to 65536");
    /// Paths of a session.
    static MAX_PATHS: int = "max_paths_per_session", 32,
        "Paths of a session at most: 1 to 128 (default: 32)",
        |max| within(Resource::PathsPerSession, max, "must be 1 to 128");
    /// Connections.
    static MAX_CONS: int = "max_cons", 65536,
        "Connections at most: 2 to 1048576 (default: 65536)",
        |max| within(Resource::Cons, max, "must be 2 to 1048576");
    /// Connections of a path.
    static MAX_CONS_PER_PATH: int = "max_cons_per_path", 1024,
        "Connections of a path at most, a client has one for each of its CPUs and polled queues, and one more: 2 to 4096 (default: 1024)",
        |max| within(Resource::ConsPerPath, max, "must be 2 to 4096");
    /// Connections of one source address.
    static MAX_CONS_PER_SOURCE: int = "max_cons_per_source", 8192,
        "Connections of one source address at most: 2 to 1048576 (default: 8192)",
        |max| within(Resource::ConsPerSource, max, "must be 2 to 1048576");
    /// Memory of chunks and queues in MiB.
    static MAX_MEMORY: int = "max_memory", 0,
        "MiB of memory for chunks and queues at most, 0: half of the machine's (default: 0)",
        |mib| mebibytes(mib);
    /// Memory of chunks and queues of one source address in MiB.
    static MAX_MEMORY_PER_SOURCE: int = "max_memory_per_source", 0,
        "MiB of memory for chunks and queues of one source address at most, 0: half of max_memory (default: 0)",
        |mib| mebibytes(mib);
}

/// Returns the exponent of the time after which an unacknowledged packet is sent again; `None` if
/// it is left to the connection manager.
pub(crate) fn ack_timeout() -> Option<u8> {
    // CAST: The value has 5 bits.
    Some(ACK_TIMEOUT.get() as u8).filter(|n| *n != 0)
}

/// Bytes up to which an answer without data is copied to its work request, if the device has room
/// for that; 0 if none is.
pub(crate) fn inline_max() -> u32 {
    INLINE_MAX.get().unsigned_abs()
}

/// Time that a client has for the handshake of a path, in milliseconds.
pub(crate) fn handshake_timeout_ms() -> u32 {
    HANDSHAKE_TIMEOUT_MS.get().unsigned_abs()
}

/// Returns the source of a client, the unit of shares.
pub(crate) fn source_of(addr: Option<Addr>) -> Source {
    let prefixes = Prefixes {
        v4: SOURCE_PREFIX_V4.get().unsigned_abs(),
        v6: SOURCE_PREFIX_V6.get().unsigned_abs(),
    };
    Source::new(addr, prefixes)
}

/// Paths of one source that may be started in a second, on average; 0 means no limit.
pub(crate) fn starts_per_source() -> u32 {
    MAX_STARTS_PER_SOURCE.get().unsigned_abs()
}

/// Returns the time, in nanoseconds, that a client has left after a thirtieth of its handshake
/// time. A client with less time left gives way to others when there is no room.
pub(crate) fn deadline_of_late_ns() -> u64 {
    u64::from(handshake_timeout_ms() / 30 * 29).saturating_mul(1_000_000)
}

const MIB: u64 = 1 << 20;

/// Numbers of chunks that are next to each other, of which clients take the lowest ones first: as
/// many as there are in a word of a client's bitmap.
const CHUNK_GROUP: u16 = 64;

/// Bytes of a read up to which it can have private pages, if it is not copied. Of longer ones the
/// registration is a small part.
const PRIVATE_MAX: u32 = 65536;

fn within(resource: Resource, max: i32, what: &'static str) -> Result<(), &'static str> {
    match u64::try_from(max) {
        Ok(max) if resource.range().contains(&max) => Ok(()),
        _ => Err(what),
    }
}

fn mebibytes(mib: i32) -> Result<(), &'static str> {
    match mib {
        0..=0x4000_0000 => Ok(()),
        _ => Err("must be 0 to 1073741824"),
    }
}

/// Returns the initial maximum of `resource`.
pub(crate) fn max_of(resource: Resource) -> u64 {
    let param = match resource {
        Resource::Sessions => &MAX_SESSIONS,
        Resource::SessionsPerSource => &MAX_SESSIONS_PER_SOURCE,
        Resource::Handshakes => &MAX_HANDSHAKES,
        Resource::HandshakesPerSource => &MAX_HANDSHAKES_PER_SOURCE,
        Resource::PathsPerSession => &MAX_PATHS,
        Resource::Cons => &MAX_CONS,
        Resource::ConsPerPath => &MAX_CONS_PER_PATH,
        Resource::ConsPerSource => &MAX_CONS_PER_SOURCE,
        Resource::Memory => &MAX_MEMORY,
        Resource::MemoryPerSource => &MAX_MEMORY_PER_SOURCE,
    };
    let max = u64::from(param.get().unsigned_abs());

    match resource {
        Resource::Memory if max == 0 => total_ram() / 2,
        Resource::MemoryPerSource if max == 0 => max_of(Resource::Memory) / 2,
        Resource::Memory | Resource::MemoryPerSource => max.saturating_mul(MIB),
        _ => max,
    }
}

/// Settings of a user for its server; `None`: as the module's parameters say for this port.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerConfig {
    /// The port to listen on.
    pub port: u16,
    /// Chunks of a path, which is the number of requests a session can have at a time: 1 to 65535.
    pub queue_depth: Option<u16>,
    /// Bytes of a chunk: a power of two from 8 KiB to 4 MiB.
    pub chunk_size: Option<u32>,
    /// The client cannot change the data while they are processed.
    pub always_invalidate: Option<bool>,
}

impl ServerConfig {
    /// Takes all other settings from the parameters.
    pub fn new(port: u16) -> Self {
        Self {
            port,
            ..Self::default()
        }
    }
}

/// Settings of a server for all its clients.
pub(crate) struct Config {
    /// Sizes.
    pub(crate) geometry: Geometry,
    /// Keys change with every request.
    pub(crate) always_invalidate: bool,
    /// Bytes of data up to which a request is copied and the key of its chunk stays.
    pub(crate) copy_max: u32,
    /// This many of each [`CHUNK_GROUP`] chunks have private pages for reads of up to
    /// [`PRIVATE_MAX`] bytes.
    pub(crate) private_chunks: u16,
    /// Writes of few data may come as messages.
    take_sends: bool,
    /// See [`portion`](Self::portion).
    portion: u32,
    /// How long a session without paths is kept.
    pub(crate) linger: Linger,
    /// Bytes of memory for the chunks of a path, without pages for sent writes.
    chunk_memory: u64,
}

impl Config {
    /// Combines `wish` and the parameters. An error is logged with its reason.
    ///
    /// # Errors
    ///
    /// `EINVAL`.
    pub(crate) fn new(wish: &ServerConfig) -> Result<Self> {
        let here = LISTEN.with(|text| overrides(text, wish.port))?;
        let depth = wish.queue_depth.map(i64::from);
        let size = wish.chunk_size.map(i64::from);

        let mut this = Self {
            geometry: geometry(&here, depth, size)?,
            always_invalidate: wish
                .always_invalidate
                .or(here.always_invalidate)
                .unwrap_or_else(|| ALWAYS_INVALIDATE.get()),
            copy_max: COPY_MAX.get().unsigned_abs(),
            // CAST: At most 64.
            private_chunks: PRIVATE_CHUNKS.get() as u16,
            take_sends: TAKE_SENDS.get(),
            portion: AHEAD_MAX.get().unsigned_abs() / 2,
            linger: Linger {
                secs: SESSION_LINGER.get().unsigned_abs(),
                max_secs: SESSION_LINGER_MAX.get().unsigned_abs(),
            },
            chunk_memory: 0,
        };
        this.chunk_memory = this.own_chunk_memory();
        Ok(this)
    }

    /// Bytes of a portion of the data of answers. While two are under way on a connection, its next
    /// requests are not handed to the user. 0 for no limit.
    ///
    /// There is none if keys do not change: mainline's server does not wait then either, and the completion of
    /// each portion would be one more than it has.
    pub(crate) fn portion(&self) -> u32 {
        match self.always_invalidate {
            true => self.portion,
            false => 0,
        }
    }

    /// Whether writes of few data of `client` may come as messages. Its answers must need no key. A page
    /// has the most data of such a write: larger ones would be wasted.
    pub(crate) fn takes_sends_of(&self, client: &Capabilities) -> bool {
        let can = self.take_sends && self.always_invalidate && self.copy_max != 0;
        // CAST: Widening.
        let fits = const { PAGE_SIZE == SENT_DATA as usize };

        can && fits && client.keeps_keys && client.sends.is_some()
    }

    /// Bytes of memory for the chunks of a path, the client of which may send writes or not.
    pub(crate) fn chunk_memory(&self, takes_sends: bool) -> u64 {
        let pages = match takes_sends {
            true => u64::from(self.geometry.queue_depth()) << PAGE_SHIFT,
            false => 0,
        };
        self.chunk_memory.saturating_add(pages)
    }

    /// Bytes of private pages of chunk `buf_id`: those that are copied, and for the first chunks of
    /// each group more, for reads; 0 for none. Reads use whole pages.
    ///
    /// Clients take numbers from the start: mainline's of all of them, this one's of the group of
    /// the CPU. So the few chunks that have more pages are used for most requests.
    pub(crate) fn private_len(&self, buf_id: u16) -> u32 {
        match self.copy_max {
            0 => 0,
            _ if !self.always_invalidate => 0,
            small if buf_id % CHUNK_GROUP < self.private_chunks => {
                small.max(self.geometry.chunk_size().min(PRIVATE_MAX))
            }
            small => small,
        }
    }

    /// Adds up the memory for the chunks of a path, without pages for sent writes.
    fn own_chunk_memory(&self) -> u64 {
        let allocated = |size: u32| {
            // CAST: At most 4 MiB.
            let bits = Pages::order_of(size as usize).checked_add(PAGE_SHIFT as u32);
            bits.and_then(|bits| 1u64.checked_shl(bits))
                .unwrap_or(u64::MAX)
        };
        let chunk = allocated(self.geometry.chunk_size());

        (0..self.geometry.queue_depth()).fold(0u64, |sum, buf_id| {
            let private = match self.private_len(buf_id) {
                0 => 0,
                len => allocated(len),
            };
            sum.saturating_add(chunk).saturating_add(private)
        })
    }
}

fn geometry(here: &Overrides, depth: Option<i64>, size: Option<i64>) -> Result<Geometry> {
    let or_param = |wish: Option<i64>, here: Option<i32>, param: i32| {
        wish.unwrap_or(here.unwrap_or(param).into())
    };
    let depth = or_param(depth, here.queue_depth, SESS_QUEUE_DEPTH.get());
    let size = or_param(size, here.chunk_size, MAX_CHUNK_SIZE.get());
    // The header has one page, as clients know it, but never more than half of a chunk, which it
    // would have with large pages.
    let page = u32::try_from(PAGE_SIZE)?;
    let header = u32::try_from(size / 2).map_or(page, |half| page.min(half));

    Geometry::server(depth, size, header).map_err(|e| {
        pr_err!(
            "sess_queue_depth={depth} max_chunk_size={size}: {}\n",
            e.as_str()
        );
        EINVAL
    })
}

/// Returns the settings in `text` for a port.
fn overrides(text: &CStr, port: u16) -> Result<Overrides> {
    let text = text.to_str().map_err(|_| EINVAL)?;

    listen::overrides(text, port).map_err(|e| {
        pr_err!("listen: {}\n", e.as_str());
        EINVAL
    })
}

/// The parameters are complete: a new value has to fit the others.
static COMPLETE: Atomic<bool> = Atomic::new(false);

/// Checks the syntax of `text`, and the sizes in it.
fn check_listen(text: &CStr) -> Result<(), &'static str> {
    let text = text.to_str().map_err(|_| "not a text")?;

    for entry in listen::ports(text) {
        let (_, here) = entry.map_err(ListenError::as_str)?;
        // Before that, parameters come in any order.
        if COMPLETE.load(Acquire) {
            geometry(&here, None, None).map_err(|_| "sizes that do not go together")?;
        }
    }
    Ok(())
}

/// Refuses parameters that do not fit together.
pub(crate) fn init() -> Result {
    geometry(&Overrides::default(), None, None)?;
    LISTEN.with(|text| {
        COMPLETE.store(true, Release);
        for entry in listen::ports(text.to_str().map_err(|_| EINVAL)?) {
            let (_, here) = entry.map_err(|_| EINVAL)?;
            geometry(&here, None, None)?;
        }
        Ok(())
    })
}
