// SPDX-License-Identifier: GPL-2.0

//! Clients that leave at a wrong time or in a wrong way.

use super::{case, Case, CONS};

pub(super) const CASES: &[Case] = &[
    case("leave-busy", "disconnects with requests in flight", |a| {
        let mut s = a.start()?;
        for buf_id in 0..32 {
            s.send_honest(1 + usize::from(buf_id % 2), buf_id)?;
        }
        s.disconnect();
        Ok(())
    }),
    case("vanish-busy", "ends with requests in flight", |a| {
        let mut s = a.start()?;
        for buf_id in 0..32 {
            s.send_honest(1 + usize::from(buf_id % 2), buf_id)?;
        }
        Ok(())
    }),
    case(
        "leave-early",
        "disconnects right after the question for chunks",
        |a| {
            for _ in 0..5 {
                let who = a.identity();
                let mut s = a.connect(&who, CONS)?;
                s.ask(&who.question())?;
                s.disconnect();
            }
            Ok(())
        },
    ),
    case("leave-one", "disconnects one connection of three", |a| {
        let mut s = a.start()?;
        s.con(2)?.id.disconnect()?;
        a.closed(&mut s)
    }),
];
