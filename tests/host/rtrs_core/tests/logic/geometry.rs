// SPDX-License-Identifier: GPL-2.0

//! Limits of both sides, sizes of queues, distribution of chunks, requests in chunks.

use crate::cases::geometry::default_geometry;
use proptest::prelude::*;
use rtrs_core::{
    proto::{conn::ConnAccept, geometry::*, imm::Imm, io::*, request::*, ProtoError, SENT_DATA},
    qp_size::*,
};

fn collect(geo: &Geometry, descs: &[SgDesc]) -> Result<Vec<RemoteBuf>, ProtoError> {
    let mut bufs = Vec::new();
    geo.for_each_chunk(descs.iter().copied(), |buf_id, buf| {
        assert_eq!(usize::from(buf_id), bufs.len());
        bufs.push(buf);
    })?;
    Ok(bufs)
}

#[test]
fn chunks_of_descriptors() {
    // 514 chunks in groups of 256, 256 and 2: no equal shares.
    let geo = Geometry::server(514, 8192, 4096).unwrap();
    let desc = |addr, rkey, n: u32| SgDesc {
        addr,
        rkey,
        len: n * 8192,
    };
    let bufs = collect(
        &geo,
        &[desc(0, 1, 256), desc(1 << 40, 2, 256), desc(8192, 3, 2)],
    )
    .unwrap();
    assert_eq!(bufs.len(), 514);
    assert_eq!((bufs[0].addr, bufs[0].rkey), (0, 1));
    assert_eq!((bufs[255].addr, bufs[255].rkey), (255 * 8192, 1));
    assert_eq!((bufs[256].addr, bufs[256].rkey), (1 << 40, 2));
    assert_eq!((bufs[513].addr, bufs[513].rkey), (2 * 8192, 3));

    let geo = Geometry::server(2, 8192, 4096).unwrap();
    let err = |descs: &[SgDesc]| collect(&geo, descs).unwrap_err();
    assert_eq!(err(&[]), ProtoError::DescTotal);
    assert_eq!(err(&[desc(0, 0, 1)]), ProtoError::DescTotal);
    assert_eq!(err(&[desc(0, 0, 3)]), ProtoError::DescTotal);
    assert_eq!(err(&[desc(0, 0, 0), desc(0, 0, 2)]), ProtoError::DescLen);
    assert_eq!(err(&[desc(0, 0, 1); 3]), ProtoError::DescCount);
    let odd = SgDesc {
        len: 8193,
        ..desc(0, 0, 1)
    };
    assert_eq!(err(&[odd, odd]), ProtoError::DescLen);
    assert_eq!(err(&[desc(u64::MAX - 8191, 0, 2)]), ProtoError::DescAddr);
    assert!(collect(&geo, &[desc(u64::MAX - 8191, 0, 1), desc(0, 0, 1)]).is_ok());
    assert!(collect(&geo, &[desc(u64::MAX - 16383, 0, 2)]).is_ok());
}

// Of a message of another type no part is taken for a length, however much room there is.
#[test]
fn head_of_a_write() {
    let parse = |kind: u16, usr_len: u16, off: u32| {
        let head = [kind.to_le_bytes(), usr_len.to_le_bytes(), [0; 2], [0; 2]].concat();
        Request::parse_write(u32::MAX, off, off + 4, head.try_into().unwrap())
    };
    let longest = parse(2, u16::MAX, 1 << 20).unwrap();
    assert_eq!(longest.usr_len(), u16::MAX);
    assert_eq!(longest.data_len(), (1 << 20) - u32::from(u16::MAX));
    for kind in [0, 1, 3, 0x102, u16::MAX] {
        assert_eq!(parse(kind, 0, 1 << 20), None);
    }
    // Without data.
    assert_eq!(parse(2, 0, 0), None);
    assert_eq!(parse(2, 8, 8), None);
    assert_eq!(parse(2, 9, 8), None);
}

proptest! {
    #[test]
    fn any_accept(queue_depth: u16, max_io_size: u32, max_hdr_size: u32, new_rkey: bool) {
        let accept = ConnAccept { queue_depth, max_io_size, max_hdr_size, new_rkey, kept: false, orders_copies: false, inval_answers: false, takes_sends: false };
        if let Ok(geo) = Geometry::from_accept(&accept) {
            prop_assert!(geo.total_size() <= 256 << 20);
            prop_assert_eq!(geo.chunk_size(), max_io_size + max_hdr_size);
            prop_assert_eq!(geo.to_accept(new_rkey), accept);
        }
    }

    #[test]
    fn any_descriptors(
        qd in 1u16..40,
        descs in proptest::collection::vec((any::<u64>(), 0u32..6, 0u32..20), 0..50),
    ) {
        let geo = Geometry::server(qd.into(), 8192, 4096).unwrap();
        let descs: Vec<_> = descs
            .into_iter()
            .map(|(addr, odd, n)| SgDesc { addr, rkey: 9, len: n * 8192 + u32::from(odd == 5) })
            .collect();
        let sum: u64 = descs.iter().map(|d| u64::from(d.len)).sum();
        match collect(&geo, &descs) {
            Ok(bufs) => {
                prop_assert_eq!(bufs.len(), usize::from(qd));
                prop_assert_eq!(sum, geo.total_size());
            }
            Err(ProtoError::DescTotal) => prop_assert_ne!(sum, geo.total_size()),
            Err(_) => (),
        }
    }

    // Any division of the chunks among descriptors is accepted.
    #[test]
    fn any_split(parts in proptest::collection::vec(1u16..9, 1..60), base: u32) {
        let qd: u16 = parts.iter().sum();
        let geo = Geometry::server(qd.into(), 8192, 4096).unwrap();
        let mut want = Vec::new();
        let descs: Vec<_> = parts.iter().zip(0..).map(|(&n, rkey)| {
            let addr = u64::from(base) * u64::from(rkey + 1u32);
            want.extend((0..u64::from(n)).map(|i| RemoteBuf { addr: addr + i * 8192, rkey }));
            SgDesc { addr, rkey, len: u32::from(n) * 8192 }
        }).collect();
        prop_assert_eq!(collect(&geo, &descs).unwrap(), want);
    }

    // The same with any amount of room.
    #[test]
    fn layouts_in_place_are_no_others(
        header in 0u32..64,
        read: bool,
        data_len in prop_oneof![Just(0usize), 0usize..140_000],
        usr_len in prop_oneof![0usize..64, Just(usize::MAX), any::<usize>()],
    ) {
        let dir = if read { DataDir::Read } else { DataDir::Write };
        let room = Room::new(&default_geometry(), 128, header);
        let mut set = Layout::new(&Room::new(&default_geometry(), 128, 4096), DataDir::Write, 1, 2).unwrap();
        let layout = Layout::new(&room, dir, data_len, usr_len);
        prop_assert_eq!(set.set(&room, dir, data_len, usr_len), layout.is_ok());
        prop_assert_eq!(set, layout.unwrap_or(set));
    }

    // The server reads the client's layout in the same way, and it fits.
    #[test]
    fn request_round_trip(
        read: bool,
        data_len in 0usize..140_000,
        usr_len in 0usize..5_000,
        buf_id in 0u16..512,
        need_inval: bool,
    ) {
        let geo = default_geometry();
        let dir = if read { DataDir::Read } else { DataDir::Write };
        let msg_len = match (read, data_len) { (false, _) => 4, (true, 0) => 8, _ => 24 };
        let fits = usr_len + msg_len <= 4096 && data_len <= 126976;
        let room = Room::new(&geo, 128, 4096);
        let layout = Layout::new(&room, dir, data_len, usr_len);
        prop_assert_eq!(layout.is_ok(), fits);
        let none = Layout::new(&room, DataDir::Write, 1, 2).unwrap();
        let mut set = none;
        prop_assert_eq!(set.set(&room, dir, data_len, usr_len), fits);
        prop_assert_eq!(set, layout.unwrap_or(none));
        let Ok(layout) = layout else {
            prop_assert_eq!(layout.unwrap_err().to_errno(), -90);
            return Ok(());
        };

        let dest = (data_len != 0).then_some(ReadDest {
            desc: SgDesc { addr: 1, rkey: 77, len: data_len as u32 },
            need_inval,
        });
        let mut msg = match (dir, &dest) {
            (DataDir::Write, _) => WriteMsg { usr_len: layout.usr_len() }.to_bytes().to_vec(),
            (DataDir::Read, None) => ReadMsg::without_data(layout.usr_len()).to_vec(),
            (DataDir::Read, Some(dest)) => ReadMsg::with_data(layout.usr_len(), dest).to_vec(),
        };
        let len = msg.len();
        prop_assert_eq!(len as u32, layout.msg_len());
        msg.resize(24, 0);
        // The write ends where the message ends.
        let written = layout.header_len() + if read { 0 } else { layout.data_len() };
        prop_assert_eq!(layout.write_off() + written, layout.off() + layout.msg_len());

        let chunk = ChunkImm::new(&geo, buf_id).unwrap();
        let Ok(Imm::IoReq { payload }) = Imm::decode(chunk.at(layout.off()))
        else {
            panic!("no request");
        };
        let target = geo.codec().decode(payload).unwrap();
        prop_assert_eq!(target.buf_id, buf_id);
        let range = Request::msg_range(&geo, target.off).unwrap();
        prop_assert!(range.end <= 131072 && range.len() >= len);
        let req = Request::parse(&geo, target.off, &msg[..range.len()]).unwrap();
        prop_assert_eq!(req.dir(), dir);
        prop_assert_eq!(req.data_range(), 0..data_len);
        prop_assert_eq!(req.usr_range(), data_len..data_len + usr_len);
        prop_assert_eq!(req.total_len() as usize, data_len + usr_len);
        prop_assert_eq!(req.inval_rkey(), (read && data_len != 0 && need_inval).then_some(77));
    }

    // With any content of the chunk, the results lie inside it, and are small enough.
    #[test]
    fn any_request(off: u32, kind in 1u16..5, usr_len: u16, flags in 0u16..4, cnt in 0u16..3,
                   exact: bool, len: u32, small: bool) {
        let geo = Geometry::server(8, 8192, 4096).unwrap();
        let off = if small { off % 8200 } else { off };
        let usr_len = if small { usr_len % 5000 } else { usr_len };
        let len = if exact { off.wrapping_sub(usr_len.into()) } else { len };
        let mut msg = [0; 24];
        for (i, v) in [kind, usr_len, flags, cnt].into_iter().enumerate() {
            msg[2 * i..2 * i + 2].copy_from_slice(&v.to_le_bytes());
        }
        msg[20..].copy_from_slice(&len.to_le_bytes());
        if let Ok(req) = Request::parse(&geo, off, &msg) {
            let msg_len = match (req.dir(), req.dest()) {
                (DataDir::Write, _) => 4,
                (DataDir::Read, None) => 8,
                (DataDir::Read, Some(_)) => 24,
            };
            prop_assert!(off as usize + msg_len <= 8192);
            prop_assert_eq!(req.usr_range().end, off as usize);
            prop_assert_eq!(req.data_range().end, req.usr_range().start);
            prop_assert!(req.usr_range().len() + msg_len <= 4096);
            if let Some(dest) = req.dest() {
                prop_assert_eq!(dest.desc.len, req.data_len());
            } else if req.dir() == DataDir::Read {
                prop_assert_eq!(req.data_len(), 0);
            }
        }
        if let Ok(range) = Request::msg_range(&geo, off) {
            prop_assert!(range.start == off as usize && range.end <= 8192);
            prop_assert!((4..=24).contains(&range.len()));
        } else {
            prop_assert!(off > 8188);
        }
    }

    // The fast path finds the same as the slow one, if the request is usual.
    #[test]
    fn usual_request(off in 0u32..8169, kind in 1u16..5, usr_len in 0u16..5000, flags in 0u16..4,
                     cnt in 0u16..3, addr: u64, rkey: u32, exact: bool, len: u32, right: bool,
                     written: u32, usr_room in 0u32..5000) {
        let geo = Geometry::server(8, 8192, 4096).unwrap();
        prop_assume!(Request::fits_usual(&geo, usr_room));
        let usr_len = if exact { usr_len.min(off as u16) } else { usr_len };
        let len = if exact { off.wrapping_sub(usr_len.into()) } else { len };
        let mut msg = [0; 24];
        for (i, v) in [kind, usr_len, flags, cnt].into_iter().enumerate() {
            msg[2 * i..2 * i + 2].copy_from_slice(&v.to_le_bytes());
        }
        msg[8..16].copy_from_slice(&addr.to_le_bytes());
        msg[16..20].copy_from_slice(&rkey.to_le_bytes());
        msg[20..].copy_from_slice(&len.to_le_bytes());

        let long = Request::parse_written(&geo, off, &msg).ok();
        let written = match long {
            Some((_, written)) if right => written,
            _ => written,
        };
        let words = core::array::from_fn(|i| msg[8 * i..8 * i + 8].try_into().unwrap());
        let usual = long.filter(|(request, all)| {
            *all == written
                && request.data_len() != 0
                && u32::from(request.usr_len()) < usr_room
        });
        let short = Request::parse_usual(usr_room, off, written, words);
        prop_assert_eq!(short, usual.map(|(request, _)| request));
        if let Some(request) = short {
            let (len, addr, rkey) = request.wanted();
            prop_assert_eq!(len, request.data_len());
            let to = request.dest().map(|to| (to.desc.len, to.desc.addr, to.desc.rkey));
            prop_assert_eq!(request.kind().has_data_back(), to.is_some());
            prop_assert_eq!((addr, rkey), to.map_or((0, 0), |(_, addr, rkey)| (addr, rkey)));
            prop_assert!(to.is_none_or(|(all, ..)| all == len));
        }
    }

    // So does that for writes that came as messages.
    #[test]
    fn sent_request(off in 0u32..8169, kind in 1u16..5, usr_len in 0u16..5000, exact: bool, right: bool,
                    written: u32, usr_room in 0u32..5000, tail: [u8; 20]) {
        let geo = Geometry::server(8, 8192, 4096).unwrap();
        prop_assume!(Request::fits_usual(&geo, usr_room));
        let usr_len = if exact { usr_len.min(off as u16) } else { usr_len };
        let mut msg = [0; 24];
        msg[..2].copy_from_slice(&kind.to_le_bytes());
        msg[2..4].copy_from_slice(&usr_len.to_le_bytes());
        msg[4..].copy_from_slice(&tail);

        let long = Request::parse_written(&geo, off, &msg).ok();
        let written = match long {
            Some((_, written)) if right => written,
            _ => written,
        };
        let writes = long.filter(|(request, all)| {
            *all == written
                && request.kind() == Kind::Write
                && request.data_len() != 0
                && u32::from(request.usr_len()) < usr_room
        });
        let usual = writes.filter(|(request, _)| request.data_len() <= SENT_DATA);
        let head = msg[..8].try_into().unwrap();
        let short = Request::parse_sent(usr_room, off, written, head);
        // Any write.
        let write = Request::parse_write(usr_room, off, written, head);
        prop_assert_eq!(write, writes.map(|(request, _)| request));
        // What may be sent is more than what is usual.
        let few = off.checked_sub(usr_len.into()).is_some_and(|len| len <= SENT_DATA);
        let may = Request::may_be_sent(off, msg[..4].try_into().unwrap());
        prop_assert_eq!(may, few && kind == 2);
        prop_assert!(may || short.is_none());
        prop_assert_eq!(short, usual.map(|(request, _)| request));
    }

    #[test]
    fn any_device(wr: u32, cqe: u32, sge: u32, qd: u16, per in 0u32..40, want_sge in 0u32..40) {
        let limits = QpLimits { max_qp_wr: wr, max_cqe: cqe, max_send_sge: sge };
        for size in [
            QpSize::service(&limits, want_sge, qd.into()),
            QpSize::client_io(&limits, qd, cqe % 64, per, want_sge),
            QpSize::server_io(&limits, qd, wr / 2, per, want_sge),
        ].into_iter().flatten() {
            prop_assert!(size.send_wr <= wr && size.recv_wr <= wr);
            prop_assert!(size.send_wr >= MIN_WR && size.recv_wr >= MIN_WR);
            prop_assert_eq!(size.cqe, size.send_wr + size.recv_wr);
            prop_assert!(size.cqe <= cqe);
            prop_assert!(size.send_sge <= sge && size.send_sge >= 1);
        }
    }
}
