// SPDX-License-Identifier: GPL-2.0

//! Questions for chunks that break the protocol, and other messages in their place.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{bail, Context, Result};

use super::{case, Attack, Case, CONS};
use crate::{
    client::{Identity, Session},
    verbs::{Remote, Send},
};

/// Time for which a probed client may be silent, and a margin.
const STILL: Duration = Duration::from_millis(1500);

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
            let who = a.named(a.job.victim.as_bytes());
            let mut s = a.connect(&who, CONS)?;
            s.ask(&who.question())?;
            a.closed(&mut s)
        },
    ),
    case(
        "name-of-live",
        "takes the name of a session from the same address whose client answers",
        |a| {
            let holder = a.identity();
            let mut old = a.start_as(&holder)?;
            for _ in 0..3 {
                let who = a.named(&holder.name);
                let mut new = a.connect(&who, CONS)?;
                new.ask(&who.question())?;
                // The server sends a heartbeat to the old client, which answers it here.
                let begin = Instant::now();
                while new.wait_gone(Duration::ZERO)?.is_none() && begin.elapsed() < a.job.patience {
                    let _ = old.answer(0, Duration::from_millis(50))?;
                }
                a.closed(&mut new)?;
            }
            a.alive(&mut old)
        },
    ),
    case(
        "name-of-paused",
        "the same of a client that stands still for a moment",
        |a| {
            let holder = a.identity();
            let mut old = a.start_as(&holder)?;
            let who = a.named(&holder.name);
            let mut new = a.connect(&who, CONS)?;
            new.ask(&who.question())?;
            if new.wait_gone(STILL)?.is_some() {
                a.report.wrong("the holder was not asked");
            }
            let _ = old.answer(0, Duration::from_millis(50))?;
            a.closed(&mut new)?;
            a.alive(&mut old)
        },
    ),
    case(
        "name-of-silent",
        "the same of a client that does not answer any more",
        |a| {
            let holder = a.identity();
            let mut old = a.start_as(&holder)?;
            let who = a.named(&holder.name);
            let mut new = a.connect(&who, CONS)?;
            let begin = Instant::now();
            new.start(&who.question())?;
            a.report
                .got(format!("chunks after {} ms", begin.elapsed().as_millis()));
            if begin.elapsed() < STILL {
                a.report.wrong("the holder had no time to answer");
            }
            // Three seconds and a margin, with the usual patience of ten.
            if begin.elapsed() > a.job.patience * 45 / 100 {
                a.report.wrong("the name was free too late");
            }
            a.gone(&mut old, a.job.patience)?;
            new.ping(1, 0)?;
            a.alive(&mut new)
        },
    ),
    case(
        "name-of-heir",
        "takes the name that a silent client is about to get back, from another address",
        name_of_heir,
    ),
    case(
        "name-of-early",
        "takes the name of a client from the same address that left while its path was started",
        name_of_early,
    ),
    case(
        "io-before-info",
        "sends a request before it knows chunks",
        |a| {
            let who = a.identity();
            let mut s = a.connect(&who, CONS)?;
            s.post(1, Send::WriteImm(Remote::default(), 0), &[])?;
            // No client receives the message, so it waits. The server must not wait for it.
            sleep(Duration::from_millis(300));
            s.disconnect();
            a.gone(&mut s, a.job.patience)
        },
    ),
];

/// Clients that ask for a name at a time. Some look whether it is free while it changes hands.
const ROBBERS: usize = 10;

fn name_of_heir(a: &mut Attack<'_>) -> Result<()> {
    let other = a.job.other.context("no other address")?;
    let holder = a.identity();
    let mut old = a.start_as(&holder)?;
    let who = a.named(&holder.name);
    let mut heir = a.connect(&who, CONS)?;
    let answer = heir.ask_for_chunks(&who.question())?;
    let begin = Instant::now();
    let mut robbers: Vec<Session> = Vec::new();
    let mut came = 0;

    while !heir.take_chunks(&answer, Duration::from_millis(20))? {
        if heir.wait_gone(Duration::ZERO)?.is_some() {
            bail!("the name went to another host");
        }
        if begin.elapsed() > a.job.patience {
            bail!("no chunks");
        }
        let mut waiting = Vec::new();
        for mut robber in robbers {
            if robber.wait_gone(Duration::ZERO)?.is_none() {
                waiting.push(robber);
            }
        }
        robbers = waiting;
        if robbers.len() < ROBBERS {
            let who = Identity {
                from: Some(other),
                ..a.named(&holder.name)
            };
            let mut robber = a.connect(&who, CONS)?;
            robber.ask(&who.question())?;
            robbers.push(robber);
            came += 1;
        }
    }
    a.report.got(format!(
        "chunks after {} ms, {} of {came} others waiting",
        begin.elapsed().as_millis(),
        robbers.len()
    ));
    if robbers.is_empty() {
        a.report.wrong("no other host waited for the name");
    }
    for mut robber in robbers {
        a.closed(&mut robber)?;
    }
    a.gone(&mut old, a.job.patience)?;
    for con in &heir.cons {
        con.post_recvs()?;
    }
    heir.ping(1, 0)?;
    a.alive(&mut heir)
}

/// Clients that leave early, each a bit later than the one before. A server takes some ten
/// milliseconds for what it does between the question and its answer.
const EARLY: u32 = 24;

/// Those that got no chunks have nothing that the server could keep a name for, and it knows that
/// the others have left.
fn name_of_early(a: &mut Attack<'_>) -> Result<()> {
    let mut longest = Duration::ZERO;

    for n in 0..EARLY {
        let holder = a.identity();
        let mut old = a.connect(&holder, CONS)?;
        old.ask(&holder.question())?;
        sleep(n * Duration::from_millis(3));
        old.disconnect();
        a.gone(&mut old, a.job.patience)?;
        let who = a.named(&holder.name);
        let mut new = a.connect(&who, CONS)?;
        let begin = Instant::now();
        new.start(&who.question())
            .with_context(|| format!("client {n} was not let in"))?;
        longest = longest.max(begin.elapsed());
        new.ping(1, 0)?;
        new.disconnect();
        a.gone(&mut new, a.job.patience)?;
    }
    a.report
        .sent(format!("{EARLY} questions, and no client for the answers"));
    a.report
        .got(format!("chunks after {} ms", longest.as_millis()));
    // No client is asked, which would take three seconds.
    if longest > a.job.patience * 25 / 100 {
        a.report.wrong("a name was free too late");
    }
    Ok(())
}
