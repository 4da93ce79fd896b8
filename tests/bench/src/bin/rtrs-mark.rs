// SPDX-License-Identifier: GPL-2.0

//! Opens and closes the windows in which the plugin counts: `rtrs-mark open|close`, in the guest.

use std::arch::asm;
use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        // SAFETY: A `nopl 0x52545200(%rax)`, which does nothing.
        Some("open") => unsafe { asm!(".byte 0x0f, 0x1f, 0x80, 0x00, 0x52, 0x54, 0x52") },
        // SAFETY: A `nopl 0x52545201(%rax)`, which does nothing.
        Some("close") => unsafe { asm!(".byte 0x0f, 0x1f, 0x80, 0x01, 0x52, 0x54, 0x52") },
        _ => {
            eprintln!("usage: rtrs-mark open|close");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
