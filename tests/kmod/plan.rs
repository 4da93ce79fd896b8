// SPDX-License-Identifier: GPL-2.0

//! The parameters of a run of requests.

use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};
use rtrs_client::api::{
    Connection,
    DataDir,
    Wait, //
};

use crate::{
    args::Args,
    order::{
        How,
        Order, //
    },
};

/// Upper bounds of the parameters.
const MAX_LEN: usize = 4 << 20;
const MAX_MESSAGE: usize = 1 << 20;
const MAX_SEGMENTS: usize = 1024;
const MAX_DEPTH: usize = 2048;
/// Memory for the data of a run.
const MAX_MEMORY: usize = 512 << 20;
/// Maximum number of pieces of a message.
pub(crate) const MAX_PIECES: usize = 16;

/// The results that count as right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// This result only.
    Result(i32),
    /// Any result: the test does not control it. Each request must only complete.
    Any,
}

/// How the data is divided into segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// Shaped so that a device can register it: the first segment starts at the offset, and
    /// segments meet at page boundaries.
    Pages,
    /// Segments of equal length, each at the offset in its page.
    Gaps,
}

/// A run of requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) dir: DataDir,
    pub(crate) connection: Connection,
    /// How to wait for a permit.
    pub(crate) wait: Wait,
    pub(crate) len: usize,
    segs: usize,
    off: usize,
    shape: Shape,
    /// Bytes of the user message.
    pub(crate) msg: usize,
    /// Number of pieces that the message is passed in.
    pub(crate) pieces: usize,
    /// Total number of requests.
    pub(crate) count: u64,
    /// Number of requests at a time.
    pub(crate) depth: usize,
    seed: u64,
    how: How,
    errno: u16,
    delay_ms: u32,
    pub(crate) expect: Expect,
    /// Submit the next request in the context in which the last one was completed.
    pub(crate) chain: bool,
    /// Drop the session as soon as the first requests are in flight.
    pub(crate) drop: bool,
    /// Milliseconds without progress after which requests count as lost.
    pub(crate) timeout_ms: u32,
}

impl Plan {
    /// The keys a plan is made of.
    pub(crate) const KEYS: &'static [&'static str] = &[
        "name", "tag", "dir", "con", "queue", "wait", "len", "segs", "off", "shape", "msg",
        "pieces", "count", "depth", "seed", "how", "errno", "delay", "expect", "chain", "drop",
        "timeout",
    ];

    /// Makes a plan from a command.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an invalid value, `E2BIG` for more than a test should need.
    pub(crate) fn new(args: &Args<'_>) -> Result<Self> {
        let plan = Self {
            dir: match args.get("dir").unwrap_or("write") {
                "write" => DataDir::Write,
                "read" => DataDir::Read,
                _ => return Err(EINVAL),
            },
            connection: match args.get("con").unwrap_or("io") {
                "io" => Connection::Io,
                "admin" => Connection::Admin,
                "polled" => Connection::Polled(args.number("queue", 0)?),
                _ => return Err(EINVAL),
            },
            wait: match args.get("wait").unwrap_or("yes") {
                "yes" => Wait::Yes,
                "no" => Wait::No,
                _ => return Err(EINVAL),
            },
            len: args.number("len", 4096)?,
            segs: args.number("segs", 1)?,
            off: args.number("off", 0)?,
            shape: match args.get("shape").unwrap_or("pages") {
                "pages" => Shape::Pages,
                "gaps" => Shape::Gaps,
                _ => return Err(EINVAL),
            },
            msg: args.number("msg", 32)?,
            pieces: args.number("pieces", 1)?,
            count: args.number("count", 1)?,
            depth: args.number("depth", 1)?,
            seed: args.number("seed", 1)?,
            how: How::parse(args.get("how").unwrap_or("now"))?,
            errno: args.number("errno", 0)?,
            delay_ms: args.number("delay", 0)?,
            expect: match args.get("expect").unwrap_or("0") {
                "any" => Expect::Any,
                number => Expect::Result(number.parse().map_err(|_| EINVAL)?),
            },
            chain: args.flag("chain")?,
            drop: args.flag("drop")?,
            timeout_ms: args.number::<u32>("timeout", 60)?.saturating_mul(1000),
        };
        if plan.len > MAX_LEN
            || plan.msg > MAX_MESSAGE
            || plan.segs > MAX_SEGMENTS
            || plan.pieces > MAX_PIECES
            || plan.depth > MAX_DEPTH
            || plan.depth.saturating_mul(plan.len) > MAX_MEMORY
        {
            return Err(E2BIG);
        }
        // Requests in a chain must not drop the last reference to a session.
        let chained_drop = plan.chain && plan.drop;
        if plan.depth == 0 || plan.off >= PAGE_SIZE || plan.errno > 4095 || chained_drop {
            return Err(EINVAL);
        }
        Ok(plan)
    }

    /// The order for the server in request `number`.
    pub(crate) fn order(&self, number: u64) -> Result<Order> {
        Ok(Order {
            how: self.how,
            errno: self.errno,
            seed: self.seed.wrapping_mul(0x1_0000_0001).wrapping_add(number),
            data_len: u32::try_from(self.len)?,
            msg_len: u32::try_from(self.msg)?,
            delay_ms: self.delay_ms,
        })
    }

    /// Offset in its page and length of each segment.
    ///
    /// # Errors
    ///
    /// `EDOM` if the length is too small for that many segments.
    pub(crate) fn segments(&self) -> Result<KVec<(usize, usize)>> {
        let mut segments = KVec::with_capacity(self.segs, GFP_KERNEL)?;
        if self.len == 0 {
            return Ok(segments);
        }
        let mut left = self.len;
        let equal = self.len.checked_div(self.segs).ok_or(EINVAL)?;
        for i in 0..self.segs {
            let last = i + 1 == self.segs;
            let (off, len) = match (self.shape, i) {
                (Shape::Pages, 0) => (self.off, PAGE_SIZE - self.off),
                (Shape::Pages, _) => (0, PAGE_SIZE),
                (Shape::Gaps, _) => (self.off, equal),
            };
            let len = if last { left } else { len };
            if len == 0 || len > left {
                return Err(EDOM);
            }
            left -= len;
            segments.push((off, len), GFP_KERNEL)?;
        }
        Ok(segments)
    }
}
