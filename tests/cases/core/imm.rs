// SPDX-License-Identifier: GPL-2.0

//! Immediate values.

use rtrs_core::proto::{errno::*, imm::*, next_rkey, ProtoError};

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
    assert_eq!(Imm::IoRspNextKey { msg_id: 7 }.encode(), Ok(0x3000_0007));
    assert_eq!(
        Imm::IoRspNextKey { msg_id: 0x8_0000 }.encode(),
        Err(ProtoError::MsgId)
    );
    assert_eq!(Imm::decode(0x3008_0000), Err(ProtoError::MsgId), "no error");
    for imm_type in [4, 5, 6, 7, 10, 11, 12, 13, 14, 15u32] {
        assert_eq!(Imm::decode(imm_type << 28), Err(ProtoError::ImmType));
    }
    assert_eq!(Imm::decode(0x8000_0001), Ok(Imm::Hb), "payload is ignored");
}

fn next_keys() {
    assert_eq!(next_rkey(0x1234_5678), 0x1234_5679);
    assert_eq!(next_rkey(0x1234_56ff), 0x1234_5600);
    assert_eq!(next_rkey(u32::MAX), 0xffff_ff00);
}

cases!(
    rtrs_core_imm:
    imm_bits,
    next_keys,
);
