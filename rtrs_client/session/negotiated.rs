// SPDX-License-Identifier: GPL-2.0

//! State of a session that has the size of the queue depth. The first path that connects makes it,
//! when the server has told the depth; it does not change after that.
//!
//! # Locking
//!
//! `lock` (mutex): one path at a time sizes the session. Never held together with the lock of the
//! session's paths.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex,
        SetOnce, //
    },
};
use rtrs_bindings::{
    errno,
    ib::{
        DmaDirection,
        DmaPages,
        Domain, //
    },
    pages::{
        Pages,
        Part, //
    },
    ratelimit::pr_err_ratelimited,
};
use rtrs_core::proto::{
    DataDir,
    Geometry,
    Layout,
    Room,
    MAX_SEGMENTS, //
};

use super::{
    wait::Mark,
    Session, //
};
use crate::{
    path::Path,
    request::{
        Cons,
        Io,
        MessageSlot,
        Permits, //
    },
};

/// No preferred NUMA node.
const NO_NODE: i32 = -1;

/// Limits for the user of a session.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Permits.
    pub queue_depth: u16,
    /// Bytes of data in a request.
    pub max_io_size: u32,
    /// Segments of a request's scatter list.
    pub max_segments: u32,
    /// Bytes of the user message and the transport's own header, which has 4 for a
    /// write, 8 for a read without data and 24 for one with data.
    pub max_hdr_size: u32,
}

/// State with the size of the queue depth.
pub(super) struct Negotiated {
    pub(super) geometry: Geometry,
    /// Limits of requests.
    pub(super) room: Room,
    pub(super) permits: Arc<Permits>,
    /// Which requests wait for a path; changed with the lock of `Waiting` held.
    pub(super) marks: KVVec<Mark>,
    /// User messages and the protocol's, by permit. Every path maps them.
    messages: KVec<Arc<Pages>>,
}

impl Negotiated {
    /// Makes the state for a server with these limits. May sleep.
    fn new(geometry: &Geometry, cons: Cons) -> Result<Self> {
        let depth = geometry.queue_depth();
        let mut marks = KVVec::with_capacity(usize::from(depth), GFP_KERNEL)?;
        for _ in 0..depth {
            marks.push(Mark::new(), GFP_KERNEL)?;
        }
        let regions = MessageSlot::regions(depth);
        let mut messages = KVec::with_capacity(regions, GFP_KERNEL)?;
        for _ in 0..regions {
            let pages = Pages::new(Pages::order_of(MessageSlot::REGION_SIZE), NO_NODE)?;
            messages.push(Arc::new(pages, GFP_KERNEL)?, GFP_KERNEL)?;
        }
        let room = Room::new(geometry, MAX_SEGMENTS, MessageSlot::SIZE);
        // Not of a request yet.
        let layout = Layout::new(&room, DataDir::Read, 0, 0).map_err(|_| errno::EPROTO)?;
        let spread = cons.spread(depth);
        let mut requests = KVVec::with_capacity(usize::from(depth), GFP_KERNEL)?;
        for id in 0..depth {
            let (region, offset) = MessageSlot::of(id);
            let message = Part::new(messages.get(region).ok_or(EINVAL)?, offset)?;
            requests.push(Io::new(id, spread, layout, message), GFP_KERNEL)?;
        }
        Ok(Self {
            geometry: *geometry,
            room,
            permits: Arc::pin_init(Permits::new(requests, NO_NODE)?, GFP_KERNEL)?,
            marks,
            messages,
        })
    }
}

/// The place of [`Negotiated`].
#[pin_data]
pub(super) struct Negotiation {
    result: SetOnce<Negotiated>,
    #[pin]
    lock: Mutex<()>,
}

impl Negotiation {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            result: SetOnce::new(),
            lock <- new_mutex!((), "rtrs_negotiated"),
        })
    }

    /// Returns the state, once a server has told the queue depth. Any context.
    #[inline(always)]
    pub(super) fn get(&self) -> Option<&Negotiated> {
        self.result.as_ref()
    }
}

impl Session {
    /// Sizes the session for a server with these limits, which were told on `path`, or checks that
    /// they fit the session. May sleep.
    ///
    /// # Errors
    ///
    /// `EPROTO` if they do not fit, `ENOMEM`.
    pub(crate) fn prepare(&self, geometry: &Geometry, path: &Path) -> Result {
        let _guard = self.negotiated.lock.lock();
        if self.negotiated.get().is_none() {
            self.negotiated
                .result
                .populate(Negotiated::new(geometry, self.cons)?);
        }
        self.check_limits(geometry, path)
    }

    /// Checks that limits that were told on `path` fit the session, if it was sized. Any context.
    ///
    /// # Errors
    ///
    /// `EPROTO` if they do not fit.
    pub(crate) fn check_limits(&self, geometry: &Geometry, path: &Path) -> Result {
        let Some(negotiated) = self.negotiated.get() else {
            return Ok(());
        };
        geometry
            .check_session_depth(negotiated.geometry.queue_depth())
            .map_err(|e| {
                pr_err_ratelimited!("{}: {}\n", path, e.as_str());
                errno::EPROTO
            })
    }

    /// Maps the message store for a path's device. May sleep.
    pub(crate) fn map_messages(&self, domain: &Arc<Domain>) -> Result<KVec<DmaPages>> {
        let negotiated = self.negotiated.get().ok_or(EINVAL)?;
        let mut mapped = KVec::with_capacity(negotiated.messages.len(), GFP_KERNEL)?;
        for pages in negotiated.messages.iter() {
            mapped.push(
                domain.map(pages.clone(), DmaDirection::ToDevice)?,
                GFP_KERNEL,
            )?;
        }
        Ok(mapped)
    }

    /// Returns the permits, once a server has told the queue depth. Any context.
    pub(crate) fn permits(&self) -> Option<&Arc<Permits>> {
        self.negotiated.get().map(|negotiated| &negotiated.permits)
    }

    /// Returns the limits of requests, once a server has told them. Any context.
    pub(crate) fn room(&self) -> Option<&Room> {
        self.negotiated.get().map(|negotiated| &negotiated.room)
    }

    /// Returns the limits for the user, once a server has told them. Any context.
    pub(crate) fn limits(&self) -> Option<Limits> {
        let negotiated = self.negotiated.get()?;
        Some(Limits {
            queue_depth: negotiated.geometry.queue_depth(),
            max_io_size: negotiated.room.data(),
            max_segments: MAX_SEGMENTS,
            max_hdr_size: negotiated.room.header(),
        })
    }

    /// Returns the number of permits, 0 before it has any. Any context.
    pub(super) fn depth(&self) -> u16 {
        self.negotiated
            .get()
            .map_or(0, |negotiated| negotiated.geometry.queue_depth())
    }
}
