// SPDX-License-Identifier: GPL-2.0

//! What counts as one source, and rates.

use core::num::NonZeroU32;
use rtrs_core::addr::Addr;
use rtrs_server::logic::{
    quota::{sessions_that_count, Rate},
    source::{Prefixes, Source},
};

const USUAL: Prefixes = Prefixes { v4: 32, v6: 64 };

const SEC: u64 = 1_000_000_000;

fn addr(text: &str) -> Option<Addr> {
    Some(must!(Addr::parse(text)))
}

fn same(a: &str, b: &str, prefixes: Prefixes) -> bool {
    Source::new(addr(a), prefixes) == Source::new(addr(b), prefixes)
}

fn a_prefix_is_a_source() {
    let wide = Prefixes { v4: 24, v6: 48 };
    assert!(!same("ip:10.9.0.1", "ip:10.9.0.2", USUAL));
    assert!(same("ip:10.9.0.1", "ip:10.9.0.2", wide));
    assert!(!same("ip:10.9.0.1", "ip:10.9.1.1", wide));
    assert!(same(
        "ip:10.9.0.1",
        "ip:99.9.0.1",
        Prefixes { v4: 0, v6: 0 }
    ));
    assert!(same("ip:fd00::1", "ip:fd00::ffff:1", USUAL));
    assert!(!same("ip:fd00::1", "ip:fd00:0:0:1::1", USUAL));
    assert!(same("ip:fd00::1", "ip:fd00:0:0:1::1", wide));
    assert!(!same(
        "ip:fd00::1",
        "ip:fd00::2",
        Prefixes { v4: 32, v6: 128 }
    ));
    assert!(!same("gid:fe80::1", "gid:fe80::2", USUAL));
    // It is not a V4 address by accident.
    assert_ne!(
        Source::new(addr("ip:0.0.0.0"), USUAL),
        Source::new(None, USUAL)
    );
    let local = |ip: u8| {
        let mut bytes = [0; 16];
        bytes[..2].copy_from_slice(&[0xfe, 0x80]);
        bytes[15] = ip;
        let scope = match must!(Addr::parse("ip:fd00::1")) {
            Addr::V6 { scope, .. } => scope,
            _ => unreachable!(),
        };
        Source::new(Some(Addr::V6 { ip: bytes, scope }), USUAL)
    };
    assert_ne!(local(1), local(2));
}

fn v4(host: u32) -> Source {
    Source::new(Some(Addr::V4(host.to_be_bytes())), USUAL)
}

fn places_are_spread() {
    let range = must!(NonZeroU32::new(256));
    let mut count = [0u32; 256];
    for host in 0..25_600 {
        count[v4(0x0a00_0000 + host).place(7, range)] += 1;
    }
    assert!(count.iter().all(|&n| (50..200).contains(&n)), "{count:?}");
    let moved = (0..1000).filter(|&host| v4(host).place(1, range) != v4(host).place(2, range));
    assert!(moved.count() > 900);
}

fn a_rate_recovers() {
    let rate = Rate::new();
    let burst = |now| (0..10_000).filter(|_| rate.allows(10, now)).count();
    assert_eq!(burst(SEC), 160);
    assert_eq!(burst(SEC), 0);
    assert_eq!(burst(2 * SEC), 10);
    assert_eq!(burst(100 * SEC), 160);
    assert!((0..10_000).all(|_| rate.allows(0, 1)));
}

fn a_host_that_crashed_has_room() {
    // Up to 256 count: as many that are new, and as many that are kept, but no more.
    assert_eq!(sessions_that_count(1, 257), 129);
    assert_eq!(sessions_that_count(256, 512), 256);
    assert_eq!(sessions_that_count(257, 257), 257);
    assert_eq!(sessions_that_count(1, 513), 257);
}

cases!(
    rtrs_server_shares:
    a_prefix_is_a_source,
    places_are_spread,
    a_rate_recovers,
    a_host_that_crashed_has_room,
);
