// SPDX-License-Identifier: GPL-2.0

//! RNBD's messages.

use crate::cases::rnbd::open;
use proptest::prelude::*;
use rtrs_client_logic::logic::rnbd::{
    version, Message, Open, Opened, INFO_SIZE, OPENED_SIZE, OPEN_SIZE,
};

proptest! {
    #[test]
    fn nothing_is_believed_that_is_too_short_or_too_long(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        if let Some(open) = Open::parse(&bytes) {
            prop_assert_eq!(bytes.len(), OPEN_SIZE);
            prop_assert!((1..255).contains(&open.name().len()));
            prop_assert!(!open.name().contains(&0));
        }
        let answer = Opened::parse(&bytes);
        prop_assert!(answer.is_none() || bytes.len() == OPENED_SIZE);
        prop_assert!(version(&bytes).is_none() || bytes.len() == INFO_SIZE);
    }

    #[test]
    fn an_open_goes_out_as_it_came(mode: u8, name in proptest::collection::vec(1u8.., 1..255), junk: u8) {
        let first = Open::parse(&open(mode, &name, junk)).unwrap();
        prop_assert_eq!(first.name(), &name[..]);
        prop_assert_eq!(Open::parse(first.bytes()), Some(first));
        prop_assert_eq!(Message::parse(first.bytes()), Some(Message::Open));
    }
}
