// SPDX-License-Identifier: GPL-2.0

//! Messages, honest ones and others, and their destinations.

use rand::{seq::IndexedRandom, Rng, RngCore};

use super::{Generator, Who};
use crate::{
    fuzz::{
        fields::{Field, LIMITS, READ, WRITE},
        script::{Addr, Body, Key, Mutation, Off, Op, Step, Value},
    },
    proto::{ConnReq, InfoReq, MAGIC, VERSION},
};

/// RNBD's first message, and an honest length of it.
const USER_LEN: usize = 36;

impl Generator {
    pub(super) fn ask(who: &Who) -> Body {
        let mut msg = vec![0; InfoReq::SIZE];
        for (to, from) in msg.iter_mut().skip(2).zip(&who.name) {
            *to = *from;
        }
        Body {
            bytes: msg,
            ..Body::default()
        }
    }

    pub(super) fn conn_req(who: &Who, cid: u16) -> Body {
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
        msg[45] = who.able;
        Body {
            bytes: msg,
            ..Body::default()
        }
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

    /// Changes a message whose fields start at `base`. Private data cannot grow.
    pub(super) fn mutate(&mut self, body: &mut Body, base: usize, fields: &[Field], grow: bool) {
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

    pub(super) fn any_value(&mut self) -> Value {
        match self.below(5) {
            // Any type, with and without a payload.
            0 => Value::Raw(u32::from(self.below(16)) << 28),
            1 => Value::Raw(self.rng.random()),
            2 => Value::Beyond(self.below(64), self.off()),
            _ => Value::Request(self.below(4096), self.off()),
        }
    }

    pub(super) fn addr(&mut self) -> Addr {
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

    pub(super) fn key(&mut self) -> Key {
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

    /// A message that RNBD understands without doing anything: its greeting, or a request for a
    /// device that does not exist. Errors in the user's message concern the user, not RTRS.
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

    /// An honest request: chunk, operation, body, and the offset of the message in it.
    pub(super) fn honest_request(&mut self) -> (Op, Body, usize) {
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

    pub(super) fn mutated_request(&mut self) -> Step {
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
                // The same chunk again, before the end of the first request.
                4 => times = 2 + self.below(4),
                5 => op = Op::Msg,
                6 => {
                    // As a write that is sent.
                    op = Op::MsgImm(value);
                    if self.chance(50) {
                        self.mutate(&mut body, at, WRITE, true);
                    }
                }
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
}
