// SPDX-License-Identifier: GPL-2.0

//! Notifications about devices that come and go, and about their ports.

use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    mem::MaybeUninit, //
};
use kernel::{
    error::to_result,
    ffi,
    prelude::*,
    str::CStr, //
};

use super::device::Device;
use crate::{
    atomic::{
        Atomic,
        Full,
        Release, //
    },
    raw, //
};

/// An event of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceEvent {
    /// The device was added; also sent for devices that were present when the watch began.
    Added,
    /// The device is being removed; also sent for devices that stay when the watch ends. The last
    /// event of a device.
    Removed,
    /// A port is usable.
    PortActive(u32),
    /// A port is not usable.
    PortDown(u32),
    /// The addresses of a port changed.
    GidChange(u32),
    /// The device is broken.
    Fatal,
}

/// A type with a watch; made by [`device_watch!`].
///
/// # Safety
///
/// [`watch()`](Self::watch) must always return the same watch.
pub unsafe trait HasDeviceWatch: Sized + 'static {
    /// The static watch that belongs to the type.
    fn watch() -> &'static DeviceWatch<Self>
    where
        Self: DeviceEvents;
}

/// Makes the static watch of a type.
///
/// ```ignore
/// struct Devices;
///
/// device_watch! {
///     static WATCH: Devices = c"my_module";
/// }
/// ```
#[macro_export]
macro_rules! device_watch {
    ($vis:vis static $name:ident: $type:ty = $text:expr;) => {
        $vis static $name: $crate::ib::DeviceWatch<$type> = $crate::ib::DeviceWatch::new($text);

        // SAFETY: There is only this watch of the type.
        unsafe impl $crate::ib::HasDeviceWatch for $type {
            fn watch() -> &'static $crate::ib::DeviceWatch<Self> {
                &$name
            }
        }
    };
}
pub use device_watch;

/// Gets the events of devices. It is a type without values: the functions that C calls get no
/// context.
pub trait DeviceEvents: HasDeviceWatch {
    /// Called for an event. Process context; must not wait for other events.
    fn device_event(device: &Device, event: DeviceEvent);
}

/// An `ib_client`, which must be a static variable.
pub struct DeviceWatch<W> {
    client: UnsafeCell<raw::ib_client>,
    started: Atomic<bool>,
    _watch: PhantomData<fn() -> W>,
}

// SAFETY: The structure is constant until it is registered, and synchronised by
// ib_core while it is.
unsafe impl<W> Sync for DeviceWatch<W> {}

/// A watch that has begun. Dropping it ends the watch, and waits for callbacks; sleeps.
///
/// If it is forgotten the watch goes on, and cannot begin anew. Its callbacks and the static
/// [`DeviceWatch`] are the module's, which must therefore not be unloaded with the watch: a module
/// must not forget it, see [`Users`](crate::wait::Users).
///
/// # Invariants
///
/// The watch is `W::watch()`, and its client is registered.
pub struct Watching<W: DeviceEvents>(&'static DeviceWatch<W>);

/// The handler that is registered with each device.
#[repr(C)]
struct DeviceHandler {
    handler: raw::ib_event_handler,
}

impl<W: DeviceEvents> DeviceWatch<W> {
    /// A watch that has not begun.
    pub const fn new(name: &'static CStr) -> Self {
        // SAFETY: All zeroes is a valid `ib_client`: pointers and lists that
        // ib_core initialises.
        let mut client: raw::ib_client = unsafe { MaybeUninit::zeroed().assume_init() };
        client.name = kernel::str::as_char_ptr_in_const_context(name);
        client.add = Some(add::<W>);
        client.remove = Some(remove::<W>);
        Self {
            client: UnsafeCell::new(client),
            started: Atomic::new(false),
            _watch: PhantomData,
        }
    }

    /// Begins to watch. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a watch that is not that of its type, `EBUSY` if it has begun and not ended.
    pub fn start(&'static self) -> Result<Watching<W>> {
        // The callbacks use only that watch.
        if !core::ptr::eq(self, W::watch()) {
            return Err(EINVAL);
        }
        if self.started.cmpxchg(false, true, Full).is_err() {
            return Err(EBUSY);
        }
        // SAFETY: The client is static, and not registered, see above.
        let ret = to_result(unsafe { raw::ib_register_client(self.client.get()) });
        if let Err(e) = ret {
            self.started.store(false, Release);
            return Err(e);
        }
        // INVARIANT: The watch was checked above, and its client was just registered.
        Ok(Watching(self))
    }
}

impl<W: DeviceEvents> Drop for Watching<W> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the client is registered.
        unsafe { raw::ib_unregister_client(self.0.client.get()) };
        self.0.started.store(false, Release);
    }
}

/// # Safety
///
/// Must be called by ib_core only, for a client made by [`DeviceWatch::<W>::new`].
unsafe extern "C" fn add<W: DeviceEvents>(dev: *mut raw::ib_device) -> ffi::c_int {
    let handler = KBox::new(
        DeviceHandler {
            // SAFETY: All zeroes is a valid `ib_event_handler`. It is initialised below.
            handler: unsafe { core::mem::zeroed() },
        },
        GFP_KERNEL,
    );
    let Ok(handler) = handler else {
        return ENOMEM.to_errno();
    };
    let handler = KBox::into_raw(handler);
    // SAFETY: The handler stays until `remove()`; the device is valid.
    unsafe {
        raw::rtrs_helper_event_handler_init(
            core::ptr::addr_of_mut!((*handler).handler),
            dev,
            Some(event::<W>),
        );
        raw::ib_register_event_handler(core::ptr::addr_of_mut!((*handler).handler));
        raw::ib_set_client_data(dev, W::watch().client.get(), handler.cast());
        W::device_event(Device::from_raw(dev), DeviceEvent::Added);
    }
    0
}

/// # Safety
///
/// As for [`add`]; `data` must be the pointer that [`add`] stored.
unsafe extern "C" fn remove<W: DeviceEvents>(dev: *mut raw::ib_device, data: *mut ffi::c_void) {
    // SAFETY: `ib_core` calls this once for each successful `add()`, which has registered the handler
    // in the box that `data` points to, and left the box to this function. Nothing uses the handler
    // when it is unregistered. The device is valid until this returns.
    unsafe {
        // Waits for a running handler, so that nothing is heard of a device after its removal.
        raw::ib_unregister_event_handler(core::ptr::addr_of_mut!(
            (*data.cast::<DeviceHandler>()).handler
        ));
        drop(KBox::from_raw(data.cast::<DeviceHandler>()));
        W::device_event(Device::from_raw(dev), DeviceEvent::Removed);
    }
}

/// # Safety
///
/// Must be called by ib_core only, for a handler registered by [`add`].
unsafe extern "C" fn event<W: DeviceEvents>(_: *mut raw::ib_event_handler, ev: *mut raw::ib_event) {
    // SAFETY: `ib_core` passes a valid event.
    let ev = unsafe { &*ev };
    // SAFETY: This is called for events of a port only, which have its number in this member of the
    // union.
    let port = || unsafe { ev.element.port_num };
    let what = match ev.event {
        raw::ib_event_type_IB_EVENT_PORT_ACTIVE => DeviceEvent::PortActive(port()),
        raw::ib_event_type_IB_EVENT_PORT_ERR => DeviceEvent::PortDown(port()),
        raw::ib_event_type_IB_EVENT_GID_CHANGE => DeviceEvent::GidChange(port()),
        raw::ib_event_type_IB_EVENT_DEVICE_FATAL => DeviceEvent::Fatal,
        _ => return,
    };
    // SAFETY: The device is valid while it has events.
    W::device_event(unsafe { Device::from_raw(ev.device) }, what);
}
