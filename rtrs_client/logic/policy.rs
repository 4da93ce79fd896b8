// SPDX-License-Identifier: GPL-2.0

//! Chooses the path for the next request.
//!
//! The set of tried paths is part of the choice, on the stack of the caller. No list or cursor is
//! shared, so preemption and migration between the steps of a choice, and any number of other
//! choices at the same time, cannot make it miss a path.

use core::fmt;

/// Maximum of paths that a choice can tell apart; further ones are never chosen.
pub const MAX_PATHS: usize = 128;

/// Bits of one word of the set of tried paths.
const WORD_BITS: usize = u64::BITS as usize;

/// A policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// One after the other, per CPU.
    RoundRobin,
    /// The one with the fewest requests in flight.
    #[default]
    MinInflight,
    /// The one with the lowest average latency.
    MinLatency,
}

/// The text is neither a number nor a name of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownPolicy;

impl Policy {
    const ALL: [Self; 3] = [Self::RoundRobin, Self::MinInflight, Self::MinLatency];

    /// The number in sysfs.
    pub const fn number(self) -> u32 {
        match self {
            Self::RoundRobin => 0,
            Self::MinInflight => 1,
            Self::MinLatency => 2,
        }
    }

    /// The policy with this number.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.number() == number)
    }

    /// The long name in sysfs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round-robin",
            Self::MinInflight => "min-inflight",
            Self::MinLatency => "min-latency",
        }
    }

    /// The short name in sysfs.
    pub const fn short_name(self) -> &'static str {
        match self {
            Self::RoundRobin => "RR",
            Self::MinInflight => "MI",
            Self::MinLatency => "ML",
        }
    }

    /// Parses the text written to `mpath_policy`, with at most one trailing newline.
    ///
    /// The same rules as in the C client: a decimal number with an optional sign; a long name in
    /// any case, with anything behind it; or exactly a short name in any case.
    ///
    /// # Errors
    ///
    /// [`UnknownPolicy`], `-EINVAL`.
    pub fn parse(text: &[u8]) -> Result<Self, UnknownPolicy> {
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        let number = core::str::from_utf8(text)
            .ok()
            .and_then(|text| text.parse::<i32>().ok())
            .and_then(|number| u32::try_from(number).ok());
        if let Some(policy) = number.and_then(Self::from_number) {
            return Ok(policy);
        }

        Self::ALL
            .into_iter()
            .find(|policy| {
                text.eq_ignore_ascii_case(policy.short_name().as_bytes())
                    || text
                        .get(..policy.name().len())
                        .is_some_and(|head| head.eq_ignore_ascii_case(policy.name().as_bytes()))
            })
            .ok_or(UnknownPolicy)
    }
}

/// The text in sysfs, without a newline: `round-robin (RR: 0)`.
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({}: {})",
            self.name(),
            self.short_name(),
            self.number()
        )
    }
}

/// The paths of a session as a choice sees them: a fixed set, with current numbers.
pub trait Paths {
    /// Number of paths.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether path `i` takes requests.
    fn connected(&self, i: usize) -> bool;

    /// Whether path `i` only takes requests that no other path takes.
    fn last_resort(&self, i: usize) -> bool;

    /// Requests in flight on path `i` that matter for this choice.
    fn inflight(&self, i: usize) -> u64;

    /// Average latency of path `i` in nanoseconds; 0 if it was not measured yet, which makes the
    /// path the last choice, not the first.
    fn latency_ns(&self, i: usize) -> u64;
}

/// One choice: the paths in the order in which one request may try them.
pub struct Choice {
    policy: Policy,
    /// The index at which to start.
    start: usize,
    tried: [u64; MAX_PATHS / WORD_BITS],
}

impl Choice {
    /// Begins a choice. `last` is the path that was used last on this CPU; any number is allowed.
    /// It decides the next path of round-robin, and which of several equally good paths the others
    /// take.
    pub const fn new(policy: Policy, last: usize) -> Self {
        Self {
            policy,
            start: last.wrapping_add(1),
            tried: [0; MAX_PATHS / WORD_BITS],
        }
    }

    /// Returns the next path to try; `None` only if all paths that are connected now were tried.
    ///
    /// Each path is returned at most once. `paths` must be the same set in the same order each
    /// time; the states may change.
    #[inline]
    pub fn next(&mut self, paths: &impl Paths) -> Option<usize> {
        if paths.len() == 1 {
            if self.was_tried(0) || !paths.connected(0) {
                return None;
            }
            self.mark_tried(0);
            return Some(0);
        }
        self.next_of_many(paths)
    }

    #[inline(never)]
    fn next_of_many(&mut self, paths: &impl Paths) -> Option<usize> {
        let count = paths.len().min(MAX_PATHS);
        let start = self.start.checked_rem(count)?;
        let mut best: Option<((bool, u64), usize)> = None;

        for i in (start..count).chain(0..start) {
            if self.was_tried(i) || !paths.connected(i) {
                continue;
            }
            let cost = match self.policy {
                Policy::RoundRobin => 0,
                Policy::MinInflight => paths.inflight(i),
                Policy::MinLatency => match paths.latency_ns(i) {
                    0 => u64::MAX,
                    latency => latency,
                },
            };
            let last_resort = paths.last_resort(i);
            let cost = (last_resort, cost);
            if best.is_none_or(|(best_cost, _)| cost < best_cost) {
                best = Some((cost, i));
                if self.policy == Policy::RoundRobin && !last_resort {
                    break;
                }
            }
        }

        let (_, i) = best?;
        self.mark_tried(i);
        Some(i)
    }

    fn was_tried(&self, i: usize) -> bool {
        self.tried
            .get(i / WORD_BITS)
            .is_none_or(|word| word >> (i % WORD_BITS) & 1 != 0)
    }

    fn mark_tried(&mut self, i: usize) {
        if let Some(word) = self.tried.get_mut(i / WORD_BITS) {
            *word |= 1 << (i % WORD_BITS);
        }
    }
}
