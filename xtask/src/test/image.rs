//! The suite that looks at the images themselves.

use std::fs;

use anyhow::{Context, Result, ensure};

use super::outcome::Report;
use crate::{elf_check, image};

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
