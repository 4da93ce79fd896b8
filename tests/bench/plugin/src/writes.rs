// SPDX-License-Identifier: GPL-2.0

//! Writes of kernel code to memory, by cache line, vCPU and instruction.

use std::ffi::{c_uint, c_void};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

use crate::ffi::{self, Insn, Scoreboard, Tb, U64};
use crate::table::{Code, Table};
use crate::{KERNEL, MODULES};

/// Maximum number of pairs of a line and an instruction that writes to it, in one window.
const CELLS: usize = 1 << 21;
/// What the upper half of each address of kernel code is.
const UPPER: u64 = 0xffff_ffff_0000_0000;

/// # Invariants
///
/// `via` has elements of one number.
struct Writes {
    table: Table,
    /// By vCPU: the last block of a module that ran, 0 after one that ends with a return.
    via: *mut Scoreboard,
    out: Mutex<BufWriter<File>>,
}

// SAFETY: QEMU lets every thread use a scoreboard.
unsafe impl Send for Writes {}
// SAFETY: As above; vCPUs use elements of their own.
unsafe impl Sync for Writes {}

static WRITES: OnceLock<Writes> = OnceLock::new();
static OPEN: AtomicBool = AtomicBool::new(false);

/// Has writes noted from now on, and written to `out`. `false` if that was done already.
pub fn enable(out: File) -> bool {
    let writes = Writes {
        table: Table::new(CELLS),
        // SAFETY: No requirement.
        via: unsafe { ffi::qemu_plugin_scoreboard_new(size_of::<u64>()) },
        out: Mutex::new(BufWriter::new(out)),
    };
    WRITES.set(writes).is_ok()
}

impl Writes {
    fn via(&self) -> U64 {
        U64 {
            score: self.via,
            offset: 0,
        }
    }
}

/// Has the writes of a block of kernel code noted, if that is wanted.
///
/// # Safety
///
/// `tb` must be a block that is being translated, `vaddr` its address, `insns` its instructions,
/// and `returns` tell whether the last one is a return.
pub unsafe fn translated(
    tb: *mut Tb,
    vaddr: u64,
    insns: impl Iterator<Item = *mut Insn>,
    returns: bool,
) {
    let Some(writes) = WRITES.get() else {
        return;
    };
    if vaddr < UPPER {
        return;
    }
    if vaddr >= MODULES {
        let low = if returns { 0 } else { vaddr & !UPPER };
        // SAFETY: By the function's requirement, and the type invariant.
        unsafe {
            ffi::qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(
                tb,
                ffi::INLINE_STORE_U64,
                writes.via(),
                low,
            )
        };
    }
    for insn in insns {
        // SAFETY: By the function's requirement.
        let at = unsafe { ffi::qemu_plugin_insn_vaddr(insn) };
        // SAFETY: As above, and the callback has the required type.
        unsafe {
            ffi::qemu_plugin_register_vcpu_mem_cb(
                insn,
                wrote,
                ffi::CB_NO_REGS,
                ffi::MEM_W,
                // CAST: A pointer that is a number, as wide as an address.
                at as *mut c_void,
            )
        };
    }
}

/// # Safety
///
/// Called by QEMU only.
unsafe extern "C" fn wrote(vcpu: c_uint, _info: u32, address: u64, at: *mut c_void) {
    if !OPEN.load(Ordering::Relaxed) || address < KERNEL {
        return;
    }
    let Some(writes) = WRITES.get() else {
        return;
    };
    let at = at as u64;
    let via = if at >= MODULES {
        0
    } else {
        // SAFETY: By the type invariant, and QEMU passes the number of a vCPU.
        unsafe { ffi::qemu_plugin_u64_get(writes.via(), vcpu) }
    };
    // CAST: The lower halves; a number of a vCPU is small.
    let code = Code {
        at: at as u32,
        via: via as u32,
    };
    // Only a module makes a line be noted: the rest of the kernel writes to too many that are of no
    // interest.
    let all = at >= MODULES;
    writes.table.wrote(vcpu as usize, address, code, all);
}

/// A window opens.
pub fn open() {
    OPEN.store(true, Ordering::SeqCst);
}

/// A window closes: writes down what was noted.
pub fn close(window: usize) -> std::io::Result<()> {
    OPEN.store(false, Ordering::SeqCst);
    let Some(writes) = WRITES.get() else {
        return Ok(());
    };
    let mut out = writes.out.lock().expect("a callback that panics aborts");
    let (entries, lost) = writes.table.take();
    writeln!(out, "w {window} {lost}")?;
    for same in entries.chunk_by(|a, b| a.line == b.line) {
        writeln!(out, "l {:x}", same[0].line)?;
        for e in same {
            write!(
                out,
                "p {:x} {:x} {:x} {}",
                whole(e.code.at),
                whole(e.code.via),
                e.bytes,
                e.moves
            )?;
            for (vcpu, n) in e.counts.iter().enumerate().filter(|(_, n)| **n > 0) {
                write!(out, " {vcpu}:{n}")?;
            }
            writeln!(out)?;
        }
    }
    out.flush()
}

/// The address; 0 means none.
fn whole(low: u32) -> u64 {
    match low {
        0 => 0,
        low => UPPER | u64::from(low),
    }
}
