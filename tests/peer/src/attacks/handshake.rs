// SPDX-License-Identifier: GPL-2.0

//! Requests to connect that break the protocol.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use rand::RngCore;

use super::{case, Attack, Case, CONS};
use crate::proto::errno::{ECONNRESET, EEXIST, ENXIO};

/// Number of half-made sessions at a time.
const HALF_OPEN: usize = 64;

/// Time that the server gives a client for its handshake.
const HANDSHAKE: Duration = Duration::from_secs(30);

pub(super) const CASES: &[Case] = &[
    case("honest", "breaks no rule", |a| {
        let mut s = a.start()?;
        for n in 0..8 {
            s.ping(usize::from(1 + n % 2), n)?;
        }
        s.disconnect();
        Ok(())
    }),
    // Requests to connect.
    case("no-private-data", "asks to connect with no message", |a| {
        a.refused_raw(&[], ECONNRESET)
    }),
    case(
        "short-private-data",
        "asks to connect with 8 bytes of the message",
        |a| {
            let msg = a.identity().request(0);
            a.refused_raw(&msg[..8], ECONNRESET)
        },
    ),
    case(
        "bad-magic",
        "asks to connect with a wrong magic number",
        |a| a.refused_patch(2, &[0xbe, 0x1b]),
    ),
    case(
        "bad-version",
        "asks to connect with another major version",
        |a| a.refused_patch(4, &[0x00, 0x03]),
    ),
    case("cid-of-no-connection", "asks for connection 3 of 3", |a| {
        a.refused_patch(6, &[3, 0])
    }),
    case("no-cons", "asks for a path of no connections", |a| {
        a.refused_patch(8, &[0, 0])
    }),
    case("one-con", "asks for a path of one connection", |a| {
        a.refused_patch(8, &[1, 0])
    }),
    case("many-cons", "asks for a path of 5000 connections", |a| {
        a.refused_patch(8, &5000u16.to_le_bytes())
    }),
    case(
        "unknown-session",
        "joins a session that is not there",
        |a| {
            let mut who = a.identity();
            who.first = false;
            let msg = who.request(0);
            a.refused_raw(&msg, ENXIO)
        },
    ),
    case("cid-taken", "asks for connection 0 twice", |a| {
        let who = a.identity();
        let s = a.connect(&who, 1)?;
        a.refused_raw(&who.request(0), ECONNRESET)?;
        s.disconnect();
        Ok(())
    }),
    case("cons-change", "asks for 3, then for 4 connections", |a| {
        let mut who = a.identity();
        let s = a.connect(&who, 1)?;
        who.cons = 4;
        a.refused_raw(&who.request(1), ECONNRESET)?;
        s.disconnect();
        Ok(())
    }),
    case(
        "same-addresses",
        "adds a path that goes the same way",
        |a| {
            let mut who = a.identity();
            let mut s = a.start_as(&who)?;
            a.rng.fill_bytes(&mut who.path);
            a.refused_raw(&who.request(0), EEXIST)?;
            a.alive(&mut s)
        },
    ),
    case("same-attempt", "connects again as the same attempt", |a| {
        let who = a.identity();
        let mut s = a.start_as(&who)?;
        a.refused_raw(&who.request(0), ECONNRESET)?;
        a.alive(&mut s)
    }),
    case(
        "take-over",
        "comes back while the server has it connected",
        |a| {
            let mut who = a.identity();
            let mut old = a.start_as(&who)?;
            who.attempt += 1;
            let mut new = a.start_as(&who)?;
            a.gone(&mut old, a.job.patience)?;
            a.alive(&mut new)
        },
    ),
    case(
        "half-open",
        "makes one connection of three, 64 times",
        half_open,
    ),
    case(
        "half-open-sibling",
        "has one path, and does not finish another one that it began before",
        half_sibling,
    ),
];

/// Shown by what the server counts meanwhile: a path that does not give way has no place that others
/// could have.
fn half_sibling(a: &mut Attack<'_>) -> Result<()> {
    let who = a.identity();
    let mut s = a.connect(&who, CONS)?;
    let mut half = who.clone();
    half.from = Some(a.job.other.context("no other address")?);
    a.rng.fill_bytes(&mut half.path);
    let half = a.connect(&half, 1)?;

    s.get_chunks(&who.question())?;
    for con in &s.cons {
        con.post_recvs()?;
    }
    sleep(a.job.patience / 3);
    half.disconnect();
    if s.wait_gone(Duration::ZERO)?.is_some() {
        a.report.wrong("the whole path is gone, too");
    }
    s.disconnect();
    Ok(())
}

/// The server must give up all half-made paths.
fn half_open(a: &mut Attack<'_>) -> Result<()> {
    let mut all = Vec::new();
    let begin = Instant::now();
    for _ in 0..HALF_OPEN {
        let who = a.identity();
        all.push(a.connect(&who, 1)?);
    }
    a.report.sent(format!("{HALF_OPEN} first connections"));
    for s in &mut all {
        a.gone(s, HANDSHAKE + a.job.patience)?;
    }
    // CAST: Some ten thousand.
    a.report.fact("gone_ms", begin.elapsed().as_millis() as u64);
    Ok(())
}
