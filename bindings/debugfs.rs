// SPDX-License-Identifier: GPL-2.0

//! Directories and readable files in debugfs.
//!
//! [`kernel::debugfs`] is not used: its `file_operations` lie in the module that uses them, but
//! have no `owner`. When a file is removed, debugfs waits for readers but not until the file is
//! closed, and closing uses the operations once more. If a file is closed after its module was
//! unloaded, debugfs reads, and calls through, freed memory. A file of this module keeps its module
//! loaded while it is open.
//!
//! ```ignore
//! static TABLE: File = File::new(this_module!(), |f| writeln!(f, "nothing"));
//!
//! let dir = Directory::new(c"mine");
//! dir.file(c"table", &TABLE)?;
//! ```
//!
//! C header: [`include/linux/debugfs.h`](srctree/include/linux/debugfs.h)

use core::ptr::from_ref;
use kernel::{
    ffi,
    fmt,
    prelude::*,
    seq_file::SeqFile,
    seq_print, //
};

use crate::raw;

/// Prints the whole file. May sleep.
///
/// Called when the file is read, several times if it is longer than a page, and no longer once its
/// [`Directory`] is dropped. After an error the reader gets what was printed before it.
pub type Write = fn(&mut fmt::Formatter<'_>) -> fmt::Result;

/// A file that root can read (0400): its contents, not its location. Must be a static variable of
/// the module that it belongs to.
///
/// # Invariants
///
/// `ops` has no function but [`open`], and those that belong to a file opened by
/// `single_open()`.
pub struct File {
    ops: raw::file_operations,
    write: Write,
}

// SAFETY: A `File` is constant. It points to functions and to a module, which every thread can use.
unsafe impl Sync for File {}

impl File {
    const MODE: raw::umode_t = 0o400;

    /// A file of `module`, the caller's own, with what `write` prints.
    pub const fn new(module: &'static ThisModule, write: Write) -> Self {
        // SAFETY: All bytes zero is a valid `file_operations`: no functions.
        let mut ops: raw::file_operations = unsafe { core::mem::zeroed() };
        ops.owner = module.as_ptr();
        ops.open = Some(open);
        ops.read = Some(raw::seq_read);
        ops.llseek = Some(raw::seq_lseek);
        ops.release = Some(raw::single_release);
        // INVARIANT: `open` and the functions for files opened by `single_open()` are all that is
        // set.
        Self { ops, write }
    }
}

/// The contents of a [`File`].
struct Content<'a>(&'a File);

impl fmt::Display for Content<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.0.write)(f)
    }
}

/// Opens a file.
///
/// `EAGAIN` while the module's init function is running: if that fails, the module is freed even if
/// there are references to it.
///
/// # Safety
///
/// Called by debugfs only, for a [`File`] that [`Directory::file`] made.
unsafe extern "C" fn open(inode: *mut raw::inode, file: *mut raw::file) -> ffi::c_int {
    // SAFETY: `debugfs` passes a valid inode with the pointer that it got from `Directory::file`, to
    // a `File` that is part of its owner. debugfs has a reference to the owner for the file that is
    // being opened, and the directory is not removed before this returns.
    let this = unsafe { &*(*inode).i_private.cast::<File>() };
    // SAFETY: The owner is valid, as `this` is.
    if !unsafe { raw::rtrs_helper_module_is_live(this.ops.owner) } {
        return EAGAIN.to_errno();
    }
    // SAFETY: `file` is being opened, by this function. `show` can be called with `this` until it
    // is closed: the module is live, and is not unloaded before debugfs puts its reference, which
    // it does after `single_release()`.
    unsafe { raw::single_open(file, Some(show), from_ref(this).cast_mut().cast()) }
}

/// # Safety
///
/// Called by the C code only, for a file opened by [`open`].
unsafe extern "C" fn show(seq: *mut raw::seq_file, _: *mut ffi::c_void) -> ffi::c_int {
    // SAFETY: `seq` is valid, and `private` is the pointer that `open` passed, which is valid for
    // as long as the file is open.
    let this = unsafe { &*(*seq).private.cast::<File>() };
    // SAFETY: `seq` is valid until this returns, and locked by the reader.
    let seq = unsafe { SeqFile::from_raw(seq) };
    seq_print!(seq, "{}", Content(this));
    0
}

/// A directory in the root of debugfs.
///
/// Dropping it removes it with all its files, and sleeps until no task is reading them; a file that
/// is still open can then only be closed. Must be dropped in the module's exit function at the
/// latest, which is the case for a field of the module's structure.
///
/// # Invariants
///
/// `dentry` comes from `debugfs_create_dir()`: a directory that belongs to this
/// object, or an error.
pub struct Directory {
    dentry: *mut raw::dentry,
}

// SAFETY: Every thread can use and remove a directory of debugfs.
unsafe impl Send for Directory {}
// SAFETY: The file system synchronises all operations on a shared directory.
unsafe impl Sync for Directory {}

impl Directory {
    /// Creates the directory. Sleeps.
    ///
    /// If it cannot be created, because there is no debugfs or the name is taken, that is not an
    /// error; its files then do not exist either.
    pub fn new(name: &CStr) -> Self {
        // SAFETY: The name is a string, which is copied.
        let dentry = unsafe { raw::rtrs_helper_debugfs_create_dir(name.as_char_ptr()) };
        // INVARIANT: The directory was just created, and nothing else owns it.
        Self { dentry }
    }

    /// Adds a file. Sleeps. A file that cannot be created is not an error.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a `file` that is not a static variable of the module it was
    /// made for.
    pub fn file(&self, name: &CStr, file: &'static File) -> Result {
        // SAFETY: Code that has a `ThisModule` belongs to that module, or to one that it uses, so
        // the module is loaded; the address is only compared.
        let own = unsafe {
            raw::rtrs_helper_module_has(file.ops.owner, from_ref(file).cast::<ffi::c_void>())
        };
        if !own {
            return Err(EINVAL);
        }
        // SAFETY: The name is a string, which is copied. By the type invariant the directory is
        // valid, or an error, in which case this call does nothing. By the invariant of `File`, its
        // operations expect an inode with a pointer to it. By the check above, `file` is in memory
        // that its owner keeps until it is unloaded: not before the file is removed, as `self` is
        // dropped by then, nor before open files are closed, as debugfs has a reference to the
        // owner for each of them. The functions are the kernel's, or those of this crate; every
        // module that refers to them keeps the crate's module loaded.
        unsafe {
            raw::rtrs_helper_debugfs_create_file(
                name.as_char_ptr(),
                File::MODE,
                self.dentry,
                from_ref(file).cast_mut().cast(),
                &file.ops,
            );
        }
        Ok(())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // SAFETY: By the type invariant this object owns the directory, and it is not used any
        // more; an error is ignored.
        unsafe { raw::rtrs_helper_debugfs_remove(self.dentry) };
    }
}
