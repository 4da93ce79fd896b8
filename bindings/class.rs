// SPDX-License-Identifier: GPL-2.0

//! Device classes and their devices.
//!
//! C headers: [`include/linux/device/class.h`](srctree/include/linux/device/class.h),
//! [`include/linux/device.h`](srctree/include/linux/device.h)

use core::ptr::NonNull;
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    ffi,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full, //
        },
        Arc, //
    },
    types::Opaque, //
};

use crate::{
    attribute::{
        self,
        Group,
        Node, //
    },
    kobject::Parent,
    raw,
    wait::{
        Tails,
        User,
        Users, //
    },
};

/// A class of devices, `/sys/class/<name>`.
///
/// Dropping it sleeps until all its devices, and all directories below them, are gone and freed:
/// after that none of their code runs any more.
///
/// One that is forgotten stays in sysfs with its devices, but the module's exit does not wait for
/// them: a module must not do it, see [`Users`].
//
// Field order is teardown order: first the users, then the class.
pub struct Class {
    users: Users,
    _tails: Tails,
    raw: RawClass,
}

/// # Invariants
///
/// A class from `class_create()` that belongs to this object.
struct RawClass(NonNull<raw::class>);

// SAFETY: A class can be used and destroyed by every thread.
unsafe impl Send for RawClass {}
// SAFETY: Classes are synchronised by locks of their own.
unsafe impl Sync for RawClass {}

impl Drop for RawClass {
    fn drop(&mut self) {
        // SAFETY: By the type invariant this object owns the class; `Class` has waited for its
        // devices.
        unsafe { raw::class_destroy(self.0.as_ptr()) }
    }
}

impl Class {
    /// Registers a class. Sleeps.
    pub fn new(name: &'static CStr) -> Result<Self> {
        let users = Users::new()?;
        // SAFETY: The name is static.
        let class = from_err_ptr(unsafe { raw::class_create(name.as_char_ptr()) })?;
        // INVARIANT: The class was just created, and nothing else owns it.
        let raw = RawClass(NonNull::new(class).ok_or(ENOMEM)?);
        Ok(Self {
            users,
            _tails: Tails,
            raw,
        })
    }
}

/// An event of a device, for user space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uevent {
    /// The device has changed.
    Change,
    /// The device is usable.
    Online,
    /// The device is temporarily unusable.
    Offline,
}

impl Uevent {
    fn as_raw(self) -> raw::kobject_action {
        match self {
            Self::Change => raw::kobject_action_KOBJ_CHANGE,
            Self::Online => raw::kobject_action_KOBJ_ONLINE,
            Self::Offline => raw::kobject_action_KOBJ_OFFLINE,
        }
    }
}

/// Most variables of one [`ClassDevice::uevent`].
pub const MAX_UEVENT_VARS: usize = 8;

/// A device without hardware: `/sys/class/<class>/<name>`, with files for a
/// `T`.
///
/// Dropping it removes the device with its contents, and sleeps until no function of its files is
/// running: a store function must not drop its own device, unless its file was
/// [removed](attribute::RemoveSelf) before.
///
/// The `Arc<T>` is dropped when it is removed, or a little later if other code holds a reference to
/// the C object.
///
/// # Invariants
///
/// `inner` is a [`DeviceBox<T>`] that was added, and this object owns a reference to it.
pub struct ClassDevice<T: Send + Sync + 'static> {
    inner: NonNull<DeviceBox<T>>,
}

/// A `device` and its data; freed by the release function.
#[pin_data]
#[repr(C)]
struct DeviceBox<T> {
    #[pin]
    dev: Opaque<raw::device>,
    #[pin]
    node: Node<T>,
    announced: Atomic<bool>,
}

// SAFETY: A `device` can be used and removed by every thread.
unsafe impl<T: Send + Sync> Send for ClassDevice<T> {}
// SAFETY: The driver core and sysfs synchronise all operations on a shared device.
unsafe impl<T: Send + Sync> Sync for ClassDevice<T> {}

impl<T: Send + Sync> ClassDevice<T> {
    /// Registers a device with the files of `groups`. Sleeps.
    ///
    /// User space is not told before [`announce`](Self::announce), so that more
    /// directories can be added.
    ///
    /// A name that exists already gives [`EEXIST`] with a backtrace in the log: the caller must
    /// know the existing names.
    pub fn new(
        class: &Class,
        name: &CStr,
        groups: &[&'static Group<T>],
        data: Arc<T>,
    ) -> Result<Self> {
        let inner = KBox::pin_init(
            pin_init!(DeviceBox {
                dev <- Opaque::zeroed(),
                node <- Node::new(data, class.users.add()),
                announced: Atomic::new(false),
            }),
            GFP_KERNEL,
        )?;
        // SAFETY: The contents of the box are not moved.
        let inner = KBox::into_raw(unsafe { Pin::into_inner_unchecked(inner) });
        // SAFETY: The pointer comes from a box, so it is valid.
        let dev = unsafe { (*inner).dev.get() };

        // SAFETY: `dev` is zeroed, as required, and lives until its release function is called. The
        // class lives until that has happened, see `Class`.
        unsafe {
            raw::device_initialize(dev);
            (*dev).class = class.raw.0.as_ptr();
            (*dev).release = Some(release::<T>);
            raw::rtrs_helper_uevent_suppress(dev, true);
        }
        // SAFETY: The device is initialised; the format takes one string, and `name` is one.
        let ret = unsafe { raw::dev_set_name(dev, c"%s".as_char_ptr(), name.as_char_ptr()) };
        // SAFETY: The device is initialised, and has a name, as setting it succeeded.
        let ret = to_result(ret).and_then(|()| to_result(unsafe { raw::device_add(dev) }));
        if let Err(e) = ret {
            // SAFETY: This is the only reference to a device that is not added.
            unsafe { raw::put_device(dev) };
            return Err(e);
        }
        // INVARIANT: The device was added, and this object owns the initial reference. From here on
        // dropping it removes the device.
        let device = Self {
            // SAFETY: A box is not null.
            inner: unsafe { NonNull::new_unchecked(inner) },
        };
        for group in groups {
            // SAFETY: The device was just added. The `device_attribute` of an `Attribute` has the
            // functions `show` and `store` below for the files of a device.
            unsafe { group.create(device.kobj()) }?;
        }
        Ok(device)
    }

    /// Tells user space that the device is there (once). Sleeps.
    pub fn announce(&self) {
        if self.inner().announced.xchg(true, Full) {
            return;
        }
        // SAFETY: The device is alive by the type invariant. The flag is written at registration
        // and here, which only one thread reaches. It shares a byte with one that the driver core
        // sets when an event is sent, which root can cause at this moment (`uevent`): at worst, one
        // of both changes is lost, and events are missing.
        unsafe { raw::rtrs_helper_uevent_suppress(self.inner().dev.get(), false) };
        // An event that is lost for lack of memory is not an error.
        let _ = self.send(raw::kobject_action_KOBJ_ADD, &[]);
    }

    /// Sends an event to user space, with variables like `c"STATE=up"`, at most
    /// [`MAX_UEVENT_VARS`]. Does nothing before the device is [announced](Self::announce). Sleeps.
    pub fn uevent(&self, event: Uevent, vars: &[&CStr]) -> Result {
        self.send(event.as_raw(), vars)
    }

    fn send(&self, action: raw::kobject_action, vars: &[&CStr]) -> Result {
        let mut envp = [core::ptr::null_mut(); MAX_UEVENT_VARS + 1];
        if vars.len() > MAX_UEVENT_VARS {
            return Err(E2BIG);
        }
        for (to, var) in envp.iter_mut().zip(vars) {
            *to = var.as_char_ptr().cast_mut();
        }
        // SAFETY: The device is added by the type invariant. `envp` has a null pointer at its end,
        // and is only read.
        to_result(unsafe { raw::kobject_uevent_env(self.kobj(), action, envp.as_mut_ptr()) })
    }

    /// The data that the files belong to. Any context.
    pub fn data(&self) -> &Arc<T> {
        self.inner().node.data()
    }

    fn inner(&self) -> &DeviceBox<T> {
        // SAFETY: The device is alive by the type invariant.
        unsafe { self.inner.as_ref() }
    }

    fn kobj(&self) -> *mut raw::kobject {
        // SAFETY: The device is alive by the type invariant.
        unsafe { &raw mut (*self.inner().dev.get()).kobj }
    }

    fn user(&self) -> User {
        self.inner().node.user()
    }
}

impl<'a, T: Send + Sync> From<&'a ClassDevice<T>> for Parent<'a> {
    fn from(device: &'a ClassDevice<T>) -> Self {
        // SAFETY: The device is added by the type invariant, and lives as long as `device`.
        unsafe { Parent::new(device.kobj(), device.user()) }
    }
}

impl<T: Send + Sync> Drop for ClassDevice<T> {
    fn drop(&mut self) {
        self.inner().node.begin_removal();
        let last = self.user();
        // SAFETY: The device is added by the type invariant. No file is removing itself, which
        // would use the directory that this removes. The reference is given up, and not used any
        // more.
        unsafe { raw::device_unregister(self.inner().dev.get()) };
        // The code after this does not sleep, as freeing does on PREEMPT_RT: see `Tails`.
        drop(last);
    }
}

/// # Safety
///
/// `dev` must be that of a [`DeviceBox<T>`].
unsafe fn from_dev<T>(dev: *mut raw::device) -> *mut DeviceBox<T> {
    // `dev` is the first field.
    dev.cast()
}

/// Prints a file of a device.
///
/// # Safety
///
/// Called by the driver core only, for a file of a [`Group<T>`] of a
/// [`ClassDevice<T>`].
pub(crate) unsafe extern "C" fn show<T: Send + Sync + 'static>(
    dev: *mut raw::device,
    attr: *mut raw::device_attribute,
    buf: *mut ffi::c_char,
) -> isize {
    // SAFETY: By the safety requirements of this function, it is a `DeviceBox<T>`, which sysfs
    // keeps until this returns; the buffer is a zeroed page.
    unsafe { attribute::show(&(*from_dev::<T>(dev)).node, attr.cast(), buf) }
}

/// Writes to a file of a device.
///
/// # Safety
///
/// Called by the driver core only, for a file of a [`Group<T>`] of a
/// [`ClassDevice<T>`].
pub(crate) unsafe extern "C" fn store<T: Send + Sync + 'static>(
    dev: *mut raw::device,
    attr: *mut raw::device_attribute,
    buf: *const ffi::c_char,
    count: usize,
) -> isize {
    // SAFETY: By the safety requirements of this function, it is a `DeviceBox<T>`, which contains
    // `node` and `kobj`.
    unsafe {
        let node = &raw const (*from_dev::<T>(dev)).node;
        attribute::store(node, &raw mut (*dev).kobj, attr.cast(), buf, count)
    }
}

/// # Safety
///
/// Called by the driver core only, for a [`ClassDevice<T>`] without references.
unsafe extern "C" fn release<T: Send + Sync>(dev: *mut raw::device) {
    // SAFETY: The pointer comes from `KBox::into_raw` in `ClassDevice::new`; nothing uses it any
    // more.
    let inner = unsafe { KBox::from_raw(from_dev::<T>(dev)) };
    let last = inner.node.user();
    drop(inner);
    // The code after this does not sleep: see `Tails`.
    drop(last);
}
