// SPDX-License-Identifier: GPL-2.0

//! Kinds of attacks.

use rand::{
    seq::{IndexedRandom, SliceRandom},
    Rng,
};

use super::{Generator, Who};
use crate::fuzz::{
    fields::{CONN_REQ, INFO_REQ},
    script::{Addr, Body, Expect, Key, Op, Script, Step, Value},
};

/// Milliseconds that attackers wait for chunks that they do not expect to get.
const INFO_MS: u32 = 400;
/// The same for attackers that do expect them.
pub(super) const INFO_HONEST_MS: u32 = 60_000;

/// Maximum number of messages of a flood.
pub(super) const FLOOD: u16 = 300;

impl Generator {
    /// All connections of a path.
    fn connect_all(who: &Who) -> Vec<Step> {
        (0..who.cons)
            .map(|cid| Step::Connect(Self::conn_req(who, cid), true))
            .collect()
    }

    /// Brings up a path.
    fn start(&mut self, script: &mut Script) -> Who {
        let who = self.who();
        script.steps = Self::connect_all(&who);
        script
            .steps
            .push(Step::Send(0, Op::Msg, Self::ask(&who), 1));
        script.steps.push(Step::Info(INFO_HONEST_MS));
        script.starts_well = true;
        who
    }

    pub(super) fn honest(&mut self) -> Script {
        let mut script = Script {
            kind: "honest",
            steps: Vec::new(),
            expect: Expect::Served,
            starts_well: false,
            polite: true,
        };
        self.start(&mut script);
        script
    }

    /// Wrong requests to connect, and then perhaps the rest as if they were right.
    pub(super) fn connect(&mut self, script: &mut Script) {
        let who = self.who();
        let mut steps = Self::connect_all(&who);
        let n = usize::from(self.below(who.cons));
        if let Some(Step::Connect(body, _)) = steps.get_mut(n) {
            self.mutate(body, 0, CONN_REQ, false);
        }
        if self.chance(20) {
            steps.shuffle(&mut self.rng);
        }
        script.steps = steps;
        script
            .steps
            .push(Step::Send(0, Op::Msg, Self::ask(&who), 1));
        script.steps.push(Step::Info(INFO_MS));
    }

    /// Several clients that claim the same session, or the same path.
    pub(super) fn join(&mut self, script: &mut Script) {
        let mut who = self.claimed();
        let mut cids: Vec<u16> = (0..who.cons).collect();
        if self.chance(30) {
            cids.shuffle(&mut self.rng);
        }
        if self.chance(30) {
            cids.push(self.below(4));
        }
        for cid in cids {
            if self.chance(10) {
                who.cons = 2 + self.below(3);
            }
            if self.chance(10) {
                who.attempt = who.attempt.wrapping_add(1);
            }
            let wait = self.chance(70);
            script
                .steps
                .push(Step::Connect(Self::conn_req(&who, cid), wait));
        }
        script
            .steps
            .push(Step::Send(0, Op::Msg, Self::ask(&who), 1));
        script.steps.push(Step::Info(INFO_MS));
    }

    /// Questions for chunks.
    pub(super) fn info(&mut self, script: &mut Script) {
        let who = self.who();
        script.steps = Self::connect_all(&who);
        let mut ask = Self::ask(&who);
        self.mutate(&mut ask, 0, INFO_REQ, true);
        let con = u8::from(self.chance(15));
        let op = match self.below(10) {
            0 => Op::MsgImm(self.any_value()),
            1 => Op::WriteImm(Addr::Raw(0), Key::Raw(0), self.any_value()),
            2 => Op::MsgInv(Key::Raw(self.rng.random())),
            _ => Op::Msg,
        };
        if matches!(op, Op::WriteImm(..)) {
            ask = Body::default();
        }
        let times = 1 + u16::from(self.chance(15));
        script.steps.push(Step::Send(con, op, ask, times));
        script.steps.push(Step::Info(INFO_MS));
    }

    /// Requests.
    pub(super) fn request(&mut self, script: &mut Script) {
        self.start(script);
        for _ in 0..1 + self.below(4) {
            let step = if self.chance(25) {
                let (op, body, _) = self.honest_request();
                Step::Send(1, op, body, 1)
            } else {
                self.mutated_request()
            };
            script.steps.push(step);
            if self.chance(20) {
                script.steps.push(Step::Pause(u32::from(self.below(20))));
            }
        }
    }

    /// Values alone: for chunks that were never written, of unknown types, answers to no request.
    pub(super) fn value(&mut self, script: &mut Script) {
        self.start(script);
        for _ in 0..1 + self.below(4) {
            let con = self.below(2) as u8;
            let value = self.any_value();
            if let Value::Raw(raw) = value {
                // Unknown types. Heartbeats belong on the first connection.
                if !matches!(raw >> 28, 0 | 8 | 9) {
                    script.expect = Expect::Closed;
                }
            }
            let op = Op::WriteImm(Addr::Raw(0), Key::Raw(0), value);
            let times = 1 + self.below(3);
            script
                .steps
                .push(Step::Send(con, op, Body::default(), times));
            if script.expect == Expect::Closed {
                return;
            }
        }
    }

    /// Memory that the attacker must not write, read or invalidate.
    pub(super) fn memory(&mut self, script: &mut Script) {
        self.start(script);
        if self.chance(50) {
            // Answered requests make keys stale.
            for _ in 0..1 + self.below(3) {
                let (op, body, _) = self.honest_request();
                script.steps.push(Step::Send(1, op, body, 1));
            }
            script.steps.push(Step::Pause(10));
        }
        for _ in 0..1 + self.below(3) {
            let con = self.below(2) as u8;
            let (addr, key) = (self.addr(), self.key());
            let len = [1, 4, 8, 64, 4096, 8192].choose(&mut self.rng).copied();
            let body = Body {
                bytes: vec![0x5a; len.unwrap_or(8)],
                ..Body::default()
            };
            let op = match self.below(8) {
                0 => Op::Read(addr, key),
                1 | 2 => Op::MsgInv(key),
                3 => Op::WriteImm(addr, key, self.any_value()),
                _ => Op::Write(addr, key),
            };
            let body = if matches!(op, Op::MsgInv(_)) && self.chance(70) {
                Body::default()
            } else {
                body
            };
            script.steps.push(Step::Send(con, op, body, 1));
        }
    }

    /// All kinds of steps in any order.
    pub(super) fn order(&mut self, script: &mut Script) {
        let who = self.who();
        let mut steps = Self::connect_all(&who);
        steps.push(Step::Send(0, Op::Msg, Self::ask(&who), 1));
        for _ in 0..2 + self.below(4) {
            let step = match self.below(8) {
                0 => Step::Disconnect(self.below(3) as u8),
                1 => Step::Destroy(self.below(3) as u8),
                2 => Step::Info(INFO_MS / 2),
                3 => Step::Connect(Self::conn_req(&who, self.below(3)), self.chance(50)),
                4 => Step::Send(self.below(3) as u8, Op::Msg, Self::ask(&who), 1),
                5 => {
                    let op = Op::WriteImm(Addr::Raw(0), Key::Raw(0), self.any_value());
                    Step::Send(self.below(3) as u8, op, Body::default(), 1)
                }
                _ => self.mutated_request(),
            };
            steps.push(step);
        }
        if self.chance(50) {
            steps.shuffle(&mut self.rng);
        } else {
            // Only some of them change places.
            for _ in 0..2 {
                let a = usize::from(self.below(steps.len() as u16));
                let b = usize::from(self.below(steps.len() as u16));
                steps.swap(a, b);
            }
        }
        script.steps = steps;
    }

    /// More than any client needs.
    pub(super) fn flood(&mut self, script: &mut Script) {
        self.start(script);
        let times = 50 + self.below(FLOOD - 50);
        let step = match self.below(6) {
            0 => self.raw_flood(0, 8 << 28, times),
            1 => self.raw_flood(0, 9 << 28, times),
            2 => {
                let raw = u32::from(self.below(16)) << 28;
                let con = self.below(2) as u8;
                self.raw_flood(con, raw, times)
            }
            3 => Step::Send(self.below(2) as u8, Op::Msg, Body::default(), times),
            4 => {
                let key = self.key();
                Step::Send(self.below(2) as u8, Op::MsgInv(key), Body::default(), times)
            }
            _ => {
                let (op, body, _) = self.honest_request();
                Step::Send(1, op, body, times)
            }
        };
        script.steps.push(step);
    }

    fn raw_flood(&mut self, con: u8, raw: u32, times: u16) -> Step {
        let op = Op::WriteImm(Addr::Raw(0), Key::Raw(0), Value::Raw(raw));
        Step::Send(con, op, Body::default(), times)
    }

    /// Paths that come back while the server still has them, or is about to lose them.
    pub(super) fn race(&mut self, script: &mut Script) {
        let mut who = if self.chance(30) {
            self.claimed()
        } else {
            self.who()
        };
        for _ in 0..1 + self.below(3) {
            // Steps count connections from the first one of the script.
            let before = script.steps.iter();
            let first = before.filter(|s| matches!(s, Step::Connect(..))).count() as u8;
            let count = 1 + self.below(who.cons);
            for cid in 0..count {
                let wait = self.chance(60);
                script
                    .steps
                    .push(Step::Connect(Self::conn_req(&who, cid), wait));
            }
            if self.chance(60) {
                script
                    .steps
                    .push(Step::Send(first, Op::Msg, Self::ask(&who), 1));
            }
            match self.below(4) {
                0 => script.steps.push(Step::Pause(u32::from(self.below(30)))),
                1 => script.steps.push(Step::Info(INFO_MS / 2)),
                _ => {}
            }
            for con in 0..count as u8 {
                match self.below(4) {
                    0 => script.steps.push(Step::Disconnect(first + con)),
                    1 => script.steps.push(Step::Destroy(first + con)),
                    _ => {}
                }
            }
            match self.below(5) {
                0 => {}
                1 => who.attempt = self.rng.random(),
                _ => who.attempt = who.attempt.wrapping_add(1),
            }
        }
    }

    /// Sessions that do not go on.
    pub(super) fn half(&mut self, script: &mut Script) {
        let who = self.who();
        let count = 1 + self.below(who.cons);
        for cid in 0..count {
            let wait = self.chance(80);
            script
                .steps
                .push(Step::Connect(Self::conn_req(&who, cid), wait));
        }
        script.steps.push(Step::Pause(u32::from(self.below(200))));
        script.polite = false;
    }
}
