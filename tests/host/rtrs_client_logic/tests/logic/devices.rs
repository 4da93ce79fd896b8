// SPDX-License-Identifier: GPL-2.0

//! RNBD's devices, and their numbers after a restart of the server: against a model of a server
//! that gives the smallest free number, or any.

use crate::cases::devices::{ids, open, opened};
use proptest::prelude::*;
use rtrs_client_logic::logic::devices::{Device, Devices, MAX_IDS};
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Step {
    /// All paths are lost and come back. A device whose bit is set is unmapped meanwhile.
    Outage(u16),
    Open(u8, u8),
    Close(u8),
    Restart(Vec<u8>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (b'a'..=b'j', any::<u8>()).prop_map(|(name, salt)| Step::Open(name, salt)),
        2 => (b'a'..=b'j').prop_map(Step::Close),
        1 => proptest::collection::vec(any::<u8>(), 16).prop_map(Step::Restart),
        1 => any::<u16>().prop_map(Step::Outage),
    ];
    proptest::collection::vec(step, 0..200)
}

/// The number that a server gives: often the smallest free one.
fn number(disks: &BTreeMap<u32, u8>, salt: u8) -> u32 {
    let free = |id: &u32| !disks.contains_key(id);
    let skip = if salt < 200 { 0 } else { usize::from(salt % 5) };
    (0..).filter(free).nth(skip).unwrap()
}

proptest! {
    /// For any sequence of opening and closing, outages, restarts of the server, and numbers that it
    /// gives: RNBD's requests for a device reach the disk with its name, and a server that was
    /// restarted has the devices that RNBD has.
    #[test]
    fn each_number_of_the_users_stays_with_its_disk(steps in steps()) {
        let mut table = [Device::FREE; 32];
        let mut devices = Devices(&mut table);
        // What RNBD has: number by name. What the server has: name by number.
        let mut rnbd = BTreeMap::<u8, u32>::new();
        let mut server = BTreeMap::<u32, u8>::new();
        let mut shifted = false;
        for step in steps {
            match step {
                Step::Outage(unmapped) => {
                    devices.doubt_all();
                    rnbd.retain(|name, _| unmapped & 1 << (name - b'a') == 0);
                    devices.wait_for_doubted();
                    prop_assert_eq!(devices.count(), 0);
                    for (name, user_id) in &rnbd {
                        let id = *server.iter().find(|(_, n)| *n == name).unwrap().0;
                        let told = devices.opened(&open(*name), &opened(id, *name), shifted, 0);
                        prop_assert_eq!(told, Ok(*user_id));
                    }
                }
                Step::Open(name, salt) => {
                    let there = server.iter().find(|(_, n)| **n == name).map(|(id, _)| *id);
                    let id = there.unwrap_or_else(|| number(&server, salt));
                    server.insert(id, name);
                    let told = devices.opened(&open(name), &opened(id, name), shifted, 0).unwrap();
                    let before = rnbd.insert(name, told);
                    prop_assert!(before.is_none() || before == Some(told));
                    prop_assert!(shifted || told == id);
                }
                Step::Close(name) => {
                    if let Some(user_id) = rnbd.remove(&name) {
                        devices.closing(user_id);
                        let mut ids = vec![0; MAX_IDS];
                        devices.fill_in(&mut ids);
                        prop_assert_eq!(server.remove(&ids[user_id as usize]), Some(name));
                        devices.closed(user_id);
                    }
                }
                Step::Restart(salts) => {
                    server.clear();
                    devices.begin_again();
                    let mut from = 0;
                    let mut salts = salts.into_iter().cycle();
                    while let Some(device) = devices.next(from) {
                        let (user_id, name) = (device.user_id(), device.open().name()[0]);
                        let id = number(&server, salts.next().unwrap());
                        server.insert(id, name);
                        devices.opened_again(user_id, &opened(id, name)).unwrap();
                        from = user_id + 1;
                    }
                    devices.go_over(None);
                    shifted = devices.is_shifted();
                    prop_assert_eq!(server.len(), rnbd.len());
                }
            }
            let ids = ids(&devices);
            for (name, user_id) in &rnbd {
                prop_assert_eq!(server.get(&ids[*user_id as usize]), Some(name));
                prop_assert!(shifted || ids[*user_id as usize] == *user_id);
            }
            prop_assert_eq!(devices.count(), rnbd.len());
        }
    }
}
