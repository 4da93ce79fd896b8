// SPDX-License-Identifier: GPL-2.0

//! RDMA verbs and the RDMA connection manager.
//!
//! C headers: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h),
//! [`include/rdma/rdma_cm.h`](srctree/include/rdma/rdma_cm.h)
//!
//! # Ownership
//!
//! ```text
//! Endpoint (cm_id, QP, CQ, its completion entries)
//!   |- Arc<Domain>
//!   `- Consumer (keeps the module from going away)
//! Mr, DmaPages, Flights, Reply
//!   `- Arc<Domain> (PD, its memory regions, the pages mapped for it)
//!        |- DeviceRef (keeps the device from going away)
//!        `- Consumer
//! ```
//!
//! * Memory that a work request can refer to is either a [`DmaPages`], with pages that belong to
//!   the [`Domain`] and are unmapped and freed when the last queue pair, memory region and handle
//!   of that domain are gone, or the data of a [`Flight`], which the last event of the flight
//!   unmaps. A queue pair accepts only memory of its own domain.
//! * An [`Endpoint`] closes its gate, drains, destroys the QP, frees the CQ and
//!   destroys the `cm_id`, in this order, when it is dropped; no callback runs
//!   after the drop and nothing can be posted once the gate is closed. While its port is down
//!   the `cm_id` is left to the [`Consumer`], which destroys it later, as is that of a
//!   [`PendingConnection`].

mod bounce;
mod cm;
mod consumer;
mod device;
mod domain;
mod endpoint;
mod flight;
#[expect(
    unreachable_pub,
    reason = "also built for the host, as a crate's module"
)]
mod hidden;
mod listen;
mod mr;
#[expect(
    unreachable_pub,
    reason = "also built for the host, as a crate's module"
)]
mod page_size;
mod queue;
mod reply;
#[expect(
    unreachable_pub,
    dead_code,
    reason = "also built for the host, as a crate's module, with tests that look at more"
)]
mod sendq;
mod sg;
mod sockaddr;
mod watch;
mod wc;
#[expect(
    unreachable_pub,
    reason = "also built for the host, as a crate's module"
)]
mod withheld;
mod wr;

pub use self::{
    bounce::Bounce,
    cm::{
        CmEvent,
        ConnParam,
        InterfaceName,
        PortSpace,
        RejectMessage, //
    },
    consumer::{
        Consumer,
        OwnedConsumer, //
    },
    device::{
        Device,
        DeviceAttrs,
        DeviceId,
        DeviceName,
        DeviceRef,
        Transport, //
    },
    domain::{
        DmaDirection,
        DmaPages,
        Domain, //
    },
    endpoint::{
        Endpoint,
        Equipped,
        Handler,
        Locked, //
    },
    flight::{
        AnswerError,
        Building,
        Claim,
        Flight,
        Flights,
        InFlight,
        Landing,
        Needs,
        Outcome,
        Target,
        Unposted,
        Violation,
        MAX_SGES, //
    },
    listen::{
        ConnectRequest,
        Decide,
        Decision,
        Listen,
        Listener,
        PendingConnection,
        PendingSlot, //
    },
    mr::{
        Access,
        KeyRight,
        Mr, //
    },
    queue::{
        Buffer,
        KeyToken,
        Message,
        PollContext,
        Polled,
        PostError,
        QpEvent,
        QueueConfig,
        QueuePair,
        Receiving,
        LARGE, //
    },
    reply::{
        Answer,
        Bytes,
        Give,
        Imms,
        Invalidation,
        Keys,
        NewKey,
        NotPosted,
        Reply,
        Source,
        REPLY_BODY, //
    },
    sg::SgBuffer,
    sockaddr::{
        interface_index,
        SockAddr, //
    },
    watch::{
        device_watch,
        DeviceEvent,
        DeviceEvents,
        DeviceWatch,
        HasDeviceWatch,
        Watching, //
    },
    wc::{
        Success,
        Wc,
        WcOpcode,
        WcStatus, //
    },
    wr::{
        Chain,
        Remote,
        Sge,
        Sges,
        NO_SGES, //
    }, //
};
