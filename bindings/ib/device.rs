// SPDX-License-Identifier: GPL-2.0

//! RDMA devices.

use crate::raw;
use core::{
    ops::Deref,
    ptr::NonNull, //
};
use kernel::page::PAGE_SIZE;

/// An RDMA device, borrowed from an owner that keeps it alive: a [`DeviceRef`] or a bound `cm_id`.
///
/// # Invariants
///
/// A `&Device` points to an `ib_device` that is registered, or waits for the owner of the borrow
/// before it is unregistered.
#[repr(transparent)]
pub struct Device(kernel::types::Opaque<raw::ib_device>);

// SAFETY: An `ib_device` is shared by all its users; the data that the methods below read is
// constant while the device is registered, or synchronised inside ib_core, but for the name, which
// is copied in C and may be a mixture.
unsafe impl Sync for Device {}

/// A copy of a name of less than `N` bytes, which the kernel may change at any time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Name<const N: usize>([u8; N]);

impl<const N: usize> Name<N> {
    /// Makes a name from the zero-terminated text that `copy` writes to its buffer.
    pub(super) fn copied(copy: impl FnOnce(&mut [u8; N])) -> Self {
        let mut name = [0; N];

        copy(&mut name);
        // Bytes after the end have no meaning, and must not influence comparisons.
        let end = name.iter().position(|b| *b == 0).unwrap_or(0);
        if let Some(rest) = name.get_mut(end..) {
            rest.fill(0);
        }
        Self(name)
    }

    /// The name; empty if it is not valid UTF-8.
    pub fn as_str(&self) -> &str {
        let end = self.0.iter().position(|b| *b == 0).unwrap_or(0);

        self.0
            .get(..end)
            .and_then(|name| core::str::from_utf8(name).ok())
            .unwrap_or("")
    }
}

/// The name of an RDMA device.
// CAST: A small constant.
pub type DeviceName = Name<{ raw::IB_DEVICE_NAME_MAX as usize }>;

/// The limits of a device that a transport must respect.
#[derive(Clone, Copy, Debug)]
pub struct DeviceAttrs {
    /// The most work requests on one queue of a QP.
    pub max_qp_wr: u32,
    /// The most entries of a completion queue.
    pub max_cqe: u32,
    /// The most scatter/gather elements of a send work request.
    pub max_send_sge: u32,
    /// The most scatter/gather elements of a receive work request.
    pub max_recv_sge: u32,
    /// The most bytes that a work request of a queue pair takes inline, whatever the driver has
    /// room for.
    pub max_inline: u32,
    /// A message can have an immediate value, and the completion of its receive tells it from a write
    /// that has one.
    pub tells_messages: bool,
    /// The most pages of a fast registration.
    pub max_fast_reg_pages: u32,
    /// Bitmap of the page sizes that a registration can use.
    pub page_sizes: u64,
    /// Number of completion vectors (interrupts) of the device.
    pub comp_vectors: u32,
    /// The device can register memory by work request and invalidate remotely
    /// (`IB_DEVICE_MEM_MGT_EXTENSIONS`).
    pub mem_mgt_extensions: bool,
}

/// Limits that a driver has and does not announce, as of Linux 7.2 and 7.3.
#[derive(Clone, Copy)]
struct Quirks {
    max_inline: u32,
    tells_messages: bool,
    max_fast_reg_pages: u32,
    page_sizes: u64,
}

impl Quirks {
    const NONE: Self = Self {
        max_inline: u32::MAX,
        tells_messages: true,
        max_fast_reg_pages: u32::MAX,
        page_sizes: u64::MAX,
    };

    const fn of(driver_id: u32) -> Self {
        match driver_id {
            // The device takes the pages of a fast registration for pages of the processor,
            // whatever `ib_map_mr_sg()` was told: `erdma_ib_alloc_mr()`, and `IB_WR_REG_MR` in
            // `pvrdma_post_send()`.
            raw::rdma_driver_id_RDMA_DRIVER_ERDMA | raw::rdma_driver_id_RDMA_DRIVER_VMW_PVRDMA => {
                Self {
                    // CAST: Widening.
                    page_sizes: PAGE_SIZE as u64,
                    ..Self::NONE
                }
            }
            // Inline data that do not fit in a work request itself are continued in elements of 16
            // bytes, of which `fill_ext_sge_inl_data()` counts whole ones only: the next request
            // writes over the last part. Receives are told apart by `wc_recv_op_map`, the index of
            // which is the opcode of a send queue, not that of a completion: a write with a value
            // completes as a message, so that no request arrives in any way.
            raw::rdma_driver_id_RDMA_DRIVER_HNS => Self {
                max_inline: 32,
                tells_messages: false,
                ..Self::NONE
            },
            // A list of more pages may have two levels, and a fast registration uses the first as
            // if it were the only one: `irdma_get_pble()`, and `IB_WR_REG_MR` in
            // `irdma_post_send()`.
            raw::rdma_driver_id_RDMA_DRIVER_IRDMA => Self {
                max_fast_reg_pages: 512,
                ..Self::NONE
            },
            _ => Self::NONE,
        }
    }
}

/// The transport that carries the messages of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// InfiniBand.
    Ib,
    /// RDMA over converged Ethernet, version 1.
    Roce,
    /// RDMA over converged Ethernet, version 2 (over UDP). A port that has both versions counts as
    /// this one.
    RoceUdp,
    /// RDMA over TCP.
    Iwarp,
    /// Another transport, or not known.
    Other,
}

impl Transport {
    fn from_raw(flags: u32) -> Self {
        if flags & raw::RDMA_CORE_CAP_PROT_ROCE_UDP_ENCAP != 0 {
            Self::RoceUdp
        } else if flags & raw::RDMA_CORE_CAP_PROT_ROCE != 0 {
            Self::Roce
        } else if flags & raw::RDMA_CORE_CAP_PROT_IWARP != 0 {
            Self::Iwarp
        } else if flags & raw::RDMA_CORE_CAP_PROT_IB != 0 {
            Self::Ib
        } else {
            Self::Other
        }
    }

    /// As displayed: `IB`, `RoCE`, `RoCEv2`, `iWARP`, or `-`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ib => "IB",
            Self::Roce => "RoCE",
            Self::RoceUdp => "RoCEv2",
            Self::Iwarp => "iWARP",
            Self::Other => "-",
        }
    }
}

/// See [`Device::id`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceId(usize);

impl Device {
    /// # Safety
    ///
    /// `ptr` must be a valid device for `'a`, kept alive as the type's
    /// invariant says.
    pub(super) unsafe fn from_raw<'a>(ptr: *mut raw::ib_device) -> &'a Self {
        // SAFETY: By the safety requirements of this function, the device is valid for `'a`;
        // `Device` is transparent.
        unsafe { &*ptr.cast() }
    }

    pub(super) fn as_raw(&self) -> *mut raw::ib_device {
        core::ptr::from_ref(self).cast_mut().cast()
    }

    /// An identifier, unique among all devices present at the same time. Renaming the device does
    /// not change it; after the device is removed, a new one may get the same identifier.
    pub fn id(&self) -> DeviceId {
        DeviceId(self.as_raw().addr())
    }

    /// The name, such as `rxe0`. While an administrator renames the device, the result may be a
    /// mixture of both names.
    pub fn name(&self) -> DeviceName {
        DeviceName::copied(|room| {
            // SAFETY: The device is valid, and there is room for a name.
            unsafe { raw::rtrs_helper_ib_device_name(self.as_raw(), room.as_mut_ptr().cast()) };
        })
    }

    /// The NUMA node, or -1.
    pub fn numa_node(&self) -> i32 {
        // SAFETY: The device is valid.
        unsafe { raw::rtrs_helper_ib_device_node(self.as_raw()) }
    }

    /// The limits of the device.
    pub fn attrs(&self) -> DeviceAttrs {
        let mut attrs = raw::rtrs_helper_device_attrs::default();
        // SAFETY: The device is valid, and the helper writes `attrs`.
        let comp_vectors = unsafe {
            raw::rtrs_helper_ib_device_attrs(self.as_raw(), &mut attrs);
            raw::rtrs_helper_ib_device_comp_vectors(self.as_raw())
        };
        let quirks = Quirks::of(attrs.driver_id);
        DeviceAttrs {
            max_qp_wr: attrs.max_qp_wr,
            max_cqe: attrs.max_cqe,
            max_send_sge: attrs.max_send_sge,
            max_recv_sge: attrs.max_recv_sge,
            max_inline: quirks.max_inline,
            // iWARP has no such messages. All ports of a device have the same transport.
            tells_messages: quirks.tells_messages && self.transport(1) != Transport::Iwarp,
            max_fast_reg_pages: attrs
                .max_fast_reg_page_list_len
                .min(quirks.max_fast_reg_pages),
            page_sizes: attrs.page_size_cap & quirks.page_sizes,
            comp_vectors: comp_vectors.max(1),
            mem_mgt_extensions: attrs.device_cap_flags
                // CAST: A flag of a 64-bit enumeration.
                & raw::ib_device_cap_flags_IB_DEVICE_MEM_MGT_EXTENSIONS as u64
                != 0,
        }
    }

    /// The transport of a port. Any context.
    pub fn transport(&self, port: u32) -> Transport {
        // SAFETY: The device is valid; the helper checks the port.
        Transport::from_raw(unsafe { raw::rtrs_helper_ib_port_flags(self.as_raw(), port) })
    }

    /// Whether a port can send and receive. True if the state is not known. Does not sleep; process
    /// context, as the locks taken do not disable interrupts.
    pub(super) fn port_is_active(&self, port: u32) -> bool {
        // SAFETY: The device is valid; the helper handles a port that does not exist as an error.
        unsafe { raw::rtrs_helper_ib_port_is_active(self.as_raw(), port) }
    }

    /// Takes a reference; `None` when the device is being unregistered.
    pub fn get(&self) -> Option<DeviceRef> {
        // SAFETY: The device is valid.
        if unsafe { raw::rtrs_helper_ib_device_try_get(self.as_raw()) } {
            // INVARIANT: The reference was just taken.
            NonNull::new(self.as_raw()).map(DeviceRef)
        } else {
            None
        }
    }
}

/// An owned reference to a device. Unregistering the device waits until all references are gone:
/// drop it soon after the device's removal is announced.
///
/// # Invariants
///
/// Holds one reference of `ib_device::refcount`.
pub struct DeviceRef(NonNull<raw::ib_device>);

// SAFETY: The reference count is atomic, and a device may be released from any
// thread.
unsafe impl Send for DeviceRef {}
// SAFETY: Only gives out `&Device`, which is `Sync`.
unsafe impl Sync for DeviceRef {}

impl Deref for DeviceRef {
    type Target = Device;

    fn deref(&self) -> &Device {
        // SAFETY: By the type invariant the device stays while `self` does.
        unsafe { Device::from_raw(self.0.as_ptr()) }
    }
}

impl Drop for DeviceRef {
    fn drop(&mut self) {
        // SAFETY: By the type invariant this object holds a reference, which it gives back.
        unsafe { raw::ib_device_put(self.0.as_ptr()) };
    }
}
