// SPDX-License-Identifier: GPL-2.0

//! Limits of both sides, sizes of queues, requests in chunks.

use rtrs_core::{
    proto::{conn::ConnAccept, geometry::*, io::*, request::*, ProtoError},
    qp_size::*,
};

pub(crate) fn default_geometry() -> Geometry {
    must!(Geometry::server(512, 131072, 4096))
}

fn server_parameters() {
    let geo = default_geometry();
    assert_eq!(geo.max_io_size(), 126976);
    assert_eq!(geo.total_size(), 64 << 20);

    for (qd, chunk, hdr, want) in [
        (0, 131072, 4096, ProtoError::QueueDepth),
        (-1, 131072, 4096, ProtoError::QueueDepth),
        (65536, 131072, 4096, ProtoError::QueueDepth),
        (i64::MAX, 131072, 4096, ProtoError::QueueDepth),
        (512, 0, 4096, ProtoError::ChunkSize),
        (512, -131072, 4096, ProtoError::ChunkSize),
        (512, 4096, 64, ProtoError::ChunkSize),
        (512, 131073, 4096, ProtoError::ChunkSize),
        (512, 100000, 4096, ProtoError::ChunkSize),
        (1, 8 << 20, 4096, ProtoError::ChunkSize),
        (512, 1 << 40, 4096, ProtoError::ChunkSize),
        (512, 8192, 4097, ProtoError::HeaderSize),
        (512, 65536, 65536, ProtoError::HeaderSize),
        (512, 131072, 63, ProtoError::HeaderSize),
        (512, 131072, u32::MAX, ProtoError::HeaderSize),
        (512, 1 << 20, 4096, ProtoError::ImmBits),
        (65535, 8192, 4096, ProtoError::ImmBits),
    ] {
        assert_eq!(
            Geometry::server(qd, chunk, hdr),
            Err(want),
            "{qd} {chunk} {hdr}"
        );
    }
    assert!(Geometry::server(512, 1 << 19, 4096).is_ok());
    assert!(Geometry::server(32768, 8192, 4096).is_ok());
    assert!(Geometry::server(1, 4 << 20, 65536).is_ok());
    assert!(Geometry::server(2048, 131072, 4096).is_ok());
}

fn client_limits() {
    let accept = default_geometry().to_accept(true);
    let geo = must!(Geometry::from_accept(&accept));
    assert_eq!(geo, default_geometry());
    assert_eq!(geo.max_hdr_size(), 4096);
    assert_eq!(geo.client_io_size(128), 126976);
    assert_eq!(geo.client_io_size(1), 4096);
    assert_eq!(geo.client_io_size(u32::MAX), 126976);
    assert_eq!(geo.check_session_depth(512), Ok(()));
    for other in [0, 511, 513, 65535] {
        assert_eq!(
            geo.check_session_depth(other),
            Err(ProtoError::QueueDepthChanged)
        );
    }

    let with = |qd, io, hdr| {
        Geometry::from_accept(&ConnAccept {
            queue_depth: qd,
            max_io_size: io,
            max_hdr_size: hdr,
            new_rkey: false,
            kept: false,
            orders_copies: false,
            inval_answers: false,
            takes_sends: false,
        })
    };
    assert_eq!(with(0, 126976, 4096), Err(ProtoError::QueueDepth));
    assert_eq!(with(512, 126976, 0), Err(ProtoError::HeaderSize));
    assert_eq!(with(512, 0, 4096), Err(ProtoError::IoSize));
    assert_eq!(with(512, u32::MAX, 4096), Err(ProtoError::ChunkSize));
    assert_eq!(with(512, 1 << 31, 4096), Err(ProtoError::ImmBits));
    assert_eq!(with(512, 512, 1 << 31), Err(ProtoError::ImmBits));
    // A server with 64 KiB pages, and one with an absurd but harmless header size.
    assert_eq!(must!(with(512, 65536, 65536)).max_hdr_size(), 65536);
    assert!(with(1, 512, 1 << 27).is_ok());
}

fn request_refused() {
    let geo = must!(Geometry::server(8, 8192, 4096));
    let write = |off, usr_len| {
        let mut msg = [0; 24];
        msg[..4].copy_from_slice(&WriteMsg { usr_len }.to_bytes());
        Request::parse(&geo, off, &msg).map(|_| ())
    };
    assert_eq!(write(100, 101), Err(ProtoError::UserLen));
    assert_eq!(write(100, 100), Ok(()));
    assert_eq!(write(5000, 4092), Ok(()));
    assert_eq!(write(5000, 4093), Err(ProtoError::UserLen));
    assert_eq!(write(8188, 8), Ok(()));
    assert_eq!(write(8191, 8), Err(ProtoError::Length));
    assert_eq!(write(8193, 8), Err(ProtoError::Offset));
    assert_eq!(write(u32::MAX, 8), Err(ProtoError::Offset));
    assert_eq!(write(0, 0), Ok(()));

    let read = |off, len, need_inval| {
        let dest = ReadDest {
            desc: SgDesc {
                addr: 0,
                rkey: 0,
                len,
            },
            need_inval,
        };
        Request::parse(&geo, off, &ReadMsg::with_data(8, &dest)).map(|_| ())
    };
    assert_eq!(read(4104, 4096, true), Ok(()));
    assert_eq!(read(4104, 4095, true), Err(ProtoError::DescLen));
    assert_eq!(read(4104, 4097, false), Err(ProtoError::DescLen));
    assert_eq!(read(8168, 8160, true), Ok(()));
    assert_eq!(read(8169, 8161, true), Err(ProtoError::Length));

    let mut msg = [0; 24];
    msg[..8].copy_from_slice(&ReadMsg::without_data(8));
    assert!(Request::parse(&geo, 8, &msg).is_ok());
    assert_eq!(Request::parse(&geo, 9, &msg), Err(ProtoError::DataLen));
    assert_eq!(Request::parse(&geo, 9, &[]), Err(ProtoError::Length));
    msg[0] = 0;
    assert_eq!(Request::parse(&geo, 8, &msg), Err(ProtoError::MsgType));

    assert_eq!(Request::msg_range(&geo, 0), Ok(0..24));
    assert_eq!(Request::msg_range(&geo, 8188), Ok(8188..8192));
    assert_eq!(Request::msg_range(&geo, 8189), Err(ProtoError::Offset));
}

fn layout_limits() {
    let geo = default_geometry();
    let room = Room::new(&geo, 128, 8192);
    assert_eq!((room.header(), room.data()), (4096, 126976));
    let new = |dir, data_len, usr_len| Layout::new(&room, dir, data_len, usr_len).map(|_| ());
    assert_eq!(new(DataDir::Write, 0, 4092), Ok(()));
    assert_eq!(new(DataDir::Write, 0, 4093), Err(ProtoError::UserLen));
    assert_eq!(new(DataDir::Read, 0, 4088), Ok(()));
    assert_eq!(new(DataDir::Read, 0, 4089), Err(ProtoError::UserLen));
    assert_eq!(new(DataDir::Read, 512, 4072), Ok(()));
    assert_eq!(new(DataDir::Read, 512, 4073), Err(ProtoError::UserLen));
    assert_eq!(new(DataDir::Write, 126976, 4092), Ok(()));
    assert_eq!(new(DataDir::Write, 126977, 4092), Err(ProtoError::DataLen));
    assert_eq!(new(DataDir::Read, 126976, 4072), Ok(()));
    assert_eq!(new(DataDir::Read, 126977, 4072), Err(ProtoError::DataLen));
    assert_eq!(new(DataDir::Write, usize::MAX, 0), Err(ProtoError::DataLen));
    assert_eq!(new(DataDir::Write, 0, usize::MAX), Err(ProtoError::UserLen));
    assert_eq!(new(DataDir::Write, 0, 65536), Err(ProtoError::UserLen));

    // Fewer segments, a smaller header, a header that does not fit its length field.
    let room = Room::new(&geo, 2, 100);
    assert_eq!((room.header(), room.data()), (100, 8192));
    let huge = must!(Geometry::server(2, 1 << 20, 1 << 19));
    assert_eq!(Room::new(&huge, 128, u32::MAX).header(), 65535);

    let large = must!(Geometry::server(512, 1 << 19, 4096));
    let layout = must!(Layout::new(
        &Room::new(&large, 128, 4096),
        DataDir::Write,
        200_000,
        8
    ));
    assert_eq!(ChunkImm::new(&large, 512), Err(ProtoError::BufId));
    assert_eq!(
        must!(ChunkImm::new(&large, 1)).at(layout.off()),
        1 << 19 | 200_008
    );
}

fn queue_sizes() {
    let mlx = QpLimits {
        max_qp_wr: 32768,
        max_cqe: 4194303,
        max_send_sge: 30,
    };
    let size = must!(QpSize::client_io(&mlx, 512, 32, 4, 8));
    assert_eq!((size.send_wr, size.recv_wr, size.send_sge), (2177, 1057, 8));
    let size = must!(QpSize::server_io(&mlx, 512, 512, 5, 1));
    assert_eq!((size.send_wr, size.recv_wr), (2561, 545));
    // The client counts on fewer receives.
    let size = must!(QpSize::server_io(&mlx, 512, 64, 5, 1));
    assert_eq!((size.send_wr, size.recv_wr), (2561, 97));
    let size = must!(QpSize::service(&mlx, 2, 0));
    assert_eq!((size.send_wr, size.recv_wr), (1033, 1065));
    let rxe = QpLimits {
        max_qp_wr: 1024,
        max_cqe: 1500,
        max_send_sge: 32,
    };
    let size = must!(QpSize::server_io(&rxe, 2048, 2048, 5, 1));
    assert_eq!((size.send_wr, size.recv_wr, size.cqe), (750, 750, 1500));
}

cases!(
    rtrs_core_geometry:
    server_parameters,
    client_limits,
    request_refused,
    layout_limits,
    queue_sizes,
);
