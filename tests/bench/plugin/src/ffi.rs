// SPDX-License-Identifier: GPL-2.0

//! The used part of QEMU's plugin interface, version 4 (QEMU 9.2 and later; no package of Debian
//! has the header).
//!
//! Source: include/qemu/qemu-plugin.h of QEMU.

use core::ffi::{c_char, c_int, c_uint, c_void};

/// The version that these declarations follow.
pub const VERSION: c_int = 4;

/// QEMU's id of a plugin.
pub type Id = u64;

/// A block that is being translated.
#[repr(C)]
pub struct Tb {
    _private: [u8; 0],
}

/// An instruction of a block.
#[repr(C)]
pub struct Insn {
    _private: [u8; 0],
}

/// An array of elements, one for each vCPU.
#[repr(C)]
pub struct Scoreboard {
    _private: [u8; 0],
}

/// A number in each element of a scoreboard.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct U64 {
    /// The scoreboard.
    pub score: *mut Scoreboard,
    /// The offset in an element, in bytes.
    pub offset: usize,
}

/// `QEMU_PLUGIN_INLINE_ADD_U64`
pub const INLINE_ADD_U64: c_int = 0;
/// `QEMU_PLUGIN_INLINE_STORE_U64`
pub const INLINE_STORE_U64: c_int = 1;
/// `QEMU_PLUGIN_CB_NO_REGS`
pub const CB_NO_REGS: c_int = 0;
/// `QEMU_PLUGIN_MEM_W`: writes, and instructions that read and write in one.
pub const MEM_W: c_int = 2;

extern "C" {
    pub fn qemu_plugin_register_vcpu_tb_trans_cb(
        id: Id,
        cb: unsafe extern "C" fn(id: Id, tb: *mut Tb),
    );
    pub fn qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(
        tb: *mut Tb,
        op: c_int,
        entry: U64,
        imm: u64,
    );
    pub fn qemu_plugin_register_vcpu_insn_exec_cb(
        insn: *mut Insn,
        cb: unsafe extern "C" fn(vcpu: c_uint, userdata: *mut c_void),
        flags: c_int,
        userdata: *mut c_void,
    );
    pub fn qemu_plugin_register_vcpu_mem_cb(
        insn: *mut Insn,
        cb: unsafe extern "C" fn(vcpu: c_uint, info: u32, vaddr: u64, userdata: *mut c_void),
        flags: c_int,
        rw: c_int,
        userdata: *mut c_void,
    );
    pub fn qemu_plugin_tb_n_insns(tb: *const Tb) -> usize;
    pub fn qemu_plugin_tb_vaddr(tb: *const Tb) -> u64;
    pub fn qemu_plugin_tb_get_insn(tb: *const Tb, index: usize) -> *mut Insn;
    pub fn qemu_plugin_insn_data(insn: *const Insn, dest: *mut c_void, len: usize) -> usize;
    pub fn qemu_plugin_insn_vaddr(insn: *const Insn) -> u64;
    pub fn qemu_plugin_insn_disas(insn: *const Insn) -> *mut c_char;
    pub fn qemu_plugin_scoreboard_new(element_size: usize) -> *mut Scoreboard;
    pub fn qemu_plugin_u64_get(entry: U64, vcpu: c_uint) -> u64;
    pub fn qemu_plugin_u64_sum(entry: U64) -> u64;
    pub fn g_free(mem: *mut c_void);
}
