// SPDX-License-Identifier: GPL-2.0

//! How much of the machine the guests had, for output: on a shared machine, checks of time can fail
//! although nothing under test is at fault.

use std::fmt;
use std::fs;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// The host's effect on the guests meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Part of the processors' time that went to other machines, in percent.
    pub stolen: f64,
    /// The longest time for which no process here ran at all, in milliseconds.
    pub pause_ms: u64,
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.0} % of the processors' time stolen, longest pause {} ms",
            self.stolen, self.pause_ms
        )
    }
}

/// Observes the host, by being called periodically.
pub struct Watch {
    begin: Option<Times>,
    last: Instant,
    period: Duration,
    pause: Duration,
}

impl Watch {
    /// Makes an observer that will be called every `period`.
    pub fn new(period: Duration) -> Self {
        Self {
            begin: Times::now(),
            last: Instant::now(),
            period,
            pause: Duration::ZERO,
        }
    }

    /// Notes that another period is over.
    pub fn tick(&mut self) {
        let late = self.last.elapsed().saturating_sub(self.period);
        self.pause = self.pause.max(late);
        self.last = Instant::now();
    }

    /// The observations so far.
    pub fn seen(&self) -> Host {
        let stolen = match (&self.begin, Times::now()) {
            (Some(begin), Some(now)) => now.stolen_since(begin),
            _ => 0.0,
        };
        Host {
            stolen,
            pause_ms: u64::try_from(self.pause.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// The first line of /proc/stat, in ticks.
#[derive(Debug, PartialEq)]
struct Times {
    all: u64,
    steal: u64,
}

impl Times {
    fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// "cpu user nice system idle iowait irq softirq steal guest guest_nice"
    fn parse(text: &str) -> Option<Self> {
        let rest = text.lines().next()?.strip_prefix("cpu ")?;
        let fields: Vec<u64> = rest
            .split_whitespace()
            .map_while(|n| n.parse().ok())
            .collect();
        Some(Self {
            // The guests' times are part of the first two.
            all: fields.iter().take(8).sum(),
            steal: *fields.get(7)?,
        })
    }

    fn stolen_since(&self, begin: &Self) -> f64 {
        let all = self.all.saturating_sub(begin.all);
        let steal = self.steal.saturating_sub(begin.steal);
        100.0 * steal as f64 / all.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_the_eighth_number() {
        let at = |text| Times::parse(text).unwrap();
        let a = at("cpu  100 0 0 100 0 0 0 50 7 0\ncpu0 1 2\n");
        let b = at("cpu  160 0 0 120 0 0 0 70 9 0\n");
        assert_eq!(
            a,
            Times {
                all: 250,
                steal: 50
            }
        );
        assert_eq!(b.stolen_since(&a), 20.0);
        assert_eq!(Times::parse("intr 5"), None);
    }

    #[test]
    fn a_late_tick_is_a_pause() {
        let mut w = Watch::new(Duration::ZERO);
        std::thread::sleep(Duration::from_millis(30));
        w.tick();
        w.tick();
        assert!(w.seen().pause_ms >= 30);
    }
}
