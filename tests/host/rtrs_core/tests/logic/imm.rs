// SPDX-License-Identifier: GPL-2.0

//! Immediate values.

use proptest::prelude::*;
use rtrs_core::proto::imm::*;

proptest! {
    #[test]
    fn imm_round_trip(raw: u32) {
        if let Ok(imm) = Imm::decode(raw) {
            let again = imm.encode().unwrap();
            prop_assert_eq!(Imm::decode(again), Ok(imm));
            if raw >> 28 < 8 {
                prop_assert_eq!(again, raw);
            }
        }
    }

    // Exactly the values of success are recognised as success, with and without `inval`.
    #[test]
    fn success_is_an_answer(
        imm_type in 0u32..16,
        errno in prop_oneof![Just(0u32), 0u32..512],
        msg_id in 0u32..1 << 19,
        raw: u32,
    ) {
        for raw in [raw, imm_type << 28 | errno << 19 | msg_id] {
            let (plain, returned) = match Imm::decode(raw) {
                Ok(Imm::IoRsp { msg_id, errno, inval }) if errno.is_success() => {
                    (Some(msg_id).filter(|_| !inval), Some(msg_id).filter(|_| inval))
                }
                _ => (None, None),
            };
            prop_assert_eq!(success_of(raw), plain);
            let number = success_number(raw);
            prop_assert_eq!((number < 1 << 19).then_some(number), plain);
            prop_assert_eq!(returned_of(raw), returned);
            let next_key = match Imm::decode(raw) {
                Ok(Imm::IoRspNextKey { msg_id }) => Some(msg_id),
                _ => None,
            };
            let number = next_key_number(raw);
            prop_assert_eq!((number < 1 << 19).then_some(number), next_key);
        }
    }
}
