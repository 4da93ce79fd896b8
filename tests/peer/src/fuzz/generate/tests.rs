// SPDX-License-Identifier: GPL-2.0

use std::collections::{BTreeMap, BTreeSet};

use super::{
    kinds::{FLOOD, INFO_HONEST_MS},
    *,
};
use crate::{
    fuzz::{
        fields::{Field, CONN_REQ, INFO_REQ, READ},
        script::{Body, Mutation, Op, Step, View},
    },
    proto::{ConnReq, InfoReq, RemoteBuf},
};

const SOME: u64 = 4000;

#[test]
fn depends_on_seed_and_index_alone() {
    for index in 0..SOME {
        assert_eq!(script(7, index), script(7, index));
    }
    let differ = (0..SOME).filter(|&n| script(7, n) != script(8, n)).count();
    assert!(differ as u64 > SOME * 9 / 10, "{differ}");
}

#[test]
fn all_kinds_come() {
    let mut kinds = BTreeMap::new();
    for index in 0..SOME {
        *kinds.entry(script(1, index).kind).or_insert(0) += 1;
    }
    for (kind, _) in KINDS {
        assert!(kinds.get(kind).is_some_and(|&n| n > 40), "{kinds:?}");
    }
    assert_eq!(kinds.get("honest"), Some(&(SOME / HONEST)));
}

/// Mutations hit each field of each message, and each operation is used.
#[test]
fn all_fields_are_changed() {
    let mut conn = BTreeSet::new();
    let mut info = BTreeSet::new();
    let mut read = BTreeSet::new();
    let mut ops = BTreeSet::new();
    let note = |to: &mut BTreeSet<usize>, body: &Body, base: usize, fields: &[Field]| {
        for m in &body.mutations {
            let at = match *m {
                Mutation::Set(at, ..) | Mutation::Add(at, ..) | Mutation::Fill(at, ..) => at,
                Mutation::Flip(bit) => bit / 8,
                _ => continue,
            };
            let hit = |&(from, len): &Field| (base + from..base + from + len).contains(&at);
            to.extend(fields.iter().position(hit));
        }
    };
    for index in 0..SOME {
        for step in script(3, index).steps {
            match step {
                Step::Connect(body, _) => note(&mut conn, &body, 0, CONN_REQ),
                Step::Send(_, op, body, _) => {
                    let name = format!("{op:?}");
                    ops.insert(name.split('(').next().unwrap_or("").to_string());
                    if let Some(own) = body.own {
                        note(&mut read, &body, own - 8, READ);
                    } else if body.bytes.len() == InfoReq::SIZE {
                        note(&mut info, &body, 0, INFO_REQ);
                    }
                }
                _ => {}
            }
        }
    }
    assert_eq!(conn.len(), CONN_REQ.len(), "{conn:?}");
    assert_eq!(info.len(), INFO_REQ.len(), "{info:?}");
    assert_eq!(read.len(), READ.len(), "{read:?}");
    assert_eq!(ops.len(), 6, "{ops:?}");
}

/// The attacker must be able to send even a wrong message.
#[test]
fn all_can_be_sent() {
    let chunks = [RemoteBuf {
        addr: u64::MAX,
        rkey: u32::MAX,
    }];
    for depth in [1, 12, u16::MAX] {
        let view = View {
            depth,
            chunk_size: 16384,
            chunks: &chunks,
            stale: &[],
            foreign: &[],
            own: RemoteBuf::default(),
        };
        for index in 0..SOME {
            let script = script(5, index);
            assert!(script.steps.len() <= 40);
            for step in script.steps {
                match step {
                    Step::Connect(body, _) => {
                        assert!(body.get(&view).len() <= ConnReq::SIZE);
                    }
                    Step::Send(_, op, body, times) => {
                        assert!(body.get(&view).len() <= 16384, "{body:?}");
                        assert!(times <= FLOOD);
                        if let Op::WriteImm(addr, key, value) = op {
                            let _ = (addr.get(&view), key.get(&view), value.get(&view));
                        }
                    }
                    Step::Info(ms) | Step::Pause(ms) => assert!(ms <= INFO_HONEST_MS),
                    _ => {}
                }
            }
        }
    }
}

/// A script that claims to be honest has no fault.
#[test]
fn honest_is_honest() {
    let script = script(1, HONEST - 1);
    assert_eq!(script.expect, Expect::Served);
    for step in script.steps {
        if let Step::Connect(body, _) | Step::Send(_, _, body, _) = step {
            assert!(body.mutations.is_empty());
        }
    }
}
