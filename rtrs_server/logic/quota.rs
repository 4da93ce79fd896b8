// SPDX-License-Identifier: GPL-2.0

//! Limits on the resources of clients: sessions, paths, connections, pinned memory.
//!
//! Clients take all of these without being authenticated, so each has a maximum. There are two
//! kinds. A *total* has one account: a unit is taken before the object is made, and given back
//! after it is gone, or when it gives way to a newcomer. For the resources of one session, path or
//! source address, the objects in a table are counted, under the lock of that table.
//!
//! How often paths may start is limited by a [`Rate`].

use core::{
    fmt,
    ops::RangeInclusive, //
};

use crate::atomic::{
    Atomic,
    Full,
    Relaxed, //
};

/// A limited resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resource {
    /// Sessions, all together.
    Sessions,
    /// Sessions of one source address.
    SessionsPerSource,
    /// Paths in their handshake, all together, except those of sessions that their users have.
    Handshakes,
    /// Paths of one source address in their handshake.
    HandshakesPerSource,
    /// Paths of one session.
    PathsPerSession,
    /// Connections, all together.
    Cons,
    /// Connections of one path.
    ConsPerPath,
    /// Connections of one source address.
    ConsPerSource,
    /// Memory of chunks and queues in bytes, all together.
    Memory,
    /// Memory of chunks and queues of one source address.
    MemoryPerSource,
}

impl Resource {
    /// The number of resources.
    pub const COUNT: usize = 10;

    /// All of them, in the order of their numbers.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Sessions,
        Self::SessionsPerSource,
        Self::Handshakes,
        Self::HandshakesPerSource,
        Self::PathsPerSession,
        Self::Cons,
        Self::ConsPerPath,
        Self::ConsPerSource,
        Self::Memory,
        Self::MemoryPerSource,
    ];

    /// Returns its number.
    pub const fn index(self) -> usize {
        // CAST: The numbers are small and without gaps.
        self as usize
    }

    /// Whether it is a total.
    pub const fn is_total(self) -> bool {
        matches!(
            self,
            Self::Sessions | Self::Handshakes | Self::Cons | Self::Memory
        )
    }

    /// Valid maxima. A server with a maximum outside could serve no client, or serve more than its
    /// tables have room for.
    pub const fn range(self) -> RangeInclusive<u64> {
        match self {
            Self::Sessions | Self::SessionsPerSource => 1..=4096,
            Self::Handshakes | Self::HandshakesPerSource => 1..=65536,
            Self::PathsPerSession => 1..=128,
            Self::Cons | Self::ConsPerSource => 2..=1 << 20,
            Self::ConsPerPath => 2..=4096,
            // The smallest chunk; the most that there can be.
            Self::Memory | Self::MemoryPerSource => 8192..=1 << 50,
        }
    }

    /// A short name for logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sessions => "sessions",
            Self::SessionsPerSource => "sessions per source address",
            Self::Handshakes => "handshakes",
            Self::HandshakesPerSource => "handshakes per source address",
            Self::PathsPerSession => "paths per session",
            Self::Cons => "connections",
            Self::ConsPerPath => "connections per path",
            Self::ConsPerSource => "connections per source address",
            Self::Memory => "bytes of memory",
            Self::MemoryPerSource => "bytes of memory per source address",
        }
    }
}

/// Returns how many sessions of a source count: those that have a path, or half of all. A session
/// without a path is kept for its client. A host that has lost all its sessions by a crash asks for
/// as many new ones, and ends each old one only when it names the new one.
pub fn sessions_that_count(with_path: u64, all: u64) -> u64 {
    with_path.max(all.div_ceil(2))
}

/// The maximum of a resource would be exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverQuota {
    /// The resource.
    pub resource: Resource,
    /// The maximum at that time.
    pub max: u64,
}

impl fmt::Display for OverQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "over quota of {} {}", self.max, self.resource.as_str())
    }
}

/// The maximum of one resource, and the account of a total. May be used from any context, by any
/// number of CPUs.
pub struct Quota {
    resource: Resource,
    max: Atomic<u64>,
    current: Atomic<u64>,
    refused: Atomic<u64>,
}

impl Quota {
    /// A quota of `max` units, none of them in use.
    pub fn new(resource: Resource, max: u64) -> Self {
        Self {
            resource,
            max: Atomic::<u64>::new(max),
            current: Atomic::<u64>::new(0),
            refused: Atomic::<u64>::new(0),
        }
    }

    /// Takes `count` units of a total.
    ///
    /// # Errors
    ///
    /// [`OverQuota`] if more than the maximum would be in use; nothing is taken then.
    pub fn take(&self, count: u64) -> Result<(), OverQuota> {
        let max = self.max();

        self.update(|current| current.checked_add(count).filter(|&sum| sum <= max))
            .ok_or_else(|| self.refuse(max))
    }

    /// Gives `count` units of a total back.
    ///
    /// Returns `false` if less was in use, which is a mistake of the caller; then none is in use
    /// now.
    pub fn uncharge(&self, count: u64) -> bool {
        if self.update(|current| current.checked_sub(count)).is_some() {
            return true;
        }
        self.current.store(0, Relaxed);
        false
    }

    /// Whether `count` units of a total could be taken now.
    ///
    /// # Errors
    ///
    /// [`OverQuota`] as for [`Quota::take`].
    pub fn has_room(&self, count: u64) -> Result<(), OverQuota> {
        match self.current().checked_add(count) {
            Some(sum) => self.allows(sum),
            None => Err(self.refuse(self.max())),
        }
    }

    /// Whether `count` units may be in use, for resources that are counted elsewhere.
    ///
    /// # Errors
    ///
    /// [`OverQuota`] if they are more than the maximum.
    pub fn allows(&self, count: u64) -> Result<(), OverQuota> {
        let max = self.max();

        if count <= max {
            Ok(())
        } else {
            Err(self.refuse(max))
        }
    }

    /// Returns how many units have to be given back before `count` of a total can be taken: more
    /// than `count` if the maximum was lowered below what is in use.
    pub fn missing(&self, count: u64) -> u64 {
        self.current()
            .saturating_add(count)
            .saturating_sub(self.max())
    }

    /// Units of a total in use.
    pub fn current(&self) -> u64 {
        self.current.load(Relaxed)
    }

    /// The maximum.
    pub fn max(&self) -> u64 {
        self.max.load(Relaxed)
    }

    /// Returns how often a request for more than the maximum was refused.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Changes the maximum. Units in use beyond it stay until they are given back. Returns `false`,
    /// and changes nothing, if `max` is not in [`Resource::range`].
    pub fn set_max(&self, max: u64) -> bool {
        if !self.resource.range().contains(&max) {
            return false;
        }
        self.max.store(max, Relaxed);
        true
    }

    /// Counts a refusal because of the maximum `max`, for resources that are counted elsewhere.
    pub fn refuse(&self, max: u64) -> OverQuota {
        self.refused.fetch_add(1, Relaxed);
        OverQuota {
            resource: self.resource,
            max,
        }
    }

    fn update(&self, change: impl Fn(u64) -> Option<u64>) -> Option<()> {
        loop {
            let old = self.current.load(Relaxed);
            let new = change(old)?;

            if self.current.cmpxchg(old, new, Full).is_ok() {
                return Some(());
            }
        }
    }
}

/// Bytes that are counted for a work request in a queue.
const WR_BYTES: u64 = 256;

/// Bytes that are counted for an entry of a completion queue.
const CQE_BYTES: u64 = 64;

/// An estimate of the memory that a device takes for the queues of one connection, of `send_wr` and
/// `recv_wr` work requests.
///
/// The real size is known to the driver only. Drivers make queues of powers of two, of entries of
/// 64 to 256 bytes.
pub fn queue_memory(send_wr: u32, recv_wr: u32) -> u64 {
    let send = power_of_two(send_wr.into());
    let recv = power_of_two(recv_wr.into());
    let cqe = power_of_two(u64::from(send_wr).saturating_add(recv_wr.into()));

    let queues = send.saturating_add(recv).saturating_mul(WR_BYTES);
    queues.saturating_add(cqe.saturating_mul(CQE_BYTES))
}

fn power_of_two(count: u64) -> u64 {
    count.checked_next_power_of_two().unwrap_or(u64::MAX)
}

/// Returns the largest sum of the amounts of one owner, in pairs of owner and amount. The contents
/// of `items` have no meaning afterwards.
///
/// The time this takes grows with the number of pairs and that of different owners.
pub fn largest_sum<T: Copy + PartialEq>(items: &mut [(T, u64)]) -> u64 {
    // Sums, each with its owner, replace the pairs that were looked at.
    let mut owners = 0usize;

    for index in 0..items.len() {
        let Some(&(owner, amount)) = items.get(index) else {
            break;
        };
        let known = items.iter_mut().take(owners).find(|(o, _)| *o == owner);
        if let Some((_, sum)) = known {
            *sum = sum.saturating_add(amount);
        } else if let Some(place) = items.get_mut(owners) {
            *place = (owner, amount);
            owners = owners.saturating_add(1);
        }
    }
    let sums = items.iter().take(owners).map(|(_, sum)| *sum);
    sums.max().unwrap_or(0)
}

pub(super) const NS_PER_SEC: u64 = 1_000_000_000;

/// Seconds without an event after which as many events as fit in them may happen at once.
pub const BURST_SECS: u64 = 16;

/// The state of one rate. Any number of CPUs may use it, in any context.
pub struct Rate {
    /// The time at which all events allowed so far would be over, were they spread evenly.
    until_ns: Atomic<u64>,
}

impl Rate {
    /// Nothing happened yet.
    pub fn new() -> Self {
        Self {
            until_ns: Atomic::<u64>::new(0),
        }
    }

    /// Whether an event may happen at `now_ns`, at `per_sec` a second, where 0 means no limit.
    pub fn allows(&self, per_sec: u32, now_ns: u64) -> bool {
        let Some(step) = NS_PER_SEC.checked_div(per_sec.into()) else {
            return true;
        };
        let limit = now_ns.saturating_add(BURST_SECS.saturating_mul(NS_PER_SEC));

        loop {
            let old = self.until_ns.load(Relaxed);
            let new = old.max(now_ns).saturating_add(step);
            if new > limit {
                return false;
            }
            if self.until_ns.cmpxchg(old, new, Full).is_ok() {
                return true;
            }
        }
    }
}

impl Default for Rate {
    fn default() -> Self {
        Self::new()
    }
}
