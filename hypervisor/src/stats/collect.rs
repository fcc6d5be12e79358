//! The report: every counter of the machine, as lines.

use super::report::{
    BootLine, CpuLine, EndLine, Format, NetLine, StartLine, VcpuLine, VmLine, write_boot, write_cpu,
    write_end, write_memory, write_net, write_start, write_vcpu, write_vm,
};
use super::trace_line::write_trace;
use super::vmid_line::{VmidLine, write_vmid};
use super::{ExitSnapshot, VcpuTotals};
use crate::arch;
use crate::platform::options::Tracing;
use crate::scheduler::Cpu;
use crate::system::System;
use crate::trace::Area;
use crate::vm::VmState;
use core::fmt::{self, Write};
use core::sync::atomic::Ordering;

fn format(system: &System) -> Format {
    Format { rate: system.rate(), histograms: system.options.histograms }
}

/// The first line: the machine and the settings.
pub fn boot_report(system: &System, memory_bytes: u64) {
    let line = BootLine {
        version: env!("CARGO_PKG_VERSION"),
        cpus: system.cpus.len() as u64,
        memory_bytes,
        counter_hz: system.counter_hz,
        vmid_bits: u64::from(system.vmid_bits),
        vmid_usable: u64::from(system.vmids.usable()),
        policy: system.options.vmid.policy.name(),
        slice_us: u64::from(system.options.slice_us),
        image_bytes: arch::image_layout().whole.size,
        trace: system.trace.as_ref().map(Area::place),
    };
    system.console.report(|out| write_boot(out, &line));
}

/// What it took until now, when the first guest is about to be entered.
pub fn start_report(system: &System, now: u64) {
    let rate = system.rate();
    let line = StartLine {
        to_first_guest_ns: rate.to_ns(now.wrapping_sub(system.entry_ticks)),
        copy_ns: rate.to_ns(system.copy_ticks.load(Ordering::Relaxed)),
        vms: system.vms().len() as u64,
        vm_overhead_bytes: system.vms().iter().map(|vm| vm.overhead_bytes()).max().unwrap_or(0),
    };
    system.console.report(|out| write_start(out, &line));
}

/// All counters, as they are now.
fn counters(out: &mut impl Write, system: &System, now: u64) -> fmt::Result {
    let format = format(system);
    let mut exits = ExitSnapshot::default();
    for vm in system.vms() {
        let vm_id = u64::from(vm.id.0);
        let mut sum = VcpuTotals::default();
        for vcpu in vm.vcpus() {
            exits.clear();
            let totals = vcpu.stats.snapshot(now, &mut exits);
            sum += totals;
            let line = VcpuLine { vm: &vm.name, vm_id, vcpu: u64::from(vcpu.index.0), totals, exits: &exits };
            write_vcpu(out, format, &line)?;
        }
        exits.clear();
        for vcpu in vm.vcpus() {
            exits.add(&vcpu.stats.exits);
        }
        let usage = vm.usage.load();
        let line = VmLine {
            vm: &vm.name,
            vm_id,
            vcpus: vm.vcpus().len() as u64,
            state: vm.state().name(),
            restarts: u64::from(vm.restarts.load(Ordering::Relaxed)),
            memory_bytes: vm.memory_bytes,
            resident_bytes: usage.private_bytes,
            shared_bytes: usage.shared_bytes,
            copied_pages: usage.copied_pages,
            overhead_bytes: vm.overhead_bytes(),
            frames_returned: vm.frames_returned.load(Ordering::Relaxed),
            totals: sum,
            exits: &exits,
        };
        write_vm(out, format, &line)?;
        if let Some((net, _)) = vm.devices.net() {
            write_net(out, &NetLine { vm: &vm.name, vm_id, counters: &net.counters })?;
        }
    }
    for cpu in system.cpus.iter().filter(|cpu| cpu.online.load(Ordering::Relaxed)) {
        exits.clear();
        // The others go on while this is written, and count their idle time: they are asked as of when they are read.
        let here = cpu.id == arch::this_cpu().shared.id;
        let totals = cpu.stats.snapshot(if here { now } else { arch::counter() }, &mut exits);
        let local = system.vmids.cpu(cpu.id).local_invalidations();
        let tlb = cpu.tlb.totals(totals.schedule_ins, local);
        write_cpu(out, format, &CpuLine { cpu: u64::from(cpu.id.0), totals, tlb, exits: &exits })?;
    }
    let common = system.common.lock().counters();
    write_memory(out, &common)?;
    let line = VmidLine {
        policy: system.options.vmid.policy.name(),
        flush: system.vmids.flush().name(),
        bits: u64::from(system.vmid_bits),
        usable: u64::from(system.vmids.usable()),
        counters: system.vmids.counters(),
        ghost: system.ghost.as_ref().map(|ghost| ghost.counters()),
    };
    write_vmid(out, &line)
}

/// The counters while the machine runs on.
pub fn report_now(system: &System) {
    let now = arch::counter();
    system.console.report(|out| {
        // Asked with the console in hand: the last report comes after the last VM has ended, and nothing after it.
        if system.vms_left.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        counters(out, system, now)
    });
}

/// The last report: the counters, and the end.
pub fn final_report(cpu: &Cpu, reason: &str) {
    let system = cpu.system;
    // What this CPU has done since its mark belongs to the hypervisor, up to the moment that the report is of.
    let now = arch::counter();
    cpu.shared.stats.add_switching(now.wrapping_sub(cpu.mark.get()));
    cpu.set_mark(now);
    let line = EndLine {
        elapsed_ns: system.rate().to_ns(now.wrapping_sub(system.entry_ticks)),
        vms: system.vms().len() as u64,
        failed: system.vms().iter().filter(|vm| vm.state() == VmState::Failed).count() as u64,
        reason,
    };
    system.console.report(|out| {
        counters(out, system, now)?;
        if let Some(trace) = system.trace.as_ref().filter(|_| system.options.trace == Tracing::Serial) {
            write_trace(out, trace.words())?;
        }
        write_end(out, &line)
    });
}
