// SPDX-License-Identifier: GPL-2.0

//! A server's behaviour once a client is connected, as a value: by name, or random.

use rand::{seq::IndexedRandom, Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::fuzz::script::Mutation;

/// How a server treats one path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Changes to its message of acceptance.
    pub accept: Vec<Mutation>,
    /// Changes to the message with the chunks.
    pub info: Vec<Mutation>,
    /// How that message is sent.
    pub info_how: InfoHow,
    /// Unasked messages, right after the chunks.
    pub unasked: Vec<Say>,
    /// Answers to requests, in turn; the last entry holds for all that follow. Empty: the right
    /// ones.
    pub answers: Vec<Vec<Say>>,
    /// Whether heartbeats get no answer.
    pub mute: bool,
    /// What administrative requests get, in place of `answers`.
    pub admin: Option<Vec<Say>>,
    /// Whether it claims to order copies of requests, and to know a path that comes back.
    pub ours: bool,
    /// How it treats a path that comes back.
    pub memory: Memory,
}

/// Whether a server knows a path that comes back, and does not ask for a new session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Memory {
    /// It knows the path.
    #[default]
    Sound,
    /// It claims once not to know it.
    Confused,
    /// From the first time on it knows no path, and is silent on all of them, until it is asked for
    /// a new session.
    Lost,
}

/// How chunks are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InfoHow {
    /// The right way.
    #[default]
    Once,
    /// Twice.
    Twice,
    /// On the connection after the right one.
    OtherCon,
    /// With an immediate value.
    WithValue(u32),
    /// By a value alone.
    OnlyValue(u32),
    /// After a value.
    AfterValue(u32),
    /// Once, and then the connection with this number ends.
    ThenLeave(u16),
}

/// A message or action of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Say {
    /// The right answer.
    Right,
    /// An answer.
    Answer(Answer),
    /// A value by a write without data, on the connection that is this many further.
    Value(u16, u32),
    /// The same with a message of zeros of this length.
    MsgImm(u16, u32, usize),
    /// A message of this length.
    Msg(u16, usize),
    /// A message that invalidates a key.
    Inval(u16, InvalKey),
    /// Data for a read, and its destination.
    Data(DataTo),
    /// Ends a connection: the one that is this many further.
    Leave(u16),
    /// Keeps the path silent from now on.
    Mute,
    /// The same action, this many times.
    Times(u16, Box<Say>),
}

/// An answer to a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// On the connection that is this many further.
    pub con: u16,
    /// Wrong bits in the number of the request.
    pub id: u32,
    /// The error number, not negative.
    pub errno: u32,
    /// Whether it claims that the key is invalid.
    pub inval: bool,
    /// Changes to the message with the chunk's new key.
    pub body: Vec<Mutation>,
    /// Whether it has the form of a server with other keys: without the chunk's new key where it
    /// belongs, or with it where it does not.
    pub other_form: bool,
    /// For a read: the message that invalidates this key is the answer.
    pub by_inval: Option<InvalKey>,
    /// It says that the chunk has its next key, which is not so.
    pub next_key: bool,
}

/// Which key is invalidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalKey {
    /// The key of the request.
    Right,
    /// The same key with some bits changed.
    Xor(u32),
    /// This key.
    Raw(u32),
}

impl InvalKey {
    /// The key, if that of the request is `right`.
    pub fn of(self, right: u32) -> u32 {
        match self {
            Self::Right => right,
            Self::Xor(bits) => right ^ bits,
            Self::Raw(key) => key,
        }
    }
}

/// Destination of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataTo {
    /// The destination in the request, with this many bytes more or less.
    Len(i32),
    /// This far from the destination in the request.
    Off(i64),
    /// With some bits of the key changed.
    Key(u32),
    /// The destination in the last request of the same chunk, which is complete, or else the client
    /// would not use the chunk again.
    Last,
}

impl Plan {
    /// Whether the plan has no fault.
    pub fn is_honest(&self) -> bool {
        *self == Self::default()
    }
}

/// One in this many paths is treated well.
const HONEST: u64 = 12;

/// The plan with this number.
pub fn plan(seed: u64, index: u64) -> Plan {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(index);
    let mut plan = Plan::default();

    if index % HONEST == HONEST - 1 {
        return plan;
    }
    match rng.random_range(0..20) {
        0 | 1 => {
            plan.accept = mutations(
                &mut rng,
                &[(0, 2), (2, 2), (4, 2), (6, 2), (8, 4), (12, 4), (16, 4)],
            )
        }
        2..=4 => {
            let n = rng.random_range(0..16usize) * 16;
            plan.info = mutations(
                &mut rng,
                &[(0, 2), (2, 2), (4, 4), (8 + n, 8), (16 + n, 4), (20 + n, 4)],
            );
        }
        5 => {
            let value = rng.random();
            let all = [
                InfoHow::Twice,
                InfoHow::OtherCon,
                InfoHow::WithValue(value),
                InfoHow::OnlyValue(value),
                InfoHow::AfterValue(value),
                InfoHow::ThenLeave(0),
                InfoHow::ThenLeave(1),
            ];
            plan.info_how = all.choose(&mut rng).copied().unwrap_or_default();
        }
        6..=8 => {
            for _ in 0..rng.random_range(1..4) {
                plan.unasked.push(say(&mut rng));
            }
        }
        _ => {
            for _ in 0..rng.random_range(0..6) {
                plan.answers.push(vec![Say::Right]);
            }
            let mut last = Vec::new();
            for _ in 0..rng.random_range(1..4) {
                last.push(say(&mut rng));
            }
            if rng.random_bool(0.3) {
                last.push(Say::Right);
            }
            plan.answers.push(last);
        }
    }
    plan
}

fn mutations(rng: &mut ChaCha8Rng, fields: &[(usize, usize)]) -> Vec<Mutation> {
    let mut all = Vec::new();
    for _ in 0..rng.random_range(1..3) {
        let (at, width) = fields.choose(rng).copied().unwrap_or((0, 2));
        let limits = [0, 1, 2, 15, 17, 255, 4096, 16384, 65535, 1 << 31, u64::MAX];
        all.push(match rng.random_range(0..8) {
            0 => Mutation::Flip(8 * at + rng.random_range(0..8 * width)),
            1 => Mutation::Truncate(rng.random_range(0..56)),
            2 => Mutation::Add(at, width, if rng.random() { 1 } else { -1 }),
            3 => Mutation::Set(at, width, rng.random()),
            _ => Mutation::Set(at, width, limits.choose(rng).copied().unwrap_or(0)),
        });
    }
    all
}

fn value(rng: &mut ChaCha8Rng) -> u32 {
    match rng.random_range(0..4) {
        0 => rng.random_range(0..16) << 28,
        1 => rng.random(),
        // An answer to some request.
        _ => (1 << 28) | ((rng.random_range(0..2) * 5) << 19) | rng.random_range(0..20),
    }
}

fn say(rng: &mut ChaCha8Rng) -> Say {
    let con = rng.random_range(0..3);
    match rng.random_range(0..14) {
        0 => Say::Value(con, value(rng)),
        1 => Say::MsgImm(con, value(rng), rng.random_range(0..12)),
        2 => Say::Msg(con, rng.random_range(0..12)),
        3 => Say::Inval(0, InvalKey::Right),
        4 => Say::Inval(con, InvalKey::Xor(1 << rng.random_range(0..32))),
        5 => Say::Inval(con, InvalKey::Raw(rng.random())),
        6 => Say::Data(DataTo::Len(
            [-1, 1, 4096, 65536].choose(rng).copied().unwrap_or(1),
        )),
        7 => Say::Data(DataTo::Off(
            [-8, 8, -4096, 4096].choose(rng).copied().unwrap_or(8),
        )),
        8 => Say::Data(DataTo::Key(1 << rng.random_range(0..32))),
        9 => Say::Leave(con),
        10 => {
            let times = rng.random_range(2..200);
            Say::Times(times, Box::new(Say::Value(con, value(rng))))
        }
        11 => Say::Times(2, Box::new(Say::Right)),
        _ => Say::Answer(Answer {
            con: if rng.random_bool(0.3) { con } else { 0 },
            id: if rng.random_bool(0.4) {
                1 << rng.random_range(0..19)
            } else {
                0
            },
            errno: [0, 5, 511].choose(rng).copied().unwrap_or(0),
            inval: rng.random_bool(0.3),
            body: if rng.random_bool(0.4) {
                mutations(rng, &[(0, 2), (2, 2), (4, 4)])
            } else {
                Vec::new()
            },
            other_form: rng.random_bool(0.15),
            by_inval: match rng.random_range(0..4) {
                0 => Some(InvalKey::Right),
                1 => Some(InvalKey::Xor(1 << rng.random_range(0..32))),
                _ => None,
            },
            next_key: rng.random_bool(0.1),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depends_on_seed_and_index_alone() {
        for index in 0..2000 {
            assert_eq!(plan(9, index), plan(9, index));
        }
        let wrong = (0..2000).filter(|&n| !plan(9, n).is_honest()).count();
        assert_eq!(wrong, 2000 - 2000 / HONEST as usize);
    }
}
