// SPDX-License-Identifier: GPL-2.0

//! Devices that come and go, and what happens to their ports.

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

/// What happened to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceEvent {
    /// It is there; also said of those that were when the watch began.
    Added,
    /// It is going away.
    Removed,
    /// A port is usable.
    PortActive(u32),
    /// A port is not usable.
    PortDown(u32),
    /// The addresses of a port changed.
    GidChange(u32),
    /// It is broken.
    Fatal,
}

/// A type with a watch; made by [`device_watch!`].
///
/// # Safety
///
/// [`watch()`](Self::watch) always returns the same.
pub unsafe trait HasWatch: Sized + 'static {
    /// The static watch that belongs to the type.
    fn watch() -> &'static DeviceWatch<Self>
    where
        Self: Watch;
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

        // SAFETY: There is only this one.
        unsafe impl $crate::ib::HasWatch for $type {
            fn watch() -> &'static $crate::ib::DeviceWatch<Self> {
                &$name
            }
        }
    };
}
pub use device_watch;

/// Somebody who watches devices. A type without values: the functions C calls
/// carry no context.
pub trait Watch: HasWatch {
    /// Something happened. Process context; must not wait for other events.
    fn device_event(device: &Device, event: DeviceEvent);
}

/// An `ib_client`, to be a static.
pub struct DeviceWatch<W> {
    client: UnsafeCell<raw::ib_client>,
    started: Atomic<bool>,
    _watch: PhantomData<fn() -> W>,
}

// SAFETY: The structure is constant until it is registered, and synchronised by
// ib_core while it is.
unsafe impl<W> Sync for DeviceWatch<W> {}

/// Keeps a watch going. Dropping it ends it, and waits for callbacks; sleeps.
///
/// # Invariants
///
/// The watch is `W::watch()`, and its client is registered.
pub struct Watching<W: Watch>(&'static DeviceWatch<W>);

/// What is registered with each device.
#[repr(C)]
struct DeviceHandler {
    handler: raw::ib_event_handler,
}

impl<W: Watch> DeviceWatch<W> {
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
    /// `EINVAL` for a watch that is not the one of its type, `EBUSY` if it has begun, and not
    /// ended.
    pub fn start(&'static self) -> Result<Watching<W>> {
        // The callbacks find only that one.
        if !core::ptr::eq(self, W::watch()) {
            return Err(EINVAL);
        }
        if self.started.cmpxchg(false, true, Full).is_err() {
            return Err(EBUSY);
        }
        // SAFETY: Static, and not registered, see above.
        let ret = to_result(unsafe { raw::ib_register_client(self.client.get()) });
        if let Err(e) = ret {
            self.started.store(false, Release);
            return Err(e);
        }
        // INVARIANT: Just checked, and registered.
        Ok(Watching(self))
    }
}

impl<W: Watch> Drop for Watching<W> {
    fn drop(&mut self) {
        // SAFETY: Registered, by the type invariant.
        unsafe { raw::ib_unregister_client(self.0.client.get()) };
        self.0.started.store(false, Release);
    }
}

/// # Safety
///
/// To be called by ib_core for a client made by [`DeviceWatch::<W>::new`].
unsafe extern "C" fn add<W: Watch>(dev: *mut raw::ib_device) -> ffi::c_int {
    let handler = KBox::new(
        DeviceHandler {
            // SAFETY: All zeroes is valid; initialised below.
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
/// As for [`add`]; `data` is what that stored.
unsafe extern "C" fn remove<W: Watch>(dev: *mut raw::ib_device, data: *mut ffi::c_void) {
    // SAFETY: `ib_core` calls this once for each successful `add()`.
    unsafe {
        W::device_event(Device::from_raw(dev), DeviceEvent::Removed);
        // Waits for a handler that runs.
        raw::ib_unregister_event_handler(core::ptr::addr_of_mut!(
            (*data.cast::<DeviceHandler>()).handler
        ));
        drop(KBox::from_raw(data.cast::<DeviceHandler>()));
    }
}

/// # Safety
///
/// To be called by ib_core for a handler registered by [`add`].
unsafe extern "C" fn event<W: Watch>(_: *mut raw::ib_event_handler, ev: *mut raw::ib_event) {
    // SAFETY: `ib_core` passes a valid event.
    let ev = unsafe { &*ev };
    // SAFETY: Called for events of a port only; those have its number there.
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
