//! Before the machine is known: a map of the image and the device tree, and a console to say what is wrong.

use crate::arch;
use crate::memory::address::{BLOCK_1G, BLOCK_2M, PAGE_SIZE, Pa, PaRange};
use crate::memory::el2_map::{self, El2Map, El2MapError, Kind};
use crate::memory::phys::Identity;
use crate::memory::tables::Bump;
use crate::platform::gic::Registers;
use crate::platform::machine::{MAX_DTB_SIZE, UartNode, early_psci, early_uart};
use core::fmt::{self, Write};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering};

/// The early map, and where its tables come from. Lives on the boot stack.
pub struct Early {
    map: El2Map,
    tables: Bump,
}

// `head.s` reserves this much for it.
const _: () = assert!(size_of::<Early>() <= 256);

/// What turns the MMU on.
#[repr(C)]
pub struct EarlyRegisters {
    ttbr0: u64,
    tcr: u64,
}

/// Builds the early map. Called with the MMU off.
#[unsafe(no_mangle)]
extern "C" fn early_map(dtb: u64, early: &mut MaybeUninit<Early>) -> EarlyRegisters {
    // SAFETY: the MMU is off, so addresses are physical, and all that is written is the pool of tables in .bss.
    let memory = unsafe { Identity::new() };
    let mmfr0 = arch::id_aa64mmfr0();
    let mut tables = Bump::new(arch::early_table_pool());
    let image = arch::image_layout();
    let window = PaRange::new(Pa(dtb).align_down(PAGE_SIZE), MAX_DTB_SIZE as u64 + PAGE_SIZE);
    let built = El2Map::new(&memory, &mut tables).and_then(|mut map| {
        // The image last: it may lie in the tree's window.
        map.map(&memory, &mut tables, window, Kind::ReadOnly)?;
        map.map(&memory, &mut tables, image.text, Kind::Code)?;
        map.map(&memory, &mut tables, image.rodata, Kind::ReadOnly)?;
        map.map(&memory, &mut tables, image.data, Kind::Data)?;
        Ok(map)
    });
    match (built, el2_map::tcr(mmfr0)) {
        (Ok(map), Ok(tcr)) => {
            let ttbr0 = map.root().0;
            early.write(Early { map, tables });
            EarlyRegisters { ttbr0, tcr }
        }
        _ => {
            let mut console = EarlyConsole::find(dtb);
            let _ = writeln!(
                console,
                "odometer: this CPU has no 4 KiB granule, or the device tree is not in memory"
            );
            arch::halt()
        }
    }
}

impl Early {
    /// Maps `range` in addition; nothing may be mapped there yet.
    ///
    /// # Errors
    ///
    /// No memory for tables.
    pub fn map(&mut self, range: PaRange, kind: Kind) -> Result<(), El2MapError> {
        let pages = range.to_pages().unwrap_or(range);
        self.map.map(&arch::memory(), &mut self.tables, pages, kind)?;
        arch::publish_map();
        Ok(())
    }

    /// Maps the UART that the device tree names, and gives it.
    pub fn console(&mut self, dtb: u64) -> EarlyConsole {
        DEVICE_TREE.store(dtb, Ordering::Relaxed);
        let uart = early_uart(blob(dtb));
        let mapped = uart.is_some_and(|uart| {
            self.map(PaRange::new(uart.base, uart.size.clamp(1, BLOCK_2M)), Kind::Device).is_ok()
        });
        EarlyConsole { uart: if mapped { uart } else { None } }
    }
}

/// The device tree at `dtb`, as much of it as one may have.
pub fn blob(dtb: u64) -> &'static [u8] {
    // SAFETY: the boot protocol says that a device tree is there; the reader checks all of it. It is reserved,
    // so nobody writes to it.
    unsafe {
        let header = core::slice::from_raw_parts(core::ptr::with_exposed_provenance::<u8>(dtb as usize), 8);
        let size = header.as_chunks::<4>().0.get(1).map_or(0, |size| u32::from_be_bytes(*size) as usize);
        core::slice::from_raw_parts(header.as_ptr(), size.clamp(8, MAX_DTB_SIZE))
    }
}

/// A UART without locks or exclusives, for what is said before there is anything better, or when all else is broken.
pub struct EarlyConsole {
    uart: Option<UartNode>,
}

impl EarlyConsole {
    /// The UART of the device tree at `dtb`, with the MMU off or the UART mapped.
    pub fn find(dtb: u64) -> EarlyConsole {
        EarlyConsole { uart: early_uart(blob(dtb)) }
    }
}

/// Where the device tree is, for a panic that comes before the machine is known.
static DEVICE_TREE: AtomicU64 = AtomicU64::new(0);

/// The console of a panic before this CPU has its structure. The UART is mapped by then.
pub fn console_of_last_resort() -> EarlyConsole {
    match DEVICE_TREE.load(Ordering::Relaxed) {
        0 => EarlyConsole { uart: None },
        dtb => EarlyConsole::find(dtb),
    }
}

impl Write for EarlyConsole {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        const DR: u64 = 0;
        const FR: u64 = 0x18;
        const FR_TXFF: u32 = 1 << 5;
        let Some(uart) = self.uart else { return Ok(()) };
        let registers = arch::devices();
        let send = |byte: u8| {
            for _ in 0..100_000 {
                if registers.read32(Pa(uart.base.0 + FR)) & FR_TXFF == 0 {
                    break;
                }
            }
            registers.write32(Pa(uart.base.0 + DR), u32::from(byte));
        };
        for byte in text.bytes() {
            if byte == b'\n' {
                send(b'\r');
            }
            send(byte);
        }
        Ok(())
    }
}

/// Entered at another exception level than 2: says so, with the MMU off, and stops.
#[unsafe(no_mangle)]
extern "C" fn wrong_exception_level(dtb: u64, level: u64) -> ! {
    // Who starts an image at EL3 is no loader that follows the boot protocol, and may have left the device tree where
    // firmware finds it, at the start of RAM: at a multiple of 1 GiB on the machines that we know.
    let near = arch::image_layout().whole.base.align_down(BLOCK_1G).0;
    let dtb = if early_uart(blob(dtb)).is_some() { dtb } else { near };
    let mut console = EarlyConsole::find(dtb);
    let _ = writeln!(
        console,
        "odometer: entered at EL{level}, but a hypervisor needs EL2. {}",
        if level == 3 {
            "Let firmware at EL3 start it at EL2; on QEMU, use -kernel, or leave secure=on out."
        } else {
            "Switch virtualization on: on QEMU, -M virt,virtualization=on,gic-version=3."
        }
    );
    // At EL3 we are where the firmware would be.
    let conduit = if level < 3 { early_psci(blob(dtb)) } else { None };
    super::stop::power_off(conduit)
}
