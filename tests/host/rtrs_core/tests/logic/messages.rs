// SPDX-License-Identifier: GPL-2.0

//! The codecs: round trips, arbitrary input.

use crate::cases::messages::{accept, conn_req, padded, with_bytes};
use proptest::prelude::*;
use rtrs_core::proto::{
    conn::*, errno::*, imm::*, info::*, io::*, reject_errno, ProtoError, SessionName,
};

#[test]
fn info_rsp_has_no_more_descriptors_than_it_can_count() {
    let mut large = vec![0; InfoRsp::size(65535)];
    let many = |n| core::iter::repeat_n(SgDesc::default(), n);
    assert_eq!(InfoRsp::write(many(65535), &mut large), Ok(8 + 16 * 65535));
    large.resize(8 + 16 * 65536, 0);
    assert_eq!(
        InfoRsp::write(many(65536), &mut large),
        Err(ProtoError::DescCount)
    );
}

#[test]
fn errors_are_shown_as_their_texts() {
    for err in ProtoError::ALL {
        assert_eq!(err.to_string(), err.as_str());
    }
}

proptest! {
    #[test]
    fn any_bytes_parse_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = ConnReq::parse(&bytes);
        let _ = ConnAccept::parse(&bytes);
        let _ = ConnReject::parse(&bytes);
        prop_assert!(reject_errno(&bytes).to_kernel() < 0);
        let _ = InfoReq::parse(&bytes);
        if let Ok(rsp) = InfoRsp::parse(&bytes) {
            prop_assert_eq!(rsp.descs().count(), rsp.count());
        }
        let _ = WriteMsg::parse(&bytes);
        let _ = ReadMsg::parse(&bytes);
        let _ = RkeyRsp::parse(&bytes);
    }

    // So an answer with another key differs in that half alone.
    #[test]
    fn the_key_of_a_chunk_is_the_second_half(buf_id: u16, rkey: u32, before: u32) {
        let mut bytes = RkeyRsp { buf_id, rkey: before }.to_bytes();
        bytes[RkeyRsp::SIZE / 2..].copy_from_slice(&RkeyRsp::rkey_bytes(rkey));
        prop_assert_eq!(bytes, RkeyRsp { buf_id, rkey }.to_bytes());
        prop_assert_eq!(RkeyRsp::parse(&bytes), Ok(RkeyRsp { buf_id, rkey }));
    }

    // Starts from valid messages and overwrites one piece: that gets past the first checks.
    #[test]
    fn mutated_messages(off in 0usize..56, val in any::<u32>(), cut in 0usize..57) {
        let mut req: [u8; 60] = padded(conn_req().to_bytes());
        req[off..off + 4].copy_from_slice(&val.to_le_bytes());
        if let Ok(parsed) = ConnReq::parse(&req[..cut.max(52)]) {
            prop_assert!(parsed.cid < parsed.cid_num && parsed.cid_num <= 4096);
            prop_assert_eq!(ConnReq::parse(&parsed.to_bytes()), Ok(parsed));
        }
        let mut acc: [u8; 60] = padded(accept().to_bytes());
        acc[off..off + 4].copy_from_slice(&val.to_le_bytes());
        if let Ok(parsed) = ConnAccept::parse(&acc) {
            prop_assert_eq!(ConnAccept::parse(&parsed.to_bytes()), Ok(parsed));
        }
    }

    #[test]
    fn mutated_io(kind in 0u16..6, usr_len: u16, flags: u16, cnt in 0u16..4, rest: [u8; 16]) {
        let mut buf = [0; 24];
        buf[..2].copy_from_slice(&kind.to_le_bytes());
        buf[2..4].copy_from_slice(&usr_len.to_le_bytes());
        buf[4..6].copy_from_slice(&flags.to_le_bytes());
        buf[6..8].copy_from_slice(&cnt.to_le_bytes());
        buf[8..].copy_from_slice(&rest);
        if let Ok(read) = ReadMsg::parse(&buf) {
            prop_assert_eq!(kind, 3);
            prop_assert_eq!(read.dest.is_some(), cnt == 1);
            prop_assert_eq!(with_bytes(&read, ReadMsg::parse), Ok(read));
        }
    }

    #[test]
    fn info_rsp_round_trip(
        descs in proptest::collection::vec((any::<u64>(), any::<u32>(), any::<u32>()), 1..40),
        cut in 0usize..700,
    ) {
        let descs: Vec<_> = descs
            .into_iter()
            .map(|(addr, rkey, len)| SgDesc { addr, rkey, len })
            .collect();
        let mut buf = [0; 700];
        let len = InfoRsp::write(descs.iter().copied(), &mut buf).unwrap();
        prop_assert_eq!(len, InfoRsp::size(descs.len() as u16));
        prop_assert!(InfoRsp::parse(&buf[..len]).unwrap().descs().eq(descs));
        prop_assert_eq!(InfoRsp::parse(&buf[..cut]).is_ok(), cut >= len);
    }

    #[test]
    fn imm_codec_round_trip(qd in 1u16.., chunk in 1u32..(1 << 29), buf_id: u16, off: u32, raw: u32) {
        if let Ok(codec) = ImmCodec::new(qd, chunk) {
            let (buf_id, off) = (buf_id % qd, off % chunk);
            let payload = codec.encode(buf_id, off).unwrap();
            prop_assert!(payload < 1 << 28);
            prop_assert_eq!(codec.decode(payload), Ok(IoTarget { buf_id, off }));
            if let Ok(target) = codec.decode(raw) {
                prop_assert_eq!(codec.encode(target.buf_id, target.off), Ok(raw));
            }
        }
    }

    #[test]
    fn errno_is_never_success(ret: i32) {
        prop_assert_eq!(IoErrno::from_kernel(ret).is_success(), ret == 0);
        prop_assert!(IoErrno::from_kernel(ret).to_field() < 512);
        prop_assert!(RejectErrno::from_kernel(ret).to_kernel() < 0);
        let reject = RejectErrno::from_kernel(ret);
        prop_assert_eq!(RejectErrno::from_field(reject.to_field()), reject);
    }

    #[test]
    fn names(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let valid = !bytes.is_empty()
            && bytes.len() <= 254
            && bytes.iter().all(|&c| (0x21..0x7f).contains(&c) && c != b'/' && c != b'.');
        let name = SessionName::new(&bytes);
        prop_assert_eq!(name.is_ok(), valid);
        if let Ok(name) = name {
            prop_assert_eq!(name.as_bytes(), &bytes[..]);
            prop_assert_eq!(name.as_str().as_bytes(), &bytes[..]);
            prop_assert_eq!(name.as_cstr().to_bytes(), &bytes[..]);
            prop_assert_eq!(name.to_string().into_bytes(), bytes);
        }
    }

    #[test]
    fn name_round_trip(text in "[!-\\-0-~]{1,254}") {
        let name = SessionName::new(text.as_bytes()).unwrap();
        prop_assert_eq!(InfoReq::parse(&InfoReq { name }.to_bytes()).unwrap().name, name);
    }
}
