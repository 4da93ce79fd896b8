// SPDX-License-Identifier: GPL-2.0

//! The codecs: bytes written by hand from the protocol description.

use rtrs_core::proto::{
    conn::*, errno::*, imm::*, info::*, io::*, reject_errno, ProtoError, SessionName,
};

pub(crate) fn conn_req() -> ConnReq {
    ConnReq {
        cid: 1,
        cid_num: 5,
        recon_cnt: 3,
        path_uuid: core::array::from_fn(|i| 0x10 + i as u8),
        session_uuid: core::array::from_fn(|i| 0x20 + i as u8),
        first_conn: true,
        capabilities: Capabilities::default(),
        path_wait: PathWait::Unsaid,
    }
}

pub(crate) fn accept() -> ConnAccept {
    ConnAccept {
        queue_depth: 512,
        max_io_size: 126976,
        max_hdr_size: 4096,
        new_rkey: true,
        kept: true,
        orders_copies: true,
        inval_answers: true,
        takes_sends: true,
    }
}

/// Calls a function with the bytes of a read request, which has two sizes.
pub(crate) fn with_bytes<T>(read: &ReadMsg, f: impl FnOnce(&[u8]) -> T) -> T {
    match &read.dest {
        Some(dest) => f(&ReadMsg::with_data(read.usr_len, dest)),
        None => f(&ReadMsg::without_data(read.usr_len)),
    }
}

/// A message as it arrives, with padding.
pub(crate) fn padded<const N: usize, const LEN: usize>(msg: [u8; N]) -> [u8; LEN] {
    let mut padded = [0xff; LEN];
    padded[..N].copy_from_slice(&msg);
    padded
}

fn conn_req_bytes() {
    let buf = conn_req().to_bytes();

    let mut want = [0u8; 56];
    want[2..12].copy_from_slice(&[0xbd, 0x1b, 0x00, 0x02, 1, 0, 5, 0, 3, 0]);
    for i in 0..16 {
        want[12 + i] = 0x10 + i as u8;
        want[28 + i] = 0x20 + i as u8;
    }
    want[44] = 1;
    assert_eq!(buf, want);
    assert_eq!(ConnReq::parse(&buf), Ok(conn_req()));
    assert_eq!(
        ConnReq::parse(&padded::<56, 60>(buf)),
        Ok(conn_req()),
        "padding is accepted"
    );

    for byte in 1..=u8::MAX {
        let able = ConnReq {
            capabilities: Capabilities {
                keeps_keys: byte & 1 != 0,
                inval_answers: byte & 2 != 0,
                inval_answers_always: byte & 4 != 0,
                counts_keys: byte & 8 != 0,
                sends: match byte >> 4 {
                    0 => None,
                    n => Some(MostSent::of(2 << n)),
                },
            },
            ..conn_req()
        };
        let buf = able.to_bytes();
        want[45] = byte;
        assert_eq!(buf, want);
        assert_eq!(ConnReq::parse(&buf), Ok(able));
    }
}

fn most_sent_is_a_power_of_two() {
    for (requests, most) in [
        (0, 4),
        (4, 4),
        (5, 8),
        (64, 64),
        (65, 128),
        (65535, 65536),
        (u32::MAX, 65536),
    ] {
        assert_eq!(MostSent::of(requests).requests(), most);
    }
}

fn conn_req_says_how_long_it_waits() {
    let write = |cid, path_wait| {
        let req = ConnReq {
            cid,
            path_wait,
            ..conn_req()
        };
        let buf = req.to_bytes();
        (must!(ConnReq::parse(&buf)).path_wait, buf)
    };
    for (wait, bytes) in [
        (PathWait::Unsaid, [0; 4]),
        (PathWait::from_secs(30), [30, 0, 0, 0]),
        (PathWait::from_secs(86_400), [0x80, 0x51, 1, 0]),
        (PathWait::Forever, [0xff; 4]),
    ] {
        let (parsed, buf) = write(0, wait);
        assert_eq!((parsed, &buf[46..50]), (wait, &bytes[..]));
        assert_eq!(&buf[50..], [0; 6]);
        // Other messages use these bytes for something else.
        let (parsed, buf) = write(1, wait);
        assert_eq!((parsed, &buf[46..]), (PathWait::Unsaid, &[0; 10][..]));
    }
}

fn conn_req_refused() {
    let parse = |off: usize, val: &[u8]| {
        let mut buf = conn_req().to_bytes();
        buf[off..off + val.len()].copy_from_slice(val);
        ConnReq::parse(&buf)
    };
    assert_eq!(parse(2, &[0xbc]), Err(ProtoError::Magic));
    assert_eq!(parse(3, &[0]), Err(ProtoError::Magic));
    assert_eq!(parse(5, &[1]), Err(ProtoError::Version));
    assert_eq!(parse(5, &[3]), Err(ProtoError::Version));
    assert!(parse(4, &[0xff]).is_ok(), "minor versions are compatible");
    assert_eq!(parse(6, &[5, 0]), Err(ProtoError::ConnId));
    assert_eq!(parse(8, &[1, 0]), Err(ProtoError::ConnCount));
    assert_eq!(parse(8, &[0, 0]), Err(ProtoError::ConnCount));
    assert_eq!(parse(8, &[1, 16]), Err(ProtoError::ConnCount));
    assert!(parse(8, &[0, 16]).is_ok(), "4096 connections");
    assert!(parse(0, &[7, 7]).is_ok(), "reserved");
    assert!(parse(45, &[9; 11]).is_ok(), "reserved");
    assert_eq!(parse(44, &[0xfe]).map(|r| r.first_conn), Ok(false));
    for len in 0..56 {
        assert_eq!(ConnReq::parse(&[0; 56][..len]), Err(ProtoError::Length));
    }
    let bad = ConnReq {
        cid: 5,
        ..conn_req()
    };
    assert_eq!(ConnReq::parse(&bad.to_bytes()), Err(ProtoError::ConnId));
    for cid_num in [0, 1, 4097, u16::MAX] {
        let bad = ConnReq {
            cid: 0,
            cid_num,
            ..conn_req()
        };
        assert_eq!(ConnReq::parse(&bad.to_bytes()), Err(ProtoError::ConnCount));
    }
}

fn accept_bytes() {
    let mut buf: [u8; 196] = padded(accept().to_bytes());
    let want = [
        0xbd, 0x1b, 0x00, 0x02, 0, 0, 0, 2, 0x00, 0xf0, 0x01, 0, 0, 0x10, 0, 0, 2, 0, 15, 0,
    ];
    assert_eq!(buf[..20], want);
    assert_eq!(buf[20..56], [0; 36]);
    assert_eq!(ConnAccept::parse(&buf), Ok(accept()));

    buf[16] = 0xfd;
    assert_eq!(
        ConnAccept::parse(&buf).map(|a| a.new_rkey),
        Ok(false),
        "unknown flags are ignored"
    );
    buf[4] = 1;
    assert_eq!(ConnAccept::parse(&buf), Err(ProtoError::AcceptErrno));
    buf[4] = 0;
    buf[3] = 1;
    assert_eq!(ConnAccept::parse(&buf), Err(ProtoError::Version));
    buf[0] = 0;
    assert_eq!(ConnAccept::parse(&buf), Err(ProtoError::Magic));
    assert_eq!(ConnAccept::parse(&buf[..55]), Err(ProtoError::Length));
}

fn reject_is_always_an_error() {
    let errno_of = |errno: i16| {
        let msg = ConnReject {
            errno: RejectErrno::CONNRESET,
        };
        let mut buf: [u8; 148] = padded(msg.to_bytes());
        buf[4..6].copy_from_slice(&errno.to_le_bytes());
        reject_errno(&buf).to_kernel()
    };
    assert_eq!(errno_of(-6), -6);
    assert_eq!(errno_of(-17), -17);
    assert_eq!(errno_of(0), -104);
    assert_eq!(errno_of(1), -104);
    assert_eq!(errno_of(104), -104);
    assert_eq!(errno_of(-511), -511);
    // Not for user space: ERESTARTSYS, ENOTSUPP, and an invalid number.
    assert_eq!(errno_of(-512), -4);
    assert_eq!(errno_of(-524), -95);
    assert_eq!(errno_of(-4095), -5);
    assert_eq!(errno_of(-4096), -5);
    assert_eq!(errno_of(i16::MIN), -5);
    assert_eq!(reject_errno(&[]).to_kernel(), -104);
    assert_eq!(reject_errno(&[0; 148]).to_kernel(), -104);

    let errno = RejectErrno::from_kernel(-ENXIO);
    let buf = ConnReject { errno }.to_bytes();
    assert_eq!(buf[..6], [0xbd, 0x1b, 0, 2, 0xfa, 0xff]);
    assert_eq!(buf[6..], [0; 50]);
}

fn info_req_bytes() {
    let name = must!(SessionName::new(b"bla@host"));
    let mut buf = InfoReq { name }.to_bytes();
    assert_eq!(buf[..11], *b"\0\0bla@host\0");
    assert_eq!(buf[11..], [0; 261]);
    assert_eq!(InfoReq::parse(&buf), Ok(InfoReq { name }));

    assert_eq!(InfoReq::parse(&buf[..271]), Err(ProtoError::Length));
    buf[257..].fill(7);
    assert!(InfoReq::parse(&buf).is_ok(), "reserved");
    buf[0] = 1;
    assert_eq!(InfoReq::parse(&buf), Err(ProtoError::MsgType));
    assert_eq!(
        InfoReq::parse(&[0; 272]),
        Err(ProtoError::Name),
        "empty name"
    );
    let mut full = [b'x'; 272];
    full[..2].fill(0);
    assert_eq!(
        InfoReq::parse(&full),
        Err(ProtoError::Name),
        "no terminating NUL"
    );
    full[256] = 0;
    assert_eq!(
        must!(InfoReq::parse(&full)).name.as_bytes(),
        [b'x'; 254],
        "longest name"
    );
}

fn info_rsp_bytes() {
    let descs = [
        SgDesc {
            addr: 0x0102_0304_0506_0708,
            rkey: 0x1112_1314,
            len: 0x0002_0000,
        },
        SgDesc::default(),
    ];
    let mut buf = [0xff; 64];
    assert_eq!(InfoRsp::write(descs, &mut buf), Ok(40));
    assert_eq!(buf[..8], [1, 0, 2, 0, 0, 0, 0, 0]);
    assert_eq!(
        buf[8..24],
        [8, 7, 6, 5, 4, 3, 2, 1, 0x14, 0x13, 0x12, 0x11, 0, 0, 2, 0]
    );
    assert_eq!(buf[24..40], [0; 16]);
    assert_eq!(buf[40..], [0xff; 24]);

    let rsp = must!(InfoRsp::parse(&buf[..40]));
    assert_eq!(rsp.count(), 2);
    assert!(rsp.descs().eq(descs));
    assert!(must!(InfoRsp::parse(&buf)).descs().eq(descs));
    assert_eq!(
        InfoRsp::parse(&buf[..39]).err(),
        Some(ProtoError::Length),
        "within a descriptor"
    );
    buf[2] = 0;
    assert_eq!(InfoRsp::parse(&buf).err(), Some(ProtoError::DescCount));
    buf[0] = 4;
    assert_eq!(InfoRsp::parse(&buf).err(), Some(ProtoError::MsgType));

    assert_eq!(
        InfoRsp::write(descs, &mut buf[..39]),
        Err(ProtoError::BufferTooSmall)
    );
    assert_eq!(InfoRsp::write([], &mut buf), Err(ProtoError::DescCount));
}

fn io_bytes() {
    let write = WriteMsg { usr_len: 0x1234 };
    assert_eq!(write.to_bytes(), [2, 0, 0x34, 0x12]);
    let buf: [u8; 24] = padded(write.to_bytes());
    assert_eq!(WriteMsg::parse(&buf), Ok(write));
    assert_eq!(WriteMsg::parse(&buf[..3]), Err(ProtoError::Length));
    assert_eq!(ReadMsg::parse(&buf), Err(ProtoError::MsgType));

    let none = ReadMsg {
        usr_len: 7,
        dest: None,
    };
    with_bytes(&none, |buf| {
        assert_eq!(buf, [3, 0, 7, 0, 0, 0, 0, 0]);
        assert_eq!(ReadMsg::parse(buf), Ok(none));
    });

    let desc = SgDesc {
        addr: 1 << 40,
        rkey: 0x0a0b_0c0d,
        len: 4096,
    };
    let one = ReadMsg {
        usr_len: 7,
        dest: Some(ReadDest {
            desc,
            need_inval: true,
        }),
    };
    with_bytes(&one, |buf| {
        assert_eq!(
            buf,
            [3, 0, 7, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0xd, 0xc, 0xb, 0xa, 0, 0x10, 0, 0]
        );
        assert_eq!(ReadMsg::parse(buf), Ok(one));
    });

    let rkey = RkeyRsp {
        buf_id: 0x0201,
        rkey: 0x0605_0403,
    };
    let mut buf = rkey.to_bytes();
    assert_eq!(buf, [4, 0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(RkeyRsp::parse(&buf), Ok(rkey));
    assert_eq!(RkeyRsp::parse(&buf[..7]), Err(ProtoError::Length));
    assert_eq!(
        RkeyRsp::parse(&padded::<8, 9>(buf)),
        Err(ProtoError::Length)
    );
    buf[0] = 3;
    assert_eq!(RkeyRsp::parse(&buf), Err(ProtoError::MsgType));
}

fn read_msg_refused() {
    let mut buf = [0u8; 24];
    buf[0] = 3;
    buf[4] = 1;
    assert_eq!(ReadMsg::parse(&buf), Err(ProtoError::Inval));
    buf[6] = 1;
    assert_eq!(ReadMsg::parse(&buf), Err(ProtoError::DescLen));
    buf[20] = 1;
    assert!(ReadMsg::parse(&buf).is_ok());
    assert_eq!(ReadMsg::parse(&buf[..23]), Err(ProtoError::Length));
    buf[6] = 2;
    assert_eq!(ReadMsg::parse(&buf), Err(ProtoError::DescCount));
    buf[6] = 0;
    buf[7] = 1;
    assert_eq!(ReadMsg::parse(&buf), Err(ProtoError::DescCount));
    buf[7] = 0;
    buf[4] = 0xfe;
    assert!(ReadMsg::parse(&buf).is_ok(), "unknown flags are ignored");
    assert_eq!(ReadMsg::parse(&buf[..7]), Err(ProtoError::Length));
    let empty = ReadMsg {
        usr_len: 0,
        dest: Some(ReadDest {
            desc: SgDesc::default(),
            need_inval: false,
        }),
    };
    assert_eq!(with_bytes(&empty, ReadMsg::parse), Err(ProtoError::DescLen));
}

fn imm_codec_limits() {
    assert_eq!(ImmCodec::new(0, 8192), Err(ProtoError::QueueDepth));
    assert_eq!(ImmCodec::new(1, 0), Err(ProtoError::ChunkSize));
    assert!(ImmCodec::new(512, 1 << 19).is_ok());
    assert_eq!(ImmCodec::new(513, 1 << 19), Err(ProtoError::ImmBits));
    assert_eq!(ImmCodec::new(512, (1 << 19) + 1), Err(ProtoError::ImmBits));
    assert!(ImmCodec::new(1, 1 << 28).is_ok());
    assert_eq!(ImmCodec::new(1, u32::MAX), Err(ProtoError::ImmBits));
    assert!(ImmCodec::new(32768, 8192).is_ok());
    assert_eq!(ImmCodec::new(65535, 8192), Err(ProtoError::ImmBits));

    // The default server: 9 bits of buffer id above 19 bits of offset.
    let codec = must!(ImmCodec::new(512, 131072));
    assert_eq!(codec.encode(3, 0x1000), Ok(3 << 19 | 0x1000));
    assert_eq!(codec.encode(512, 0), Err(ProtoError::BufId));
    assert_eq!(codec.encode(0, 131072), Err(ProtoError::Offset));
    assert_eq!(codec.decode(131072), Err(ProtoError::Offset));
    assert_eq!(codec.decode(1 << 28), Err(ProtoError::ImmBits));
    let odd = must!(ImmCodec::new(300, 131072));
    assert_eq!(odd.decode(300 << 19), Err(ProtoError::BufId));
    let one = must!(ImmCodec::new(1, 8192));
    assert_eq!(one.encode(0, 8191), Ok(8191));
    assert_eq!(one.decode(8191).map(|t| (t.buf_id, t.off)), Ok((0, 8191)));
    for (n, bits) in [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (65535, 16)] {
        assert_eq!(index_bits(n), bits);
    }
    assert_eq!(index_bits(u32::MAX), 32);
}

fn io_errno() {
    assert_eq!(IoErrno::from_kernel(0), IoErrno::SUCCESS);
    assert!(IoErrno::from_kernel(0).is_success());
    for ret in -511..0 {
        assert_eq!(IoErrno::from_kernel(ret).to_kernel(), ret);
    }
    for (ret, want) in [
        (-512, -4),
        (-513, -4),
        (-515, -25),
        (-517, -11),
        (-518, -116),
        (-524, -95),
        (-528, -11),
        (-529, -5),
        (-1024, -5),
        (-4095, -5),
        (5, -5),
        (1, -5),
        (i32::MIN, -5),
        (i32::MAX, -5),
    ] {
        assert_eq!(IoErrno::from_kernel(ret).to_kernel(), want, "{ret}");
    }
    assert_eq!(RejectErrno::from_kernel(i32::MIN).to_kernel(), -104);
}

fn errors_have_dense_numbers_and_texts() {
    for (i, err) in ProtoError::ALL.into_iter().enumerate() {
        assert_eq!(err.index(), i);
        assert!(err.to_errno() < 0);
        assert!(!err.as_str().is_empty());
    }
    assert_eq!(ProtoError::DataLen.to_errno(), -90);
}

fn names_refused() {
    for bad in [
        &b""[..],
        b".",
        b"..",
        b"a/b",
        b"a.b",
        b"a b",
        b"a\n",
        b"\x1b[0m",
        b"\xc3\xa4",
    ] {
        assert_eq!(SessionName::new(bad), Err(ProtoError::Name));
    }
    assert!(SessionName::new(&[b'a'; 254]).is_ok());
    assert!(SessionName::new(&[b'a'; 255]).is_err());
    let mut field = [b'a'; 255];
    assert!(SessionName::from_field(&field).is_err());
    field[3] = 0;
    let name = must!(SessionName::from_field(&field));
    assert_eq!(name.as_str(), "aaa", "what follows the NUL is ignored");
    assert_eq!(name, must!(SessionName::new(b"aaa")));
}

cases!(
    rtrs_core_messages:
    conn_req_bytes,
    most_sent_is_a_power_of_two,
    conn_req_says_how_long_it_waits,
    conn_req_refused,
    accept_bytes,
    reject_is_always_an_error,
    info_req_bytes,
    info_rsp_bytes,
    io_bytes,
    read_msg_refused,
    imm_codec_limits,
    io_errno,
    errors_have_dense_numbers_and_texts,
    names_refused,
);
