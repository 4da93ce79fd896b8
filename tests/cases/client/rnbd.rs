// SPDX-License-Identifier: GPL-2.0

//! RNBD's messages.

use rtrs_client::logic::rnbd::{
    version, Difference, Message, Open, Opened, INFO_SIZE, OPENED_SIZE, OPEN_SIZE,
};

pub(crate) fn open(mode: u8, name: &[u8], junk: u8) -> [u8; OPEN_SIZE] {
    let mut bytes = [junk; OPEN_SIZE];
    bytes[..2].copy_from_slice(&2u16.to_le_bytes());
    bytes[4] = mode;
    bytes[6..6 + name.len()].copy_from_slice(name);
    bytes[6 + name.len()] = 0;
    bytes
}

fn opened(id: u32) -> [u8; OPENED_SIZE] {
    let mut bytes = [0; OPENED_SIZE];
    bytes[..2].copy_from_slice(&3u16.to_le_bytes());
    bytes[4..8].copy_from_slice(&id.to_le_bytes());
    bytes[8..16].copy_from_slice(&2048u64.to_le_bytes());
    bytes[36..38].copy_from_slice(&4096u16.to_le_bytes());
    bytes[38..40].copy_from_slice(&512u16.to_le_bytes());
    bytes
}

fn difference(at: usize) -> Option<Difference> {
    let mut other = opened(1);
    other[at] ^= 1;
    let (a, b) = (
        must!(Opened::parse(&opened(0))),
        must!(Opened::parse(&other)),
    );
    assert_eq!(a.difference(&b), b.difference(&a));
    a.difference(&b)
}

fn messages_are_known_by_type_and_size() {
    let mut io = [0; 32];
    io[0] = 4;
    io[4..8].copy_from_slice(&7u32.to_le_bytes());
    assert_eq!(Message::parse(&io), Some(Message::Io(7)));
    assert_eq!(Message::parse(&io[..31]), None);
    io[16] = 2;
    assert_eq!(Message::parse(&io), Some(Message::Flush(7)));
    assert_eq!(
        Message::parse(&[5, 0, 9, 9, 3, 0, 0, 0]),
        Some(Message::Close(3))
    );
    assert_eq!(Message::parse(&[5, 0, 9, 9, 3, 0, 0]), None);
    assert!(matches!(
        Message::parse(&[0; INFO_SIZE]),
        Some(Message::Info)
    ));
    assert_eq!(Message::parse(&[0; INFO_SIZE + 1]), None);
    assert_eq!(Message::parse(&[]), None);
}

fn what_opens_a_device_is_kept_without_what_was_there_by_chance() {
    let (a, b) = (
        Open::parse(&open(1, b"sda", 0xaa)),
        Open::parse(&open(1, b"sda", 0x55)),
    );
    assert_eq!(a, b);
    let open = must!(a);
    assert_eq!(open.name(), b"sda");
    assert_eq!(open.bytes()[4], 1);
    assert!(open.bytes()[9..].iter().all(|&byte| byte == 0));
}

fn a_name_has_to_end_and_to_be_one() {
    assert_eq!(Message::parse(&open(1, b"", 1)), None);
    assert!(Message::parse(&open(1, &[b'x'; 254], 1)).is_some());
    let mut endless = open(1, &[b'x'; 254], 1);
    endless[6 + 254] = b'x';
    assert_eq!(Message::parse(&endless), None);
}

fn answers_for_the_same_disk_are_alike_and_others_are_not() {
    // The number, sectors of a request, segments, rotation.
    for at in [4, 16, 40, 44, 46] {
        assert_eq!(difference(at), None);
    }
    for (at, what) in [
        (8, Difference::Size),
        (15, Difference::Size),
        (36, Difference::Blocks),
        (38, Difference::Blocks),
        (45, Difference::Cache),
        (20, Difference::Discard),
        (35, Difference::Discard),
        (42, Difference::Discard),
    ] {
        assert_eq!(difference(at), Some(what), "byte {at}");
    }
}

fn write_back_is_a_volatile_cache_and_fua_is_not() {
    let mut answer = opened(0);
    for (bits, volatile) in [(0, false), (1, false), (2, true), (3, true)] {
        answer[45] = bits;
        assert_eq!(must!(Opened::parse(&answer)).has_volatile_cache(), volatile);
    }
}

fn the_version_is_that_of_the_right_answer() {
    let mut answer = [0; INFO_SIZE];
    answer[4] = 2;
    assert_eq!(version(&answer), None);
    answer[0] = 1;
    assert_eq!(version(&answer), Some(2));
    assert_eq!(version(&answer[..INFO_SIZE - 1]), None);
}

cases!(
    rtrs_client_rnbd:
    messages_are_known_by_type_and_size,
    what_opens_a_device_is_kept_without_what_was_there_by_chance,
    a_name_has_to_end_and_to_be_one,
    answers_for_the_same_disk_are_alike_and_others_are_not,
    write_back_is_a_volatile_cache_and_fua_is_not,
    the_version_is_that_of_the_right_answer,
);
