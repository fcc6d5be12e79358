//! The hypervisor's records (docs/counters.md) as types. Entries that are zero are left out of a record, so
//! everything has a default; fields that are not known here are passed over.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

/// The version of the records that is understood.
const SCHEMA: u64 = 1;

/// What booted.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Boot {
    /// The hypervisor's version.
    pub version: String,
    /// Physical CPUs.
    pub cpus: u64,
    /// The machine's RAM.
    pub memory_bytes: u64,
    /// Ticks of the counter in a second.
    pub counter_hz: u64,
    /// Bits of a VMID in use.
    pub vmid_bits: u64,
    /// The allocator's policy.
    pub policy: String,
    /// A time slice.
    pub slice_us: u64,
    /// The hypervisor's image in RAM.
    pub image_bytes: u64,
}

/// What it cost to get to the first guest's first instruction.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Start {
    /// From the hypervisor's first instruction, zeroing included.
    pub to_first_guest_ns: u64,
    /// Of it, zeroing guests' memory.
    pub zeroing_ns: u64,
    /// Of it, copying kernels and ramdisks.
    pub copy_ns: u64,
    /// VMs started.
    pub vms: u64,
    /// The most that a VM takes beside its RAM.
    pub vm_overhead_bytes: u64,
}

/// Exits of one reason.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Reason {
    /// How many.
    pub count: u64,
    /// Time in the hypervisor, in all.
    pub time_ns: u64,
    /// The longest one.
    pub max_ns: u64,
}

/// Exits.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Exits {
    /// All of them.
    pub total: u64,
    /// By reason.
    pub by_reason: BTreeMap<String, Reason>,
}

/// Where the time went; of a CPU `idle` is set, of a VM or vCPU the others.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Times {
    /// In the guest.
    pub guest: u64,
    /// In the hypervisor, for the guest.
    pub hypervisor: u64,
    /// Ready to run and not running.
    pub ready: u64,
    /// Waiting for an interrupt.
    pub blocked: u64,
    /// Powered off.
    pub off: u64,
    /// No vCPU to run.
    pub idle: u64,
}

/// A VM's sums, or a vCPU's, or a CPU's.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Tally {
    /// The VM's name.
    pub vm: String,
    /// The vCPU's index, of a vCPU.
    pub vcpu: u64,
    /// The CPU's number, of a CPU.
    pub cpu: u64,
    /// The VM's state, of a VM.
    pub state: String,
    /// The VM's memory, of a VM.
    #[serde(flatten)]
    pub memory: Memory,
    /// Since the CPU started, of a CPU.
    pub elapsed_ns: u64,
    /// Where the time went.
    pub time_ns: Times,
    /// What the CPU did to guests' translations, of a CPU.
    #[serde(flatten)]
    pub translations: Translations,
    /// How often a vCPU was scheduled in.
    pub schedule_ins: u64,
    /// How often on another CPU than before.
    pub migrations: u64,
    /// How often it was made to exit by another CPU.
    pub kicks: u64,
    /// Exits.
    pub exits: Exits,
}

/// A VM's memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// Its RAM.
    pub memory_bytes: u64,
    /// Of it, what it had for itself alone.
    pub resident_bytes: u64,
    /// Of it, what it shared with others.
    pub shared_bytes: u64,
    /// Pages of 4 KiB of images that it had copies of.
    pub copied_pages: u64,
    /// The hypervisor's memory for it.
    pub overhead_bytes: u64,
}

/// What a CPU did to guests' translations.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Translations {
    /// TLB invalidations by kind.
    pub tlbi: BTreeMap<String, u64>,
    /// Of `vmalls12e1is`, those because a stage 2 has changed.
    pub tlbi_of_stage2: u64,
    /// Barriers that waited for invalidations on every CPU.
    pub tlbi_barriers: u64,
    /// Writes of VTTBR_EL2.
    pub vttbr_writes: u64,
}

/// Pages that VMs have in common because they rewrote them alike; in 4 KiB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Common {
    /// Frames set aside for them.
    pub frames: u64,
    /// The most of these in use at a time.
    pub most_used: u64,
    /// The most mappings of them at a time.
    pub most_users: u64,
}

/// The VMID allocator's counters.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Vmid {
    /// The policy.
    pub policy: String,
    /// Bits of a VMID in use.
    pub bits: u64,
    /// Times that a vCPU was scheduled in.
    pub schedule_ins: u64,
    /// Of them, on the fast path.
    pub fast: u64,
    /// Of them, on the slow path.
    pub slow: u64,
    /// Slow paths that found their VMID reserved.
    pub reserved: u64,
    /// VMIDs newly given.
    pub allocations: u64,
    /// VMIDs taken from VMs that ran nowhere, one by one.
    pub reclaimed: u64,
    /// Generations ended.
    pub rollovers: u64,
    /// TLB invalidations on all CPUs.
    pub tlbi_broadcast: u64,
    /// TLB invalidations on one CPU.
    pub tlbi_local: u64,
    /// Barriers that wait for all CPUs.
    pub broadcast_barriers: u64,
    /// CPUs forced out of their guest.
    pub kicks: u64,
    /// The counter's ticks spent on the slow path.
    pub slow_ticks: u64,
    /// Entries into a VM of which the CPU still had translations (`vmid.ghost`).
    pub warm: u64,
    /// Entries into a VM of which it had none.
    pub cold: u64,
    /// CPUs that ran a VM whose translations were invalidated.
    pub lost_running: u64,
    /// What the slow path's lock was like.
    pub lock: Lock,
}

/// A lock that CPUs take one after the other.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Lock {
    /// How often it was another CPU's the time before.
    pub handovers: u64,
    /// How long CPUs waited for it, those that had to.
    pub waited: Durations,
    /// How long each had it.
    pub held: Durations,
}

/// How long each of many events took, in ticks.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Durations {
    /// Events.
    pub count: u64,
    /// All of them together.
    pub ticks: u64,
    /// The longest.
    pub max_ticks: u64,
    /// Bucket `k` has those of `2^k` to `2^(k+1) - 1` ticks; only the filled ones are here.
    pub hist: Vec<(u32, u64)>,
}

impl Durations {
    /// About the median, in ticks: within its bucket the events are taken as evenly spread.
    pub fn median(&self) -> f64 {
        let mut left = self.count as f64 / 2.0;
        for &(bucket, count) in &self.hist {
            let count = count as f64;
            if left <= count {
                return f64::from(bucket).exp2() * (1.0 + left / count.max(1.0));
            }
            left -= count;
        }
        0.0
    }
}

/// How it ended.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct End {
    /// Since the hypervisor's start.
    pub elapsed_ns: u64,
    /// VMs that ran.
    pub vms: u64,
    /// VMs that the hypervisor stopped.
    pub failed: u64,
    /// Why the machine ends.
    pub reason: String,
}

/// All records of a run; of those that are repeated, the last.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    /// What booted.
    pub boot: Boot,
    /// The way to the first guest.
    pub start: Start,
    /// By name.
    pub vms: BTreeMap<String, Tally>,
    /// By VM's name and index.
    pub vcpus: BTreeMap<(String, u64), Tally>,
    /// By number.
    pub cpus: BTreeMap<u64, Tally>,
    /// Pages that VMs have in common.
    pub common: Common,
    /// The allocator.
    pub vmid: Vmid,
    /// The end; `None` if the run was cut off.
    pub end: Option<End>,
}

impl Report {
    /// Reads a run's records.
    ///
    /// # Errors
    /// A record of another schema version, or with a field of another type.
    pub fn read(records: &[Value]) -> Result<Self> {
        let mut report = Self::default();
        for record in records {
            report.add(record).with_context(|| format!("the record {record}"))?;
        }
        Ok(report)
    }

    fn add(&mut self, record: &Value) -> Result<()> {
        let schema = record["schema"].as_u64().unwrap_or(0);
        ensure!(
            schema == SCHEMA,
            "has schema {schema}; this xtask reads {SCHEMA}: build both from one version"
        );
        match record["kind"].as_str().context("has no kind")? {
            "boot" => self.boot = Boot::deserialize(record)?,
            "start" => self.start = Start::deserialize(record)?,
            "vm" => {
                let tally = Tally::deserialize(record)?;
                self.vms.insert(tally.vm.clone(), tally);
            }
            "vcpu" => {
                let tally = Tally::deserialize(record)?;
                self.vcpus.insert((tally.vm.clone(), tally.vcpu), tally);
            }
            "cpu" => {
                let tally = Tally::deserialize(record)?;
                self.cpus.insert(tally.cpu, tally);
            }
            "memory" => self.common = Common::deserialize(&record["common"])?,
            "vmid" => self.vmid = Vmid::deserialize(record)?,
            "end" => self.end = Some(End::deserialize(record)?),
            _ => {}
        }
        Ok(())
    }

    /// Whether the hypervisor has stopped a VM, as the report at the run's end says.
    pub fn a_vm_failed(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end.failed != 0)
    }

    /// Exits of all VMs.
    pub fn exits(&self) -> Exits {
        let mut sum = Exits::default();
        for tally in self.vms.values() {
            sum.total += tally.exits.total;
            for (name, reason) in &tally.exits.by_reason {
                let entry = sum.by_reason.entry(name.clone()).or_default();
                entry.count += reason.count;
                entry.time_ns += reason.time_ns;
                entry.max_ns = entry.max_ns.max(reason.max_ns);
            }
        }
        sum
    }

    /// Memory of all VMs.
    pub fn memory(&self) -> Memory {
        self.vms.values().fold(Memory::default(), |sum, vm| Memory {
            memory_bytes: sum.memory_bytes + vm.memory.memory_bytes,
            resident_bytes: sum.resident_bytes + vm.memory.resident_bytes,
            shared_bytes: sum.shared_bytes + vm.memory.shared_bytes,
            copied_pages: sum.copied_pages + vm.memory.copied_pages,
            overhead_bytes: sum.overhead_bytes + vm.memory.overhead_bytes,
        })
    }

    /// What doesn't add up; nothing in a sound report.
    pub fn inconsistencies(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let vms = self.vms.iter().map(|(name, tally)| (format!("VM {name}"), tally));
        let cpus = self.cpus.iter().map(|(number, tally)| (format!("CPU {number}"), tally));
        for (name, tally) in vms.chain(cpus) {
            let sum: u64 = tally.exits.by_reason.values().map(|reason| reason.count).sum();
            if sum != tally.exits.total {
                faults.push(format!(
                    "{name}: exits by reason sum to {sum}, the total is {}",
                    tally.exits.total
                ));
            }
        }
        for (number, tally) in &self.cpus {
            let time = &tally.time_ns;
            let sum = time.guest + time.hypervisor + time.idle;
            // Within 0.1 %.
            if sum.abs_diff(tally.elapsed_ns) > tally.elapsed_ns / 1000 {
                faults.push(format!(
                    "CPU {number}: guest + hypervisor + idle are {sum} ns, elapsed are {} ns",
                    tally.elapsed_ns
                ));
            }
        }
        if self.vmid.fast + self.vmid.slow != self.vmid.schedule_ins {
            let Vmid { fast, slow, schedule_ins, .. } = &self.vmid;
            faults
                .push(format!("VMIDs: {fast} fast + {slow} slow paths are not {schedule_ins} schedule-ins"));
        }
        faults
    }
}

#[cfg(test)]
#[path = "records_tests.rs"]
mod tests;
