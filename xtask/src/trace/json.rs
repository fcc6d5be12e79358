//! The Trace Event Format (JSON), which Perfetto and Chrome's about:tracing open: a process for the CPUs with a thread for each, and a
//! process for each VM with a thread for each vCPU.

use std::collections::BTreeSet;
use std::io::{self, Write};

use odometer::stats::TickRate;
use odometer::trace::{Decoded, Flush};
use serde_json::{Value, json};

use super::timeline::{Lane, Mark, What, Who};

/// The process that the CPUs are in. VM n is process n + 2.
const CPUS: u64 = 1;

/// Names for what is shown.
#[derive(Debug)]
pub struct Names<'a> {
    /// The VMs', by number.
    pub vms: &'a [String],
}

impl Names<'_> {
    /// A VM's name; its number where it has none.
    fn vm(&self, vm: u16) -> String {
        self.vms.get(usize::from(vm)).cloned().unwrap_or_else(|| format!("VM {vm}"))
    }

    fn vcpu(&self, who: Who) -> String {
        format!("{}/{}", self.vm(who.vm), who.vcpu)
    }
}

/// Writes a file of `marks`, which are in the order of time. `about` goes into `otherData`.
///
/// # Errors
/// `out` can't be written to.
pub fn write(
    out: &mut impl Write,
    trace: &Decoded,
    marks: &[Mark],
    names: &Names<'_>,
    about: &Value,
) -> io::Result<()> {
    let rate = TickRate::new(trace.counter_hz);
    let start = marks.first().map_or(0, |mark| mark.from);
    // In microseconds, as the format wants it.
    let micros = |ticks: u64| rate.to_ns(ticks) as f64 / 1000.0;
    write!(out, "{{\"displayTimeUnit\":\"ns\",\"otherData\":{about},\n\"traceEvents\":[\n")?;
    let mut separator = "";
    let mut entry = |out: &mut dyn Write, value: &Value| {
        let done = write!(out, "{separator}{value}");
        separator = ",\n";
        done
    };
    for value in metadata(trace, marks, names) {
        entry(out, &value)?;
    }
    for mark in marks {
        let (pid, tid) = place(mark.lane);
        let (name, args) = words(mark, names);
        let mut value =
            json!({ "name": name, "pid": pid, "tid": tid, "ts": micros(mark.from - start), "args": args });
        match mark.to {
            Some(to) => {
                value["ph"] = "X".into();
                value["dur"] = micros(to.saturating_sub(mark.from)).into();
            }
            None => {
                value["ph"] = "i".into();
                value["s"] = "t".into();
            }
        }
        entry(out, &value)?;
    }
    out.write_all(b"\n]}\n")
}

/// Process and thread of a lane. Numbers from 1: 0 is nobody's.
fn place(lane: Lane) -> (u64, u64) {
    match lane {
        Lane::Cpu(cpu) => (CPUS, cpu as u64 + 1),
        Lane::Vcpu(who) => (CPUS + 1 + u64::from(who.vm), u64::from(who.vcpu) + 1),
    }
}

/// The names of processes and threads.
fn metadata(trace: &Decoded, marks: &[Mark], names: &Names<'_>) -> Vec<Value> {
    let lanes: BTreeSet<Lane> =
        (0..trace.cpus.len()).map(Lane::Cpu).chain(marks.iter().map(|mark| mark.lane)).collect();
    let name = |what: &str, (pid, tid): (u64, u64), name: String| json!({ "name": what, "ph": "M", "pid": pid, "tid": tid, "args": { "name": name } });
    let mut processes = BTreeSet::new();
    let mut values = Vec::new();
    for lane in lanes {
        let (process, thread) = match lane {
            Lane::Cpu(cpu) => ("CPUs".into(), format!("CPU {cpu}")),
            Lane::Vcpu(who) => (format!("VM {}", names.vm(who.vm)), format!("vCPU {}", who.vcpu)),
        };
        let at = place(lane);
        if processes.insert(at.0) {
            values.push(name("process_name", at, process));
        }
        values.push(name("thread_name", at, thread));
    }
    values
}

/// What a mark is called, and what else there is to say.
fn words(mark: &Mark, names: &Names<'_>) -> (String, Value) {
    let nothing = || json!({});
    match (mark.what, mark.lane) {
        (What::Guest(who), Lane::Cpu(_)) => (names.vcpu(who), nothing()),
        (What::Guest(_), Lane::Vcpu(_)) => ("guest".into(), nothing()),
        (What::Exit(reason), _) => (reason.name().into(), nothing()),
        (What::Switch, _) => ("switch".into(), nothing()),
        (What::Idle, _) => ("idle".into(), nothing()),
        (What::Has(cpu), _) => (format!("on CPU {cpu}"), nothing()),
        (What::VmidSlow, _) => ("VMID slow path".into(), nothing()),
        (What::Rollover, _) => ("VMID rollover".into(), nothing()),
        (What::Reclaim(vmid), _) => ("VMID reclaimed".into(), json!({ "vmid": vmid })),
        (What::Flush(flush, value), _) => match flush {
            Flush::All => ("flush of all VMIDs, broadcast".into(), nothing()),
            Flush::Vmids => ("flush by VMID, broadcast".into(), json!({ "vmids": value })),
            Flush::AllHere => ("flush of all VMIDs, local".into(), nothing()),
            Flush::VmidHere => ("flush by VMID, local".into(), json!({ "vmid": value })),
        },
        (What::Kick(cpu, who), _) => ("kick".into(), json!({ "cpu": cpu, "for": names.vcpu(who) })),
        (What::Inject(intid), _) => ("interrupt".into(), json!({ "intid": intid })),
    }
}

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
