//! The suite that looks at the images themselves.

use std::fs;

use anyhow::{Context, Result, ensure};

use super::outcome::Report;
use crate::{elf_check, image};

/// The VMID allocator's part of each switch, and the most instructions that it may take where no lock is needed (`ret` included).
const VMID_FAST_PATHS: [(&str, usize); 2] =
    [("odometer::scheduler::binding::vmid_in", 20), ("odometer::scheduler::binding::vmid_out", 8)];

/// Builds both images and checks their ELF files.
pub fn check() -> Result<Report> {
    let programs = image::build()?;
    let odometer = fs::read(&programs.odometer.elf).context("reading the hypervisor's ELF file")?;
    let guest = fs::read(&programs.guest.elf).context("reading the guest's ELF file")?;

    let mut report = Report::default();
    report.add(Report::of("no-fp-at-el2", &no_fp(&odometer)));
    report.add(Report::of("hypervisor-w^x", &elf_check::write_xor_execute(&odometer)));
    report.add(Report::of("hypervisor-size", &elf_check::size(&odometer, elf_check::MEMORY_LIMIT)));
    report.add(Report::of("tlb-invalidations", &elf_check::invalidations(&odometer)));
    report.add(Report::of("vttbr-parked", &elf_check::parking(&odometer)));
    for (function, limit) in VMID_FAST_PATHS {
        let name = function.rsplit("::").next().unwrap_or(function);
        let checked = elf_check::fast_path(&odometer, function, limit);
        report.add(Report::of(&format!("fast-path-{name}"), &checked));
    }
    report.add(Report::of("trace-cost", &elf_check::tracing(&odometer)));
    report.add(Report::of("guest-w^x", &elf_check::write_xor_execute(&guest)));
    Ok(report)
}

fn no_fp(odometer: &[u8]) -> Result<()> {
    let summary = elf_check::no_fp(odometer)?;
    // Without the switch of guest registers in it, the check would have looked at the wrong thing.
    ensure!(
        summary.allowed > 0,
        "the switch of guest FP registers (`__fp_switch_start`) is not in the image"
    );
    Ok(())
}
