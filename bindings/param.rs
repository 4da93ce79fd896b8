// SPDX-License-Identifier: GPL-2.0

//! Module parameters that `module!` cannot express.
//!
//! Parameters are read from the command line when the module is loaded and visible in
//! `/sys/module/<module>/parameters`, read-only except for texts. If a value is refused, loading,
//! or writing, fails with `EINVAL`.
//!
//! ```ignore
//! module_params! {
//!     /// Invalidate memory registrations after each IO.
//!     static ALWAYS_INVALIDATE: bool = "always_invalidate", true, "Invalidate ... (default: Y)";
//!     /// Bytes per chunk.
//!     static MAX_CHUNK_SIZE: int = "max_chunk_size", 131072, "Bytes per chunk (default: 131072)",
//!         |size| match size {
//!             8192.. if size & (size - 1) == 0 => Ok(()),
//!             _ => Err("must be a power of two, at least 8192"),
//!         };
//! }
//!
//! if ALWAYS_INVALIDATE.get() { ... }
//! ```
//!
//! A text is a `charp`, with a `c"..."` as its default and a check like that of a number; root may
//! change it at any time. An `int_or_off` is a number that may also be the word `off`, which is -1.
//!
//! C header: [`include/linux/moduleparam.h`](srctree/include/linux/moduleparam.h)

use kernel::{
    bindings,
    ffi,
    prelude::*,
    str::as_char_ptr_in_const_context,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

use crate::raw;

/// A boolean. Made by [`module_params!`].
///
/// # Invariants
///
/// The value is the first field: C code uses a pointer to this structure as a pointer to `bool`.
#[repr(transparent)]
pub struct BoolParam {
    value: Atomic<bool>,
}

impl BoolParam {
    #[doc(hidden)]
    pub const fn new(default: bool) -> Self {
        Self {
            value: Atomic::new(default),
        }
    }

    /// The value. Any context.
    pub fn get(&self) -> bool {
        self.value.load(Relaxed)
    }
}

/// A number. Made by [`module_params!`].
///
/// # Invariants
///
/// The value is the first field: C code uses a pointer to this structure as a pointer to `int`.
#[repr(C)]
pub struct IntParam {
    value: Atomic<i32>,
    check: fn(i32) -> bool,
}

impl IntParam {
    #[doc(hidden)]
    pub const fn new(default: i32, check: fn(i32) -> bool) -> Self {
        Self {
            value: Atomic::new(default),
            check,
        }
    }

    /// The value. Any context.
    pub fn get(&self) -> i32 {
        self.value.load(Relaxed)
    }
}

/// A text. Made by [`module_params!`].
///
/// # Invariants
///
/// The value is the first field: C code uses a pointer to this structure as a pointer to `char *`.
/// It points to a string that stays valid while the lock of the parameters of `module` is held; the
/// parameter's entry belongs to `module`.
#[repr(C)]
pub struct CharpParam {
    value: Atomic<*mut ffi::c_void>,
    module: &'static ThisModule,
    check: fn(&CStr) -> bool,
}

impl CharpParam {
    #[doc(hidden)]
    pub const fn new(
        module: &'static ThisModule,
        default: &'static CStr,
        check: fn(&CStr) -> bool,
    ) -> Self {
        // INVARIANT: The default is static. It is never written to.
        Self {
            value: Atomic::new(as_char_ptr_in_const_context(default).cast_mut().cast()),
            module,
            check,
        }
    }

    /// Calls `f` with the text, which does not change meanwhile. May sleep. Must not be called from
    /// a check of a parameter, and `f` must not use another text of the module.
    pub fn with<R>(&self, f: impl FnOnce(&CStr) -> R) -> R {
        // SAFETY: The module contains the caller, so it is loaded.
        unsafe { raw::kernel_param_lock(self.module.as_ptr()) };
        // SAFETY: By the type invariant the string is valid for as long as the lock is held, which
        // is until after `f` returns.
        let result = f(unsafe { CStr::from_char_ptr(self.value.load(Relaxed).cast()) });
        // SAFETY: The lock was taken above.
        unsafe { raw::kernel_param_unlock(self.module.as_ptr()) };
        result
    }
}

/// An entry of a module's parameter table. Made by [`module_params!`].
#[doc(hidden)]
#[repr(transparent)]
pub struct Entry(bindings::kernel_param);

// SAFETY: An entry is constant.
unsafe impl Sync for Entry {}

impl Entry {
    /// An entry for a boolean.
    pub const fn bool(
        module: &'static ThisModule,
        name: &'static CStr,
        param: &'static BoolParam,
    ) -> Self {
        let arg = core::ptr::from_ref(param).cast();
        Self::new(module, name, &raw const raw::param_ops_bool, arg, READ)
    }

    /// An entry for a number.
    pub const fn int(
        module: &'static ThisModule,
        name: &'static CStr,
        param: &'static IntParam,
    ) -> Self {
        let arg = core::ptr::from_ref(param).cast();
        Self::new(module, name, &INT_OPS, arg, READ)
    }

    /// An entry for a number, or `off`.
    pub const fn int_or_off(
        module: &'static ThisModule,
        name: &'static CStr,
        param: &'static IntParam,
    ) -> Self {
        let arg = core::ptr::from_ref(param).cast();
        Self::new(module, name, &INT_OR_OFF_OPS, arg, READ)
    }

    /// An entry for a text.
    pub const fn charp(
        module: &'static ThisModule,
        name: &'static CStr,
        param: &'static CharpParam,
    ) -> Self {
        let arg = core::ptr::from_ref(param).cast();
        Self::new(module, name, &CHARP_OPS, arg, READ | WRITE)
    }

    const fn new(
        module: &'static ThisModule,
        name: &'static CStr,
        ops: *const bindings::kernel_param_ops,
        arg: *const ffi::c_void,
        perm: u16,
    ) -> Self {
        Self(bindings::kernel_param {
            name: as_char_ptr_in_const_context(name),
            mod_: module.as_ptr(),
            ops,
            perm,
            level: -1,
            flags: 0,
            __bindgen_anon_1: bindings::kernel_param__bindgen_ty_1 {
                arg: arg.cast_mut(),
            },
        })
    }
}

/// All users may read.
const READ: u16 = 0o444;
/// Root may write.
const WRITE: u16 = 0o200;

static CHARP_OPS: bindings::kernel_param_ops = bindings::kernel_param_ops {
    flags: 0,
    set: Some(set_charp),
    get: Some(raw::param_get_charp),
    free: Some(raw::param_free_charp),
};

static INT_OPS: bindings::kernel_param_ops = bindings::kernel_param_ops {
    flags: 0,
    set: Some(set_int),
    get: Some(raw::param_get_int),
    free: None,
};

static INT_OR_OFF_OPS: bindings::kernel_param_ops = bindings::kernel_param_ops {
    flags: 0,
    set: Some(set_int_or_off),
    get: Some(get_int_or_off),
    free: None,
};

/// The number for `off`.
const OFF: i32 = -1;

/// # Safety
///
/// Called by parameter code only, with an entry made by [`Entry::int_or_off`].
unsafe extern "C" fn set_int_or_off(
    val: *const ffi::c_char,
    kp: *const bindings::kernel_param,
) -> ffi::c_int {
    // SAFETY: The operations have no flag that allows a parameter without a value, so there is a
    // text; it ends with a zero.
    if unsafe { CStr::from_char_ptr(val) }.to_bytes() != b"off" {
        // SAFETY: By the safety requirements of this function, which include those of `set_int`.
        return unsafe { set_int(val, kp) };
    }
    // SAFETY: By the safety requirements of this function, `arg` is an `IntParam`, which is static.
    let param = unsafe { &*(*kp).__bindgen_anon_1.arg.cast::<IntParam>() };
    param.value.store(OFF, Relaxed);
    0
}

/// # Safety
///
/// Called by parameter code only, with an entry made by [`Entry::int_or_off`].
unsafe extern "C" fn get_int_or_off(
    buffer: *mut ffi::c_char,
    kp: *const bindings::kernel_param,
) -> ffi::c_int {
    const TEXT: &[u8] = b"off\n\0";

    // SAFETY: By the safety requirements of this function, `arg` is an `IntParam`, which is static.
    let param = unsafe { &*(*kp).__bindgen_anon_1.arg.cast::<IntParam>() };
    if param.get() != OFF {
        // SAFETY: By the safety requirements of this function, `arg` is an `IntParam`, with an
        // `int` as its first field.
        return unsafe { raw::param_get_int(buffer, kp) };
    }
    // SAFETY: The buffer has the size of a page.
    unsafe { core::ptr::copy_nonoverlapping(TEXT.as_ptr().cast(), buffer, TEXT.len()) };
    // CAST: The length is a few bytes, without the zero.
    (TEXT.len() - 1) as ffi::c_int
}

/// # Safety
///
/// Called by parameter code only, with an entry made by [`Entry::charp`].
unsafe extern "C" fn set_charp(
    val: *const ffi::c_char,
    kp: *const bindings::kernel_param,
) -> ffi::c_int {
    // SAFETY: By the safety requirements of this function, `arg` is a `CharpParam`, which is
    // static.
    let param = unsafe { &*(*kp).__bindgen_anon_1.arg.cast::<CharpParam>() };
    // SAFETY: There is no flag that allows a parameter without a value, so there is a text; it ends
    // with a zero.
    if !(param.check)(unsafe { CStr::from_char_ptr(val) }) {
        return EINVAL.to_errno();
    }
    // SAFETY: By the safety requirements of this function, `arg` is a `CharpParam`, with a `char *`
    // as its first field. The lock is held, so there are no readers of the old text.
    unsafe { raw::param_set_charp(val, kp) }
}

/// # Safety
///
/// Called by parameter code only, with an entry made by [`Entry::int`] or [`Entry::int_or_off`].
unsafe extern "C" fn set_int(
    val: *const ffi::c_char,
    kp: *const bindings::kernel_param,
) -> ffi::c_int {
    // SAFETY: By the safety requirements of this function, `arg` is an `IntParam`, with an `int` as
    // its first field.
    let ret = unsafe { raw::param_set_int(val, kp) };
    if ret != 0 {
        return ret;
    }
    // SAFETY: By the safety requirements of this function, `arg` is an `IntParam`, which is static.
    let param = unsafe { &*(*kp).__bindgen_anon_1.arg.cast::<IntParam>() };
    if (param.check)(param.get()) {
        0
    } else {
        EINVAL.to_errno()
    }
}

/// Converts text for `modinfo`.
#[doc(hidden)]
pub const fn bytes<const N: usize>(text: &str) -> [u8; N] {
    let text = text.as_bytes();
    assert!(text.len() == N);
    let mut bytes = [0; N];
    let mut i = 0;
    while i < N {
        bytes[i] = text[i];
        i += 1;
    }
    bytes
}

/// Declares module parameters, in the crate that has the `module!`. See the [module](crate::param).
///
/// A check returns `Err` with a description of valid values, which goes to the log.
#[macro_export]
macro_rules! module_params {
    ($(
        $(#[$meta:meta])*
        $vis:vis static $param:ident: $type:ident =
            $name:literal, $default:expr, $description:literal $(, $check:expr)?;
    )+) => {$(
        $crate::module_params!(
            @declare $type [$(#[$meta])* $vis] $param $name $default, $($check)?
        );
        const _: () = {
            use ::kernel::c_str;
            use $crate::param::{bytes, Entry};

            #[link_section = "__param"]
            #[used(compiler)]
            static ENTRY: Entry = Entry::$type($crate::compat::this_module!(), c_str!($name), &$param);

            const TYPE: &str = concat!("parmtype=", $name, ":", stringify!($type), "\0");
            #[link_section = ".modinfo"]
            #[used(compiler)]
            static TYPE_INFO: [u8; TYPE.len()] = bytes(TYPE);

            const TEXT: &str = concat!("parm=", $name, ":", $description, "\0");
            #[link_section = ".modinfo"]
            #[used(compiler)]
            static TEXT_INFO: [u8; TEXT.len()] = bytes(TEXT);
        };
    )+};

    (@declare bool [$(#[$meta:meta])* $vis:vis] $param:ident $name:literal $default:expr,) => {
        $(#[$meta])*
        $vis static $param: $crate::param::BoolParam = $crate::param::BoolParam::new($default);
    };

    (@declare charp [$(#[$meta:meta])* $vis:vis] $param:ident $name:literal $default:expr,
        $check:expr) => {
        $(#[$meta])*
        $vis static $param: $crate::param::CharpParam =
            $crate::param::CharpParam::new($crate::compat::this_module!(), $default, |text| {
                let check: fn(
                    &::core::ffi::CStr,
                ) -> ::core::result::Result<(), &'static str> = $check;
                match check(text) {
                    Ok(()) => true,
                    Err(what) => {
                        ::kernel::pr_err!("{}: {}\n", $name, what);
                        false
                    }
                }
            });
    };

    (@declare int_or_off $($rest:tt)+) => {
        $crate::module_params!(@declare int $($rest)+);
    };

    (@declare int [$(#[$meta:meta])* $vis:vis] $param:ident $name:literal $default:expr,
        $check:expr) => {
        $(#[$meta])*
        $vis static $param: $crate::param::IntParam =
            $crate::param::IntParam::new($default, |value| {
                let check: fn(i32) -> ::core::result::Result<(), &'static str> = $check;
                match check(value) {
                    Ok(()) => true,
                    Err(what) => {
                        ::kernel::pr_err!("{}={}: {}\n", $name, value, what);
                        false
                    }
                }
            });
    };
}
pub use module_params;
