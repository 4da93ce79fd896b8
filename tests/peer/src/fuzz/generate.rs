// SPDX-License-Identifier: GPL-2.0

//! Makes scripts out of random numbers.
//!
//! A script depends only on seed and index, so any of them can be repeated.

use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::script::{Expect, Script};

mod kinds;
mod message;

/// One in this many sessions is honest: the server must go on serving.
pub const HONEST: u64 = 40;

/// Number of sessions and paths that more than one attacker claims.
const CLAIMED: u64 = 3;

/// Kinds of attacks, and their weights.
const KINDS: &[(&str, u32)] = &[
    ("connect", 14),
    ("join", 10),
    ("info", 12),
    ("request", 28),
    ("value", 10),
    ("memory", 12),
    ("order", 10),
    ("flood", 3),
    ("race", 10),
    ("half", 4),
];

struct Generator {
    rng: ChaCha8Rng,
    seed: u64,
    index: u64,
}

/// The identity that a script claims.
#[derive(Clone)]
struct Who {
    session: [u8; 16],
    path: [u8; 16],
    attempt: u16,
    first: bool,
    cons: u16,
    /// Capabilities, as bits.
    able: u8,
    name: Vec<u8>,
}

/// The script with this number.
pub fn script(seed: u64, index: u64) -> Script {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(index);
    let mut all = Generator { rng, seed, index };

    if index % HONEST == HONEST - 1 {
        return all.honest();
    }
    let kind = all.kind();
    let mut script = Script {
        kind,
        steps: Vec::new(),
        expect: Expect::Either,
        starts_well: false,
        polite: all.rng.random_bool(0.5),
    };
    match kind {
        "connect" => all.connect(&mut script),
        "join" => all.join(&mut script),
        "info" => all.info(&mut script),
        "value" => all.value(&mut script),
        "memory" => all.memory(&mut script),
        "order" => all.order(&mut script),
        "flood" => all.flood(&mut script),
        "race" => all.race(&mut script),
        "half" => all.half(&mut script),
        _ => all.request(&mut script),
    }
    script
}

impl Generator {
    fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_ratio(percent, 100)
    }

    fn below(&mut self, end: u16) -> u16 {
        self.rng.random_range(0..end)
    }

    fn kind(&mut self) -> &'static str {
        let sum = KINDS.iter().map(|(_, weight)| weight).sum();
        let mut at = self.rng.random_range(0..sum);
        for (kind, weight) in KINDS {
            match at.checked_sub(*weight) {
                Some(left) => at = left,
                None => return kind,
            }
        }
        "request"
    }

    /// An identity that no other attacker has.
    fn who(&mut self) -> Who {
        let mut who = Who {
            session: [0; 16],
            path: [0; 16],
            attempt: 1,
            first: true,
            cons: 2 + u16::from(self.chance(20)),
            // Mainline's has none.
            able: match self.chance(50) {
                true => self.rng.random(),
                false => 0,
            },
            name: format!("f{}-{}", self.seed, self.index).into_bytes(),
        };
        self.rng.fill_bytes(&mut who.session);
        self.rng.fill_bytes(&mut who.path);
        who
    }

    /// An identity that other attackers may claim at the same time.
    fn claimed(&mut self) -> Who {
        let mut who = self.who();
        let n = self.rng.random_range(0..CLAIMED) as u8;
        who.session = [0xc0 | n; 16];
        if self.chance(60) {
            who.path = [0xd0 | self.below(3) as u8; 16];
        }
        if self.chance(50) {
            who.name = format!("f{}-claimed-{n}", self.seed).into_bytes();
        }
        who.attempt = self.rng.random_range(0..6);
        who.first = self.chance(80);
        who
    }
}

#[cfg(test)]
mod tests;
