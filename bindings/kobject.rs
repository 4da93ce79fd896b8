// SPDX-License-Identifier: GPL-2.0

//! Directories in sysfs.
//!
//! C header: [`include/linux/kobject.h`](srctree/include/linux/kobject.h)

use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::{
    ffi,
    prelude::*,
    sync::Arc,
    types::Opaque, //
};

use crate::{
    attribute::{
        self,
        Group,
        Node, //
    },
    raw,
    wait::{
        Tails,
        User,
        Users, //
    },
};

/// The parent of a new directory: a device, a module or another directory.
pub struct Parent<'a> {
    kobj: *mut raw::kobject,
    user: User,
    _borrow: PhantomData<&'a ()>,
}

impl<'a> Parent<'a> {
    /// # Safety
    ///
    /// `kobj` must be valid for `'a`, and have been added to sysfs.
    pub(crate) unsafe fn new(kobj: *mut raw::kobject, user: User) -> Self {
        Self {
            kobj,
            user,
            _borrow: PhantomData,
        }
    }
}

/// `/sys/module/<module>` as a parent for directories.
///
/// Dropping it sleeps until all directories that were made below it are gone and freed: after that
/// none of their code runs any more.
//
// Field order is teardown order.
pub struct ModuleParent {
    module: &'static ThisModule,
    users: Users,
    _tails: Tails,
}

impl ModuleParent {
    /// The directory of the caller's own module; works from its init function on. May sleep.
    ///
    /// Must be dropped in the module's exit function at the latest, which is the case for a field
    /// of the module's structure, and not be forgotten, see [`Users`].
    pub fn new(module: &'static ThisModule) -> Result<Self> {
        Ok(Self {
            module,
            users: Users::new()?,
            _tails: Tails,
        })
    }
}

impl<'a> From<&'a ModuleParent> for Parent<'a> {
    fn from(parent: &'a ModuleParent) -> Self {
        // SAFETY: A module is added to sysfs before its init function is called and removed after
        // its exit function; the code of the module that has a `ModuleParent` runs in between.
        unsafe {
            let kobj = raw::rtrs_helper_module_kobj(parent.module.as_ptr());
            Parent::new(kobj, parent.users.add())
        }
    }
}

/// A directory in sysfs with files for a `T`.
///
/// Dropping it removes the directory with its contents, and sleeps until no function of its files
/// is running: a store function must not drop its own directory, unless its file was
/// [removed](attribute::RemoveSelf) before. Removing the parent also removes the directory;
/// dropping it afterwards removes nothing.
///
/// The `Arc<T>` is dropped when it is removed, or a little later if other code holds a reference to
/// the C object.
///
/// # Invariants
///
/// `inner` is a [`DirBox<T>`] that was added to sysfs, and this object owns a reference to it.
pub struct KobjectDir<T: Send + Sync + 'static> {
    inner: NonNull<DirBox<T>>,
}

/// A `kobject` and its data; freed by the release function.
#[pin_data]
#[repr(C)]
struct DirBox<T> {
    #[pin]
    kobj: Opaque<raw::kobject>,
    #[pin]
    node: Node<T>,
}

// SAFETY: A `kobject` can be used and removed by every thread.
unsafe impl<T: Send + Sync> Send for KobjectDir<T> {}
// SAFETY: `sysfs` synchronises all operations on a shared directory.
unsafe impl<T: Send + Sync> Sync for KobjectDir<T> {}

impl<T: Send + Sync> KobjectDir<T> {
    /// Makes the directory `name` with the files of `groups`. Sleeps.
    ///
    /// A name that exists already gives [`EEXIST`] with a backtrace in the log: the caller must
    /// know the existing names.
    pub fn new<'a>(
        parent: impl Into<Parent<'a>>,
        name: &CStr,
        groups: &[&'static Group<T>],
        data: Arc<T>,
    ) -> Result<Self> {
        let parent = parent.into();
        let inner = KBox::pin_init(
            pin_init!(DirBox {
                kobj <- Opaque::zeroed(),
                node <- Node::new(data, parent.user),
            }),
            GFP_KERNEL,
        )?;
        // SAFETY: The contents of the box are not moved.
        let inner = KBox::into_raw(unsafe { Pin::into_inner_unchecked(inner) });
        // SAFETY: The pointer comes from a box, so it is valid.
        let kobj = unsafe { (*inner).kobj.get() };
        // SAFETY: `kobj` is zeroed, as required, and lives until the release function of its type
        // is called; the type is static; the parent is valid; the format takes one string, and
        // `name` is one.
        let ret = unsafe {
            raw::kobject_init_and_add(
                kobj,
                &DirBox::<T>::TYPE,
                parent.kobj,
                c"%s".as_char_ptr(),
                name.as_char_ptr(),
            )
        };
        if let Err(e) = kernel::error::to_result(ret) {
            // SAFETY: `kobj` is initialised even if it could not be added; this is the only
            // reference.
            unsafe { raw::kobject_put(kobj) };
            return Err(e);
        }
        // INVARIANT: The directory was added, and this object owns the initial reference. From here
        // on dropping it removes the directory.
        let dir = Self {
            // SAFETY: A box is not null.
            inner: unsafe { NonNull::new_unchecked(inner) },
        };
        for group in groups {
            // SAFETY: The directory was just added; its operations are those of `DirBox<T>`.
            unsafe { group.create(kobj) }?;
        }
        Ok(dir)
    }

    /// The data that the files belong to. Any context.
    pub fn data(&self) -> &Arc<T> {
        self.node().data()
    }

    fn node(&self) -> &Node<T> {
        // SAFETY: The directory is alive by the type invariant.
        unsafe { &self.inner.as_ref().node }
    }

    fn kobj(&self) -> *mut raw::kobject {
        // SAFETY: The directory is alive by the type invariant.
        unsafe { self.inner.as_ref() }.kobj.get()
    }
}

impl<'a, T: Send + Sync> From<&'a KobjectDir<T>> for Parent<'a> {
    fn from(dir: &'a KobjectDir<T>) -> Self {
        // SAFETY: The directory is added by the type invariant, and lives as long as `dir`.
        unsafe { Parent::new(dir.kobj(), dir.node().user()) }
    }
}

impl<T: Send + Sync> Drop for KobjectDir<T> {
    fn drop(&mut self) {
        self.node().begin_removal();
        let last = self.node().user();
        let kobj = self.kobj();
        // SAFETY: The directory is added by the type invariant. No file is removing itself, which
        // would use the directory that this removes.
        unsafe { raw::kobject_del(kobj) };
        // SAFETY: This puts the reference of this object, which is not used any more.
        unsafe { raw::kobject_put(kobj) };
        // The code after this does not sleep, as freeing does on PREEMPT_RT: see `Tails`.
        drop(last);
    }
}

impl<T: Send + Sync + 'static> DirBox<T> {
    const OPS: raw::sysfs_ops = raw::sysfs_ops {
        show: Some(Self::show),
        store: Some(Self::store),
    };

    const TYPE: raw::kobj_type = {
        // SAFETY: All bytes zero is a valid `kobj_type`: no functions.
        let mut ktype: raw::kobj_type = unsafe { core::mem::zeroed() };
        ktype.release = Some(Self::release);
        ktype.sysfs_ops = &Self::OPS;
        ktype
    };

    /// # Safety
    ///
    /// `kobj` must be that of a `DirBox<T>`.
    unsafe fn from_kobj(kobj: *mut raw::kobject) -> *mut Self {
        // `kobj` is the first field.
        kobj.cast()
    }

    /// # Safety
    ///
    /// Called by sysfs only, for a file of a [`Group<T>`].
    unsafe extern "C" fn show(
        kobj: *mut raw::kobject,
        attr: *mut raw::attribute,
        buf: *mut ffi::c_char,
    ) -> isize {
        // SAFETY: Objects of this type are `DirBox<T>`, with the files of a `Group<T>`. sysfs keeps
        // the object until this returns and passes a zeroed page.
        unsafe { attribute::show(&(*Self::from_kobj(kobj)).node, attr, buf) }
    }

    /// # Safety
    ///
    /// Called by sysfs only, for a file of a [`Group<T>`].
    unsafe extern "C" fn store(
        kobj: *mut raw::kobject,
        attr: *mut raw::attribute,
        buf: *const ffi::c_char,
        count: usize,
    ) -> isize {
        // SAFETY: Objects of this type are `DirBox<T>`, with the files of a `Group<T>`; `node` and
        // `kobj` are parts of the same object.
        unsafe {
            let node = &raw const (*Self::from_kobj(kobj)).node;
            attribute::store(node, kobj, attr, buf, count)
        }
    }

    /// # Safety
    ///
    /// Called by the C code only, when there is no reference any more.
    unsafe extern "C" fn release(kobj: *mut raw::kobject) {
        // SAFETY: The pointer comes from `KBox::into_raw` in `KobjectDir::new`; nothing uses it any
        // more.
        let inner = unsafe { KBox::from_raw(Self::from_kobj(kobj)) };
        let last = inner.node.user();
        drop(inner);
        // The code after this does not sleep: see `Tails`.
        drop(last);
    }
}
