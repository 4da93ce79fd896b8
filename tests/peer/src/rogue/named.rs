// SPDX-License-Identifier: GPL-2.0

//! Plans with names: each breaks one rule, or keeps all of them.

use super::{
    plan::{Answer, DataTo, InfoHow, InvalKey, Memory, Plan, Say},
    READ_ERRNO,
};
use crate::fuzz::script::Mutation;

/// A case with a name.
pub struct Named {
    /// Its name.
    pub name: &'static str,
    /// Its description.
    pub about: &'static str,
    /// The plan.
    pub plan: fn() -> Plan,
}

const fn named(name: &'static str, about: &'static str, plan: fn() -> Plan) -> Named {
    Named { name, about, plan }
}

/// A few right answers, and then these.
fn later(say: Vec<Say>) -> Plan {
    let mut answers = vec![vec![Say::Right]; 8];
    answers.push(say);
    Plan {
        answers,
        ..Plan::default()
    }
}

fn info(mutation: Mutation) -> Plan {
    Plan {
        info: vec![mutation],
        ..Plan::default()
    }
}

fn how(info_how: InfoHow) -> Plan {
    Plan {
        info_how,
        ..Plan::default()
    }
}

fn unasked(say: Say) -> Plan {
    Plan {
        unasked: vec![say],
        ..Plan::default()
    }
}

fn answer(change: impl FnOnce(&mut Answer)) -> Say {
    let mut answer = Answer::default();
    change(&mut answer);
    Say::Answer(answer)
}

/// The same for reads, which the message that invalidates the key answers. Other requests have
/// right answers.
fn inval_answer(change: impl FnOnce(&mut Answer)) -> Say {
    answer(|a| {
        a.by_inval = Some(InvalKey::Right);
        change(a);
    })
}

/// The answer says that the chunk has its next key, which it has not.
fn next_key(change: impl FnOnce(&mut Answer)) -> Say {
    answer(|a| {
        a.next_key = true;
        change(a);
    })
}

/// Servers that break the rules after they have accepted.
pub const NAMED: &[Named] = &[
    named("serve", "serves", Plan::default),
    named("info-type", "tells chunks with another type", || {
        info(Mutation::Set(0, 2, 0))
    }),
    named("info-none", "tells no chunks", || {
        info(Mutation::Set(2, 2, 0))
    }),
    named("info-fewer", "tells one chunk less", || {
        info(Mutation::Add(2, 2, -1))
    }),
    named(
        "info-more",
        "tells one chunk more than the message has",
        || info(Mutation::Add(2, 2, 1)),
    ),
    named("info-many", "tells 65535 chunks", || {
        info(Mutation::Set(2, 2, 65535))
    }),
    named("info-empty", "tells chunks with an empty message", || {
        info(Mutation::Truncate(0))
    }),
    named(
        "info-half",
        "tells chunks with half of a descriptor",
        || info(Mutation::Truncate(16)),
    ),
    named("info-len", "tells a chunk of no bytes", || {
        info(Mutation::Set(20, 4, 0))
    }),
    named("info-len-max", "tells a chunk of nearly 4 GiB", || {
        info(Mutation::Set(20, 4, 0xffff_c000))
    }),
    named(
        "info-wrap",
        "tells a chunk at the end of all addresses",
        || info(Mutation::Set(8, 8, u64::MAX - 8191)),
    ),
    named("info-key", "tells a key it does not have", || {
        // All of them, as it is not known which chunk is used first.
        Plan {
            info: (0..16)
                .map(|n| Mutation::Flip(8 * (16 + 16 * n + 2)))
                .collect(),
            ..Plan::default()
        }
    }),
    named("info-twice", "tells the chunks twice", || {
        how(InfoHow::Twice)
    }),
    named(
        "info-other-con",
        "tells the chunks on another connection",
        || how(InfoHow::OtherCon),
    ),
    named("info-value", "tells the chunks along with a value", || {
        how(InfoHow::WithValue(1 << 28))
    }),
    named(
        "info-by-value",
        "sends a value in place of the chunks",
        || how(InfoHow::OnlyValue(1 << 28)),
    ),
    named(
        "info-after-hb",
        "sends a heartbeat before it tells the chunks",
        || how(InfoHow::AfterValue(8 << 28)),
    ),
    named("info-leave", "tells the chunks and leaves", || {
        how(InfoHow::ThenLeave(1))
    }),
    named("unasked-answer", "answers what nobody asked", || {
        // An answer without the error of all reads would be taken for the data of a read.
        unasked(answer(|a| (a.con, a.errno) = (1, READ_ERRNO)))
    }),
    named("unasked-message", "sends a message", || {
        unasked(Say::Msg(1, 0))
    }),
    named("unasked-inval", "invalidates a key there is not", || {
        unasked(Say::Inval(1, InvalKey::Raw(0xdead_beef)))
    }),
    named("unknown-value", "sends a value of an unknown type", || {
        unasked(Say::Value(0, 5 << 28))
    }),
    named("request-value", "sends a request", || {
        unasked(Say::Value(1, 0))
    }),
    named("hb-on-io", "sends a heartbeat on an IO connection", || {
        unasked(Say::Value(1, 8 << 28))
    }),
    named("hb-ack-unasked", "answers heartbeats nobody sent", || {
        unasked(Say::Times(100, Box::new(Say::Value(0, 9 << 28))))
    }),
    named("hb-flood", "sends 3000 heartbeats", || {
        unasked(Say::Times(3000, Box::new(Say::Value(0, 8 << 28))))
    }),
    named("wrong-id", "answers another request", || {
        later(vec![answer(|a| a.id = 1)])
    }),
    named("far-id", "answers a request there cannot be", || {
        later(vec![answer(|a| a.id = 1 << 17)])
    }),
    named("other-con", "answers on another connection", || {
        later(vec![answer(|a| a.con = 1)])
    }),
    named("on-service", "answers on the service connection", || {
        later(vec![answer(|a| a.con = 2)])
    }),
    named("twice", "answers twice", || {
        later(vec![Say::Right, Say::Right])
    }),
    named(
        "other-form",
        "answers without the new key, with old keys with one",
        || later(vec![answer(|a| a.other_form = true)]),
    ),
    named("short-answer", "answers with half of the key", || {
        later(vec![answer(|a| a.body = vec![Mutation::Truncate(4)])])
    }),
    named("empty-answer", "answers with no message", || {
        later(vec![answer(|a| a.body = vec![Mutation::Truncate(0)])])
    }),
    named("long-answer", "answers with more than the key", || {
        later(vec![answer(|a| a.body = vec![Mutation::Extend(8, 0)])])
    }),
    named(
        "answer-type",
        "answers with a message of another type",
        || later(vec![answer(|a| a.body = vec![Mutation::Set(0, 2, 1)])]),
    ),
    named(
        "other-chunk",
        "answers with the key of another chunk",
        || later(vec![answer(|a| a.body = vec![Mutation::Flip(16)])]),
    ),
    named("wrong-key", "answers with a key it does not have", || {
        later(vec![answer(|a| a.body = vec![Mutation::Flip(8 * 6)])])
    }),
    named(
        "inval-claimed",
        "says it invalidated a key, and did not",
        || later(vec![answer(|a| a.inval = true)]),
    ),
    named("inval-other", "invalidates another key", || {
        later(vec![Say::Inval(0, InvalKey::Xor(1 << 12)), Say::Right])
    }),
    named(
        "inval-answer",
        "answers reads by the message that invalidates their key",
        || later(vec![inval_answer(|_| ())]),
    ),
    named("inval-answer-twice", "answers reads so, and again", || {
        later(vec![inval_answer(|_| ()), answer(|_| ())])
    }),
    named(
        "inval-answer-key",
        "answers reads by the invalidation of another key",
        || {
            later(vec![inval_answer(|a| {
                a.by_inval = Some(InvalKey::Xor(1 << 12))
            })])
        },
    ),
    named(
        "inval-answer-other-con",
        "answers reads so on another connection",
        || later(vec![inval_answer(|a| a.con = 1)]),
    ),
    named("inval-answer-far-id", "answers so what cannot be", || {
        later(vec![inval_answer(|a| a.id = 1 << 15)])
    }),
    named(
        "inval-answer-half",
        "answers reads so, with half a key",
        || later(vec![inval_answer(|a| a.body = vec![Mutation::Truncate(4)])]),
    ),
    named(
        "inval-answer-type",
        "answers reads so, with another type of message",
        || {
            later(vec![inval_answer(|a| {
                a.body = vec![Mutation::Set(0, 2, 1)]
            })])
        },
    ),
    named("next-key", "answers with a key to be counted", || {
        later(vec![next_key(|_| ())])
    }),
    named("next-key-twice", "answers so, and again", || {
        later(vec![next_key(|_| ()), next_key(|_| ())])
    }),
    named(
        "next-key-other-con",
        "answers so on another connection",
        || later(vec![next_key(|a| a.con = 1)]),
    ),
    named("next-key-far-id", "answers so what cannot be", || {
        later(vec![next_key(|a| a.id = 1 << 17)])
    }),
    named("next-key-errno", "answers so, with an error", || {
        later(vec![next_key(|a| a.errno = 5)])
    }),
    named(
        "next-key-message",
        "sends such a value with a message",
        || unasked(Say::MsgImm(1, 3 << 28, 8)),
    ),
    named("next-key-unasked", "sends such a value", || {
        unasked(Say::Value(1, 3 << 28))
    }),
    named(
        "next-key-info",
        "sends such a value in place of chunks",
        || how(InfoHow::OnlyValue(3 << 28)),
    ),
    named("data-more", "reads back more than was asked for", || {
        later(vec![Say::Data(DataTo::Len(65536)), Say::Right])
    }),
    named("data-before", "reads back to before the buffer", || {
        later(vec![Say::Data(DataTo::Off(-4096)), Say::Right])
    }),
    named("data-key", "reads back with a wrong key", || {
        later(vec![Say::Data(DataTo::Key(1 << 16)), Say::Right])
    }),
    named("data-late", "reads back after the answer", || {
        later(vec![Say::Data(DataTo::Last), Say::Right])
    }),
    named("leave-busy", "leaves with requests in flight", || {
        later(vec![Say::Leave(0)])
    }),
    named(
        "leave-service",
        "leaves the service connection with requests in flight",
        || later(vec![Say::Leave(2)]),
    ),
    named(
        "mute",
        "answers nothing any more, heartbeats neither",
        || Plan {
            mute: true,
            ..later(vec![Say::Mute])
        },
    ),
    named("idle", "answers heartbeats and no request", || Plan {
        ours: true,
        answers: vec![vec![]],
        ..Plan::default()
    }),
    named(
        "idle-c",
        "the same, and does not say that it orders copies",
        || Plan {
            answers: vec![vec![]],
            ..Plan::default()
        },
    ),
    named("loses-one", "never answers one request", || Plan {
        ours: true,
        answers: [
            vec![vec![Say::Right]; 8],
            vec![vec![]],
            vec![vec![Say::Right]],
        ]
        .concat(),
        ..Plan::default()
    }),
    named(
        "loses-admin",
        "answers no administrative request until the path comes back",
        || Plan {
            ours: true,
            admin: Some(vec![]),
            ..Plan::default()
        },
    ),
    named(
        "mute-admin",
        "answers nothing any more, once there was an administrative request",
        || Plan {
            ours: true,
            mute: true,
            admin: Some(vec![Say::Mute]),
            ..Plan::default()
        },
    ),
    named(
        "forgets",
        "forgets all sessions when a path comes back",
        || Plan {
            memory: Memory::Lost,
            ..Plan::default()
        },
    ),
    named(
        "confused",
        "says once that it does not know a session",
        || Plan {
            memory: Memory::Confused,
            ..Plan::default()
        },
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_different() {
        for (n, one) in NAMED.iter().enumerate() {
            assert!(NAMED.iter().skip(n + 1).all(|other| other.name != one.name));
            assert_eq!((one.plan)().is_honest(), one.name == "serve");
        }
    }
}
