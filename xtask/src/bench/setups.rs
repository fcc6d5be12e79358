//! The setups of the VMID experiment: how many CPUs and VMs, and what the guests do.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::{BenchArgs, CPU, LoadName, Threads};
use crate::linux::{self, Hackbench, LinuxGuest, Release};
use crate::qemu::capture::Limits;
use crate::run;
use crate::scenario::{Kernel, Machine, POLICIES, Scenario, Vm};

/// The policies of the published comparison, in the table's order: the first row is what the others are compared with.
pub const PUBLISHED: [&str; 3] = ["v3-no-clear", "v3-clear-zero", "clear"];

/// hackbench's message size: its default.
const MESSAGE_BYTES: u32 = 100;

/// One setup.
#[derive(Debug, Clone)]
pub struct Setup {
    /// `1`, `2`, or `custom`.
    pub name: &'static str,
    /// Physical CPUs.
    pub cpus: u32,
    /// VMs.
    pub vms: u32,
    /// Virtual CPUs of each.
    pub vcpus: u32,
    /// Bytes of memory of each; 0 for what the guest needs.
    pub memory: u64,
    /// The hypervisor's options beside the policy.
    pub options: Vec<(String, String)>,
    /// The emulator's threads, if the command line doesn't say; none: executed instructions drive the clock.
    pub threads: Option<Threads>,
    /// What the guests do.
    pub load: LoadName,
    /// hackbench's parameters.
    pub hackbench: Hackbench,
    /// The kernel of Linux guests.
    pub release: Release,
    /// What Linux guests boot from, once it has been fetched.
    pub linux: Option<LinuxGuest>,
}

impl Setup {
    /// Setup 1: many CPUs and no shortage of VMIDs.
    fn first() -> Self {
        Self {
            name: "1",
            cpus: 128,
            vms: 128,
            vcpus: 2,
            memory: 8 << 20,
            options: Vec::new(),
            threads: None,
            load: LoadName::Messaging,
            hackbench: Hackbench { groups: 1, fds: 4, loops: 20, size: MESSAGE_BYTES, runs: 5 },
            release: Release::default(),
            linux: None,
        }
    }

    /// Setup 2: few CPUs and so few VMIDs that they run out all the time.
    fn second() -> Self {
        let mut second = Self { name: "2", cpus: 8, vms: 40, ..Self::first() };
        // Short slices and a longer load: thousands of schedule-ins, and so rollovers by the hundred, in seconds.
        second.options = vec![("vmid.bits".into(), "4".into()), ("sched.slice_us".into(), "2000".into())];
        second.hackbench.loops = 200;
        second
    }

    /// The same setup with Linux guests: the real hackbench, as often and with the parameters that other hypervisors were measured with.
    fn with_linux(self) -> Self {
        let mut options = self.options;
        options.retain(|(key, _)| key != "sched.slice_us");
        // CPUs that take turns on one host thread are away for most of the time: a slice of the usual length would be over at the
        // end of each turn, and each switch empties the emulator's TLB.
        options.push(("sched.slice_us".into(), "50000".into()));
        Self {
            memory: 0,
            options,
            threads: Some(Threads::Single),
            load: LoadName::Linux,
            hackbench: Hackbench { groups: 1, fds: 4, loops: 20, size: MESSAGE_BYTES, runs: 5 },
            ..self
        }
    }

    /// A few Linux guests.
    fn few_linux() -> Self {
        let few = Self {
            name: "linux",
            cpus: 2,
            vms: 2,
            options: Vec::new(),
            threads: Some(Threads::Multi),
            ..Self::first().with_linux()
        };
        Self { hackbench: Hackbench { loops: 50, ..few.hackbench }, ..few }
    }

    /// One Linux guest with a CPU for each of its vCPUs.
    ///
    /// # Errors
    /// Options that don't fit.
    pub fn one_linux(args: &BenchArgs) -> Result<Self> {
        let vcpus = args.vcpus.unwrap_or(2);
        let mut one = Self { name: "native", vms: 1, vcpus, cpus: vcpus, threads: None, ..Self::few_linux() };
        one.apply(args)?;
        ensure!(one.vms == 1, "--vms: `native` compares one guest, not {}", one.vms);
        ensure!(
            one.cpus == one.vcpus,
            "--cpus: `native` compares machines with as many CPUs as the guest has vCPUs, {}, not {}",
            one.vcpus,
            one.cpus
        );
        Ok(one)
    }

    /// The setups that the command line asks for.
    ///
    /// # Errors
    /// Options that can't go together.
    pub fn wanted(args: &BenchArgs) -> Result<Vec<Self>> {
        let shaped = args.cpus.is_some() || args.vms.is_some() || args.vcpus.is_some();
        let mut setups = match (args.load, args.setup) {
            (LoadName::Linux, Some(1)) => vec![Self::first().with_linux()],
            (LoadName::Linux, None) if shaped => vec![Self::few_linux()],
            (LoadName::Linux, _) => vec![Self::second().with_linux()],
            (LoadName::Messaging, Some(1)) => vec![Self::first()],
            (LoadName::Messaging, Some(_)) => vec![Self::second()],
            (LoadName::Messaging, None) if shaped => {
                vec![Self { name: "custom", options: Vec::new(), ..Self::second() }]
            }
            (LoadName::Messaging, None) => vec![Self::first(), Self::second()],
        };
        for setup in &mut setups {
            setup.apply(args)?;
        }
        Ok(setups)
    }

    /// Lets the command line have its way.
    fn apply(&mut self, args: &BenchArgs) -> Result<()> {
        let set = |to: &mut u32, from: Option<u32>| *to = from.unwrap_or(*to);
        set(&mut self.cpus, args.cpus);
        set(&mut self.vms, args.vms);
        set(&mut self.vcpus, args.vcpus);
        set(&mut self.hackbench.groups, args.groups);
        set(&mut self.hackbench.fds, args.fds);
        set(&mut self.hackbench.loops, args.loops);
        set(&mut self.hackbench.runs, args.runs);
        self.memory = args.memory.unwrap_or(self.memory);
        ensure!(
            args.kernel.is_none() || self.load == LoadName::Linux,
            "--kernel chooses the kernel of Linux guests; add --load linux, or leave it out"
        );
        self.release = args.kernel.unwrap_or_default();
        let Hackbench { groups, fds, loops, runs, .. } = self.hackbench;
        ensure!(
            [groups, fds, loops, runs].iter().all(|number| (1..=100_000).contains(number)),
            "--groups, --fds, --loops and --runs take numbers from 1 to 100000"
        );
        for (key, value) in args.options.iter().filter(|(key, _)| key != "vmid.policy") {
            match self.options.iter_mut().find(|(known, _)| known == key) {
                Some(pair) => pair.1.clone_from(value),
                None => self.options.push((key.clone(), value.clone())),
            }
        }
        Ok(())
    }

    /// Gets what the guests boot from, where that isn't ours.
    ///
    /// # Errors
    /// Packages that can't be had.
    pub fn fetch(&mut self) -> Result<()> {
        if self.load == LoadName::Linux {
            let linux = linux::guest(&self.hackbench, self.release).context("Linux guests")?;
            if self.memory == 0 {
                self.memory = linux.memory;
            }
            self.linux = Some(linux);
        }
        Ok(())
    }

    /// The scenario of this setup, without a policy yet, and checked.
    ///
    /// # Errors
    /// A guest whose files can't be read; `Problems` with the numbers.
    pub fn scenario(&self, args: &BenchArgs, own_guest: &Arc<Kernel>) -> Result<Scenario> {
        let mut vm = match &self.linux {
            None => {
                let mut vm = Vm::new("vm", Arc::clone(own_guest));
                vm.bootargs = self.bootargs();
                vm
            }
            Some(linux) => {
                let mut vm = Vm::new("linux", run::read_kernel(&linux.kernel)?);
                let ramdisk = std::fs::read(&linux.initrd)
                    .with_context(|| format!("reading {}", linux.initrd.display()))?;
                vm.ramdisk = Some(Arc::new(ramdisk));
                vm.console = true;
                vm.bootargs.clone_from(&linux.append);
                vm
            }
        };
        vm.vcpus = self.vcpus;
        vm.memory = self.memory;
        vm.count = self.vms;
        let threads = if args.deterministic { None } else { args.threads.or(self.threads) };
        let machine = Machine {
            cpus: self.cpus,
            cpu: args.cpu.clone().unwrap_or_else(|| CPU.into()),
            multi_threaded: threads == Some(Threads::Multi),
            deterministic: threads.is_none(),
            qemu: args.qemu.clone(),
            ..Machine::default()
        };
        let scenario = Scenario { machine, options: self.options.clone(), vms: vec![vm] };
        scenario.check("the command line")?;
        Ok(scenario)
    }

    /// What the bare-metal guest is to do.
    fn bootargs(&self) -> String {
        let Hackbench { groups, fds, loops, size, runs } = self.hackbench;
        format!(
            "load=messaging groups={groups} fds={fds} loops={loops} size={size} mode=process carrier=socket buffer=4096 runs={runs}"
        )
    }

    /// How long a run may take: on a host core or two all the CPUs of the machine take turns, and a Linux guest boots for seconds of
    /// its host's time.
    pub fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        if self.load == LoadName::Linux {
            limits.silence += Duration::from_secs(20) * self.vms;
            limits.total += Duration::from_secs(60) * self.vms;
        }
        limits
    }

    /// Messages that each run of each guest must pass.
    pub fn messages_per_run(&self) -> u64 {
        self.hackbench.messages()
    }

    /// The setup in words.
    pub fn describe(&self) -> String {
        let Hackbench { groups, fds, loops, size, runs } = self.hackbench;
        let options: Vec<String> =
            self.options.iter().map(|(key, value)| format!(", {key}={value}")).collect();
        let guest = match &self.linux {
            None => "messaging".to_string(),
            Some(linux) => format!("Linux with hackbench ({})", linux.description),
        };
        format!(
            "{} CPUs, {} VMs x {} vCPUs{}; each guest: {guest}, {groups} groups, {fds} fds, {loops} loops, {size} bytes, \
             {runs} runs",
            self.cpus,
            self.vms,
            self.vcpus,
            options.concat()
        )
    }
}

/// The policies that the command line asks for: by `--policies`, or by `--set vmid.policy`.
///
/// # Errors
/// There is no such policy, or they are asked for in both ways.
pub fn policies(args: &BenchArgs) -> Result<Vec<String>> {
    let only = args.options.iter().filter(|(key, _)| key == "vmid.policy");
    let only: Vec<String> = only.map(|(_, policy)| policy.clone()).collect();
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_string()).collect();
    let wanted: Vec<&str> = args.policies.iter().map(String::as_str).collect();
    ensure!(only.is_empty() || wanted.is_empty(), "--policies and --set vmid.policy can't be given together");
    match wanted.as_slice() {
        [] if only.is_empty() => Ok(owned(&PUBLISHED)),
        [] => Ok(only),
        ["all"] => Ok(owned(POLICIES)),
        ["published"] => Ok(owned(&PUBLISHED)),
        names => {
            for (at, name) in names.iter().enumerate() {
                ensure!(!names[..at].contains(name), "--policies: {name} is there twice");
            }
            if let Some(unknown) = names.iter().find(|name| !POLICIES.contains(name)) {
                bail!(
                    "--policies: there is no policy {unknown}; take all, published, or some of {}",
                    POLICIES.join(", ")
                );
            }
            Ok(owned(names))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::args;
    use super::*;
    use crate::scenario::kernel;

    #[test]
    fn without_options_both_setups_of_the_experiment_run() {
        let setups = Setup::wanted(&args("")).unwrap();
        let shape: Vec<_> = setups.iter().map(|s| (s.name, s.cpus, s.vms, s.vcpus)).collect();
        assert_eq!(shape, [("1", 128, 128, 2), ("2", 8, 40, 2)]);
        assert_eq!(setups[1].options[0], ("vmid.bits".to_string(), "4".to_string()));
        assert_eq!(policies(&args("")).unwrap(), PUBLISHED);
    }

    #[test]
    fn options_change_a_setup() {
        let setups = Setup::wanted(&args("--vms 3 --vcpus 4 --set vmid.bits=5 --fds 2 --loops 20")).unwrap();
        assert_eq!(setups.len(), 1);
        assert_eq!((setups[0].name, setups[0].vms, setups[0].vcpus), ("custom", 3, 4));
        assert_eq!(setups[0].options, [("vmid.bits".to_string(), "5".to_string())]);
        assert_eq!(setups[0].messages_per_run(), 2 * 2 * 20);
        let setups = Setup::wanted(&args("--setup 2 --set vmid.bits=6")).unwrap();
        assert_eq!(setups[0].options[0], ("vmid.bits".to_string(), "6".to_string()));
        assert_eq!(policies(&args("--set vmid.policy=clear")).unwrap(), ["clear"]);
        assert_eq!(policies(&args("--policies all")).unwrap(), POLICIES);
        assert_eq!(policies(&args("--policies merged,reclaim")).unwrap(), ["merged", "reclaim"]);
        let error = |line| policies(&args(line)).unwrap_err().to_string();
        assert!(error("--policies merged,clear,merged").contains("merged is there twice"));
        assert!(error("--policies lru").contains("no policy lru"));
        assert!(error("--policies all --set vmid.policy=clear").contains("together"));
        assert!(Setup::wanted(&args("--fds 0")).is_err());
        assert!(Setup::wanted(&args("--kernel 6.12-rt")).is_err());
        assert_eq!(Setup::wanted(&args("--load linux --kernel 6.12-rt")).unwrap()[0].release, Release::Rt612);
        assert_eq!(Setup::wanted(&args("--load linux --vms 2 --vcpus 2")).unwrap()[0].name, "linux");
    }

    #[test]
    fn linux_guests_run_in_both_setups() {
        let one = |line: &str| Setup::wanted(&args(line)).unwrap().remove(0);
        for (line, shape) in [
            ("--load linux", ("2", 8, 40, 2)),
            ("--load linux --setup 2", ("2", 8, 40, 2)),
            ("--load linux --setup 1", ("1", 128, 128, 2)),
            ("--load linux --vms 3", ("linux", 2, 3, 2)),
        ] {
            let setup = one(line);
            assert_eq!((setup.name, setup.cpus, setup.vms, setup.vcpus), shape, "{line}");
            assert_eq!(setup.load, LoadName::Linux);
        }
        let second = one("--load linux");
        assert_eq!(second.options[0], ("vmid.bits".to_string(), "4".to_string()));
        assert_eq!(second.hackbench.messages() * u64::from(second.hackbench.runs), 5 * 4 * 4 * 20);
    }

    #[test]
    fn instructions_drive_the_clock_unless_threads_are_asked_for() {
        let kernel = Arc::new(kernel::parse(&[1; 100]).unwrap());
        let machine = |line: &str| {
            let args = args(line);
            let setup = Setup::wanted(&args).unwrap().remove(0);
            setup.scenario(&args, &kernel).unwrap().machine
        };
        assert!(machine("").deterministic && machine("--deterministic").deterministic);
        assert!(!machine("--threads single").deterministic && !machine("--threads single").multi_threaded);
        assert!(machine("--threads multi").multi_threaded);
    }

    #[test]
    fn wrong_numbers_are_found_before_anything_starts() {
        let args = args("--setup 2 --vcpus 9 --cpu cortex-a57");
        let setup = &Setup::wanted(&args).unwrap()[0];
        let kernel = Arc::new(kernel::parse(&[1; 100]).unwrap());
        let error = setup.scenario(&args, &kernel).unwrap_err().to_string();
        assert!(error.contains("9 vCPUs are not supported"), "{error}");
    }

    #[test]
    fn the_setups_themselves_are_sound() {
        let kernel = Arc::new(kernel::parse(&[1; 100]).unwrap());
        let args = args("");
        for setup in Setup::wanted(&args).unwrap() {
            let scenario = setup.scenario(&args, &kernel).unwrap();
            assert!(scenario.machine_memory() <= 4 << 30);
        }
    }
}
