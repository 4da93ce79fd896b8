// SPDX-License-Identifier: GPL-2.0

//! A disk whose requests a server of RTRS answers.
//!
//! The block layer for Rust of Linux 7.3 gives access to neither the sector nor the pages of a
//! request, and ends it with success only. So each message is the sector 0 and there are no data;
//! the example shows a driver out of tree that is built against installed metadata.

use kernel::{
    block::mq,
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    },
};
use rtrs_bindings::pr_warn_ratelimited;
use rtrs_client::api::*;

module! {
    type: RustDisk,
    name: "rustdisk",
    authors: ["The RTRS in Rust authors"],
    description: "Disk on a server of RTRS",
    license: "GPL",
}

struct RustDisk {
    _disk: mq::gen_disk::GenDisk<RustDisk>,
}

// SAFETY: A disk is not tied to the thread that has made it. The kernel crate does not declare
// that.
unsafe impl Send for RustDisk {}

// SAFETY: A reference allows no operation: the disk is made in `init()` and dropped on exit.
unsafe impl Sync for RustDisk {}

/// A request of the block layer in flight: it holds the request until the completion.
struct Io(ARef<mq::Request<RustDisk>>);

impl Request for Io {
    fn data(&self) -> Option<&SgBuffer> {
        None
    }

    // Called in softirq or process context: does not sleep.
    fn complete(this: Arc<Self>, result: i32) {
        if result != 0 {
            pr_warn_ratelimited!("request failed: {result}\n");
        }
        let rq = this.0.clone();
        // The block layer takes a request back only by its last reference.
        drop(this);
        mq::Request::complete(rq);
    }
}

#[vtable]
impl mq::Operations for RustDisk {
    type QueueData = KBox<Session>;

    fn queue_rq(session: &Session, rq: ARef<mq::Request<Self>>, _is_last: bool) -> Result {
        let permit = session.permit(Connection::Io, Wait::No).ok_or(ENOMEM)?;
        let io = Arc::new(Io(rq), GFP_ATOMIC)?;
        let pieces = [Piece::new(&[0; 8])];
        session.submit(&permit, DataDir::Read, Message::new(&pieces), io)
    }

    fn commit_rqs(_session: &Session) {}

    fn complete(rq: ARef<mq::Request<Self>>) {
        if mq::Request::end_ok(rq).is_err() {
            pr_warn!("the request is still referenced\n");
        }
    }
}

impl kernel::Module for RustDisk {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let session = Session::open(Config::new("rustdisk", 1300), &["ip:10.9.0.1"], None)?;
        let tags = Arc::pin_init(mq::TagSet::new(1, 64, 1), GFP_KERNEL)?;
        let disk = mq::gen_disk::GenDiskBuilder::new()
            .capacity_sectors(2048)
            .build(fmt!("rustdisk"), tags, KBox::new(session, GFP_KERNEL)?)?;
        Ok(Self { _disk: disk })
    }
}
