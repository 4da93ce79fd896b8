// SPDX-License-Identifier: GPL-2.0

//! The connection manager: its ids and their events.

use core::ptr::NonNull;
use kernel::{
    error::from_err_ptr,
    ffi,
    prelude::*,
    str::{
        CStr,
        CStrExt, //
    },
};

use super::{
    device::{
        Device,
        Name, //
    },
    sockaddr::SockAddr, //
};
use crate::raw;

/// RDMA port spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortSpace {
    /// Reliable connections by IP address.
    Tcp,
    /// Reliable connections by InfiniBand address and service id.
    Ib,
}

impl PortSpace {
    /// The space in which `addr` is looked up.
    pub fn of(addr: &SockAddr) -> Self {
        if addr.is_ib() {
            Self::Ib
        } else {
            Self::Tcp
        }
    }

    fn as_raw(self) -> raw::rdma_ucm_port_space {
        match self {
            Self::Tcp => raw::rdma_ucm_port_space_RDMA_PS_TCP,
            Self::Ib => raw::rdma_ucm_port_space_RDMA_PS_IB,
        }
    }
}

/// The parameters of a side when it connects or accepts.
#[derive(Clone, Copy)]
pub struct ConnParam<'a> {
    /// Message for the other side.
    pub private_data: &'a [u8],
    /// How often the device repeats a request that is not acknowledged, 0..=7.
    pub retry_count: u8,
    /// How often the device repeats a request while the other side has no receive posted; 7 is for
    /// ever.
    pub rnr_retry_count: u8,
}

impl ConnParam<'_> {
    pub(super) fn to_raw(self) -> Result<raw::rdma_conn_param> {
        Ok(raw::rdma_conn_param {
            private_data: self.private_data.as_ptr().cast(),
            private_data_len: u8::try_from(self.private_data.len())?,
            retry_count: self.retry_count.min(7),
            rnr_retry_count: self.rnr_retry_count.min(7),
            ..Default::default()
        })
    }
}

/// An event of a connection.
#[derive(Clone, Copy, Debug)]
pub enum CmEvent<'a> {
    /// The address is resolved, the id is bound to a device.
    AddrResolved,
    /// The route is resolved.
    RouteResolved,
    /// The connection is up; with the private data of the other side.
    Established(&'a [u8]),
    /// The other side refused, with a reason code, and with the message of its consumer if that
    /// refused.
    Rejected(i32, &'a [u8]),
    /// Connecting failed with an errno (negative).
    Failed(i32),
    /// The other side, or the network, ended the connection.
    Disconnected,
    /// The device is being removed: everything on it must be released soon.
    DeviceRemoval,
    /// The address of the local port moved.
    AddrChange,
    /// The queue pair number may be reused.
    TimewaitExit,
    /// An event that this crate does not handle.
    Other(u32),
}

impl<'a> CmEvent<'a> {
    /// # Safety
    ///
    /// `id` and `ev` must be the arguments that the connection manager passed to an event handler
    /// that is still running.
    pub(super) unsafe fn from_raw(id: *mut raw::rdma_cm_id, ev: *mut raw::rdma_cm_event) -> Self {
        // SAFETY: By the safety requirements of this function, the event is valid.
        let (event, status) = unsafe { ((*ev).event, (*ev).status) };
        let failed = || Self::Failed(if status < 0 { status } else { -EIO_NUM });
        match event {
            raw::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_RESOLVED => Self::AddrResolved,
            raw::rdma_cm_event_type_RDMA_CM_EVENT_ROUTE_RESOLVED => Self::RouteResolved,
            raw::rdma_cm_event_type_RDMA_CM_EVENT_ESTABLISHED => {
                // SAFETY: As above; the event has connection parameters.
                Self::Established(unsafe { private_data(ev) })
            }
            raw::rdma_cm_event_type_RDMA_CM_EVENT_REJECTED => {
                let mut len = 0u8;
                // SAFETY: As above.
                let data = unsafe { raw::rdma_consumer_reject_data(id, ev, &mut len) };
                // SAFETY: `data` has `len` bytes, which stay valid while the handler runs.
                Self::Rejected(status, unsafe { bytes(data.cast(), len) })
            }
            raw::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_ERROR
            | raw::rdma_cm_event_type_RDMA_CM_EVENT_ROUTE_ERROR
            | raw::rdma_cm_event_type_RDMA_CM_EVENT_CONNECT_ERROR
            | raw::rdma_cm_event_type_RDMA_CM_EVENT_UNREACHABLE => failed(),
            raw::rdma_cm_event_type_RDMA_CM_EVENT_DISCONNECTED => Self::Disconnected,
            raw::rdma_cm_event_type_RDMA_CM_EVENT_DEVICE_REMOVAL => Self::DeviceRemoval,
            raw::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_CHANGE => Self::AddrChange,
            raw::rdma_cm_event_type_RDMA_CM_EVENT_TIMEWAIT_EXIT => Self::TimewaitExit,
            other => Self::Other(other),
        }
    }
}

const EIO_NUM: i32 = raw::EIO as i32;

/// # Safety
///
/// `data` must be null or valid for `len` bytes for `'a`.
unsafe fn bytes<'a>(data: *const u8, len: u8) -> &'a [u8] {
    if data.is_null() || len == 0 {
        &[]
    } else {
        // SAFETY: By the safety requirements of this function, `len` bytes are readable for `'a`.
        unsafe { core::slice::from_raw_parts(data, usize::from(len)) }
    }
}

/// # Safety
///
/// `ev` must be an event with connection parameters, valid for `'a`.
pub(super) unsafe fn private_data<'a>(ev: *mut raw::rdma_cm_event) -> &'a [u8] {
    let (mut data, mut len) = (core::ptr::null(), 0u8);
    // SAFETY: By the safety requirements of this function, the event has connection parameters.
    unsafe {
        raw::rtrs_helper_cm_event_param(ev, &mut data, &mut len);
        bytes(data.cast(), len)
    }
}

/// An owned `cm_id`.
///
/// # Invariants
///
/// The id is valid, and only this object destroys it.
///
/// Must not be dropped in its own event handler, nor in that of its listener: they hold the lock
/// that the drop waits for. A `CmId` that a listener takes over leaves its
/// [`PendingSlot`](super::PendingSlot), or its [`Consumer`](super::Consumer), only in a task.
pub(super) struct CmId(NonNull<raw::rdma_cm_id>);

// SAFETY: An id may be used and destroyed by any task.
unsafe impl Send for CmId {}
// SAFETY: The methods read what does not change, or take the handler lock. The connection manager
// does not synchronise all calls on an id, so each call outside this type has a comment that says
// why it may run beside others.
unsafe impl Sync for CmId {}

impl CmId {
    /// Creates an id in the initial network namespace. May sleep.
    ///
    /// # Safety
    ///
    /// `context` must be valid for `handler` until the id is dropped.
    pub(super) unsafe fn new(
        handler: raw::rdma_cm_event_handler,
        context: *mut ffi::c_void,
        ps: PortSpace,
        owner: &'static CStr,
    ) -> Result<Self> {
        // SAFETY: `init_net` is always valid; `context` is so by the safety requirements of this
        // function.
        let id = from_err_ptr(unsafe {
            raw::__rdma_create_kernel_id(
                raw::rtrs_helper_init_net(),
                handler,
                context,
                ps.as_raw(),
                raw::ib_qp_type_IB_QPT_RC,
                owner.as_char_ptr(),
            )
        })?;
        Ok(Self(NonNull::new(id).ok_or(ENOMEM)?))
    }

    /// Takes an id over from the connection manager.
    ///
    /// # Safety
    ///
    /// `id` must be valid, and destroyed by nothing else, unless the result is never dropped.
    pub(super) unsafe fn from_raw(id: NonNull<raw::rdma_cm_id>) -> Self {
        // INVARIANT: By the safety requirements of this function.
        Self(id)
    }

    pub(super) fn as_nonnull(&self) -> NonNull<raw::rdma_cm_id> {
        self.0
    }

    pub(super) fn as_raw(&self) -> *mut raw::rdma_cm_id {
        self.0.as_ptr()
    }

    /// Runs `f` while no event handler of the id runs. May sleep.
    pub(super) fn with_handler_lock<R>(&self, f: impl FnOnce() -> R) -> R {
        // SAFETY: The id is valid; it is unlocked below.
        unsafe { raw::rdma_lock_handler(self.as_raw()) };
        let ret = f();
        // SAFETY: The id was locked above.
        unsafe { raw::rdma_unlock_handler(self.as_raw()) };
        ret
    }

    /// The device. This function, and [`port`](Self::port),
    /// [`port_is_active`](Self::port_is_active), [`has_source`](Self::has_source) and
    /// [`interface`](Self::interface), are only for the id of a request, or one with a resolved
    /// address: until it is resolved, the connection manager writes these values, in the call that
    /// resolves it or in a task of its own. Nothing writes them afterwards.
    pub(super) fn device(&self) -> Option<&Device> {
        // SAFETY: The id is valid, and its address is resolved, as documented, so that its device
        // is not written at the same time. A bound id keeps its device registered: the device's
        // removal waits until the id is destroyed.
        unsafe {
            let dev = raw::rtrs_helper_cm_device(self.as_raw());
            (!dev.is_null()).then(|| Device::from_raw(dev))
        }
    }

    pub(super) fn port(&self) -> u32 {
        // SAFETY: The id is valid, and its address is resolved: see `device()`.
        unsafe { raw::rtrs_helper_cm_port(self.as_raw()) }
    }

    /// Whether datagrams can be sent. True without a device, or if the state is not known. The port
    /// may go down at any time after that. Does not sleep; process context.
    pub(super) fn port_is_active(&self) -> bool {
        self.device()
            .is_none_or(|device| device.port_is_active(self.port()))
    }

    /// Rejects the request of the id, unless its port is down: then the request is refused without
    /// a message when the id is destroyed. May sleep; the handler must not run meanwhile, unless it
    /// is the caller.
    pub(super) fn reject(&self, message: &RejectMessage) {
        // CAST: The reason of a consumer is 28 in the table of the IB specification; all reasons
        // fit in a byte.
        const REASON: u8 = raw::ib_cm_rej_reason_IB_CM_REJ_CONSUMER_DEFINED as u8;
        if self.port_is_active() {
            let (bytes, len) = (message.bytes.as_ptr().cast(), message.len);
            // SAFETY: The id is valid, and `len` bytes are readable. A failure means that the
            // request has ended already.
            unsafe { raw::rdma_reject(self.as_raw(), bytes, len, REASON) };
        }
    }

    pub(super) fn has_source(&self) -> bool {
        // SAFETY: The id is valid, and its address is resolved: see `device()`. The entry of the
        // address stays until the id is destroyed.
        unsafe { raw::rtrs_helper_cm_has_source(self.as_raw()) }
    }

    pub(super) fn interface(&self) -> Option<InterfaceName> {
        let mut found = false;
        let name = InterfaceName::copied(|room| {
            let room = room.as_mut_ptr().cast();
            // SAFETY: The id is valid, and its address is resolved: see `device()`. There is room
            // for a name.
            found = unsafe { raw::rtrs_helper_cm_interface(self.as_raw(), room) };
        });
        found.then_some(name)
    }

    /// The local address. For the id of a request that is not decided about, or in the handler of
    /// the event that it is resolved.
    pub(super) fn src(&self) -> SockAddr {
        // SAFETY: The id is valid, and the address is part of it. It is resolved, and nothing
        // writes it before the request is decided about, or while the handler runs.
        unsafe { SockAddr::from_storage(raw::rtrs_helper_cm_src(self.as_raw())) }
    }

    /// The peer's address. For the id of a request that is not decided about.
    pub(super) fn dst(&self) -> SockAddr {
        // SAFETY: The id is valid, and the address is part of it. That of a request was written
        // when the request arrived, and nothing writes it before the request is decided about.
        unsafe { SockAddr::from_storage(raw::rtrs_helper_cm_dst(self.as_raw())) }
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the id is valid and only destroyed here. Waits for a
        // running handler.
        unsafe { raw::rdma_destroy_id(self.as_raw()) };
    }
}

/// Maximum size of the message of a reject in bytes, see `ib_send_cm_rej()`.
const REJECT_ROOM: usize = 148;

/// The message of a reject.
pub struct RejectMessage {
    bytes: [u8; REJECT_ROOM],
    len: u8,
}

impl RejectMessage {
    /// A message of `N` bytes, at most 148.
    pub fn new<const N: usize>(message: &[u8; N]) -> Self {
        const {
            assert!(N <= REJECT_ROOM);
        }
        let mut bytes = [0; REJECT_ROOM];
        for (to, from) in bytes.iter_mut().zip(message) {
            *to = *from;
        }
        Self {
            bytes,
            // CAST: Checked above.
            len: N as u8,
        }
    }
}

/// The name of a network interface.
// CAST: A small constant.
pub type InterfaceName = Name<{ raw::IFNAMSIZ as usize }>;
