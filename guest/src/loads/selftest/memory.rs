//! Memory: exclusives between vCPUs, device accesses of every form, addresses where there is nothing.

use core::sync::atomic::{AtomicU64, Ordering};

use super::{Checks, odometer};
use crate::arch::exception::{CLASS_DATA_ABORT, class};
use crate::arch::granule::{self, Granule};
use crate::arch::{mmio::Registers, mmu, selfcheck, uart};
use crate::kernel::{cpus, machine, memory};
use crate::machine::{RAM_BASE, Region};

/// Additions on each CPU.
const ADDITIONS: u64 = 20_000;

/// Where neither QEMU's `virt` nor Odometer has a device.
const NOTHING: Region = Region { base: 0x0b80_0000, size: 0x1000 };

/// ESR_EL1 of a synchronous external abort from EL1: EC 0x25, IL, DFSC 0x10.
const EXTERNAL_ABORT: u64 = CLASS_DATA_ABORT << 26 | 1 << 25 | 0x10;

static SUM: AtomicU64 = AtomicU64::new(0);

fn add() {
    for _ in 0..ADDITIONS {
        SUM.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs the checks.
pub fn run(checks: &mut Checks) {
    cpus::run_everywhere(add);
    let sum = SUM.load(Ordering::Relaxed);
    checks.note("exclusives", sum == ADDITIONS * cpus::number() as u64, format_args!("{sum}"));
    devices(checks);
    nothing(checks);
    granules(checks);
}

/// Pages of other sizes than this kernel's own, on memory that is in use and on memory that nobody has touched yet.
fn granules(checks: &mut Checks) {
    static CELL: AtomicU64 = AtomicU64::new(0);
    /// In the window, and behind everything that this load uses.
    const FAR: u64 = RAM_BASE + granule::WINDOW * 3 / 4;
    for (name, size, far) in
        [("granule_16k", Granule::Kib16, FAR), ("granule_64k", Granule::Kib64, FAR + 0x2_0000)]
    {
        if !size.is_there() {
            checks.skip(name, "the CPU has no pages of this size");
            continue;
        }
        if far + 0x1_0000 > memory::end() {
            checks.skip(name, "needs 32 MiB of memory");
            continue;
        }
        CELL.store(1, Ordering::Relaxed);
        // SAFETY: a cell that no other CPU looks at now; and RAM that the arena has not come to.
        let (near, fresh, again) = unsafe {
            (
                granule::exchange(size, &raw const CELL as u64, 2),
                granule::exchange(size, far, 3),
                granule::exchange(size, far, 4),
            )
        };
        let ok = (near, CELL.load(Ordering::Relaxed), fresh, again) == (1, 2, 0, 3);
        checks.note(name, ok, format_args!("{near} {fresh} {again}"));
    }
}

fn devices(checks: &mut Checks) {
    let base = machine().uart.base as usize;
    // SAFETY: the console's PL011; its interrupt mask concerns nobody here.
    let registers = unsafe { Registers::new(base) };
    let flags = base + uart::FR;

    registers.write32(uart::IMSC, 0x10);
    let set = registers.read32(uart::IMSC);
    let fault = selfcheck::store_zero(base + uart::IMSC);
    let cleared = registers.read32(uart::IMSC);
    let ok = set == 0x10 && fault.is_none() && cleared == 0;
    checks.note("zero_register_store", ok, format_args!("{set:#x} {cleared:#x} {fault:x?}"));
    let fault = selfcheck::load_zero(flags);
    checks.note("zero_register_load", fault.is_none(), format_args!("{fault:x?}"));

    // Odometer doesn't decode instructions: where the syndrome says nothing of the access it is an abort. A device itself takes it.
    let undescribed = odometer::is_beneath().then_some(EXTERNAL_ABORT);
    for (name, expected, outcome) in [
        ("uart_pair_load", undescribed, selfcheck::load_pair(flags)),
        ("uart_load_write_back", undescribed, selfcheck::load_write_back(flags)),
        ("uart_store_write_back", undescribed, selfcheck::store_write_back(base + uart::IMSC)),
        ("uart_byte_load", None, selfcheck::load_byte(flags)),
        ("uart_double_load", None, selfcheck::load_double(flags)),
    ] {
        checks.note(name, outcome == expected, format_args!("{outcome:x?}"));
    }
    // What the CPU makes of these on Device memory is its choice: done, or an abort.
    for (name, outcome) in [
        ("uart_unaligned_load", selfcheck::load_unaligned(flags)),
        ("uart_exclusive_load", selfcheck::load_exclusive(flags)),
    ] {
        let ok = outcome.is_none_or(|syndrome| class(syndrome) == CLASS_DATA_ABORT);
        checks.note(name, ok, format_args!("{outcome:x?}"));
    }
    let empty = cpus::wait(|| registers.read32(uart::FR) & uart::FR_TXFE != 0);
    checks.check("uart_works_after", empty);
}

/// Loads and stores where there is nothing: below RAM they read as zero and are ignored, behind it they abort.
fn nothing(checks: &mut Checks) {
    if mmu::map_device(NOTHING) {
        let address = NOTHING.base as usize;
        let (load, store) = (selfcheck::load_byte(address), selfcheck::store_zero(address));
        let ok = !odometer::is_beneath() || (load, store) == (None, None);
        checks.note("no_device", ok, format_args!("{load:x?} {store:x?}"));
    }
    let beyond = memory::end();
    if beyond < 2 * RAM_BASE && beyond.is_multiple_of(2 << 20) {
        mmu::map_memory(beyond);
        let address = beyond as usize;
        let (load, store) = (selfcheck::load_double(address), selfcheck::store_zero(address));
        let abort = (Some(EXTERNAL_ABORT), Some(EXTERNAL_ABORT));
        let ok = !odometer::is_beneath() || (load, store) == abort;
        checks.note("beyond_ram", ok, format_args!("{load:x?} {store:x?}"));
    } else {
        checks.skip("beyond_ram", "RAM ends where it can't be tried");
    }
}
