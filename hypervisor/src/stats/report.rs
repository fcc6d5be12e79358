//! The report: one JSON object a line, each behind [`MARKER`].
//!
//! A function for each kind of line takes a plain structure, filled by whoever has the numbers, and writes one whole
//! line with its newline. It does not allocate, and doesn't know where the line goes: the console
//! ([`crate::platform::console`]) sees to it that nothing comes between. The lines are described in `docs/counters.md`;
//! a change that a reader must know of raises [`SCHEMA`].

use super::json::Json;
use super::{CpuTotals, DurationsSnapshot, ExitSnapshot, Reason, TickRate, TlbTotals, VcpuTotals};
use crate::device::virtio::net::NetCounters;
use crate::vm::pages::common::CommonCounters;
use core::fmt::{self, Write};

/// What a line of the report begins with.
pub const MARKER: &str = "@odometer ";
/// The version of the lines' form.
pub const SCHEMA: u64 = 1;

/// How numbers are printed.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// Converts ticks for the members called `*_ns`.
    pub rate: TickRate,
    /// Whether histograms are printed (`stats.histograms`).
    pub histograms: bool,
}

/// The machine and the settings, known at boot.
#[derive(Clone, Debug)]
pub struct BootLine<'a> {
    /// Odometer's version.
    pub version: &'a str,
    /// CPUs in use.
    pub cpus: u64,
    /// The machine's RAM, in bytes.
    pub memory_bytes: u64,
    /// Frequency of the system counter.
    pub counter_hz: u64,
    /// Width of a VMID in use.
    pub vmid_bits: u64,
    /// VMIDs that may be given to VMs.
    pub vmid_usable: u64,
    /// The VMID policy's name.
    pub policy: &'a str,
    /// Time slice, in microseconds.
    pub slice_us: u64,
    /// The image in RAM, its zeroed part included, in bytes.
    pub image_bytes: u64,
    /// Where the trace is, if there is one: physical address and bytes.
    pub trace: Option<(u64, u64)>,
}

/// What the start took.
#[derive(Clone, Debug)]
pub struct StartLine {
    /// From the image's first instruction to the first guest instruction.
    pub to_first_guest_ns: u64,
    /// Part of it: writing what guests find in memory, which is their device trees.
    pub copy_ns: u64,
    /// VMs started.
    pub vms: u64,
    /// The hypervisor's memory for a VM beside its RAM, in bytes: the largest of all VMs.
    pub vm_overhead_bytes: u64,
}

/// One vCPU.
#[derive(Clone, Debug)]
pub struct VcpuLine<'a> {
    /// Its VM's name.
    pub vm: &'a str,
    /// Its VM's number.
    pub vm_id: u64,
    /// Its number in the VM.
    pub vcpu: u64,
    /// Its counters.
    pub totals: VcpuTotals,
    /// Its exits.
    pub exits: &'a ExitSnapshot,
}

/// One VM: the sums of its vCPUs, and what it had.
#[derive(Clone, Debug)]
pub struct VmLine<'a> {
    /// Its name.
    pub vm: &'a str,
    /// Its number.
    pub vm_id: u64,
    /// How many vCPUs it has.
    pub vcpus: u64,
    /// `running`, `off`, `failed`, or what else the life cycle calls it.
    pub state: &'a str,
    /// How often it has started again.
    pub restarts: u64,
    /// Its RAM, in bytes.
    pub memory_bytes: u64,
    /// What of its RAM it has frames for, in bytes.
    pub resident_bytes: u64,
    /// What of its RAM it shares with other VMs, in bytes.
    pub shared_bytes: u64,
    /// Pages of 4 KiB that it was given a copy of.
    pub copied_pages: u64,
    /// The hypervisor's memory for it beside its RAM, in bytes.
    pub overhead_bytes: u64,
    /// Frames of 4 KiB that came back at its end.
    pub frames_returned: u64,
    /// The sums of its vCPUs' counters.
    pub totals: VcpuTotals,
    /// The sums of its vCPUs' exits.
    pub exits: &'a ExitSnapshot,
}

/// One physical CPU.
#[derive(Clone, Debug)]
pub struct CpuLine<'a> {
    /// Its number.
    pub cpu: u64,
    /// Its counters.
    pub totals: CpuTotals,
    /// What it did to guests' translations.
    pub tlb: TlbTotals,
    /// The exits that happened on it.
    pub exits: &'a ExitSnapshot,
}

/// A network card.
#[derive(Clone, Debug)]
pub struct NetLine<'a> {
    /// Its VM's name.
    pub vm: &'a str,
    /// Its VM's number.
    pub vm_id: u64,
    /// Its counters.
    pub counters: &'a NetCounters,
}

/// The end of the run.
#[derive(Clone, Debug)]
pub struct EndLine<'a> {
    /// From the image's first instruction to now.
    pub elapsed_ns: u64,
    /// VMs that there were.
    pub vms: u64,
    /// VMs that did not end by their own SYSTEM_OFF.
    pub failed: u64,
    /// Why the run ends, in words.
    pub reason: &'a str,
}

/// A VM that was stopped, or a fault at EL2.
#[derive(Clone, Debug, Default)]
pub struct FaultLine<'a> {
    /// What happened, in words.
    pub what: &'a str,
    /// On which CPU.
    pub cpu: u64,
    /// Name and number of the VM and number of the vCPU that ran, if any did.
    pub guest: Option<(&'a str, u64, u64)>,
    /// Exception level that the state is of: 1 for a guest (or 0 for its programs), 2 for the hypervisor.
    pub el: u64,
    /// Where the image lies, for a fault at EL2: addresses less this are those of the ELF file.
    pub base: Option<u64>,
    /// Where it was (ELR_EL2).
    pub pc: u64,
    /// Its state (SPSR_EL2).
    pub pstate: u64,
    /// ESR_EL2.
    pub esr: u64,
    /// FAR_EL2.
    pub far: u64,
    /// The intermediate physical address, of a stage-2 abort.
    pub ipa: Option<u64>,
    /// x0 and up, as many as are known.
    pub registers: &'a [u64],
    /// Return addresses, innermost first.
    pub backtrace: &'a [u64],
}

/// One line: marker, schema, kind, the members that `inside` writes, newline.
pub(super) fn line<W: Write>(
    out: &mut W,
    kind: &str,
    inside: impl FnOnce(&mut Json<'_, W>) -> fmt::Result,
) -> fmt::Result {
    out.write_str(MARKER)?;
    Json::new(out).nested('{', '}', |json| {
        json.number("schema", SCHEMA)?;
        json.string("kind", kind)?;
        inside(json)
    })?;
    out.write_char('\n')
}

/// Writes the line `boot`.
pub fn write_boot(out: &mut impl Write, boot: &BootLine<'_>) -> fmt::Result {
    line(out, "boot", |json| {
        json.string("version", boot.version)?;
        json.number("cpus", boot.cpus)?;
        json.number("memory_bytes", boot.memory_bytes)?;
        json.number("counter_hz", boot.counter_hz)?;
        json.number("vmid_bits", boot.vmid_bits)?;
        json.number("vmid_usable", boot.vmid_usable)?;
        json.string("policy", boot.policy)?;
        json.number("slice_us", boot.slice_us)?;
        json.number("image_bytes", boot.image_bytes)?;
        let Some((base, bytes)) = boot.trace else { return Ok(()) };
        json.object("trace", |json| {
            json.hex("base", base)?;
            json.number("bytes", bytes)
        })
    })
}

/// Writes the line `start`.
pub fn write_start(out: &mut impl Write, start: &StartLine) -> fmt::Result {
    line(out, "start", |json| {
        json.number("to_first_guest_ns", start.to_first_guest_ns)?;
        json.number("copy_ns", start.copy_ns)?;
        json.number("vms", start.vms)?;
        json.number("vm_overhead_bytes", start.vm_overhead_bytes)
    })
}

/// Writes the line `vcpu`.
pub fn write_vcpu(out: &mut impl Write, format: Format, vcpu: &VcpuLine<'_>) -> fmt::Result {
    line(out, "vcpu", |json| {
        json.string("vm", vcpu.vm)?;
        json.number("vm_id", vcpu.vm_id)?;
        json.number("vcpu", vcpu.vcpu)?;
        vcpu_totals(json, format, &vcpu.totals)?;
        exits(json, format, vcpu.exits)
    })
}

/// Writes the line `vm`.
pub fn write_vm(out: &mut impl Write, format: Format, vm: &VmLine<'_>) -> fmt::Result {
    line(out, "vm", |json| {
        json.string("vm", vm.vm)?;
        json.number("vm_id", vm.vm_id)?;
        json.number("vcpus", vm.vcpus)?;
        json.string("state", vm.state)?;
        json.number("restarts", vm.restarts)?;
        json.number("memory_bytes", vm.memory_bytes)?;
        json.number("resident_bytes", vm.resident_bytes)?;
        json.number("shared_bytes", vm.shared_bytes)?;
        json.number("copied_pages", vm.copied_pages)?;
        json.number("overhead_bytes", vm.overhead_bytes)?;
        json.number("frames_returned", vm.frames_returned)?;
        vcpu_totals(json, format, &vm.totals)?;
        exits(json, format, vm.exits)
    })
}

/// Writes the line `net`.
pub fn write_net(out: &mut impl Write, net: &NetLine<'_>) -> fmt::Result {
    line(out, "net", |json| {
        json.string("vm", net.vm)?;
        json.number("vm_id", net.vm_id)?;
        let n = net.counters;
        json.number("sent", n.sent.get())?;
        json.number("sent_bytes", n.sent_bytes.get())?;
        json.number("refused", n.refused.get())?;
        json.number("received", n.received.get())?;
        json.number("received_bytes", n.received_bytes.get())?;
        json.number("lost", n.lost.get())
    })
}

/// Writes the line `cpu`.
pub fn write_cpu(out: &mut impl Write, format: Format, cpu: &CpuLine<'_>) -> fmt::Result {
    let totals = &cpu.totals;
    line(out, "cpu", |json| {
        json.number("cpu", cpu.cpu)?;
        json.number("elapsed_ns", format.rate.to_ns(totals.elapsed))?;
        json.object("time_ns", |json| {
            json.number("guest", format.rate.to_ns(totals.guest))?;
            json.number("hypervisor", format.rate.to_ns(totals.hypervisor))?;
            json.number("idle", format.rate.to_ns(totals.idle))
        })?;
        json.number("schedule_ins", totals.schedule_ins)?;
        cpu.tlb.write(json)?;
        exits(json, format, cpu.exits)
    })
}

/// Writes the line `memory`.
pub fn write_memory(out: &mut impl Write, common: &CommonCounters) -> fmt::Result {
    line(out, "memory", |json| {
        json.object("common", |json| {
            json.number("frames", common.frames)?;
            json.number("used", common.used)?;
            json.number("most_used", common.most_used)?;
            json.number("users", common.users)?;
            json.number("most_users", common.most_users)?;
            json.number("joined", common.joined)?;
            json.number("first", common.first)?;
            json.number("refused", common.refused)
        })
    })
}

/// Writes the line `end`: the last one of a run.
pub fn write_end(out: &mut impl Write, end: &EndLine<'_>) -> fmt::Result {
    line(out, "end", |json| {
        json.number("elapsed_ns", end.elapsed_ns)?;
        json.number("vms", end.vms)?;
        json.number("failed", end.failed)?;
        json.string("reason", end.reason)
    })
}

/// Writes the line `fault`.
pub fn write_fault(out: &mut impl Write, fault: &FaultLine<'_>) -> fmt::Result {
    line(out, "fault", |json| {
        json.string("what", fault.what)?;
        json.number("cpu", fault.cpu)?;
        if let Some((vm, vm_id, vcpu)) = fault.guest {
            json.string("vm", vm)?;
            json.number("vm_id", vm_id)?;
            json.number("vcpu", vcpu)?;
        }
        json.number("el", fault.el)?;
        if let Some(base) = fault.base {
            json.hex("base", base)?;
        }
        json.hex("pc", fault.pc)?;
        json.hex("pstate", fault.pstate)?;
        json.hex("esr", fault.esr)?;
        json.hex("far", fault.far)?;
        if let Some(ipa) = fault.ipa {
            json.hex("ipa", ipa)?;
        }
        for (key, values) in [("registers", fault.registers), ("backtrace", fault.backtrace)] {
            if !values.is_empty() {
                json.array(key, |json| values.iter().try_for_each(|value| json.hex_element(*value)))?;
            }
        }
        Ok(())
    })
}

fn vcpu_totals<W: Write>(json: &mut Json<'_, W>, format: Format, totals: &VcpuTotals) -> fmt::Result {
    json.object("time_ns", |json| {
        json.number("guest", format.rate.to_ns(totals.guest))?;
        json.number("hypervisor", format.rate.to_ns(totals.hypervisor))?;
        json.number("ready", format.rate.to_ns(totals.ready))?;
        json.number("blocked", format.rate.to_ns(totals.blocked))?;
        json.number("off", format.rate.to_ns(totals.off))
    })?;
    json.number("schedule_ins", totals.schedule_ins)?;
    json.number("migrations", totals.migrations)?;
    json.number("kicks", totals.kicks)
}

fn exits<W: Write>(json: &mut Json<'_, W>, format: Format, exits: &ExitSnapshot) -> fmt::Result {
    json.object("exits", |json| {
        json.number("total", exits.total())?;
        json.object("by_reason", |json| {
            for reason in Reason::ALL {
                let numbers = exits.reason(reason);
                let count = numbers.count();
                if count == 0 {
                    continue;
                }
                json.object(reason.name(), |json| {
                    json.number("count", count)?;
                    json.number("time_ns", format.rate.to_ns(numbers.total_ticks))?;
                    json.number("max_ns", format.rate.to_ns(numbers.max_ticks))?;
                    if !format.histograms {
                        return Ok(());
                    }
                    histogram(json, numbers)
                })?;
            }
            Ok(())
        })
    })
}

/// The filled buckets of a histogram, each with its number.
pub(super) fn histogram<W: Write>(json: &mut Json<'_, W>, numbers: &DurationsSnapshot) -> fmt::Result {
    json.array("hist", |json| {
        let filled = numbers.histogram.iter().enumerate().filter(|(_, n)| **n != 0);
        filled.into_iter().try_for_each(|(k, n)| json.pair_element(k as u64, *n))
    })
}
