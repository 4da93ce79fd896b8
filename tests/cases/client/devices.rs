// SPDX-License-Identifier: GPL-2.0

//! RNBD's devices, and their numbers after a restart of the server.

use rtrs_client::logic::{
    devices::{Device, Devices, Flush, Full, Unlike, MAX_IDS, NO_ID},
    rnbd::{Difference, Open, Opened, OPENED_SIZE, OPEN_SIZE},
};

pub(crate) fn open(name: u8) -> Open {
    let mut bytes = [0; OPEN_SIZE];
    bytes[0] = 2;
    bytes[4] = 1;
    bytes[6] = name;
    must!(Open::parse(&bytes))
}

pub(crate) fn opened(id: u32, size: u8) -> Opened {
    let mut bytes = [0; OPENED_SIZE];
    bytes[0] = 3;
    bytes[4..8].copy_from_slice(&id.to_le_bytes());
    bytes[8] = size;
    must!(Opened::parse(&bytes))
}

pub(crate) fn ids(devices: &Devices<'_>) -> [u32; MAX_IDS] {
    let mut ids = [0; MAX_IDS];
    devices.fill_in(&mut ids);
    ids
}

/// Opens all devices again with a server that numbers from 0.
fn restart(devices: &mut Devices<'_>) {
    devices.begin_again();
    let (mut from, mut id) = (0, 0);
    while let Some(device) = devices.next(from) {
        let user_id = device.user_id();
        must!(devices.opened_again(user_id, &opened(id, 1)));
        from = user_id + 1;
        id += 1;
    }
    devices.go_over(None);
}

fn numbers_move_up_when_one_in_the_middle_is_closed() {
    let mut table = [Device::FREE; 8];
    let mut devices = Devices(&mut table);
    for id in 0..3 {
        assert_eq!(
            devices.opened(&open(b'a' + id), &opened(u32::from(id), 1), false, 0),
            Ok(u32::from(id))
        );
    }
    devices.closing(1);
    devices.closed(1);
    assert!(!devices.is_shifted());
    restart(&mut devices);
    assert!(devices.is_shifted());
    assert_eq!(ids(&devices)[..4], [0, NO_ID, 1, NO_ID]);
    // The server's number 2 is RNBD's number 2 already.
    assert_eq!(devices.opened(&open(b'd'), &opened(2, 1), true, 0), Ok(1));
    assert_eq!(ids(&devices)[..4], [0, 2, 1, NO_ID]);
    // Opening an open device again changes nothing.
    assert_eq!(devices.opened(&open(b'c'), &opened(1, 1), true, 0), Ok(2));
    assert_eq!(ids(&devices)[..4], [0, 2, 1, NO_ID]);
}

fn one_that_is_being_closed_is_not_opened_again() {
    let mut table = [Device::FREE; 8];
    let mut devices = Devices(&mut table);
    must!(devices.opened(&open(b'a'), &opened(0, 1), false, 0));
    must!(devices.opened(&open(b'b'), &opened(1, 1), false, 0));
    devices.closing(0);
    restart(&mut devices);
    assert_eq!(ids(&devices)[..2], [NO_ID, 0]);
    assert_eq!(devices.count(), 1);
    devices.closed(0);
    devices.closed(1);
    assert_eq!(ids(&devices)[..2], [NO_ID, 0]);
}

fn another_disk_under_the_old_name_does_not_do() {
    let mut table = [Device::FREE; 8];
    let mut devices = Devices(&mut table);
    must!(devices.opened(&open(b'a'), &opened(0, 1), false, 0));
    devices.begin_again();
    let size = Err(Unlike::Device(Difference::Size));
    assert_eq!(devices.opened_again(0, &opened(0, 2)), size);
    // Requests that are translated meanwhile see no change.
    assert_eq!(ids(&devices)[0], 0);
    devices.go_over(None);
    assert_eq!(ids(&devices)[0], NO_ID);
}

fn a_server_cannot_give_one_number_twice_nor_a_wild_one() {
    let mut table = [Device::FREE; 2];
    let mut devices = Devices(&mut table);
    must!(devices.opened(&open(b'a'), &opened(0, 1), false, 0));
    must!(devices.opened(&open(b'b'), &opened(1, 1), false, 0));
    assert_eq!(
        devices.opened(&open(b'c'), &opened(2, 1), false, 0),
        Err(Full)
    );
    assert_eq!(
        devices.opened(&open(b'c'), &opened(MAX_IDS as u32, 1), true, 0),
        Err(Full)
    );
    devices.begin_again();
    must!(devices.opened_again(0, &opened(0, 1)));
    assert_eq!(devices.opened_again(1, &opened(0, 1)), Err(Unlike::Number));
    assert_eq!(
        devices.opened_again(1, &opened(u32::MAX, 1)),
        Err(Unlike::Number)
    );
    // RNBD has closed it meanwhile.
    assert_eq!(devices.opened_again(5, &opened(1, 1)), Ok(()));
}

fn a_number_on_its_way_out_is_not_given_anew() {
    let mut table = [Device::FREE; 4];
    let mut devices = Devices(&mut table);
    must!(devices.opened(&open(b'a'), &opened(0, 1), false, 0));
    devices.closing(0);
    restart(&mut devices);
    assert_eq!(
        devices.opened(&open(b'b'), &opened(0, 1), false, 0),
        Err(Full)
    );
    devices.closed(0);
    assert_eq!(devices.opened(&open(b'b'), &opened(0, 1), false, 0), Ok(0));
}

/// With a volatile cache.
fn volatile(id: u32) -> Opened {
    let mut bytes = [0; OPENED_SIZE];
    bytes[0] = 3;
    bytes[4..8].copy_from_slice(&id.to_le_bytes());
    bytes[45] = 2;
    must!(Opened::parse(&bytes))
}

fn what_was_flushed_is_clean_until_something_is_written() {
    let mut table = [Device::FREE; 4];
    let mut devices = Devices(&mut table);
    must!(devices.opened(&open(b'a'), &volatile(0), false, 7));
    must!(devices.opened(&open(b'b'), &opened(1, 1), false, 7));
    assert!(devices.dirty(7).is_none());
    assert!(devices.dirty(8).is_some());
    assert_eq!(devices.flush(0), Flush::Matters);
    assert_eq!(devices.flush(1), Flush::Whatever);
    assert_eq!(devices.flush(2), Flush::Whatever);
    devices.flushed(0, 8);
    assert!(devices.dirty(8).is_none());
    assert!(devices.dirty(9).is_some());
    // Opening it again does not make it clean
    must!(devices.opened(&open(b'a'), &volatile(0), false, 9));
    assert!(devices.dirty(9).is_some());
    devices.flushed(0, 9);
    // A flush that was sent earlier may end later.
    devices.flushed(0, 8);
    assert!(devices.dirty(9).is_none());
    assert!(devices.dirty(10).is_some());
}

fn what_was_closed_is_not_clean_by_that() {
    let mut table = [Device::FREE; 4];
    let mut devices = Devices(&mut table);
    must!(devices.opened(&open(b'a'), &volatile(0), false, 0));
    devices.closing(0);
    devices.closed(0);
    assert_eq!(devices.count(), 0);
    // Opened again before the server goes,
    must!(devices.opened(&open(b'a'), &volatile(0), false, 5));
    assert!(devices.dirty(5).is_some());
    devices.flushed(0, 5);
    assert!(devices.dirty(5).is_none());
    // or after that.
    devices.closing(0);
    devices.closed(0);
    devices.begin_again();
    devices.go_over(Some(6));
    must!(devices.opened(&open(b'a'), &volatile(0), false, 6));
    assert_eq!(devices.flush(0), Flush::Fails);
    assert_eq!(devices.flush(0), Flush::Matters);
}

fn what_is_only_read_is_clean() {
    let mut table = [Device::FREE; 4];
    let mut devices = Devices(&mut table);
    let mut bytes = *open(b'a').bytes();
    bytes[4] = 0;
    let open = must!(Open::parse(&bytes));
    must!(devices.opened(&open, &volatile(0), false, 0));
    assert!(devices.dirty(1).is_none());
    assert_eq!(devices.flush(0), Flush::Whatever);
}

fn a_device_that_may_have_lost_something_fails_one_flush() {
    let mut table = [Device::FREE; 4];
    let mut devices = Devices(&mut table);
    must!(devices.opened(&open(b'a'), &volatile(0), false, 0));
    must!(devices.opened(&open(b'b'), &volatile(1), false, 1));
    must!(devices.opened(&open(b'c'), &opened(2, 1), false, 0));
    devices.forget_all(Some(1));
    assert_eq!(devices.count(), 0);
    assert_eq!(ids(&devices)[..3], [NO_ID; 3]);
    // The device is found by its name, not its number.
    must!(devices.opened(&open(b'b'), &volatile(0), false, 1));
    must!(devices.opened(&open(b'a'), &volatile(1), false, 1));
    assert_eq!(devices.flush(0), Flush::Matters);
    // It is not clean before RNBD has flushed it, however often the server goes.
    devices.forget_all(Some(1));
    must!(devices.opened(&open(b'a'), &volatile(0), false, 1));
    assert_eq!(devices.flush(0), Flush::Fails);
    assert_eq!(devices.flush(0), Flush::Matters);
    // No other device takes its place meanwhile.
    devices.forget_all(Some(2));
    for (i, name) in [b'x', b'y', b'z'].into_iter().enumerate() {
        must!(devices.opened(&open(name), &opened(i as u32, 1), false, 2));
    }
    assert_eq!(devices.opened(&open(b'a'), &volatile(3), false, 2), Ok(3));
    assert_eq!(devices.flush(3), Flush::Fails);
    devices.forget_all(None);
    must!(devices.opened(&open(b'a'), &volatile(0), false, 2));
    assert_eq!(devices.flush(0), Flush::Matters);
}

/// RNBD is told that the session is lost, and is back, and opens the devices again that it has.
fn told(devices: &mut Devices<'_>, shifted: bool, has: &[(u8, Opened)]) {
    devices.doubt_all();
    devices.wait_for_doubted();
    for (name, opened) in has {
        must!(devices.opened(&open(*name), opened, shifted, 0));
    }
}

fn one_that_was_unmapped_while_offline_is_not_opened_again() {
    let mut table = [Device::FREE; 8];
    let mut devices = Devices(&mut table);
    for id in 0..3 {
        let opened = opened(u32::from(id), 1);
        must!(devices.opened(&open(b'a' + id), &opened, false, 0));
    }
    told(
        &mut devices,
        false,
        &[(b'b', opened(1, 1)), (b'c', opened(2, 1))],
    );
    assert_eq!(devices.count(), 2);
    // The server has it open as before.
    assert_eq!(ids(&devices)[..4], [0, 1, 2, NO_ID]);
    restart(&mut devices);
    assert_eq!(devices.count(), 2);
    assert_eq!(ids(&devices)[..4], [NO_ID, 0, 1, NO_ID]);
    assert!(devices.is_shifted());
    // Nothing is left of it: its number and its place are free.
    assert_eq!(devices.opened(&open(b'd'), &opened(2, 1), true, 0), Ok(0));
    assert_eq!(ids(&devices)[..4], [2, 0, 1, NO_ID]);
}

fn the_last_one_that_was_unmapped_while_offline_leaves_its_number() {
    let mut table = [Device::FREE; 2];
    let mut devices = Devices(&mut table);
    for id in 0..2 {
        let opened = opened(u32::from(id), 1);
        must!(devices.opened(&open(b'a' + id), &opened, false, 0));
    }
    told(&mut devices, false, &[(b'a', opened(0, 1))]);
    restart(&mut devices);
    assert!(!devices.is_shifted());
    assert_eq!(ids(&devices)[..2], [0, NO_ID]);
    assert_eq!(devices.opened(&open(b'c'), &opened(1, 1), false, 0), Ok(1));
}

fn one_that_is_opened_between_both_events_is_open() {
    let mut table = [Device::FREE; 4];
    let mut devices = Devices(&mut table);
    must!(devices.opened(&open(b'a'), &opened(0, 1), false, 0));
    devices.doubt_all();
    // Until RNBD is told that the session is back, nothing changes.
    assert_eq!(devices.count(), 1);
    must!(devices.opened(&open(b'b'), &opened(1, 1), false, 0));
    devices.wait_for_doubted();
    assert_eq!(devices.count(), 1);
    assert_eq!(devices.next(0).map(Device::user_id), Some(1));
    // It is open for good, until the next loss.
    devices.wait_for_doubted();
    assert_eq!(devices.count(), 1);
}

fn a_number_stays_with_a_device_that_is_opened_after_it_was_offline() {
    let mut table = [Device::FREE; 8];
    let mut devices = Devices(&mut table);
    for id in 0..3 {
        let opened = opened(u32::from(id), 1);
        must!(devices.opened(&open(b'a' + id), &opened, false, 0));
    }
    devices.closing(0);
    devices.closed(0);
    restart(&mut devices);
    assert_eq!(ids(&devices)[..3], [NO_ID, 0, 1]);
    told(&mut devices, true, &[(b'c', opened(1, 1))]);
    // Requests that were in flight may be sent again: the server has kept the session.
    assert_eq!(ids(&devices)[..3], [NO_ID, 0, 1]);
    assert_eq!(devices.opened(&open(b'b'), &opened(0, 1), true, 0), Ok(1));
    assert_eq!(devices.count(), 2);
    // One that is offline can still be closed.
    told(&mut devices, true, &[(b'c', opened(1, 1))]);
    devices.closing(1);
    devices.closed(1);
    assert_eq!(ids(&devices)[..3], [NO_ID, NO_ID, 1]);
}

fn one_that_was_unmapped_while_offline_holds_up_no_other_by_its_cache() {
    let mut table = [Device::FREE; 4];
    let mut devices = Devices(&mut table);
    must!(devices.opened(&open(b'a'), &volatile(0), false, 0));
    must!(devices.opened(&open(b'b'), &opened(1, 1), false, 0));
    assert!(devices.dirty(1).is_some());
    told(&mut devices, false, &[(b'b', opened(1, 1))]);
    assert!(devices.dirty(1).is_none());
    devices.begin_again();
    must!(devices.opened_again(1, &opened(0, 1)));
    devices.go_over(Some(1));
    // It is not forgotten that it may have lost data.
    assert_eq!(devices.opened(&open(b'a'), &volatile(1), true, 1), Ok(0));
    assert_eq!(devices.flush(0), Flush::Fails);
    assert_eq!(devices.flush(0), Flush::Matters);
}

fn those_that_are_offline_make_room() {
    let mut table = [Device::FREE; 2];
    let mut devices = Devices(&mut table);
    for (id, name) in (b'a'..=b'z').enumerate() {
        let opened = opened(id as u32, 1);
        assert_eq!(
            devices.opened(&open(name), &opened, false, 0),
            Ok(id as u32)
        );
        told(&mut devices, false, &[]);
    }
    assert_eq!(devices.count(), 0);
    for (id, name) in [(30, b'A'), (31, b'B')] {
        let opened = opened(id, 1);
        assert_eq!(devices.opened(&open(name), &opened, false, 0), Ok(id));
    }
    assert_eq!(
        devices.opened(&open(b'C'), &opened(32, 1), false, 0),
        Err(Full)
    );
}

cases!(
    rtrs_client_devices:
    numbers_move_up_when_one_in_the_middle_is_closed,
    one_that_is_being_closed_is_not_opened_again,
    another_disk_under_the_old_name_does_not_do,
    a_server_cannot_give_one_number_twice_nor_a_wild_one,
    a_number_on_its_way_out_is_not_given_anew,
    what_was_flushed_is_clean_until_something_is_written,
    what_was_closed_is_not_clean_by_that,
    what_is_only_read_is_clean,
    a_device_that_may_have_lost_something_fails_one_flush,
    one_that_was_unmapped_while_offline_is_not_opened_again,
    the_last_one_that_was_unmapped_while_offline_leaves_its_number,
    one_that_is_opened_between_both_events_is_open,
    a_number_stays_with_a_device_that_is_opened_after_it_was_offline,
    one_that_was_unmapped_while_offline_holds_up_no_other_by_its_cache,
    those_that_are_offline_make_room,
);
