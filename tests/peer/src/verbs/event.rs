// SPDX-License-Identifier: GPL-2.0

//! Events of connections, and the channel on which they arrive.

use std::{
    io,
    os::fd::BorrowedFd,
    ptr::{self, NonNull},
    rc::Rc,
    time::Duration,
};

use anyhow::{Context, Result};
use nix::{
    fcntl::{fcntl, FcntlArg, OFlag},
    poll::{poll, PollFd, PollFlags, PollTimeout},
};

use super::{check, check_ptr, raw, Id};

/// What happened to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The address is known.
    AddrResolved,
    /// The route is known.
    RouteResolved,
    /// A client asks to connect.
    ConnectRequest,
    /// The other side has accepted, and waits for a confirmation.
    Response,
    /// The connection is up.
    Established,
    /// The other side refused.
    Rejected,
    /// There was no answer.
    Unreachable,
    /// The connection is gone.
    Disconnected,
    /// The numbers of the queue pair may be used again.
    TimewaitExit,
    /// A device went away.
    DeviceRemoval,
    /// A failure the connection manager did not expect.
    Error,
    /// Anything else.
    Other(u32),
}

impl EventKind {
    fn new(event: u32) -> Self {
        match event {
            raw::RDMA_CM_EVENT_ADDR_RESOLVED => Self::AddrResolved,
            raw::RDMA_CM_EVENT_ROUTE_RESOLVED => Self::RouteResolved,
            raw::RDMA_CM_EVENT_CONNECT_REQUEST => Self::ConnectRequest,
            raw::RDMA_CM_EVENT_CONNECT_RESPONSE => Self::Response,
            raw::RDMA_CM_EVENT_ESTABLISHED => Self::Established,
            raw::RDMA_CM_EVENT_REJECTED => Self::Rejected,
            raw::RDMA_CM_EVENT_UNREACHABLE => Self::Unreachable,
            raw::RDMA_CM_EVENT_DISCONNECTED => Self::Disconnected,
            raw::RDMA_CM_EVENT_TIMEWAIT_EXIT => Self::TimewaitExit,
            raw::RDMA_CM_EVENT_DEVICE_REMOVAL => Self::DeviceRemoval,
            raw::RDMA_CM_EVENT_ADDR_ERROR
            | raw::RDMA_CM_EVENT_ROUTE_ERROR
            | raw::RDMA_CM_EVENT_CONNECT_ERROR => Self::Error,
            other => Self::Other(other),
        }
    }
}

/// An event with its data.
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// The connection, see [`Id::key`].
    pub key: usize,
    /// Reason or error number.
    pub status: i32,
    /// Data that the other side has sent along, padded by the transport.
    pub private: Vec<u8>,
    /// The new connection of a [`EventKind::ConnectRequest`].
    pub new_id: Option<Id>,
}

/// The channel on which events of connections arrive.
pub struct Channel {
    pub(super) raw: NonNull<raw::rdma_event_channel>,
}

impl Channel {
    /// A channel without connections.
    pub fn new() -> Result<Rc<Self>> {
        // SAFETY: The call has no preconditions.
        let raw = unsafe { raw::rdma_create_event_channel() };
        let channel = Rc::new(Self {
            raw: check_ptr(raw, "rdma_create_event_channel (is rdma_ucm loaded?)")?,
        });
        // The library swallows some events and waits for the next one, which may never come.
        fcntl(channel.fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).context("fcntl")?;
        Ok(channel)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: The channel lives as long as `self`.
        let fd = unsafe { self.raw.as_ref() }.fd;
        // SAFETY: The descriptor is open as long as the channel lives.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    /// The next event, if there is one within `timeout`.
    pub fn next(self: &Rc<Self>, timeout: Duration) -> Result<Option<Event>> {
        let fd = self.fd();
        let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
        if poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], timeout).context("poll")? == 0 {
            return Ok(None);
        }

        let mut event = ptr::null_mut();
        // SAFETY: The channel is alive, `event` is writable.
        let ret = unsafe { raw::rdma_get_cm_event(self.raw.as_ptr(), &mut event) };
        if ret != 0 && io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock {
            return Ok(None);
        }
        check(ret, "rdma_get_cm_event")?;
        // SAFETY: The event is valid until it is acknowledged below; the reference ends before.
        let copy = self.copy(unsafe { &*event });
        // SAFETY: The event came from `rdma_get_cm_event` and has not been acknowledged yet.
        let ret = unsafe { raw::rdma_ack_cm_event(event) };
        check(ret, "rdma_ack_cm_event")?;
        Ok(Some(copy))
    }

    fn copy(self: &Rc<Self>, event: &raw::rdma_cm_event) -> Event {
        let kind = EventKind::new(event.event);
        // SAFETY: All ids here are for connections, so this is the valid member; all of it may be
        // read, as the library clears the whole event first.
        let conn = unsafe { &event.param.conn };
        let private = if conn.private_data.is_null() {
            Vec::new()
        } else {
            let len = usize::from(conn.private_data_len);
            // SAFETY: The library says that this many bytes are there, until the event is
            // acknowledged.
            unsafe { std::slice::from_raw_parts(conn.private_data.cast::<u8>(), len) }.to_vec()
        };
        let new_id = match kind {
            // A new connection belongs to the receiver of the event.
            EventKind::ConnectRequest => NonNull::new(event.id).map(|raw| Id {
                raw,
                queue: None,
                channel: self.clone(),
            }),
            _ => None,
        };
        Event {
            kind,
            key: event.id.addr(),
            status: event.status,
            private,
            new_id,
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: All ids hold a reference, so none exists any more.
        unsafe { raw::rdma_destroy_event_channel(self.raw.as_ptr()) };
    }
}
