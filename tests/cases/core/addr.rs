// SPDX-License-Identifier: GPL-2.0

//! Addresses as operators write them.

use rtrs_core::addr::*;

fn scopes() {
    let scope = |text: &str| match Addr::parse(text) {
        Ok(Addr::V6 { scope, .. }) => scope,
        other => fail!("{other:?}"),
    };
    assert_eq!(scope("ip:fe80::1"), Scope::None);
    assert_eq!(scope("ip:fe80::1%7"), Scope::Index(7));
    match scope("ip:fe80::1%eth0.100") {
        Scope::Name(name) => {
            assert_eq!(name.as_str(), "eth0.100");
            assert_eq!(name.as_cstr(), c"eth0.100");
        }
        other => fail!("{other:?}"),
    }
    for bad in [
        "ip:fe80::1%",
        "ip:fe80::1%0",
        "ip:fe80::1%99999999999",
        "ip:fe80::1%averyveryverylongname",
        "ip:fe80::1%a b",
        "ip:fe80::1%a/b",
        "ip:fe80::1%a%b",
        "ip:fe80::1%..",
        "ip:2001:db8::1%eth0",
        "ip:fec0::1%eth0",
    ] {
        assert_eq!(Addr::parse(bad), Err(AddrError::Scope), "{bad}");
    }
    assert_ne!(
        Addr::parse("ip:fe80::1%eth0"),
        Addr::parse("ip:fe80::1%eth1")
    );
}

fn garbage() {
    for bad in [
        "",
        "\n",
        " ",
        ",",
        "@",
        "ip",
        "ip:",
        "gid:",
        "1.2.3.4",
        "ip:1.2.3",
        "ip:1.2.3.4.5",
        "ip:1.2.3.4 ",
        " ip:1.2.3.4",
        "ip: 1.2.3.4",
        "ip:1.2.3.256",
        "ip:01.2.3.4",
        "ip:1.2.3.4\n\n",
        "ip:1.2.3.4\r\n",
        "IP:1.2.3.4",
        "ip:1.2.3.4:1234",
        "ip:1.2.3.4%eth0",
        "ip:[::1]",
        "ip:1:2:3:4:5:6:7",
        "ip:1:2:3:4:5:6:7:8:9",
        "ip:::1::",
        "ip:12345::",
        "ip:g::",
        "gid:1.2.3.4",
        "gid:fe80::1%eth0",
        "gid:xyz",
        "ip:1.1.1.1,",
        ",ip:1.1.1.1",
        "ip:1.1.1.1,ip:2.2.2.2,ip:3.3.3.3",
        "ip:1.1.1.1@ip:2.2.2.2@ip:3.3.3.3",
        "ip:1.1.1.1@ip:2.2.2.2,ip:3.3.3.3",
        "ip:1.1.1.1 ip:2.2.2.2",
        "ip:1.1.1.1,gid:fe80::1",
        "ip:1.1.1.1,ip:::1",
        "ip:1.1.1.1\0",
        "hca:mlx5_0",
    ] {
        assert!(AddrPair::parse(bad.as_bytes()).is_err(), "{bad:?}");
    }
    assert!(AddrPair::parse(b"ip:1.1.1.1\xff").is_err());
    assert_eq!(AddrPair::parse(b"ip:1.1.1.1,ip:::1"), Err(AddrError::Mixed));
}

cases!(
    rtrs_core_addr:
    scopes,
    garbage,
);
