//! CPUs with run queues, and VMs that run, wait and run again, around the real allocator: what each policy loses.
//!
//! Time goes by slices. A vCPU whose slice is over goes to the end of its queue, at once or after it has slept, as its load has
//! it. How long it sleeps depends on the vCPU and on how often it has run, and on nothing else, so that all policies
//! meet the same demand. The queues are the scheduler's own, with its preference for VMs that have a VMID: one for each
//! CPU, from which others take when theirs is empty; or one for all, as in the simulation that the predictions come from.
//!
//! A working set is *lost* when a vCPU comes back, and what was cached of it when it last ran is gone: its VM has another
//! VMID, or all were flushed; and when a CPU's TLB is flushed while it runs a guest.

use crate::ids::{CpuId, Vmid};
use crate::scheduler::queue::{Links, RunQueue};
use crate::vmid::id::Id;
use crate::vmid::{Allocator, Config, Flush, TlbHardware, VmidCell};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

/// What VMs do between slices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Load {
    /// Nothing else: they take turns.
    Cyclic,
    /// All sleep for the same time on average.
    Uniform,
    /// A few sleep shortly, most for long: the time goes with the VM's rank.
    Skewed,
    /// Each VM runs for some slices, then it sleeps for long.
    Bursty,
}

impl Load {
    pub(super) const ALL: [Load; 4] = [Load::Cyclic, Load::Uniform, Load::Skewed, Load::Bursty];

    /// Slices for which a vCPU sleeps after its run number `run`.
    fn sleep(self, shape: &Shape, vcpu: usize, run: u64) -> u64 {
        let vm = vcpu / shape.vcpus;
        let random = hash(vcpu as u64, run);
        // With this, about a third more are ready than there are CPUs.
        let mean = (3 * shape.vms * shape.vcpus / (4 * shape.cpus)).max(1) as u64;
        match self {
            Load::Cyclic => 0,
            Load::Uniform => random % (2 * mean * shape.cpus as u64),
            Load::Skewed => {
                random
                    % (1 + 6 * (vm as u64 * vm as u64) * mean * shape.cpus as u64
                        / (shape.vms as u64 * shape.vms as u64))
            }
            Load::Bursty if hash(vm as u64, run / 16) % 16 != run % 16 => random % 4,
            Load::Bursty => (16 * mean + random % (16 * mean)) * shape.cpus as u64,
        }
    }
}

fn hash(a: u64, b: u64) -> u64 {
    let mut x = (a + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (b + 1).wrapping_mul(0xD1B5_4A32_D192_ED03);
    x ^= x >> 32;
    x = x.wrapping_mul(0xD6E8_FEB8_6659_FD93);
    x ^ x >> 32
}

/// A machine and its VMs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) cpus: usize,
    pub(super) vms: usize,
    pub(super) vcpus: usize,
    pub(super) bits: u8,
    pub(super) load: Load,
    pub(super) slices: u64,
    /// One run queue for all CPUs.
    pub(super) one_queue: bool,
}

/// What was counted.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Counts {
    pub(super) slices: u64,
    pub(super) slow: u64,
    pub(super) allocations: u64,
    pub(super) full: u64,
    pub(super) targeted: u64,
    pub(super) barriers: u64,
    pub(super) local: u64,
    pub(super) kicks: u64,
    /// Working sets of vCPUs that came back.
    pub(super) lost_back: u64,
    /// Working sets of guests that ran.
    pub(super) lost_running: u64,
    /// The longest time that a vCPU was ready and not running, in slices of the machine divided by its CPUs.
    pub(super) longest_wait: u64,
    /// Jain's index of fairness over the slices that vCPUs got, in thousandths: 1000 when all got the same.
    pub(super) fairness: u64,
}

impl Counts {
    pub(super) fn lost(&self) -> u64 {
        self.lost_back + self.lost_running
    }

    /// A count for each 1000 slices.
    pub(super) fn per_mille(&self, count: u64) -> u64 {
        (count * 1000 + self.slices / 2) / self.slices.max(1)
    }
}

/// What the allocator does to the hardware; a kick takes effect at once.
pub(super) struct Hardware<'a> {
    allocator: &'a Allocator,
    running: RefCell<Vec<Option<usize>>>,
    called_out: RefCell<BTreeSet<usize>>,
    here: Cell<usize>,
    counts: RefCell<Counts>,
}

impl<'a> Hardware<'a> {
    pub(super) fn new(allocator: &'a Allocator, cpus: usize) -> Self {
        Hardware {
            allocator,
            running: RefCell::new(vec![None; cpus]),
            called_out: RefCell::default(),
            here: Cell::new(0),
            counts: RefCell::default(),
        }
    }

    /// A CPU that is about to leave what it runs; which vCPU that was.
    pub(super) fn leaves(&self, cpu: usize) -> Option<usize> {
        self.here.set(cpu);
        self.running.borrow_mut()[cpu].take()
    }

    /// A CPU is about to run a vCPU.
    pub(super) fn enters(&self, cpu: usize, vcpu: usize) {
        self.here.set(cpu);
        self.running.borrow_mut()[cpu] = Some(vcpu);
    }

    /// The next CPU that was called out of its guest and goes back.
    pub(super) fn called_out_next(&self) -> Option<usize> {
        let cpu = self.called_out.borrow_mut().pop_first()?;
        self.here.set(cpu);
        Some(cpu)
    }

    /// What was counted here.
    pub(super) fn counts(&self) -> Counts {
        *self.counts.borrow()
    }
}

impl TlbHardware for Hardware<'_> {
    fn invalidate_all(&self) {
        let mut counts = self.counts.borrow_mut();
        counts.full += 1;
        let others = |&(cpu, vcpu): &(usize, &Option<usize>)| cpu != self.here.get() && vcpu.is_some();
        let called_out = self.called_out.borrow().len();
        counts.lost_running +=
            self.running.borrow().iter().enumerate().filter(others).count() as u64 + called_out as u64;
    }

    fn invalidate_vmids(&self, vmids: &[Vmid]) {
        self.counts.borrow_mut().targeted += vmids.len() as u64;
    }

    fn invalidate_all_here(&self) {}

    fn invalidate_vmid_here(&self, _: Vmid) {}

    fn publish_id(&self) {}

    fn kick(&self, cpu: CpuId) {
        self.called_out.borrow_mut().insert(cpu.index());
        self.allocator.schedule_out(self.allocator.cpu(cpu));
    }

    fn wait(&self) {
        panic!("a kicked CPU leaves at once");
    }

    fn now(&self) -> u64 {
        0
    }
}

/// One slice of a schedule: which CPU gave up what it ran, for which vCPU.
pub(super) type Trace = Vec<(usize, usize)>;

/// Runs a shape under a policy. Also returns the schedule, which doesn't depend on the policy without preferences.
pub(super) fn run(shape: &Shape, config: Config, affinity: u8) -> (Counts, Trace) {
    let allocator = Allocator::new(shape.bits, shape.cpus, config).unwrap();
    let count = shape.vms * shape.vcpus;
    let cells: Vec<VmidCell> = (0..shape.vms).map(|_| VmidCell::new()).collect();
    let hw = Hardware::new(&allocator, shape.cpus);
    let cell = |vcpu: usize| &cells[vcpu / shape.vcpus];
    let links = Links::new(count);
    let queue_count = if shape.one_queue { 1 } else { shape.cpus };
    let mut queues: Vec<RunQueue> = (0..queue_count).map(|_| RunQueue::default()).collect();
    // Siblings begin apart.
    let mut home: Vec<usize> = (0..count).map(|vcpu| vcpu % queue_count).collect();
    (0..count).for_each(|vcpu| queues[home[vcpu]].push(&links, vcpu as u32));
    let (mut runs, mut ready_since) = (vec![0u64; count], vec![0u64; count]);
    let mut last_id = vec![Id::NONE; count];
    let mut sleeping: BTreeSet<(u64, usize)> = BTreeSet::new();
    let mut trace = Vec::new();
    let mut now = 0;
    for slice in 0..shape.slices {
        let cpu = hash(slice, 77) as usize % shape.cpus;
        let slot = allocator.cpu(CpuId(cpu as u16));
        now += 1;
        if let Some(vcpu) = hw.leaves(cpu) {
            allocator.schedule_out(slot);
            match shape.load.sleep(shape, vcpu, runs[vcpu]) {
                0 => {
                    queues[home[vcpu]].push(&links, vcpu as u32);
                    ready_since[vcpu] = now;
                }
                time => _ = sleeping.insert((now + time, vcpu)),
            }
        }
        loop {
            while let Some(&(due, vcpu)) = sleeping.first()
                && due <= now
            {
                sleeping.pop_first();
                queues[home[vcpu]].push(&links, vcpu as u32);
                ready_since[vcpu] = due;
            }
            match sleeping.first() {
                Some(&(due, _)) if queues.iter().all(RunQueue::is_empty) => now = due,
                _ => break,
            }
        }
        let holds = |vcpu: u32| allocator.holds(cell(vcpu as usize));
        let from = (0..queue_count).map(|n| (cpu + n) % queue_count).find(|&n| !queues[n].is_empty());
        let from = from.expect("somebody is ready");
        let next = match affinity {
            0 => queues[from].pop(&links),
            most => queues[from].pop_preferred(&links, most, holds),
        };
        let vcpu = next.expect("it isn't empty") as usize;
        home[vcpu] = cpu % queue_count;
        trace.push((cpu, vcpu));
        hw.enters(cpu, vcpu);
        allocator.schedule_in(slot, cell(vcpu), &hw);
        let mut counts = hw.counts.borrow_mut();
        counts.longest_wait = counts.longest_wait.max((now - ready_since[vcpu]) / shape.cpus as u64);
        let id = cell(vcpu).load();
        counts.lost_back += u64::from(last_id[vcpu] != Id::NONE && last_id[vcpu] != id);
        drop(counts);
        last_id[vcpu] = id;
        runs[vcpu] += 1;
        // Those that were called out go back, which may call others out.
        while let Some(cpu) = hw.called_out_next() {
            if let Some(vcpu) = hw.running.borrow()[cpu] {
                allocator.schedule_in(allocator.cpu(CpuId(cpu as u16)), cell(vcpu), &hw);
                last_id[vcpu] = cell(vcpu).load();
            }
        }
    }
    let counters = allocator.counters();
    let (sum, squares) =
        runs.iter().fold((0, 0), |(sum, squares), &runs| (sum + runs, squares + u128::from(runs * runs)));
    let counts = Counts {
        slices: shape.slices,
        slow: counters.slow,
        allocations: counters.allocations,
        barriers: counters.broadcast_barriers,
        local: counters.tlbi_local,
        kicks: counters.kicks,
        fairness: (u128::from(sum) * u128::from(sum) * 1000 / (squares * count as u128).max(1)) as u64,
        ..hw.counts()
    };
    (counts, trace)
}

/// The offline optimum: of the VMs that run nowhere, the one loses its VMID that runs again last (MIN).
pub(super) fn optimum(shape: &Shape, trace: &Trace) -> Counts {
    let usable = (1usize << shape.bits) - 1;
    let vm_of = |vcpu: usize| vcpu / shape.vcpus;
    let mut uses: Vec<Vec<usize>> = vec![Vec::new(); shape.vms];
    trace.iter().enumerate().for_each(|(at, &(_, vcpu))| uses[vm_of(vcpu)].push(at));
    let mut next_use = vec![0; shape.vms];
    let (mut tenure, mut last) = (vec![0u64; shape.vms], vec![0u64; shape.vms * shape.vcpus]);
    let mut running = vec![None; shape.cpus];
    let mut holders = BTreeSet::new();
    let mut counts = Counts { slices: trace.len() as u64, ..Counts::default() };
    for (at, &(cpu, vcpu)) in trace.iter().enumerate() {
        let vm = vm_of(vcpu);
        running[cpu] = None;
        if holders.insert(vm) {
            counts.allocations += 1;
            tenure[vm] = counts.allocations;
            if holders.len() > usable {
                let after = |&&other: &&usize| {
                    let from = next_use[other];
                    uses[other][from..].iter().copied().find(|&use_| use_ > at).unwrap_or(usize::MAX)
                };
                let idle = holders.iter().filter(|&&other| other != vm && !running.contains(&Some(other)));
                let victim = *idle.max_by_key(after).expect("more VMIDs than CPUs");
                holders.remove(&victim);
            }
        }
        while uses[vm].get(next_use[vm]).is_some_and(|&use_| use_ <= at) {
            next_use[vm] += 1;
        }
        counts.lost_back += u64::from(last[vcpu] != 0 && last[vcpu] != tenure[vm]);
        last[vcpu] = tenure[vm];
        running[cpu] = Some(vm);
    }
    counts.slow = counts.allocations;
    counts
}

/// A policy with a way to flush.
pub(super) fn with(config: impl Into<Config>, flush: Flush) -> Config {
    Config { flush: Some(flush), ..config.into() }
}
