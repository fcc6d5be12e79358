//! Reading a CPU's registers.

use std::cell::RefCell;
use std::ffi::{CStr, c_void};
use std::sync::OnceLock;

use super::api::{self, Bytes, Register};
use crate::event::Event;
use crate::state::Registers;

/// QEMU's names of the registers that are read, by handle.
struct Handles {
    tpidr: Handle,
    vmpidr: Handle,
    syndrome: Handle,
    general: Vec<Handle>,
}

#[derive(Clone, Copy)]
struct Handle(*mut c_void);

// SAFETY: a handle is a number in a pointer's clothes, the same for all CPUs, and never looked into.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

static HANDLES: OnceLock<Option<Handles>> = OnceLock::new();

/// Finds the registers. To be called on a thread that runs a CPU, before the first instruction.
pub fn find() {
    HANDLES.get_or_init(|| {
        // SAFETY: the function returns an array that is ours now, or nothing; its elements are as `Register` says.
        let registers = unsafe {
            let array = api::qemu_plugin_get_registers();
            let array = array.as_ref()?;
            std::slice::from_raw_parts(array.data, array.length as usize)
        };
        let find = |name: &str| registers.iter().find(|register| name_of(register) == name).map(handle_of);
        let general = (0..31).map(|number| find(&format!("x{number}"))).collect::<Option<_>>()?;
        let (tpidr, vmpidr) = (find("TPIDR_EL2")?, find("VMPIDR_EL2")?);
        Some(Handles { tpidr, vmpidr, syndrome: find("ESR_EL2")?, general })
    });
}

/// Whether all that are needed were found.
pub fn are_known() -> bool {
    HANDLES.get().is_some_and(Option::is_some)
}

fn name_of(register: &Register) -> &str {
    if register.name.is_null() {
        return "";
    }
    // SAFETY: QEMU keeps its registers' names for ever.
    unsafe { CStr::from_ptr(register.name) }.to_str().unwrap_or("")
}

fn handle_of(register: &Register) -> Handle {
    Handle(register.handle)
}

/// What must be known of the CPU that runs on this thread, for an event. To be called from a callback that may read registers.
pub fn read(event: Event) -> Registers {
    let Some(Some(handles)) = HANDLES.get() else { return Registers::default() };
    let source = match event {
        // 31 is XZR.
        Event::VttbrWrite(number) | Event::TpidrWrite(number) => handles.general.get(usize::from(number)),
        _ => None,
    };
    Registers {
        tpidr: value(handles.tpidr),
        vmpidr: value(handles.vmpidr),
        syndrome: if matches!(event, Event::Exit(_)) { value(handles.syndrome) } else { 0 },
        source: source.map_or(0, |handle| value(*handle)),
        instructions: None,
    }
}

fn value(handle: Handle) -> u64 {
    thread_local! {
        static BUFFER: RefCell<Buffer> = RefCell::new(Buffer::new());
    }
    BUFFER.with_borrow_mut(|buffer| buffer.read(handle))
}

/// GLib's growing array of bytes, into which QEMU writes a register.
struct Buffer(*mut Bytes);

impl Buffer {
    fn new() -> Self {
        // SAFETY: the function makes a new array.
        Buffer(unsafe { api::g_byte_array_new() })
    }

    fn read(&mut self, handle: Handle) -> u64 {
        // SAFETY: the array is ours; a CPU runs on this thread, in a callback that may read its registers.
        unsafe {
            api::g_byte_array_set_size(self.0, 0);
            api::qemu_plugin_read_register(handle.0, self.0);
            let bytes = &*self.0;
            let length = (bytes.length as usize).min(size_of::<u64>());
            let mut value = [0; size_of::<u64>()];
            if length > 0 {
                std::ptr::copy_nonoverlapping(bytes.data, value.as_mut_ptr(), length);
            }
            u64::from_le_bytes(value)
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and not used any more; 1: with its bytes.
        unsafe { api::g_byte_array_free(self.0, 1) };
    }
}
