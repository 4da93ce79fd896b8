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

/// Where a directory can be made: below a device, a module or another
/// directory.
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

/// `/sys/module/<module>` as a place for directories.
///
/// Dropping it sleeps until all directories that were made below it are gone
/// and freed: after that no code of theirs runs any more.
//
// Field order is teardown order.
pub struct ModuleParent {
    module: &'static ThisModule,
    users: Users,
    _tails: Tails,
}

impl ModuleParent {
    /// The directory of the caller's own module, from its init function on.
    /// May sleep.
    ///
    /// To be dropped in the module's exit function at the latest, which who has
    /// it in the module's structure does.
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
        // SAFETY: A module is added to sysfs before its init function is called
        // and removed after its exit function; code of ours that has a
        // `ModuleParent` runs in between.
        unsafe {
            let kobj = raw::rtrs_helper_module_kobj(parent.module.as_ptr());
            Parent::new(kobj, parent.users.add())
        }
    }
}

/// A directory in sysfs with files for a `T`.
///
/// Dropping it removes it, with all that is in it, and sleeps until no function
/// of its files is running: a store function must not do that to its own
/// directory, unless it was [removed](attribute::RemoveSelf) before. A
/// directory whose parent is removed first is gone with it; dropping it then
/// has nothing left to remove.
///
/// The `Arc<T>` is dropped when it is removed, or a little later if somebody
/// else holds a reference of the C object.
///
/// # Invariants
///
/// `inner` is a [`DirBox<T>`] that was added to sysfs, with a reference that
/// belongs to this object.
pub struct Dir<T: Send + Sync + 'static> {
    inner: NonNull<DirBox<T>>,
}

/// A `kobject` and what belongs to it; freed by the release function.
#[pin_data]
#[repr(C)]
struct DirBox<T> {
    #[pin]
    kobj: Opaque<raw::kobject>,
    #[pin]
    node: Node<T>,
}

// SAFETY: A `kobject` can be used and removed by every thread.
unsafe impl<T: Send + Sync> Send for Dir<T> {}
// SAFETY: What can be done with a shared one is synchronised by sysfs.
unsafe impl<T: Send + Sync> Sync for Dir<T> {}

impl<T: Send + Sync> Dir<T> {
    /// Makes the directory `name` with the files of `groups`. Sleeps.
    ///
    /// A name that is already there is an [`EEXIST`] with a backtrace in the
    /// log: the caller has to know what is there.
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
        // SAFETY: What the pointer points to is not moved.
        let inner = KBox::into_raw(unsafe { Pin::into_inner_unchecked(inner) });
        // SAFETY: A box is valid.
        let kobj = unsafe { (*inner).kobj.get() };
        // SAFETY: `kobj` is zeroed, as it has to be, and lives until its type's
        // release function is called; the type is static; the parent is valid;
        // the format takes one string, which is one.
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
            // SAFETY: Initialised also when it could not be added; this is the
            // only reference.
            unsafe { raw::kobject_put(kobj) };
            return Err(e);
        }
        // INVARIANT: Added, with the initial reference. From here on dropping
        // it removes it.
        let dir = Self {
            // SAFETY: A box is not null.
            inner: unsafe { NonNull::new_unchecked(inner) },
        };
        for group in groups {
            // SAFETY: Just added; its operations are those of `DirBox<T>`.
            unsafe { group.create(kobj) }?;
        }
        Ok(dir)
    }

    /// What the files are for. Any context.
    pub fn data(&self) -> &Arc<T> {
        self.node().data()
    }

    fn node(&self) -> &Node<T> {
        // SAFETY: Alive by the type invariant.
        unsafe { &self.inner.as_ref().node }
    }

    fn kobj(&self) -> *mut raw::kobject {
        // SAFETY: Alive by the type invariant.
        unsafe { self.inner.as_ref() }.kobj.get()
    }
}

impl<'a, T: Send + Sync> From<&'a Dir<T>> for Parent<'a> {
    fn from(dir: &'a Dir<T>) -> Self {
        // SAFETY: Added by the type invariant, and it lives as long as `dir`.
        unsafe { Parent::new(dir.kobj(), dir.node().user()) }
    }
}

impl<T: Send + Sync> Drop for Dir<T> {
    fn drop(&mut self) {
        self.node().begin_removal();
        let kobj = self.kobj();
        // SAFETY: Added by the type invariant. No file is removing itself,
        // which would use what this takes away.
        unsafe { raw::kobject_del(kobj) };
        // SAFETY: The reference of this object, which is not used any more.
        unsafe { raw::kobject_put(kobj) };
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
        // The first field.
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
        // SAFETY: Objects of this type are `DirBox<T>`, their files those of a
        // `Group<T>`. sysfs keeps the object until this returns and passes a
        // zeroed page.
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
        // SAFETY: Objects of this type are `DirBox<T>`, their files those of a
        // `Group<T>`; `node` is part of what `kobj` is part of.
        unsafe {
            let node = &raw const (*Self::from_kobj(kobj)).node;
            attribute::store(node, kobj, attr, buf, count)
        }
    }

    /// # Safety
    ///
    /// Called by the C code only, when there is no reference any more.
    unsafe extern "C" fn release(kobj: *mut raw::kobject) {
        // SAFETY: From `KBox::into_raw` in `Dir::new`; nobody uses it any more.
        let inner = unsafe { KBox::from_raw(Self::from_kobj(kobj)) };
        let last = inner.node.user();
        drop(inner);
        // Of what comes after this, nothing sleeps: see `Tails`.
        drop(last);
    }
}
