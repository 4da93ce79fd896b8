// SPDX-License-Identifier: GPL-2.0

//! Questions for chunks that are not as they should be, and what else comes instead of one.

use std::time::Duration;

use super::{case, Case, CONS};
use crate::verbs::{Remote, Send};

pub(super) const CASES: &[Case] = &[
    case("info-short", "asks for chunks with 100 bytes", |a| {
        a.info(|msg| msg.truncate(100))
    }),
    case("info-empty", "asks for chunks with no bytes", |a| {
        a.info(Vec::clear)
    }),
    case("info-long", "asks for chunks with 273 bytes", |a| {
        a.info(|msg| msg.push(0))
    }),
    case("info-type", "asks for chunks with another type", |a| {
        a.info(|msg| msg[0] = 2)
    }),
    case("info-no-name", "asks for chunks without a name", |a| {
        a.info(|msg| msg[2..].fill(0))
    }),
    case("info-slash", "has a slash in its name", |a| {
        a.info(|msg| msg[3] = b'/')
    }),
    case("info-dot", "is called ..", |a| {
        a.info(|msg| {
            msg[2..].fill(0);
            msg[2..4].copy_from_slice(b"..");
        })
    }),
    case("info-control", "has a line feed in its name", |a| {
        a.info(|msg| msg[3] = b'\n')
    }),
    case("info-no-end", "has a name without an end", |a| {
        a.info(|msg| msg[2..].fill(b'x'))
    }),
    case(
        "info-early",
        "asks for chunks on the first of 3 connections",
        |a| {
            let who = a.identity();
            let mut s = a.connect(&who, 1)?;
            s.ask(&who.question())?;
            a.closed(&mut s)
        },
    ),
    case("info-twice", "asks for chunks again", |a| {
        let who = a.identity();
        let mut s = a.start_as(&who)?;
        s.ask(&who.question())?;
        a.closed(&mut s)
    }),
    case(
        "info-by-value",
        "sends a value in place of the question",
        |a| {
            let who = a.identity();
            let mut s = a.connect(&who, CONS)?;
            s.post(0, Send::WriteImm(Remote::default(), 0), &[])?;
            a.closed(&mut s)
        },
    ),
    case(
        "info-with-value",
        "sends a value along with the question",
        |a| {
            let who = a.identity();
            let mut s = a.connect(&who, CONS)?;
            s.post(0, Send::MsgImm(1 << 28), &who.question())?;
            a.closed(&mut s)
        },
    ),
    case(
        "name-taken",
        "takes the name of somebody else's session",
        |a| {
            let mut who = a.identity();
            who.name = a.job.victim.as_bytes().to_vec();
            let mut s = a.connect(&who, CONS)?;
            s.ask(&who.question())?;
            a.closed(&mut s)
        },
    ),
    case(
        "io-before-info",
        "sends a request before it knows chunks",
        |a| {
            let who = a.identity();
            let mut s = a.connect(&who, CONS)?;
            s.post(1, Send::WriteImm(Remote::default(), 0), &[])?;
            // There is nobody to receive it: it waits. The server must not.
            std::thread::sleep(Duration::from_millis(300));
            s.disconnect();
            a.gone(&mut s, a.job.patience)
        },
    ),
];
