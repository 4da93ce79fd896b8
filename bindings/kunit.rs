// SPDX-License-Identifier: GPL-2.0

//! KUnit: suites of cases in a module, and a way for a case to fail.
//!
//! ```ignore
//! use rtrs_bindings::kunit::{check, suite};
//!
//! fn one_and_one() {
//!     check!(1 + 1 == 2);
//! }
//!
//! suite!(arithmetic: one_and_one);
//! ```
//!
//! The loader of modules finds the suites of a module, and `kunit.ko` runs them as soon as the
//! module is loaded. The kernel crate's `#[kunit_tests]` is for code in the kernel's image only.
//!
//! Modules with suites depend on `kunit.ko`. rtrs-core, which this crate is a part of, must not: so
//! everything in here is compiled into the module that uses it.
//!
//! C header: [`include/kunit/test.h`](srctree/include/kunit/test.h)

use core::{
    convert::Infallible,
    fmt, //
};
use kernel::{
    ffi,
    prelude::*,
    str::CStr, //
};

use crate::raw;

/// Makes a suite of functions without arguments, each of which is a case. Once for each name of a
/// suite in a module.
///
/// A case passes if it returns. It ends early, and fails, by [`check!`](crate::kunit::check),
/// [`must!`](crate::kunit::must) or [`fail!`](crate::kunit::fail); a panic would be one of the
/// kernel.
#[macro_export]
#[doc(hidden)]
macro_rules! __kunit_suite {
    ($suite:ident: $($case:ident),+ $(,)?) => {
        const _: () = {
            // As many cases as names, and the zeroed one that ends the list. KUnit writes its
            // results there; Rust does not use it again.
            static mut CASES: [::kernel::bindings::kunit_case;
                [$(::core::stringify!($case)),+].len() + 1] = [
                $({
                    extern "C" fn run_case(_test: *mut ::kernel::bindings::kunit) {
                        $case()
                    }
                    ::kernel::kunit::kunit_case(
                        ::kernel::c_str!(::core::stringify!($case)),
                        run_case,
                    )
                },)+
                ::pin_init::zeroed(),
            ];
            // SAFETY: `CASES` is a static, its cases are valid, and the one at the end is zeroed.
            ::kernel::kunit_unsafe_test_suite!($suite, CASES);
        };
    };
}

/// Ends the case that runs, which fails with this message.
///
/// The thread of the case ends here, and its stack is freed without a drop. So neither this macro
/// nor those that may call it must be used while anything on the stack is known to another task: in
/// a closure for a wait queue, with a lock held, or with a pinned object on the stack that is in a
/// list.
#[macro_export]
#[doc(hidden)]
macro_rules! __kunit_fail {
    ($($why:tt)+) => {
        $crate::kunit::end_case(
            ::kernel::c_str!(::core::file!()),
            ::core::line!(),
            ::core::format_args!($($why)+),
        )
    };
}

/// Fails the case unless the condition is true.
#[macro_export]
#[doc(hidden)]
macro_rules! __kunit_check {
    ($claim:expr $(,)?) => {
        if !$claim {
            $crate::kunit::fail!("not so: {}", ::core::stringify!($claim))
        }
    };
    ($claim:expr, $($why:tt)+) => {
        if !$claim {
            $crate::kunit::fail!(
                "not so: {}: {}",
                ::core::stringify!($claim),
                ::core::format_args!($($why)+)
            )
        }
    };
}

/// The value in a [`Some`] or [`Ok`]; fails the case if there is none.
#[macro_export]
#[doc(hidden)]
macro_rules! __kunit_must {
    ($value:expr $(,)?) => {
        match $crate::kunit::Must::value($value) {
            Ok(value) => value,
            Err(why) => $crate::kunit::fail!("{}: {:?}", ::core::stringify!($value), why),
        }
    };
}

pub use crate::{
    __kunit_check as check,
    __kunit_fail as fail,
    __kunit_must as must,
    __kunit_suite as suite, //
};

/// What [`must!`](crate::kunit::must) takes.
#[doc(hidden)]
pub trait Must {
    /// What there must be.
    type Value;
    /// What there may be in its place.
    type Why: fmt::Debug;

    fn value(self) -> Result<Self::Value, Self::Why>;
}

impl<T> Must for Option<T> {
    type Value = T;
    type Why = Option<Infallible>;

    #[inline]
    fn value(self) -> Result<T, Self::Why> {
        self.ok_or(None)
    }
}

impl<T, E: fmt::Debug> Must for Result<T, E> {
    type Value = T;
    type Why = E;

    #[inline]
    fn value(self) -> Self {
        self
    }
}

/// Reports that the case that this thread runs has failed, and ends the thread.
///
/// Destructors do not run, which is as after a panic: what the case holds is lost.
///
/// # Panics
///
/// Outside of a case.
#[doc(hidden)]
#[inline]
pub fn end_case(file: &'static CStr, line: u32, why: fmt::Arguments<'_>) -> ! {
    // SAFETY: Any thread may ask; without a case the answer is NULL.
    let test = unsafe { raw::kunit_get_current_test() };
    if test.is_null() {
        panic!("no KUnit case runs: {why}");
    }
    let place = raw::kunit_loc {
        // CAST: No file has that many lines.
        line: line as ffi::c_int,
        file: file.as_char_ptr(),
    };
    let claim = raw::kunit_fail_assert::default();
    // SAFETY: `test` is the case of this thread, and stays until the thread has ended. The other
    // pointers are valid during the call, which copies what they say into a text. The function is
    // the one for a `kunit_fail_assert`, and `%pA` takes a pointer to `fmt::Arguments`.
    unsafe {
        raw::__kunit_do_failed_assertion(
            test,
            &place,
            raw::kunit_assert_type_KUNIT_ASSERTION,
            &claim.assert,
            Some(raw::kunit_fail_assert_format),
            c"%pA".as_char_ptr(),
            core::ptr::from_ref(&why).cast::<ffi::c_void>(),
        )
    };
    // SAFETY: `test` is the case of this thread, so this ends the thread, and the one that waits for
    // it goes on. Nothing is dropped, and the stack goes: the macros that end here are for kernels
    // that run tests, and say that nothing on the stack may be known to another task.
    unsafe { raw::__kunit_abort(test) }
}
