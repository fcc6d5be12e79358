//! Schedules that the real scheduler has made, replayed around the real allocators: what each policy would have lost.
//!
//! `cargo xtask trace SCENARIO --schedule FILE` takes one down; `docs/vmid.md` has the commands for its table. What is replayed doesn't react: every policy meets the same
//! order of vCPUs. So the scheduler's preference for VMs that have a VMID (`sched.vmid_affinity`) must have been on when the schedule was
//! taken, to be seen.
//!
//! A VM whose last vCPU is taken off for the last time has ended: it gives its VMID back, as on the machine.

use super::simulator::{Counts, Hardware, with};
use crate::ids::CpuId;
use crate::vmid::id::Id;
use crate::vmid::{Allocator, Config, Flush, Policy, Victim, VmidCell};
use std::collections::{BTreeMap, BTreeSet};

/// What a CPU does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// It gets this vCPU, by its number, of this VM.
    In { cpu: usize, vm: usize, vcpu: usize },
    /// It gives up what it has; `ends`: that was the VM's last.
    Out { cpu: usize, ends: bool },
}

/// A schedule.
struct Schedule {
    cpus: usize,
    vms: usize,
    vcpus: usize,
    steps: Vec<Step>,
}

/// Reads a schedule: `3+12.1` puts vCPU 1 of VM 12 on CPU 3, `3-` takes the CPU from it. What is wrong is named.
fn read(text: &str) -> Result<Schedule, String> {
    let mut lines = text.lines();
    if lines.next() != Some("# odometer schedule 1") {
        return Err("no schedule: it must begin with `# odometer schedule 1`".into());
    }
    let mut numbers: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    let (mut steps, mut on, mut last, mut vms) = (Vec::new(), BTreeMap::new(), BTreeMap::new(), 0);
    for word in lines.filter(|line| !line.starts_with('#')).flat_map(str::split_whitespace) {
        let wrong = || format!("`{word}` is no step here");
        if let Some(cpu) = word.strip_suffix('-') {
            let cpu: usize = cpu.parse().map_err(|_| wrong())?;
            let vm = on.remove(&cpu).ok_or_else(wrong)?;
            last.insert(vm, steps.len());
            steps.push(Step::Out { cpu, ends: false });
            continue;
        }
        let parts = word.split_once('+').and_then(|(cpu, who)| Some((cpu, who.split_once('.')?)));
        let (cpu, (vm, vcpu)) = parts.ok_or_else(wrong)?;
        let [cpu, vm, vcpu]: [Result<usize, _>; 3] = [cpu, vm, vcpu].map(str::parse);
        let (Ok(cpu @ 0..128), Ok(vm @ 0..256), Ok(vcpu)) = (cpu, vm, vcpu) else { return Err(wrong()) };
        if on.insert(cpu, vm).is_some() {
            return Err(wrong());
        }
        let known = numbers.len();
        let vcpu = *numbers.entry((vm, vcpu)).or_insert(known);
        vms = vms.max(vm + 1);
        last.remove(&vm);
        steps.push(Step::In { cpu, vm, vcpu });
    }
    // Who is on a CPU at the end, or whose sibling is, has not ended.
    for at in last.iter().filter(|(vm, _)| !on.values().any(|other| other == *vm)).map(|(_, at)| *at) {
        if let Step::Out { ends, .. } = &mut steps[at] {
            *ends = true;
        }
    }
    let used = |step: &Step| match *step {
        Step::In { cpu, .. } | Step::Out { cpu, .. } => cpu + 1,
    };
    Ok(Schedule { cpus: steps.iter().map(used).max().unwrap_or(0), vms, vcpus: numbers.len(), steps })
}

/// Replays a schedule under a policy, with VMIDs of so many bits.
fn replay(schedule: &Schedule, bits: u8, config: Config) -> Counts {
    let allocator = Allocator::new(bits, schedule.cpus, config).unwrap();
    let cells: Vec<VmidCell> = (0..schedule.vms).map(|_| VmidCell::new()).collect();
    let hw = Hardware::new(&allocator, schedule.cpus);
    let mut on: Vec<Option<(usize, usize)>> = vec![None; schedule.cpus];
    let mut last_id = vec![Id::NONE; schedule.vcpus];
    let (mut ins, mut lost_back) = (0, 0);
    for step in &schedule.steps {
        match *step {
            Step::Out { cpu, ends } => {
                hw.leaves(cpu);
                allocator.schedule_out(allocator.cpu(CpuId(cpu as u16)));
                if let Some((vm, _)) = on[cpu].take()
                    && ends
                {
                    allocator.release(&cells[vm], &hw);
                }
            }
            Step::In { cpu, vm, vcpu } => {
                hw.enters(cpu, vcpu);
                allocator.schedule_in(allocator.cpu(CpuId(cpu as u16)), &cells[vm], &hw);
                on[cpu] = Some((vm, vcpu));
                ins += 1;
                let id = cells[vm].load();
                lost_back += u64::from(last_id[vcpu] != Id::NONE && last_id[vcpu] != id);
                last_id[vcpu] = id;
                while let Some(cpu) = hw.called_out_next() {
                    if let Some((vm, vcpu)) = on[cpu] {
                        allocator.schedule_in(allocator.cpu(CpuId(cpu as u16)), &cells[vm], &hw);
                        last_id[vcpu] = cells[vm].load();
                    }
                }
            }
        }
    }
    let counters = allocator.counters();
    Counts {
        slices: ins,
        slow: counters.slow,
        allocations: counters.allocations,
        barriers: counters.broadcast_barriers,
        local: counters.tlbi_local,
        kicks: counters.kicks,
        lost_back,
        ..hw.counts()
    }
}

/// The offline optimum (MIN) for the same schedule: of the VMs that run nowhere, the one loses its VMID that runs again last.
fn optimum(schedule: &Schedule, bits: u8) -> Counts {
    let usable = (1usize << bits) - 1;
    let mut uses: Vec<Vec<usize>> = vec![Vec::new(); schedule.vms];
    for (at, step) in schedule.steps.iter().enumerate() {
        if let Step::In { vm, .. } = *step {
            uses[vm].push(at);
        }
    }
    let (mut tenure, mut last) = (vec![0u64; schedule.vms], vec![0u64; schedule.vcpus]);
    let mut on: Vec<Option<usize>> = vec![None; schedule.cpus];
    let mut holders = BTreeSet::new();
    let mut counts = Counts::default();
    for (at, step) in schedule.steps.iter().enumerate() {
        match *step {
            Step::Out { cpu, ends } => {
                if let Some(vm) = on[cpu].take()
                    && ends
                {
                    holders.remove(&vm);
                }
            }
            Step::In { cpu, vm, vcpu } => {
                if holders.insert(vm) {
                    counts.allocations += 1;
                    tenure[vm] = counts.allocations;
                    if holders.len() > usable {
                        let next = |&&other: &&usize| {
                            let after = uses[other].partition_point(|&used| used <= at);
                            uses[other].get(after).copied().unwrap_or(usize::MAX)
                        };
                        let idle = holders.iter().filter(|&&other| other != vm && !on.contains(&Some(other)));
                        let victim = *idle.max_by_key(next).expect("more VMIDs than CPUs");
                        holders.remove(&victim);
                    }
                }
                counts.slices += 1;
                counts.lost_back += u64::from(last[vcpu] != 0 && last[vcpu] != tenure[vm]);
                last[vcpu] = tenure[vm];
                on[cpu] = Some(vm);
            }
        }
    }
    counts.slow = counts.allocations;
    counts
}

/// Of how many schedule-ins the VM comes back after so many other VMs, or more, have had one.
fn after_others(schedule: &Schedule, others: usize) -> u64 {
    // The VMs, the latest first.
    let mut recent: Vec<usize> = Vec::new();
    let mut count = 0;
    for step in &schedule.steps {
        let Step::In { vm, .. } = *step else { continue };
        if let Some(at) = recent.iter().position(|&other| other == vm) {
            count += u64::from(at >= others);
            recent.remove(at);
        }
        recent.insert(0, vm);
    }
    count
}

/// Everything that is compared, by name.
fn contenders() -> Vec<(String, Config)> {
    let reclaim = |victim| Config { victim, ..Config::from(Policy::Reclaim) };
    let of = |policy: Policy| (policy.name().into(), policy.into());
    let published = [Policy::Global, Policy::V3NoClear, Policy::V3ClearZero, Policy::Merged, Policy::Clear];
    let mut all: Vec<(String, Config)> = published.map(of).into();
    all.push(("clear, local flush".into(), with(Policy::Clear, Flush::Local)));
    all.extend(Victim::ALL.iter().map(|&victim| (format!("reclaim, {victim}"), reclaim(victim))));
    all
}

/// Prints a row for each contender, and checks what must hold of each.
fn compare(name: &str, schedule: &Schedule, bits: u8) {
    let best = optimum(schedule, bits);
    println!(
        "\n{name}: {} VMs on {} CPUs, {bits} bits, {} schedule-ins, for each 1000:\n",
        schedule.vms, schedule.cpus, best.slices
    );
    println!(
        "| policy | slow | VMIDs given | full | barriers | local | kicks | lost, back | lost, running | of `merged` | lost in all |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    let merged = replay(schedule, bits, Policy::Merged.into());
    let line = |name: &str, counts: &Counts| {
        let Counts { slow, allocations, full, barriers, local, kicks, lost_back, lost_running, .. } = *counts;
        let numbers = [slow, allocations, full, barriers, local, kicks, lost_back, lost_running];
        let cells: Vec<String> = numbers.map(|count| counts.per_mille(count).to_string()).into();
        let of_merged = counts.lost() * 100 / merged.lost().max(1);
        println!("| {name} | {} | {of_merged} % | {} |", cells.join(" | "), counts.lost());
    };
    for (name, config) in contenders() {
        let counts = replay(schedule, bits, config);
        line(&name, &counts);
        assert!(best.allocations <= counts.allocations, "{name}: {counts:?}, MIN {best:?}");
        assert_eq!(counts.slices, best.slices, "{name}");
        if config.policy == Policy::Reclaim {
            assert_eq!((counts.full, counts.lost_running), (0, 0), "{name}: {counts:?}");
        }
    }
    line("offline optimum (MIN)", &best);
    let [short, long] = [15, 30].map(|others| best.per_mille(after_others(schedule, others)));
    println!("\nback after 15 or more other VMs: {short}, after 30 or more: {long}");
}

/// The schedules that `VMID_SCHEDULES` names, with colons between; else the one that is kept here, in which VMIDs are short.
#[test]
fn vmid_replay() {
    const KEPT: &str = include_str!("schedule.txt");
    match std::env::var("VMID_SCHEDULES") {
        Ok(files) => {
            for file in files.split(':') {
                let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{file}: {error}"));
                compare(file, &read(&text).unwrap_or_else(|error| panic!("{file}: {error}")), 4);
            }
        }
        Err(_) => {
            let schedule = read(KEPT).unwrap();
            assert_eq!((schedule.cpus, schedule.vms, schedule.vcpus), (8, 40, 80));
            compare("kept", &schedule, 4);
            let merged = replay(&schedule, 4, Policy::Merged.into());
            let ours = replay(&schedule, 4, Policy::Reclaim.into());
            assert!(merged.full > 0 && ours.lost() < merged.lost(), "{ours:?} {merged:?}");
            // With VMIDs enough nobody loses anything.
            let enough = replay(&schedule, 8, Policy::Merged.into());
            assert_eq!((enough.allocations, enough.lost()), (40, 0));
            assert_eq!(optimum(&schedule, 8).allocations, 40);
        }
    }
}

#[test]
fn a_schedule_says_who_is_where_until_its_vm_ends() {
    let schedule =
        read("# odometer schedule 1\n# about\n0+5.0 1+5.1 0- 1- 1+0.0\n1- 1+5.0 1- 0+0.0").unwrap();
    assert_eq!((schedule.cpus, schedule.vms, schedule.vcpus), (2, 6, 3));
    let ends: Vec<usize> = (0..)
        .zip(&schedule.steps)
        .filter(|(_, step)| matches!(step, Step::Out { ends: true, .. }))
        .map(|(at, _)| at)
        .collect();
    assert_eq!(ends, [7], "VM 5 at its last; VM 0 still runs");
    for (text, wrong) in [
        ("0+1.0", "must begin"),
        ("# odometer schedule 1\n0-", "`0-`"),
        ("# odometer schedule 1\n0+1.0 0+2.0", "`0+2.0`"),
        ("# odometer schedule 1\n0+1", "`0+1`"),
        ("# odometer schedule 1\n500+1.0", "`500+1.0`"),
    ] {
        let error = read(text).err().unwrap();
        assert!(error.contains(wrong), "{error}");
    }
}

/// By hand: with one VMID to spare MIN keeps the VM that comes back first.
#[test]
fn the_optimum_looks_ahead() {
    // Three VMIDs are for VMs 0 to 2; VM 3 takes that of VM 1, which comes back last.
    let text =
        "# odometer schedule 1\n0+0.0 0- 0+1.0 0- 0+2.0 0- 0+3.0 0- 0+2.0 0- 0+0.0 0- 0+3.0 0- 0+1.0 0-";
    let best = optimum(&read(text).unwrap(), 2);
    assert_eq!((best.slices, best.allocations, best.lost_back), (8, 5, 1));
    let back = |others| after_others(&read(text).unwrap(), others);
    assert_eq!((back(0), back(1), back(3), back(4)), (4, 4, 2, 0));
}
