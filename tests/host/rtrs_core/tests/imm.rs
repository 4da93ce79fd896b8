// SPDX-License-Identifier: GPL-2.0

//! Immediate values.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use rtrs_core::proto::{errno::*, imm::*, ProtoError};

#[test]
fn imm_bits() {
    let rsp = |msg_id, ret, inval| Imm::IoRsp {
        msg_id,
        errno: IoErrno::from_kernel(ret),
        inval,
    };
    assert_eq!(Imm::IoReq { payload: 0x123 }.encode(), Ok(0x123));
    assert_eq!(
        Imm::IoReq { payload: 1 << 28 }.encode(),
        Err(ProtoError::ImmBits)
    );
    assert_eq!(rsp(7, 0, false).encode(), Ok(0x1000_0007));
    assert_eq!(rsp(7, -5, true).encode(), Ok(0x2000_0007 | 5 << 19));
    assert_eq!(rsp(0x7_ffff, -511, true).encode(), Ok(0x2fff_ffff));
    assert_eq!(rsp(0x8_0000, 0, false).encode(), Err(ProtoError::MsgId));
    assert_eq!(Imm::Hb.encode(), Ok(0x8000_0000));
    assert_eq!(Imm::HbAck.encode(), Ok(0x9000_0000));
    for imm_type in [3, 4, 5, 6, 7, 10, 11, 12, 13, 14, 15u32] {
        assert_eq!(Imm::decode(imm_type << 28), Err(ProtoError::ImmType));
    }
    assert_eq!(Imm::decode(0x8000_0001), Ok(Imm::Hb), "payload is ignored");
}

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
            prop_assert_eq!(returned_of(raw), returned);
        }
    }
}
