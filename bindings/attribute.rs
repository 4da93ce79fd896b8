// SPDX-License-Identifier: GPL-2.0

//! Tables of sysfs files.
//!
//! A table belongs to a type `T`; it can be used for devices
//! ([`ClassDevice`](crate::class::ClassDevice)) and directories
//! ([`KobjectDir`](crate::kobject::KobjectDir)) that own an `Arc<T>`, and its functions get that
//! `T`. sysfs waits for running functions before it removes a directory, so the `T` is always
//! valid.
//!
//! ```ignore
//! attributes! {
//!     /// Files of a path.
//!     static FILES: [Path] = {
//!         "state" => ro(|path, out| writeln!(out, "{}", path.state()).map_err(Error::from)),
//!         "reconnect" => rw(show_usage, Path::store_reconnect),
//!         "remove_path" => rw_self(show_usage, Path::store_remove),
//!     };
//!     /// The same directory's subdirectory `stats`.
//!     static STATS: [Path] in "stats" = {
//!         "rdma" => rw(show_rdma, reset_rdma),
//!     };
//! }
//! ```
//!
//! C header: [`include/linux/sysfs.h`](srctree/include/linux/sysfs.h)

use core::{
    marker::PhantomData,
    mem::offset_of,
    mem::zeroed,
    slice, //
};
use kernel::{
    ffi, fmt,
    page::PAGE_SIZE,
    prelude::*,
    str::{
        as_char_ptr_in_const_context,
        Formatter, //
    },
    sync::{
        atomic::{
            Atomic,
            Full, //
        },
        Arc, //
    },
};

use crate::{
    class, raw,
    wait::{
        Completion,
        User, //
    },
};

/// The contents of a file: up to 4095 bytes. Longer text is cut off, with an error for the writer,
/// which can ignore it.
pub struct Output<'a>(Formatter<'a>);

impl Output<'_> {
    /// For `write!` and `writeln!`.
    pub fn write_fmt(&mut self, args: fmt::Arguments<'_>) -> fmt::Result {
        fmt::Write::write_fmt(&mut self.0, args)
    }
}

/// Prints a file. May sleep.
pub type Show<T> = fn(&T, &mut Output<'_>) -> Result;

/// Handles a write to a file. It gets all that was written, up to 4096 bytes of any value. May
/// sleep.
pub type Store<T> = fn(&T, &[u8]) -> Result;

/// Like [`Store`], for a file that removes its own directory.
pub type StoreSelf<T> = fn(&Arc<T>, &[u8], RemoveSelf<'_>) -> Result;

enum Input<T: 'static> {
    None,
    Store(Store<T>),
    StoreSelf(StoreSelf<T>),
}

/// A file of a table; made by [`attributes!`].
#[repr(C)]
pub struct Attribute<T: 'static> {
    /// The first field, so that the pointers of C code to it are pointers to this structure.
    /// Directories that are not devices use only the `attribute` in it.
    raw: raw::device_attribute,
    show: Option<Show<T>>,
    store: Input<T>,
}

// SAFETY: An attribute is constant, and consists of functions and static strings.
unsafe impl<T> Sync for Attribute<T> {}

static_assert!(offset_of!(raw::device_attribute, attr) == 0);

impl<T: Send + Sync> Attribute<T> {
    /// Readable by all users (0444).
    pub const fn ro(name: &'static CStr, show: Show<T>) -> Self {
        Self::new(name, 0o444, Some(show), Input::None)
    }

    /// Readable by root (0400).
    pub const fn ro_root(name: &'static CStr, show: Show<T>) -> Self {
        Self::new(name, 0o400, Some(show), Input::None)
    }

    /// Readable by all users, writable by root (0644).
    pub const fn rw(name: &'static CStr, show: Show<T>, store: Store<T>) -> Self {
        Self::new(name, 0o644, Some(show), Input::Store(store))
    }

    /// Like [`rw`](Self::rw), for a file that can remove its own directory. Does not compile in a
    /// table `in` a subdirectory.
    pub const fn rw_self(name: &'static CStr, show: Show<T>, store: StoreSelf<T>) -> Self {
        Self::new(name, 0o644, Some(show), Input::StoreSelf(store))
    }

    const fn new(
        name: &'static CStr,
        mode: raw::umode_t,
        show: Option<Show<T>>,
        store: Input<T>,
    ) -> Self {
        // SAFETY: All bytes zero is a valid `device_attribute`: no functions.
        let mut raw: raw::device_attribute = unsafe { zeroed() };
        raw.attr.name = as_char_ptr_in_const_context(name);
        raw.attr.mode = mode;
        raw.__bindgen_anon_1.show = Some(class::show::<T>);
        raw.__bindgen_anon_2.store = Some(class::store::<T>);
        Self { raw, show, store }
    }
}

/// The array for C code: a table with an end mark. Made by [`attributes!`].
#[doc(hidden)]
#[repr(C)]
pub struct Pointers<T: 'static, const M: usize> {
    // The first field.
    raw: [*mut raw::attribute; M],
    /// Some file may remove itself.
    has_self: bool,
    _type: PhantomData<fn(&T)>,
}

// SAFETY: The table is constant.
unsafe impl<T, const M: usize> Sync for Pointers<T, M> {}

impl<T, const M: usize> Pointers<T, M> {
    /// `M` must be one more than `N`, which is checked.
    pub const fn new<const N: usize>(files: &'static [Attribute<T>; N]) -> Self {
        assert!(M == N + 1);
        let mut raw = [core::ptr::null_mut(); M];
        let mut has_self = false;
        let mut i = 0;
        while i < N {
            has_self |= matches!(files[i].store, Input::StoreSelf(_));
            // A pointer to the whole `Attribute`, which begins with the `attribute`.
            raw[i] = core::ptr::from_ref(&files[i]).cast_mut().cast();
            i += 1;
        }
        Self {
            raw,
            has_self,
            _type: PhantomData,
        }
    }
}

/// A table of files, for the directory itself or for one of its subdirectories; made by
/// [`attributes!`].
///
/// # Invariants
///
/// `raw.attrs` is an array of pointers to the `raw.attr` of [`Attribute<T>`],
/// with a null pointer at its end, all of it static. No file of a subdirectory may remove itself, as
/// it would be looked up in the directory.
#[repr(transparent)]
pub struct Group<T: 'static> {
    raw: raw::attribute_group,
    _type: PhantomData<fn(&T)>,
}

// SAFETY: The table is constant.
unsafe impl<T> Sync for Group<T> {}

impl<T> Group<T> {
    #[doc(hidden)]
    pub const fn new<const M: usize>(
        dir: Option<&'static CStr>,
        files: &'static Pointers<T, M>,
    ) -> Self {
        assert!(dir.is_none() || !files.has_self);
        // SAFETY: All bytes zero is a valid `attribute_group`: nothing in it.
        let mut raw: raw::attribute_group = unsafe { zeroed() };
        if let Some(dir) = dir {
            raw.name = as_char_ptr_in_const_context(dir);
        }
        // INVARIANT: `Pointers` begins with such an array; the rest was checked above.
        raw.__bindgen_anon_2.attrs_const = core::ptr::from_ref(files).cast();
        Self {
            raw,
            _type: PhantomData,
        }
    }

    /// Creates the files. Sleeps.
    ///
    /// # Safety
    ///
    /// `kobj` must be in sysfs, and its show and store operations must call [`show`] and [`store`]
    /// with a [`Node<T>`] that lives as long as `kobj`.
    pub(crate) unsafe fn create(&'static self, kobj: *mut raw::kobject) -> Result {
        // SAFETY: By the safety requirements of this function, `kobj` is in sysfs; the table is
        // static.
        kernel::error::to_result(unsafe { raw::sysfs_create_group(kobj, &self.raw) })
    }
}

/// Makes static tables of sysfs files, [`Group`]s. See the
/// [module](crate::attribute).
///
/// `"name" => kind(functions)`, where `kind` is one of [`Attribute`]'s `ro`,
/// `rw`, `rw_self`.
#[macro_export]
macro_rules! attributes {
    ($(
        $(#[$meta:meta])*
        $vis:vis static $group:ident: [$type:ty] $(in $dir:literal)? = {
            $($name:literal => $kind:ident($($function:expr),+ $(,)?)),+ $(,)?
        };
    )+) => {$(
        $(#[$meta])*
        $vis static $group: $crate::attribute::Group<$type> = {
            use $crate::attribute::{Attribute, Group, Pointers};
            const N: usize = [$($name),+].len();
            static FILES: [Attribute<$type>; N] = [
                $(Attribute::$kind(::kernel::c_str!($name), $($function),+)),+
            ];
            #[allow(unused_mut, unused_assignments)]
            const DIR: ::core::option::Option<&::core::ffi::CStr> = {
                let mut dir = ::core::option::Option::None;
                $(dir = ::core::option::Option::Some(::kernel::c_str!($dir));)?
                dir
            };
            static POINTERS: Pointers<$type, { N + 1 }> = Pointers::new(&FILES);
            Group::new(DIR, &POINTERS)
        };
    )+};
}
pub use attributes;

/// The data that a directory with files owns.
#[pin_data]
pub(crate) struct Node<T> {
    data: Arc<T>,
    state: Atomic<u32>,
    /// A file has removed itself.
    #[pin]
    removed: Completion,
    /// Counts the directory for the code that waits until all directories are gone.
    user: User,
}

/// Nothing is being removed.
const LIVE: u32 = 0;
/// A file removes itself, or has done so.
const SELF: u32 = 1;
/// The whole directory is being removed.
const GONE: u32 = 2;

impl<T> Node<T> {
    /// For a directory that owns `data`, and that `user` counts. No file has removed itself yet.
    pub(crate) fn new(data: Arc<T>, user: User) -> impl PinInit<Self> {
        pin_init!(Self {
            data,
            state: Atomic::new(LIVE),
            removed <- Completion::new(),
            user,
        })
    }

    /// Returns the data that the functions of the files get. Any context.
    pub(crate) fn data(&self) -> &Arc<T> {
        &self.data
    }

    /// Counts once more for the code that waits until all directories are gone. Any context.
    pub(crate) fn user(&self) -> User {
        self.user.clone()
    }

    /// Must be called before the directory is removed: waits for a file that is removing itself,
    /// and prevents further ones. Sleeps.
    pub(crate) fn begin_removal(&self) {
        if self.state.cmpxchg(LIVE, GONE, Full) == Err(SELF) {
            self.removed.wait();
        }
    }
}

/// The right of a store function to remove the file it was called for; see
/// [`Attribute::rw_self`].
///
/// The removal of a directory waits for the functions of its files. So a function that removes its
/// own directory, or waits for another task that does, must [`remove`](Self::remove) its own file
/// first. After that the removal does not wait for the function. Its arguments stay valid until it
/// returns.
pub struct RemoveSelf<'a> {
    state: &'a Atomic<u32>,
    removed: &'a Completion,
    kobj: *mut raw::kobject,
    attr: *const raw::attribute,
}

impl RemoveSelf<'_> {
    /// Removes the file, and sleeps until no other task is using it.
    ///
    /// Returns `false` if another task was faster: a writer to this file or to another such file in
    /// this directory, or a task that removes the directory. The caller must then just return.
    pub fn remove(self) -> bool {
        if self.state.cmpxchg(LIVE, SELF, Full).is_err() {
            return false;
        }
        // SAFETY: This runs in the store function that got `self`, which cannot be sent to another
        // thread, for `attr`, a file of the directory itself, not of a subdirectory, by the
        // invariant of `Group`. `store()` has a reference to `kobj`. Its node in sysfs is
        // released by a task that removes this directory; that has not begun, as the state was
        // `LIVE`, and now it waits for `removed`. A directory above may be being removed: that
        // leaves this node allocated, and the file in it while its function runs, which is until
        // this call.
        let removed = unsafe { raw::sysfs_remove_file_self(self.kobj, self.attr) };
        self.removed.complete_all();
        removed
    }
}

/// Prints a file.
///
/// # Safety
///
/// `node` must be valid during the call, `attr` must be that of an [`Attribute<T>`], and `buf` an
/// initialised buffer of `PAGE_SIZE` bytes.
pub(crate) unsafe fn show<T: 'static>(
    node: &Node<T>,
    attr: *const raw::attribute,
    buf: *mut ffi::c_char,
) -> isize {
    // SAFETY: By the safety requirements of this function, it is part of an `Attribute<T>`, which
    // is static.
    let attr = unsafe { &*attr.cast::<Attribute<T>>() };
    let Some(show) = attr.show else {
        return errno(EIO);
    };
    // sysfs complains about a full page.
    // SAFETY: By the safety requirements of this function, `buf` has a page.
    let page = unsafe { slice::from_raw_parts_mut(buf.cast(), PAGE_SIZE - 1) };
    let mut out = Output(Formatter::new(page));
    let shown = show(&node.data, &mut out);
    // It also counts what was cut off.
    let len = out.0.bytes_written();
    match shown {
        Err(e) if len <= page.len() => errno(e),
        // CAST: Less than a page.
        _ => len.min(page.len()) as isize,
    }
}

/// Writes to a file.
///
/// # Safety
///
/// sysfs must be calling, with these arguments, the store operation of `kobj`; `node` must be valid
/// for as long as `kobj`, and `attr` must be that of an [`Attribute<T>`].
pub(crate) unsafe fn store<T: 'static>(
    node: *const Node<T>,
    kobj: *mut raw::kobject,
    attr: *const raw::attribute,
    buf: *const ffi::c_char,
    count: usize,
) -> isize {
    // SAFETY: `sysfs` passes a buffer with `count` bytes.
    let input = unsafe { slice::from_raw_parts(buf.cast::<u8>(), count) };
    // SAFETY: By the safety requirements of this function, it is part of an `Attribute<T>`, which
    // is static.
    let result = match unsafe { &(*attr.cast::<Attribute<T>>()).store } {
        Input::None => Err(EIO),
        // SAFETY: `sysfs` keeps `kobj`, and thus `node`, until this returns.
        Input::Store(store) => store(unsafe { &(*node).data }, input),
        Input::StoreSelf(store) => {
            // The file may remove itself. From then on no task waits for this function.
            // SAFETY: `kobj` is valid, as sysfs keeps it at this point.
            unsafe { raw::kobject_get(kobj) };
            // SAFETY: With the reference, `kobj` and `node` stay until it is
            // put, which is after the last use of the borrow.
            let node = unsafe { &*node };
            let last = node.user();
            let token = RemoveSelf {
                state: &node.state,
                removed: &node.removed,
                kobj,
                attr,
            };
            let result = store(&node.data, input, token);
            // SAFETY: This puts the reference taken above.
            unsafe { raw::kobject_put(kobj) };
            // That may have been the last reference, and freeing the object sleeps on PREEMPT_RT.
            // The code after this does not sleep: see `Tails`.
            drop(last);
            result
        }
    };
    match result {
        // CAST: At most a page.
        Ok(()) => count as isize,
        Err(e) => errno(e),
    }
}

fn errno(error: Error) -> isize {
    // CAST: Error numbers are small.
    error.to_errno() as isize
}

/// Checks the input of a file that performs an action when `1` is written, as usual in sysfs. Here,
/// like [`expect_reset`], so that modules agree about it.
///
/// # Errors
///
/// `EINVAL` for any other input; one newline at the end is ignored.
pub fn expect_one(input: &[u8]) -> Result {
    match trim_newline(input) {
        b"1" => Ok(()),
        _ => Err(EINVAL),
    }
}

/// Checks the input of a file that is reset by writing `0`, the value that it then has, or `1`, as
/// for any other action.
///
/// # Errors
///
/// `EINVAL` for any other input; one newline at the end is ignored.
pub fn expect_reset(input: &[u8]) -> Result {
    match trim_newline(input) {
        b"0" | b"1" => Ok(()),
        _ => Err(EINVAL),
    }
}

/// `input` without the newline that `echo` adds.
pub fn trim_newline(input: &[u8]) -> &[u8] {
    input.strip_suffix(b"\n").unwrap_or(input)
}
