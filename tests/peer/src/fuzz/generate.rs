// SPDX-License-Identifier: GPL-2.0

//! Makes scripts out of random numbers.
//!
//! A script depends on nothing but seed and index, so whatever one of them did can be done again.

use rand::{
    seq::{IndexedRandom, SliceRandom},
    Rng, RngCore, SeedableRng,
};
use rand_chacha::ChaCha8Rng;

use super::fields::{Field, CONN_REQ, INFO_REQ, LIMITS, READ, WRITE};
use super::script::{Addr, Body, Expect, Key, Mutation, Off, Op, Script, Step, Value};
use crate::proto::{ConnReq, InfoReq, MAGIC, VERSION};

/// One in so many sessions is an honest one: the server has to go on serving.
pub const HONEST: u64 = 40;

/// How many sessions and paths there are that more than one attacker claims to be.
const CLAIMED: u64 = 3;

/// How long attackers wait for chunks they do not count on, in milliseconds.
const INFO_MS: u32 = 400;
/// The same for those who do.
const INFO_HONEST_MS: u32 = 60_000;

/// Most messages of a flood.
const FLOOD: u16 = 300;

/// RNBD's first message, and an honest length of it.
const USER_LEN: usize = 36;

/// Kinds of attacks, and how often they come.
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

/// Who a script says it is.
#[derive(Clone)]
struct Who {
    session: [u8; 16],
    path: [u8; 16],
    attempt: u16,
    first: bool,
    cons: u16,
    name: Vec<u8>,
}

/// The script of that number.
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

    /// Somebody nobody else is.
    fn who(&mut self) -> Who {
        let mut who = Who {
            session: [0; 16],
            path: [0; 16],
            attempt: 1,
            first: true,
            cons: 2 + u16::from(self.chance(20)),
            name: format!("f{}-{}", self.seed, self.index).into_bytes(),
        };
        self.rng.fill_bytes(&mut who.session);
        self.rng.fill_bytes(&mut who.path);
        who
    }

    /// Somebody others may claim to be at the same time.
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

    fn ask(who: &Who) -> Body {
        let mut msg = vec![0; InfoReq::SIZE];
        for (to, from) in msg.iter_mut().skip(2).zip(&who.name) {
            *to = *from;
        }
        Body {
            bytes: msg,
            ..Body::default()
        }
    }

    fn conn_req(who: &Who, cid: u16) -> Body {
        let mut msg = vec![0; ConnReq::SIZE];
        for (at, field) in [
            (2, MAGIC),
            (4, VERSION),
            (6, cid),
            (8, who.cons),
            (10, who.attempt),
        ] {
            msg[at..at + 2].copy_from_slice(&field.to_le_bytes());
        }
        msg[12..28].copy_from_slice(&who.path);
        msg[28..44].copy_from_slice(&who.session);
        msg[44] = u8::from(who.first);
        Body {
            bytes: msg,
            ..Body::default()
        }
    }

    /// All connections of a path.
    fn connect_all(who: &Who) -> Vec<Step> {
        (0..who.cons)
            .map(|cid| Step::Connect(Self::conn_req(who, cid), true))
            .collect()
    }

    /// A path that is up.
    fn start(&mut self, script: &mut Script) -> Who {
        let who = self.who();
        script.steps = Self::connect_all(&who);
        script
            .steps
            .push(Step::Send(0, Op::Msg, Self::ask(&who), 1));
        script.steps.push(Step::Info(INFO_HONEST_MS));
        who
    }

    fn honest(&mut self) -> Script {
        let mut script = Script {
            kind: "honest",
            steps: Vec::new(),
            expect: Expect::Served,
            polite: true,
        };
        self.start(&mut script);
        script
    }

    fn number(&mut self, width: usize, now: u64) -> u64 {
        match self.below(6) {
            0 => self.rng.next_u64(),
            1 => now ^ (1 << self.below((8 * width.min(8)) as u16)),
            2 => now.swap_bytes() >> (64 - 8 * width.min(8)),
            _ => LIMITS.choose(&mut self.rng).copied().unwrap_or(0),
        }
    }

    fn mutate_field(&mut self, body: &Body, base: usize, (at, width): Field) -> Mutation {
        let at = base + at;
        if width > 8 {
            return match self.below(3) {
                0 => Mutation::Fill(at, width, self.rng.random()),
                1 => Mutation::Flip(8 * at + usize::from(self.below(8 * width as u16))),
                _ => Mutation::Set(
                    at + usize::from(self.below(width as u16)),
                    1,
                    self.rng.random(),
                ),
            };
        }
        if self.chance(30) {
            let delta = [-1, 1, -4, 4, 8, -8, 4096, -4096].choose(&mut self.rng);
            return Mutation::Add(at, width, delta.copied().unwrap_or(1));
        }
        let mut raw = [0; 8];
        for (to, from) in raw.iter_mut().zip(body.bytes.iter().skip(at).take(width)) {
            *to = *from;
        }
        Mutation::Set(at, width, self.number(width, u64::from_le_bytes(raw)))
    }

    /// Changes a message whose fields begin at `base`. Private data cannot grow.
    fn mutate(&mut self, body: &mut Body, base: usize, fields: &[Field], grow: bool) {
        loop {
            let len = body.bytes.len() as u16;
            let mutation = match self.below(10) {
                0 => Mutation::Flip(8 * base + usize::from(self.below(8 * len)) % (8 * 56)),
                1 => Mutation::Truncate(usize::from(self.below(len.max(1)))),
                2 if grow => Mutation::Extend(1 + usize::from(self.below(64)), self.rng.random()),
                _ => {
                    let field = fields.choose(&mut self.rng).copied().unwrap_or((0, 1));
                    self.mutate_field(body, base, field)
                }
            };
            body.mutations.push(mutation);
            if self.chance(65) || body.mutations.len() >= 4 {
                return;
            }
        }
    }

    /// Requests to connect that are not right, and then perhaps the rest as if they were.
    fn connect(&mut self, script: &mut Script) {
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

    /// Several that say they are the same session, or the same path.
    fn join(&mut self, script: &mut Script) {
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
    fn info(&mut self, script: &mut Script) {
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

    fn off(&mut self) -> Off {
        match self.below(4) {
            0 => Off::End(i32::from(self.below(64)) - 32),
            1 => Off::Begin(self.rng.random_range(0..1 << 20)),
            2 => {
                let limit = LIMITS.choose(&mut self.rng).copied().unwrap_or(0);
                Off::Begin(limit as u32)
            }
            _ => Off::Begin(u32::from(self.below(256))),
        }
    }

    fn any_value(&mut self) -> Value {
        match self.below(5) {
            // Each type, with and without a payload.
            0 => Value::Raw(u32::from(self.below(16)) << 28),
            1 => Value::Raw(self.rng.random()),
            2 => Value::Beyond(self.below(64), self.off()),
            _ => Value::Request(self.below(4096), self.off()),
        }
    }

    fn addr(&mut self) -> Addr {
        let n = self.below(4096);
        let near = i64::from(self.below(64)) - 32;
        match self.below(6) {
            0 => Addr::Raw(self.rng.next_u64()),
            1 => Addr::Raw(0),
            2 => Addr::End(n, near),
            3 => Addr::Begin(n, near * 4096),
            4 => Addr::Foreign(n, 0),
            _ => Addr::Begin(n, near),
        }
    }

    fn key(&mut self) -> Key {
        let n = self.below(4096);
        match self.below(6) {
            0 => Key::Raw(self.rng.random()),
            1 => Key::Xor(n, 1 << self.below(32)),
            2 => Key::Stale(n),
            3 => Key::Foreign(n),
            4 => Key::Raw(0),
            _ => Key::Chunk(n),
        }
    }

    /// What RNBD understands without doing anything: its greeting, or a request for a device that
    /// is not there. What is wrong in the user's message is the user's business, not RTRS's.
    fn user(&mut self, len: usize) -> Vec<u8> {
        let mut user = vec![0; len];
        let kind = [0u16, 0, 0, 4, 5].choose(&mut self.rng).copied();
        let head = kind.unwrap_or(0).to_le_bytes();
        for (to, from) in user.iter_mut().zip(head) {
            *to = from;
        }
        if let Some(version) = user.get_mut(4) {
            *version = 2;
        }
        user
    }

    /// An honest request: chunk, operation, body, and where in it the message begins.
    fn honest_request(&mut self) -> (Op, Body, usize) {
        let n = self.below(4096);
        let user_len = if self.chance(80) {
            USER_LEN
        } else {
            usize::from(self.below(600))
        };
        let user = self.user(user_len);
        let data = [0, 36, 512, 4096]
            .choose(&mut self.rng)
            .copied()
            .unwrap_or(0);
        let off = Off::Begin((data + user_len) as u32);
        let value = Value::Request(n, off);
        let mut body = Body::default();
        if self.chance(60) {
            body.bytes = user;
            for field in [3, user_len as u16, 0, u16::from(data != 0)] {
                body.bytes.extend(field.to_le_bytes());
            }
            if data != 0 {
                body.own = Some(body.bytes.len());
                body.bytes.extend([0; 12]);
                body.bytes.extend((data as u32).to_le_bytes());
            }
            let op = Op::WriteImm(Addr::Begin(n, data as i64), Key::Chunk(n), value);
            (op, body, user_len)
        } else {
            body.bytes = vec![0; data];
            body.bytes.extend(user);
            for field in [2, user_len as u16] {
                body.bytes.extend(field.to_le_bytes());
            }
            let op = Op::WriteImm(Addr::Begin(n, 0), Key::Chunk(n), value);
            (op, body, data + user_len)
        }
    }

    fn mutated_request(&mut self) -> Step {
        let (mut op, mut body, at) = self.honest_request();
        let mut con = 1 + u8::from(self.chance(20));
        let mut times = 1;
        loop {
            let Op::WriteImm(addr, key, value) = op else {
                break;
            };
            match self.below(12) {
                0 => con = 0,
                1 => op = Op::WriteImm(addr, key, self.any_value()),
                2 => op = Op::WriteImm(self.addr(), key, value),
                3 => op = Op::WriteImm(addr, self.key(), value),
                // The same chunk again, and not at the end of the first request.
                4 => times = 2 + self.below(4),
                5 => op = Op::Msg,
                6 => op = Op::MsgImm(value),
                7 => op = Op::Write(addr, key),
                _ => {
                    let fields = if body.own.is_some() { READ } else { WRITE };
                    self.mutate(&mut body, at, fields, true);
                }
            }
            if self.chance(70) {
                break;
            }
        }
        Step::Send(con, op, body, times)
    }

    /// Requests.
    fn request(&mut self, script: &mut Script) {
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

    /// Values and nothing else: for chunks never written, of unknown types, answers never asked
    /// for.
    fn value(&mut self, script: &mut Script) {
        self.start(script);
        for _ in 0..1 + self.below(4) {
            let con = self.below(2) as u8;
            let value = self.any_value();
            if let Value::Raw(raw) = value {
                // Types there are none of. Heartbeats belong on the first connection.
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

    /// Memory that is not the attacker's to write, to read or to invalidate.
    fn memory(&mut self, script: &mut Script) {
        self.start(script);
        if self.chance(50) {
            // Keys grow stale by answered requests.
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

    /// All sorts of things in any order.
    fn order(&mut self, script: &mut Script) {
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
            // Only some of them go astray.
            for _ in 0..2 {
                let a = usize::from(self.below(steps.len() as u16));
                let b = usize::from(self.below(steps.len() as u16));
                steps.swap(a, b);
            }
        }
        script.steps = steps;
    }

    /// More than anybody needs.
    fn flood(&mut self, script: &mut Script) {
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
    fn race(&mut self, script: &mut Script) {
        let mut who = if self.chance(30) {
            self.claimed()
        } else {
            self.who()
        };
        for _ in 0..1 + self.below(3) {
            // Steps count connections from the first one ever made.
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

    /// Sessions nobody goes on with.
    fn half(&mut self, script: &mut Script) {
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

#[cfg(test)]
mod tests;
