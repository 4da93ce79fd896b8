// SPDX-License-Identifier: GPL-2.0

//! A TCG plugin that counts how often each block of kernel code runs, in windows that the guest
//! opens and closes.
//!
//! Arguments: `out=FILE`, `writes=FILE`.
//!
//! # How it counts
//!
//! QEMU translates straight pieces of code, blocks, which run from the first to the last
//! instruction unless one of them faults. Each block of kernel code has a counter per vCPU, which
//! the translated code itself increments. Blocks with the same address and the same bytes share a
//! counter, however often they are translated. All of user space shares one counter.
//!
//! # Windows
//!
//! A program in the guest executes a `nopl` with a displacement of 32 bits that marks a window:
//! [`MAGIC`], and in the lowest byte 0 to open the window, 1 to close it.
//!
//! # Output
//!
//! Lines of text. `b SLOT` begins the description of a block when it is first needed, followed by a
//! line `i ADDRESS DISASSEMBLY` per instruction; the disassembly is only there for modules. `w
//! NUMBER` begins a window, in the order of the marks, followed by lines `c SLOT COUNT`, and by `u
//! COUNT`: instructions in user space.
//!
//! # Writes
//!
//! With `writes=FILE` each write of kernel code to kernel memory is noted in windows, too: which
//! vCPU wrote to which line of 64 bytes, by which instruction, and whether another vCPU was the
//! last one that wrote there. Reads are not noted. A write over the end of a line counts for the
//! first one.
//!
//! Lines of the file: `w NUMBER LOST` begins a window, with the number of writes for which the
//! table had no room. `l ADDRESS` begins a line. Lines are noted from the first write of a module
//! on; from then on, writes of all code. `p ADDRESS VIA BYTES MOVES VCPU:COUNT...` is an
//! instruction that wrote to the line; the block of a module that had called that code, if it is
//! outside of modules, or 0; the bytes of the line at which writes began, a bit for each; and the
//! number of writes after another vCPU's. Instructions beyond a number are one of address 0.

mod ffi;
mod table;
mod writes;

use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_uint, c_void, CStr};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufWriter, Write};
use std::slice;
use std::sync::{Mutex, OnceLock};

use ffi::{Id, Insn, Scoreboard, Tb, U64};

/// Maximum number of blocks. Code that changes itself (alternatives, static keys) makes more of
/// them.
const SLOTS: usize = 1 << 19;
/// The slot of user space.
const USER: usize = 0;
/// First address of the kernel's half.
const KERNEL: u64 = 1 << 63;
/// The first address of modules on x86-64.
const MODULES: u64 = 0xffff_ffff_c000_0000;
/// `nopl disp32(%rax)`
const NOPL: [u8; 3] = [0x0f, 0x1f, 0x80];
/// The upper three bytes of the displacement.
const MAGIC: [u8; 3] = *b"RTR";

/// The version of the interface that the plugin is made for, which QEMU requires.
#[no_mangle]
pub static qemu_plugin_version: c_int = ffi::VERSION;

struct Block {
    insns: Vec<(u64, String)>,
    described: bool,
}

/// # Invariants
///
/// `score` has elements of `SLOTS` numbers.
struct Plugin {
    score: *mut Scoreboard,
    slots: HashMap<u64, usize>,
    /// By slot; that of user space is empty.
    blocks: Vec<Block>,
    /// The counters when the window was opened.
    base: Vec<u64>,
    windows: usize,
    out: BufWriter<File>,
    bytes: Vec<u8>,
}

// SAFETY: QEMU lets every thread use a scoreboard.
unsafe impl Send for Plugin {}

static PLUGIN: OnceLock<Mutex<Plugin>> = OnceLock::new();

fn with<R>(f: impl FnOnce(&mut Plugin) -> R) -> R {
    let mut plugin = PLUGIN
        .get()
        .expect("set before callbacks are registered")
        .lock()
        .expect("a callback that panics aborts");
    f(&mut plugin)
}

impl Plugin {
    fn counter(&self, slot: usize) -> U64 {
        assert!(slot < SLOTS, "more than {SLOTS} blocks of code");
        U64 {
            score: self.score,
            offset: slot * size_of::<u64>(),
        }
    }

    fn count(&self, slot: usize) -> u64 {
        // SAFETY: By the type invariant, as `counter()` has checked the slot.
        unsafe { ffi::qemu_plugin_u64_sum(self.counter(slot)) }
    }

    /// # Safety
    ///
    /// `tb` must be a block that is being translated.
    unsafe fn translated(&mut self, tb: *mut Tb) {
        // SAFETY: By the function's requirement.
        let n = unsafe { ffi::qemu_plugin_tb_n_insns(tb) };
        // SAFETY: As above, and the index is less than the number of instructions.
        let insn = |index| unsafe { ffi::qemu_plugin_tb_get_insn(tb, index) };
        // SAFETY: As above.
        let vaddr = unsafe { ffi::qemu_plugin_tb_vaddr(tb) };
        let (slot, add) = if vaddr < KERNEL {
            for index in 0..n {
                // SAFETY: The instruction has just been taken from the block.
                unsafe { mark(insn(index)) };
            }
            // CAST: A block has at most 512 instructions.
            (USER, n as u64)
        } else {
            let returns = n.checked_sub(1).is_some_and(|last| {
                // SAFETY: The instruction has just been taken from the block.
                returns(unsafe { &data(insn(last)) }.used())
            });
            // SAFETY: The block and its instructions are being translated.
            unsafe { writes::translated(tb, vaddr, (0..n).map(insn), returns) };
            // SAFETY: The instructions are those of a block that is being translated.
            (unsafe { self.slot(vaddr, (0..n).map(insn)) }, 1)
        };
        let counter = self.counter(slot);
        // SAFETY: By the function's requirement; `counter` is a counter of the scoreboard.
        unsafe {
            ffi::qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(
                tb,
                ffi::INLINE_ADD_U64,
                counter,
                add,
            )
        };
    }

    /// The counter of a block of kernel code.
    ///
    /// # Safety
    ///
    /// `insns` must be those of a block that is being translated.
    unsafe fn slot(&mut self, vaddr: u64, insns: impl Iterator<Item = *mut Insn> + Clone) -> usize {
        self.bytes.clear();
        for insn in insns.clone() {
            // SAFETY: By the function's requirement.
            self.bytes.extend_from_slice(unsafe { &data(insn) }.used());
        }
        let mut hasher = DefaultHasher::new();
        (vaddr, &self.bytes).hash(&mut hasher);
        let new = self.blocks.len();
        let slot = *self.slots.entry(hasher.finish()).or_insert(new);
        if slot == new {
            let insns = insns
                .map(|insn| {
                    // SAFETY: By the function's requirement.
                    let at = unsafe { ffi::qemu_plugin_insn_vaddr(insn) };
                    let text = if at >= MODULES {
                        // SAFETY: As above.
                        unsafe { disassembly(insn) }
                    } else {
                        String::new()
                    };
                    (at, text)
                })
                .collect();
            self.blocks.push(Block {
                insns,
                described: false,
            });
        }
        slot
    }

    fn open(&mut self) {
        self.base = (0..self.blocks.len())
            .map(|slot| self.count(slot))
            .collect();
        writes::open();
    }

    fn close(&mut self) -> std::io::Result<()> {
        writes::close(self.windows)?;
        let mut counts = Vec::new();
        for slot in 0..self.blocks.len() {
            let count = self.count(slot) - self.base.get(slot).copied().unwrap_or(0);
            if count > 0 {
                counts.push((slot, count));
            }
        }
        for &(slot, _) in &counts {
            let block = &mut self.blocks[slot];
            if slot == USER || block.described {
                continue;
            }
            block.described = true;
            writeln!(self.out, "b {slot}")?;
            for (at, text) in &block.insns {
                writeln!(self.out, "i {at:x} {text}")?;
            }
        }
        writeln!(self.out, "w {}", self.windows)?;
        self.windows += 1;
        for (slot, count) in counts {
            match slot {
                USER => writeln!(self.out, "u {count}")?,
                _ => writeln!(self.out, "c {slot} {count}")?,
            }
        }
        self.out.flush()
    }
}

/// Whether an instruction is a near return.
fn returns(insn: &[u8]) -> bool {
    // Prefixes of operands and of repetition mean nothing to it.
    let op = insn.iter().find(|byte| !matches!(byte, 0x66 | 0xf2 | 0xf3));
    matches!(op, Some(0xc2 | 0xc3))
}

struct Data {
    bytes: [u8; 16],
    len: usize,
}

impl Data {
    fn used(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// # Safety
///
/// `insn` must belong to a block that is being translated.
unsafe fn data(insn: *mut Insn) -> Data {
    let mut bytes = [0; 16];
    // SAFETY: By the function's requirement; the length of `bytes` is passed.
    let len = unsafe {
        ffi::qemu_plugin_insn_data(insn, bytes.as_mut_ptr().cast::<c_void>(), bytes.len())
    };
    Data {
        bytes,
        len: len.min(16),
    }
}

/// # Safety
///
/// `insn` must belong to a block that is being translated.
unsafe fn disassembly(insn: *mut Insn) -> String {
    // SAFETY: By the function's requirement.
    let text = unsafe { ffi::qemu_plugin_insn_disas(insn) };
    if text.is_null() {
        return String::new();
    }
    // SAFETY: QEMU returns a string.
    let owned = unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned();
    // SAFETY: The caller has to free the string, and it is not used any more.
    unsafe { ffi::g_free(text.cast()) };
    owned
}

/// Registers a callback for the execution of `insn` if it is a mark.
///
/// # Safety
///
/// `insn` must belong to a block that is being translated.
unsafe fn mark(insn: *mut Insn) {
    // SAFETY: By the function's requirement.
    let data = unsafe { data(insn) };
    let Some([which, magic @ ..]) = data.used().strip_prefix(&NOPL) else {
        return;
    };
    if magic != MAGIC {
        return;
    }
    // SAFETY: By the function's requirement.
    unsafe {
        ffi::qemu_plugin_register_vcpu_insn_exec_cb(
            insn,
            marked,
            ffi::CB_NO_REGS,
            usize::from(*which) as *mut c_void,
        )
    };
}

/// # Safety
///
/// Called by QEMU only.
unsafe extern "C" fn marked(_vcpu: c_uint, which: *mut c_void) {
    with(|plugin| match which as usize {
        0 => plugin.open(),
        _ => plugin.close().expect("the output can be written"),
    });
}

/// # Safety
///
/// Called by QEMU only.
unsafe extern "C" fn translated(_id: Id, tb: *mut Tb) {
    // SAFETY: QEMU passes a block that it is translating.
    with(|plugin| unsafe { plugin.translated(tb) });
}

fn create(path: &str) -> Option<File> {
    File::create(path)
        .inspect_err(|e| eprintln!("rtrs-tcg: cannot create {path}: {e}"))
        .ok()
}

/// The first function that QEMU calls.
///
/// # Safety
///
/// Called by QEMU only, with `argc` strings in `argv`.
#[no_mangle]
pub unsafe extern "C" fn qemu_plugin_install(
    id: Id,
    _info: *const c_void,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    let args: &[*const c_char] = match usize::try_from(argc) {
        Ok(n) if n > 0 => {
            // SAFETY: By the function's requirement.
            unsafe { slice::from_raw_parts(argv, n) }
        }
        _ => &[],
    };
    let (mut out, mut written) = (None, None);
    for &arg in args {
        // SAFETY: By the function's requirement.
        let arg = unsafe { CStr::from_ptr(arg) }.to_string_lossy();
        match arg.split_once('=') {
            Some(("out", path)) => out = Some(path.to_owned()),
            Some(("writes", path)) => written = Some(path.to_owned()),
            _ => {
                eprintln!("rtrs-tcg: unknown argument {arg}");
                return -1;
            }
        }
    }
    let Some(out) = out else {
        eprintln!("rtrs-tcg: out=FILE is missing");
        return -1;
    };
    let Some(out) = create(&out).map(BufWriter::new) else {
        return -1;
    };
    if let Some(path) = written {
        if !create(&path).is_some_and(writes::enable) {
            return -1;
        }
    }
    let user = Block {
        insns: Vec::new(),
        described: true,
    };
    let plugin = Plugin {
        // SAFETY: No requirement.
        score: unsafe { ffi::qemu_plugin_scoreboard_new(SLOTS * size_of::<u64>()) },
        slots: HashMap::new(),
        blocks: vec![user],
        base: Vec::new(),
        windows: 0,
        out,
        bytes: Vec::new(),
    };
    if PLUGIN.set(Mutex::new(plugin)).is_err() {
        eprintln!("rtrs-tcg: loaded twice");
        return -1;
    }
    // SAFETY: The id is the plugin's own, and the callback has the required type.
    unsafe { ffi::qemu_plugin_register_vcpu_tb_trans_cb(id, translated) };
    0
}

#[cfg(test)]
mod tests {
    use super::returns;

    #[test]
    fn returns_are_known() {
        for insn in [&[0xc3][..], &[0xf3, 0xc3], &[0xc2, 8, 0]] {
            assert!(returns(insn), "{insn:x?}");
        }
        for insn in [
            &[][..],
            &[0xe8, 0xc3, 0, 0, 0],
            &[0xf3, 0xaa],
            &[0xe9, 0, 0, 0, 0],
        ] {
            assert!(!returns(insn), "{insn:x?}");
        }
    }
}
