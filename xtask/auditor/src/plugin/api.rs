//! The functions of QEMU's plugin API that are used, as QEMU 9.1 and later have them (API version 3): what
//! `docs/devel/tcg-plugins` of QEMU describes. They are found in QEMU itself when it loads the plugin, and GLib's in the library that
//! QEMU uses.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// The version of the API that this is written for. QEMU refuses a plugin whose version it doesn't support.
pub const VERSION: c_int = 3;

/// A block of code that is being translated.
#[repr(C)]
pub struct Block {
    _opaque: [u8; 0],
}

/// An instruction of it.
#[repr(C)]
pub struct Instruction {
    _opaque: [u8; 0],
}

/// A register that can be read.
#[repr(C)]
pub struct Register {
    /// For reading it.
    pub handle: *mut c_void,
    /// Its name.
    pub name: *const c_char,
    /// The group that a debugger knows it by.
    pub group: *const c_char,
}

/// GLib's array, of registers.
#[repr(C)]
pub struct Array {
    /// Its elements.
    pub data: *const Register,
    /// How many.
    pub length: c_uint,
}

/// GLib's array of bytes.
#[repr(C)]
pub struct Bytes {
    /// Its elements.
    pub data: *const u8,
    /// How many.
    pub length: c_uint,
}

/// A callback that doesn't look at the CPU's registers.
pub const NO_REGISTERS: c_int = 0;
/// A callback that reads the CPU's registers.
pub const READS_REGISTERS: c_int = 1;

unsafe extern "C" {
    /// Calls `begins` on the thread of each CPU before it begins.
    pub fn qemu_plugin_register_vcpu_init_cb(plugin: u64, begins: extern "C" fn(u64, c_uint));
    /// Calls `translated` for each block that is translated.
    pub fn qemu_plugin_register_vcpu_tb_trans_cb(plugin: u64, translated: extern "C" fn(u64, *mut Block));
    /// Calls `ends` when QEMU ends.
    pub fn qemu_plugin_register_atexit_cb(
        plugin: u64,
        ends: extern "C" fn(u64, *mut c_void),
        data: *mut c_void,
    );
    /// Calls `executed` with a CPU's number and `data` before each execution of the instruction, on the thread of the CPU.
    pub fn qemu_plugin_register_vcpu_insn_exec_cb(
        instruction: *mut Instruction,
        executed: extern "C" fn(c_uint, *mut c_void),
        registers: c_int,
        data: *mut c_void,
    );
    /// Instructions of the block.
    pub fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    /// One of them: valid as long as `translated` runs.
    pub fn qemu_plugin_tb_get_insn(block: *const Block, index: usize) -> *mut Instruction;
    /// Copies the instruction's bytes, and returns how many.
    pub fn qemu_plugin_insn_data(instruction: *const Instruction, to: *mut c_void, bytes: usize) -> usize;
    /// Its virtual address.
    pub fn qemu_plugin_insn_vaddr(instruction: *const Instruction) -> u64;
    /// Where QEMU has it in its own memory; null if that isn't RAM.
    pub fn qemu_plugin_insn_haddr(instruction: *const Instruction) -> *mut c_void;
    /// The registers of the CPU of this thread, in an array for the caller; null if there are none.
    pub fn qemu_plugin_get_registers() -> *mut Array;
    /// Appends what a register of the CPU of this thread holds.
    pub fn qemu_plugin_read_register(handle: *mut c_void, to: *mut Bytes) -> c_int;
    /// A new array.
    pub fn g_byte_array_new() -> *mut Bytes;
    /// Changes an array's length.
    pub fn g_byte_array_set_size(array: *mut Bytes, length: c_uint) -> *mut Bytes;
    /// Frees an array, and its bytes if `bytes` is not 0.
    pub fn g_byte_array_free(array: *mut Bytes, bytes: c_int) -> *mut u8;
}
