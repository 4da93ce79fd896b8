// SPDX-License-Identifier: GPL-2.0

//! Module parameters.

use core::ops::RangeInclusive;

use rtrs_bindings::param::module_params;
use rtrs_core::proto::{
    heartbeat,
    Capabilities,
    MostSent,
    PathWait,
    SENT_DATA, //
};

/// Bounds of the heartbeat interval, in milliseconds.
pub(crate) const INTERVAL_MS: RangeInclusive<u32> = 100..=60_000;
/// Bounds of the heartbeat limit.
pub(crate) const LIMIT: RangeInclusive<u32> = 1..=100;
/// Bounds of the time that a path may be silent for, in milliseconds.
pub(crate) const SILENT_MS: RangeInclusive<u32> = 100..=60_000;
/// Bounds of the time that requests may wait without an answer, in milliseconds.
pub(crate) const REQUEST_MS: RangeInclusive<u32> = 0..=3_600_000;
/// Bounds of the ack time-out: the field of the specification has 5 bits.
pub(crate) const ACK_TIMEOUT_EXPONENT: RangeInclusive<u32> = 0..=31;

const _: () = assert!(
    heartbeat::DEFAULT_INTERVAL_MS >= *INTERVAL_MS.start()
        && heartbeat::DEFAULT_INTERVAL_MS <= *INTERVAL_MS.end()
);

module_params! {
    /// How long requests of new sessions wait for a path, in seconds.
    static FAST_IO_FAIL_TMO: int_or_off = "fast_io_fail_tmo", 180,
        "seconds a request waits for a path, 0: fail at once, off: for ever (default: 180)",
        |secs| if (0..=FailAfter::MAX_SECS as i32).contains(&secs) {
            Ok(())
        } else {
            Err("has to be 0..86400, or off")
        };
    /// Time between the heartbeats of new sessions, in milliseconds.
    static HEARTBEAT_INTERVAL_MS: int =
        "heartbeat_interval_ms", heartbeat::DEFAULT_INTERVAL_MS as i32,
        "milliseconds between heartbeats (default: 5000)",
        |ms| within(ms, &INTERVAL_MS, "has to be 100..60000");
    /// Intervals without a sign of life after which a path of a new session is dead.
    static HEARTBEAT_LIMIT: int = "heartbeat_limit", heartbeat::DEFAULT_LIMIT as i32,
        "heartbeat intervals without a sign of life after which a path is dead (default: 5)",
        |limit| within(limit, &LIMIT, "has to be 1..100");
    /// How long a path of a new session may be silent for while others are not, in milliseconds.
    static SILENT_PATH_MS: int = "silent_path_ms", 800,
        "milliseconds a path may owe answers and be silent while others of its session are not (default: 800)",
        |ms| within(ms, &SILENT_MS, "has to be 100..60000");
    /// How long requests of new sessions may wait while none is answered, in milliseconds.
    static REQUEST_TIMEOUT_MS: int = "request_timeout_ms", 120_000,
        "milliseconds requests may wait on a path while none is answered there, 0: for ever (default: 120000)",
        |ms| within(ms, &REQUEST_MS, "has to be 0..3600000");
    /// How long establishing a link may take, in milliseconds.
    static CONNECT_TIMEOUT_MS: int = "connect_timeout_ms", 30_000,
        "milliseconds an attempt to connect a path may take: 1000..600000 (default: 30000)",
        |ms| within(ms, &(1_000..=600_000), "has to be 1000..600000");
    /// How long requests are held back when a path to a server that does not order copies ends, and
    /// paths when requests have failed.
    static COPY_FENCE_MS: int = "copy_fence_ms", 1000,
        "milliseconds that requests are held back when a path ends, if the server may execute them beside their first copy (mainline's), and paths after requests have failed: 0..60000 (default: 1000)",
        |ms| within(ms, &(0..=60_000), "has to be 0..60000");
    /// Data that is copied instead of being mapped and registered, in bytes.
    static COPY_MAX: int = "copy_max", 4096,
        "bytes of data up to which a request of a new link has them copied, not registered: 0 or a power of two, 512..65536 (default: 4096)",
        |bytes| match bytes {
            0 => Ok(()),
            512..=65536 if bytes.count_ones() == 1 => Ok(()),
            _ => Err("has to be 0, or a power of two of 512..65536"),
        };
    /// Bytes up to which a message is copied to its work request.
    static INLINE_MAX: int = "inline_max", 128,
        "bytes up to which the message of a request goes to the device in the work request, if the device has room there and the request has no data of a write: 0..256 (default: 128)",
        |bytes| within(bytes, &(0..=256), "has to be 0..256");
    /// Most requests at a time that a server may offer.
    static MAX_QUEUE_DEPTH: int = "max_queue_depth", 16384,
        "requests at a time that a server may offer a session, each of which takes memory here: 1..65535 (default: 16384)",
        |depth| within(depth, &(1..=65_535), "has to be 1..65535");
    /// Servers need not send keys that have not changed.
    static KEEP_KEYS: bool = "keep_keys", true,
        "tell servers of new links that an answer without a key leaves it as it was (default: Y)";
    /// Servers may answer a read by the message that invalidates its key.
    static INVAL_ANSWERS: bool = "inval_answers", true,
        "tell servers of new links that the message that invalidates the key of a read may be the answer (default: Y)";
    /// Servers need not send the next key of a chunk.
    static COUNT_KEYS: bool = "count_keys", true,
        "tell servers of new links with keep_keys that they need not send a key that is one higher (default: Y)";
    /// Writes of few data may go to servers as messages.
    static SEND_WRITES: bool = "send_writes", true,
        "send writes of few data as messages on new links, to servers that take them (default: Y)";
    /// Acknowledged writes survive a power loss of the server.
    static WRITE_CACHE_SURVIVES: bool = "write_cache_survives", false,
        "what servers have in volatile write caches survives their restart: go on with such devices as well (default: N)";
    /// Exponent of the ack time-out of new sessions.
    static ACK_TIMEOUT: int = "ack_timeout", 0,
        "an unacknowledged packet is repeated after 4.096 us * 2^n, 0: as the connection manager has it (default: 0)",
        |n| within(n, &ACK_TIMEOUT_EXPONENT, "has to be 0..31");
}

/// How long requests wait for a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailAfter {
    /// A number of seconds; 0 means that requests do not wait.
    Secs(u32),
    /// For ever.
    Never,
}

impl FailAfter {
    /// Maximum, in seconds: a day.
    pub(crate) const MAX_SECS: u32 = 86_400;

    /// Converts a number, negative for [`FailAfter::Never`].
    pub(crate) fn from_int(secs: i32) -> Self {
        match u32::try_from(secs) {
            Ok(secs) => Self::Secs(secs.min(Self::MAX_SECS)),
            Err(_) => Self::Never,
        }
    }

    /// The form in which the server is told.
    pub(crate) fn to_path_wait(self) -> PathWait {
        match self {
            Self::Secs(secs) => PathWait::from_secs(secs),
            Self::Never => PathWait::Forever,
        }
    }

    /// Returns the number that [`FailAfter::from_int`] takes.
    pub(crate) fn to_int(self) -> i32 {
        match self {
            Self::Secs(secs) => i32::try_from(secs).unwrap_or(i32::MAX),
            Self::Never => -1,
        }
    }

    /// Parses the text written to a file: seconds, or `off`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text == "off" {
            return Some(Self::Never);
        }
        match text.parse() {
            Ok(secs) if secs <= Self::MAX_SECS => Some(Self::Secs(secs)),
            _ => None,
        }
    }
}

/// Whether a number is inside its bounds.
fn within(
    value: i32,
    range: &RangeInclusive<u32>,
    why: &'static str,
) -> core::result::Result<(), &'static str> {
    match u32::try_from(value) {
        Ok(value) if range.contains(&value) => Ok(()),
        _ => Err(why),
    }
}

/// Time between the heartbeats of a new session, in milliseconds.
pub(crate) fn heartbeat_interval_ms() -> u32 {
    HEARTBEAT_INTERVAL_MS.get().unsigned_abs()
}

/// Intervals without a sign of life after which a path of a new session is dead.
pub(crate) fn heartbeat_limit() -> u32 {
    HEARTBEAT_LIMIT.get().unsigned_abs()
}

/// How long a path of a new session may be silent for while others are not, in milliseconds.
pub(crate) fn silent_path_ms() -> u32 {
    SILENT_PATH_MS.get().unsigned_abs()
}

/// How long requests of a new session may wait while none is answered, in milliseconds; 0 for ever.
pub(crate) fn request_timeout_ms() -> u32 {
    REQUEST_TIMEOUT_MS.get().unsigned_abs()
}

/// How long establishing a link may take, in milliseconds.
pub(crate) fn connect_timeout_ms() -> u32 {
    CONNECT_TIMEOUT_MS.get().unsigned_abs()
}

/// How long requests are held back when a path to a server that does not order copies ends, in
/// milliseconds.
pub(crate) fn copy_fence_ms() -> u32 {
    COPY_FENCE_MS.get().unsigned_abs()
}

/// Bytes of data up to which a request of a new link has its data copied; `None` if none are
/// copied.
pub(crate) fn copy_max() -> Option<u32> {
    Some(COPY_MAX.get().unsigned_abs()).filter(|&bytes| bytes != 0)
}

/// Bytes up to which the message of a new link's request is copied to its work request, if the
/// device has room for that; 0 if none is.
pub(crate) fn inline_max() -> u32 {
    INLINE_MAX.get().unsigned_abs()
}

/// Most requests at a time that a server may offer.
pub(crate) fn max_queue_depth() -> u32 {
    MAX_QUEUE_DEPTH.get().unsigned_abs()
}

/// What servers of new links may do: not send keys that have not changed, or that are one higher;
/// answer a read by the message that invalidates its key; take writes as messages, if the link `sends`
/// some.
pub(crate) fn capabilities(sends: bool) -> Capabilities {
    // All data that are copied must fit.
    let fits = copy_max().is_some_and(|bytes| bytes <= SENT_DATA);
    let sends = sends && fits && SEND_WRITES.get() && KEEP_KEYS.get();
    Capabilities {
        keeps_keys: KEEP_KEYS.get(),
        inval_answers: INVAL_ANSWERS.get(),
        inval_answers_always: INVAL_ANSWERS.get(),
        counts_keys: KEEP_KEYS.get() && COUNT_KEYS.get(),
        // Connections for requests say how many.
        sends: sends.then_some(MostSent::of(0)),
    }
}

/// Whether devices keep the contents of a volatile write cache over a restart of their server.
pub(crate) fn write_cache_survives() -> bool {
    WRITE_CACHE_SURVIVES.get()
}

/// Exponent of the ack time-out of a new session.
pub(crate) fn ack_timeout() -> u32 {
    ACK_TIMEOUT.get().unsigned_abs()
}

/// How long requests of a new session wait for a path.
pub(crate) fn fail_after() -> FailAfter {
    FailAfter::from_int(FAST_IO_FAIL_TMO.get())
}
