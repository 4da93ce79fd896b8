// SPDX-License-Identifier: GPL-2.0

//! Module parameters.

use rtrs_bindings::param::module_params;

use crate::session::FailAfter;

module_params! {
    /// How long requests of new sessions wait for a path, in seconds.
    static FAST_IO_FAIL_TMO: int = "fast_io_fail_tmo", 30,
        "seconds a request waits for a path, 0: fail at once, -1: for ever (default: 30)",
        |secs| if (-1..=FailAfter::MAX_SECS as i32).contains(&secs) {
            Ok(())
        } else {
            Err("has to be -1..86400")
        };
}

/// How long requests of a new session wait for a path.
pub(crate) fn fail_after() -> FailAfter {
    FailAfter::from_int(FAST_IO_FAIL_TMO.get())
}
