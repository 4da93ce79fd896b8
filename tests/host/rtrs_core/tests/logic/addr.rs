// SPDX-License-Identifier: GPL-2.0

//! Addresses as operators write them.

use proptest::prelude::*;
use rtrs_core::addr::*;

fn show(text: &str) -> String {
    AddrPair::parse(text.as_bytes()).unwrap().to_string()
}

#[test]
fn shown_as_sysfs_does() {
    for (text, want) in [
        ("ip:192.168.1.2", "ip:192.168.1.2"),
        ("ip:10.0.0.1\n", "ip:10.0.0.1"),
        ("ip:fe80:0:0:0:0:0:0:1", "ip:fe80::1"),
        ("ip:::", "ip:::"),
        ("ip:::1", "ip:::1"),
        ("ip:1::", "ip:1::"),
        ("ip:2001:DB8::A", "ip:2001:db8::a"),
        ("ip:2001:db8:0:1:1:1:1:1", "ip:2001:db8:0:1:1:1:1:1"),
        ("ip:2001:0:0:1:0:0:0:1", "ip:2001:0:0:1::1"),
        ("ip:2001:0:0:1:0:0:1:1", "ip:2001::1:0:0:1:1"),
        ("ip:::ffff:10.1.2.3", "ip:::ffff:10.1.2.3"),
        ("ip:fe80::5efe:a01:203", "ip:fe80::5efe:10.1.2.3"),
        ("ip:fe80::200:5efe:a01:203", "ip:fe80::200:5efe:10.1.2.3"),
        ("ip:1:2:3:4:5:6:7:8", "ip:1:2:3:4:5:6:7:8"),
        (
            "gid:fe80:0000:0000:0000:0202:c9ff:fe00:0001",
            "gid:fe80:0000:0000:0000:0202:c9ff:fe00:0001",
        ),
        ("gid:fe80::1", "gid:fe80:0000:0000:0000:0000:0000:0000:0001"),
        ("ip:1.1.1.1,ip:2.2.2.2", "ip:1.1.1.1@ip:2.2.2.2"),
        ("ip:1.1.1.1@ip:2.2.2.2\n", "ip:1.1.1.1@ip:2.2.2.2"),
        ("ip:fe80::1%eth0,ip:fe80::2%3", "ip:fe80::1@ip:fe80::2"),
    ] {
        assert_eq!(show(text), want);
    }
}

/// An independent rendering of the compressed form, for addresses without an IPv4 tail.
fn compressed(ip: [u8; 16]) -> String {
    std::net::Ipv6Addr::from(ip).to_string()
}

proptest! {
    #[test]
    fn any_text(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let _ = AddrPair::parse(&bytes);
    }

    #[test]
    fn nearly_valid_text(text in "(ip:|gid:)?[0-9a-f:.%@,]{0,50}\n?") {
        if let Ok(pair) = AddrPair::parse(text.as_bytes()) {
            let shown = pair.to_string();
            prop_assert!(shown.len() <= AddrPair::MAX_TEXT);
        }
    }

    #[test]
    fn v4_round_trip(src: [u8; 4], dst: [u8; 4]) {
        let pair = AddrPair { src: Some(Addr::V4(src)), dst: Addr::V4(dst) };
        prop_assert_eq!(AddrPair::parse(pair.to_string().as_bytes()), Ok(pair));
        let alone = AddrPair { src: None, dst: Addr::V4(dst) };
        prop_assert_eq!(AddrPair::parse(alone.to_string().as_bytes()), Ok(alone));
    }

    #[test]
    fn v6_round_trip(mut ip: [u8; 16], zeros: u16) {
        for i in 0..8 {
            if zeros >> i & 1 != 0 {
                ip[2 * i] = 0;
                ip[2 * i + 1] = 0;
            }
            if zeros >> (8 + i) & 1 != 0 {
                ip[2 * i] = 0;
            }
        }
        let addr = Addr::V6 { ip, scope: Scope::None };
        let shown = addr.to_string();
        prop_assert_eq!(Addr::parse(&shown), Ok(addr));
        if !shown.contains('.') && ip[..12] != [0; 12] {
            prop_assert_eq!(shown, format!("ip:{}", compressed(ip)));
        }
        let gid = Addr::Gid(ip);
        prop_assert_eq!(gid.to_string().len(), 4 + 39);
        prop_assert_eq!(Addr::parse(&gid.to_string()), Ok(gid));
    }
}
