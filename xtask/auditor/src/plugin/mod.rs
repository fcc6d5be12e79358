//! The plugin as QEMU sees it: two symbols, and the callbacks.

mod api;
mod registers;

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::arguments::Arguments;
use crate::event::Site;
use crate::image::Image;
use crate::state::{Registers, State};

/// What the callbacks share.
struct Auditor {
    image: Image,
    vectors: u64,
    /// Whether instructions are counted, too.
    instructions: bool,
    state: Mutex<State>,
    out: PathBuf,
}

impl Auditor {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

static AUDITOR: OnceLock<Auditor> = OnceLock::new();

/// Which version of the API the plugin wants.
#[unsafe(export_name = "qemu_plugin_version")]
pub static VERSION: c_int = api::VERSION;

/// Begins. Another number than 0 makes QEMU end.
///
/// # Safety
///
/// QEMU calls it once, with `count` strings at `arguments`.
#[unsafe(export_name = "qemu_plugin_install")]
pub unsafe extern "C" fn install(
    plugin: u64,
    _: *const c_void,
    count: c_int,
    arguments: *const *const c_char,
) -> c_int {
    // SAFETY: as said above.
    let arguments = unsafe {
        let arguments = (0..usize::try_from(count).unwrap_or(0)).map(|index| *arguments.add(index));
        Arguments::read(arguments.map(|text| CStr::from_ptr(text).to_str().unwrap_or("?")))
    };
    match arguments {
        Ok(Arguments::Probe) => {
            eprintln!("auditor: can be loaded");
            1
        }
        Ok(Arguments::Count { base, size, vectors, instructions, out }) => {
            let (image, state) = (Image::new(base, size), Mutex::default());
            let auditor = Auditor { image, vectors, instructions, state, out };
            if AUDITOR.set(auditor).is_err() {
                eprintln!("auditor: is loaded twice");
                return 1;
            }
            // SAFETY: functions of the API, with callbacks of the types that they take; the plugin is never unloaded.
            unsafe {
                api::qemu_plugin_register_vcpu_init_cb(plugin, begins);
                api::qemu_plugin_register_vcpu_tb_trans_cb(plugin, translated);
                api::qemu_plugin_register_atexit_cb(plugin, ends, std::ptr::null_mut());
            }
            0
        }
        Err(message) => {
            eprintln!("auditor: {message}");
            1
        }
    }
}

/// A CPU is about to begin.
extern "C" fn begins(_: u64, _: c_uint) {
    registers::find();
}

/// A block has been translated: marks what of it is to be counted.
extern "C" fn translated(_: u64, block: *mut api::Block) {
    let Some(auditor) = AUDITOR.get() else { return };
    // SAFETY: block and instructions are valid during this call; four bytes are there to be written to.
    unsafe {
        for index in 0..api::qemu_plugin_tb_n_insns(block) {
            let instruction = api::qemu_plugin_tb_get_insn(block, index);
            let address = api::qemu_plugin_insn_vaddr(instruction);
            let host = api::qemu_plugin_insn_haddr(instruction).addr() as u64;
            let Some(offset) = auditor.image.offset(address, host) else { continue };
            if auditor.instructions {
                let data = std::ptr::null_mut();
                api::qemu_plugin_register_vcpu_insn_exec_cb(instruction, counted, api::NO_REGISTERS, data);
            }
            let mut word = [0; 4];
            let bytes = api::qemu_plugin_insn_data(instruction, word.as_mut_ptr().cast(), word.len());
            if bytes != word.len() {
                auditor.image.doubt();
                continue;
            }
            if let Some(site) = Site::of(u32::from_le_bytes(word), offset, auditor.vectors) {
                let data = std::ptr::without_provenance_mut(site.pack());
                api::qemu_plugin_register_vcpu_insn_exec_cb(
                    instruction,
                    executed,
                    api::READS_REGISTERS,
                    data,
                );
            }
        }
    }
}

thread_local! {
    /// Instructions of Odometer that this thread has executed, for the CPU that it runs.
    static INSTRUCTIONS: Cell<u64> = const { Cell::new(0) };
}

/// Any instruction of Odometer is about to be executed.
extern "C" fn counted(_: c_uint, _: *mut c_void) {
    INSTRUCTIONS.set(INSTRUCTIONS.get() + 1);
}

/// An instruction that is an event is about to be executed. QEMU's number of the CPU is not to be trusted: see [`crate::state`].
extern "C" fn executed(_: c_uint, site: *mut c_void) {
    if let (Some(auditor), Some(event)) = (AUDITOR.get(), Site::unpack(site.addr()).event()) {
        let instructions = auditor.instructions.then(|| INSTRUCTIONS.get());
        auditor.state().executes(event, Registers { instructions, ..registers::read(event) });
    }
}

/// QEMU ends, and no CPU runs any more.
extern "C" fn ends(_: u64, _: *mut c_void) {
    let Some(auditor) = AUDITOR.get() else { return };
    if !registers::are_known() {
        eprintln!("auditor: QEMU doesn't show TPIDR_EL2, VMPIDR_EL2, ESR_EL2 and x0 to x30 of its CPUs");
        return;
    }
    let written = File::create(&auditor.out)
        .and_then(|file| auditor.state().write(&mut BufWriter::new(file), &auditor.image));
    if let Err(error) = written {
        eprintln!("auditor: writing {}: {error}", auditor.out.display());
    }
}
