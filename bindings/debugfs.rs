// SPDX-License-Identifier: GPL-2.0

//! Directories and readable files in debugfs.
//!
//! Not those of [`kernel::debugfs`]: their `file_operations` lie in the module
//! that uses them, but have no `owner`. debugfs waits for readers when a file
//! is removed, not until it is closed, and uses the operations once more then:
//! who closes a file after its module was unloaded has it read, and call
//! through, memory that was freed. A file of this module keeps its module
//! loaded while it is open.
//!
//! ```ignore
//! static TABLE: File = File::new(this_module!(), |f| writeln!(f, "nothing"));
//!
//! let dir = Dir::new(c"mine");
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

/// Prints a file, all of it. May sleep.
///
/// Called when the file is read, several times if it is longer than a page, and
/// not any more once its [`Dir`] is dropped. What was printed before an error is
/// what is read.
pub type Write = fn(&mut fmt::Formatter<'_>) -> fmt::Result;

/// A file that root can read (0400): what it does, not where it is. To be a
/// static variable of the module it is of.
///
/// # Invariants
///
/// `ops` has no function but [`open`], and those that belong to a file opened by
/// `single_open()`.
pub struct File {
    ops: raw::file_operations,
    write: Write,
}

// SAFETY: Constant. The pointers in it are those of functions and of a module,
// both of which every thread can use.
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
        // INVARIANT: These are what belongs together.
        Self { ops, write }
    }
}

/// What is shown of a [`File`].
struct Content<'a>(&'a File);

impl fmt::Display for Content<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.0.write)(f)
    }
}

/// Opens a file.
///
/// `EAGAIN` while the module's init function is running: if that fails, the
/// module is freed whoever has a reference of it.
///
/// # Safety
///
/// Called by debugfs only, for a [`File`] that [`Dir::file`] made.
unsafe extern "C" fn open(inode: *mut raw::inode, file: *mut raw::file) -> ffi::c_int {
    // SAFETY: Debugfs passes a valid inode with the pointer it got from
    // `Dir::file`, to a `File` that is part of its owner. debugfs has a reference
    // of that for the file that is being opened, and the directory is not gone
    // before this returns.
    let this = unsafe { &*(*inode).i_private.cast::<File>() };
    // SAFETY: Valid as `this` is.
    if !unsafe { raw::rtrs_helper_module_is_live(this.ops.owner) } {
        return EAGAIN.to_errno();
    }
    // SAFETY: `file` is being opened, by this function. `show` can be called with
    // `this` until it is closed: loaded as the module is, it is not unloaded before
    // debugfs puts its reference, which it does after `single_release()`.
    unsafe { raw::single_open(file, Some(show), from_ref(this).cast_mut().cast()) }
}

/// # Safety
///
/// Called by the C code only, for a file opened by [`open`].
unsafe extern "C" fn show(seq: *mut raw::seq_file, _: *mut ffi::c_void) -> ffi::c_int {
    // SAFETY: `seq` is valid, and `private` what `open` passed, which is there
    // for as long as the file is open.
    let this = unsafe { &*(*seq).private.cast::<File>() };
    // SAFETY: `seq` is valid until this returns, and locked by who reads.
    let seq = unsafe { SeqFile::from_raw(seq) };
    seq_print!(seq, "{}", Content(this));
    0
}

/// A directory in the root of debugfs.
///
/// Dropping it removes it, with all its files, and sleeps until nobody is
/// reading them; who has one open can only close it then. To be dropped in the
/// module's exit function at the latest, which who has it in the module's
/// structure does.
///
/// # Invariants
///
/// `dentry` comes from `debugfs_create_dir()`: a directory that belongs to this
/// object, or an error.
pub struct Dir {
    dentry: *mut raw::dentry,
}

// SAFETY: Every thread can use and remove a directory of debugfs.
unsafe impl Send for Dir {}
// SAFETY: What can be done with a shared one is synchronised by the file system.
unsafe impl Sync for Dir {}

impl Dir {
    /// Makes it. Sleeps.
    ///
    /// There may be none, for want of debugfs or because the name is taken: that
    /// is no error, and there are no files then.
    pub fn new(name: &CStr) -> Self {
        // SAFETY: The name is a string, which is copied.
        let dentry = unsafe { raw::rtrs_helper_debugfs_create_dir(name.as_char_ptr()) };
        // INVARIANT: Just made.
        Self { dentry }
    }

    /// Adds a file. Sleeps. That it cannot be made is no error.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a `file` that is not a static variable of the module it was
    /// made for.
    pub fn file(&self, name: &CStr, file: &'static File) -> Result {
        // SAFETY: Who has a `ThisModule` runs code of that module, or of one that
        // it uses, so it is there; nothing is done with the address but to
        // compare it.
        let own = unsafe {
            raw::rtrs_helper_module_has(file.ops.owner, from_ref(file).cast::<ffi::c_void>())
        };
        if !own {
            return Err(EINVAL);
        }
        // SAFETY: The name is a string, which is copied. The directory is valid,
        // or an error, which makes this one do nothing, by the type invariant.
        // By the one of `File`, its operations are those of one whose inode has a
        // pointer to it. It is in the memory that its owner keeps until it is
        // unloaded, by the check above: until it was removed, as `self` is
        // dropped by then, and with a reference of the owner, which debugfs has
        // for each file that is open, until that is closed. The functions are the
        // kernel's, or of this crate, whose module is in use by each that refers
        // to them.
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

impl Drop for Dir {
    fn drop(&mut self) {
        // SAFETY: By the type invariant, and not used any more; an error is
        // ignored.
        unsafe { raw::rtrs_helper_debugfs_remove(self.dentry) };
    }
}
