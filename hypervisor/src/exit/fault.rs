//! A guest's fault, which ends its VM: reported with its registers.

use crate::arch::{self, context::Held};
use crate::stats::report::{FaultLine, write_fault};

/// Reports why a guest is stopped: a line for people and one for programs.
pub fn report_guest(held: &Held, what: &str, ipa: Option<u64>) {
    let cpu = arch::this_cpu();
    let vcpu = held.vcpu;
    let pstate = arch::guest_pstate();
    log::error!("{}: vCPU {} is stopped at {:#x}: {what}", vcpu.vm.name, vcpu.index.0, arch::guest_pc());
    let fault = FaultLine {
        what,
        cpu: u64::from(cpu.shared.id.0),
        guest: Some((&vcpu.vm.name, u64::from(vcpu.vm.id.0), u64::from(vcpu.index.0))),
        el: pstate >> 2 & 3,
        pc: arch::guest_pc(),
        pstate,
        esr: arch::syndrome(),
        far: arch::fault_address(),
        ipa,
        registers: &held.x,
        ..FaultLine::default()
    };
    cpu.system.console.report(|out| write_fault(out, &fault));
}
