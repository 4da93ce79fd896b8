// SPDX-License-Identifier: GPL-2.0

//! The cases of `tests/cases` as tests of the host. `tests/kmod/rtrs_kunit.rs` has the same macros
//! for the kernel. Assertions are those of the standard library.

/// A suite: functions, each of which is a case.
macro_rules! cases {
    ($suite:ident: $($case:ident),+ $(,)?) => {
        mod $suite {
            $(
                #[test]
                fn $case() {
                    super::$case()
                }
            )+
        }
    };
}

/// Ends the case, which fails with this message.
#[allow(unused_macros)] // Not all suites need it.
macro_rules! fail {
    ($($why:tt)+) => {
        panic!($($why)+)
    };
}

/// The value in a [`Some`] or [`Ok`], which must be one.
#[allow(unused_macros)] // Likewise.
macro_rules! must {
    ($value:expr) => {
        $value.unwrap()
    };
}
