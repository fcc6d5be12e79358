//! A VM and its vCPUs: what it owns, and how it begins and ends.

#[cfg(any(target_os = "none", test))]
pub mod access;
pub mod device_tree;
#[cfg(any(target_os = "none", test))]
pub mod host;
pub mod layout;
#[cfg(any(target_os = "none", test))]
pub mod life;
pub mod load;
pub mod pages;
pub mod psci;
pub mod ram;
pub mod stolen;
mod vcpu;
pub mod watchdog;

pub use ram::VmMemory;
pub use vcpu::{RunState, Vcpu, request};

use crate::device::pl031::Pl031;
use crate::device::virtio::{DeviceSet, Devices};
use crate::ids::{CpuId, MAX_CPUS, VcpuIndex, VmId};
use crate::sync::Mutex;
use crate::vgic::Vgic;
use crate::vmid::VmidCell;
use alloc::string::String;
use arrayvec::ArrayVec;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use pages::Usage;
use spin::Once;

/// What a VM does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum VmState {
    /// Its vCPUs run, or may.
    Running = 0,
    /// It has asked to be switched off, or all its vCPUs have: they are being collected.
    Ending = 1,
    /// It has asked for a reset: as above, and then it starts again.
    Resetting = 2,
    /// It did something hopeless: as `Ending`.
    Failing = 3,
    /// It has ended and given everything back.
    Off = 4,
    /// The same, after a failure.
    Failed = 5,
}

impl VmState {
    const fn decode(value: u8) -> VmState {
        match value {
            0 => VmState::Running,
            1 => VmState::Ending,
            2 => VmState::Resetting,
            3 => VmState::Failing,
            4 => VmState::Off,
            _ => VmState::Failed,
        }
    }

    /// The word for it in the report.
    pub const fn name(self) -> &'static str {
        match self {
            VmState::Running => "running",
            VmState::Ending => "ending",
            VmState::Resetting => "resetting",
            VmState::Failing => "failing",
            VmState::Off => "off",
            VmState::Failed => "failed",
        }
    }
}

/// What a VM boots, from the bundle: loaded anew at each start.
#[derive(Clone)]
pub struct BootImages {
    /// The kernel.
    pub kernel: &'static [u8],
    /// The ramdisk.
    pub ramdisk: Option<&'static [u8]>,
    /// A device tree in the place of the generated one.
    pub fdt: Option<&'static [u8]>,
    /// The command line.
    pub bootargs: &'static str,
    /// Where all of it goes.
    pub placement: load::Placement,
    /// Its virtio devices.
    pub devices: DeviceSet,
    /// Whether others boot its kernel, too, and copies that it executes may become common pages.
    pub merges: bool,
}

/// A [`Usage`] that whoever has the VM's memory locked writes, and that anybody reads. Each number is right by itself.
#[derive(Debug, Default)]
pub struct UsageCell {
    private_bytes: AtomicU64,
    shared_bytes: AtomicU64,
    table_bytes: AtomicU64,
    copied_pages: AtomicU64,
}

impl UsageCell {
    /// Notes what is used now.
    pub fn store(&self, usage: Usage) {
        self.private_bytes.store(usage.private_bytes, Ordering::Relaxed);
        self.shared_bytes.store(usage.shared_bytes, Ordering::Relaxed);
        self.table_bytes.store(usage.table_bytes, Ordering::Relaxed);
        self.copied_pages.store(usage.copied_pages, Ordering::Relaxed);
    }

    /// What was noted last.
    pub fn load(&self) -> Usage {
        Usage {
            private_bytes: self.private_bytes.load(Ordering::Relaxed),
            shared_bytes: self.shared_bytes.load(Ordering::Relaxed),
            table_bytes: self.table_bytes.load(Ordering::Relaxed),
            copied_pages: self.copied_pages.load(Ordering::Relaxed),
        }
    }
}

/// A VM.
pub struct Vm {
    /// Its number.
    pub id: VmId,
    /// Its name: of its bundle entry, with a number where there are several alike.
    pub name: String,
    /// Size of its RAM in bytes.
    pub memory_bytes: u64,
    /// Its vCPUs, made with it.
    vcpus: Once<ArrayVec<&'static Vcpu, { crate::ids::MAX_VCPUS }>>,
    /// Its interrupt controller.
    pub vgic: Vgic,
    /// Its VMID.
    pub vmid: VmidCell,
    /// VTTBR_EL2 without the VMID: the root of stage 2.
    pub root: AtomicU64,
    /// Physical minus virtual count: its clock begins at 0 when it starts.
    pub cntvoff: AtomicU64,
    /// Its clock.
    pub rtc: Pl031,
    /// Its virtio devices.
    pub devices: Devices,
    /// Its memory; `None` once it has been given back.
    pub memory: Mutex<Option<VmMemory>>,
    /// What it boots.
    pub images: BootImages,
    /// Hypervisor memory for it beside its RAM and its stage-2 tables, in bytes.
    pub fixed_bytes: AtomicU64,
    /// What memory it has, or had when it ended.
    pub usage: UsageCell,
    /// Frames that it has given back.
    pub frames_returned: AtomicU64,
    /// How often it has started again.
    pub restarts: AtomicU32,
    state: AtomicU8,
    /// vCPUs that are not off.
    active: AtomicU32,
    /// vCPU + 1 that ran last on each CPU, 0 for none.
    last_vcpu: [AtomicU8; MAX_CPUS],
}

impl Vm {
    /// A VM without vCPUs and memory yet.
    pub fn new(id: VmId, name: String, memory_bytes: u64, vcpus: usize, images: BootImages) -> Vm {
        Vm {
            id,
            name,
            memory_bytes,
            vcpus: Once::new(),
            vgic: Vgic::new(vcpus),
            vmid: VmidCell::new(),
            root: AtomicU64::new(0),
            cntvoff: AtomicU64::new(0),
            rtc: Pl031::default(),
            devices: Devices::new(id, &images.devices),
            memory: Mutex::new(None),
            images,
            fixed_bytes: AtomicU64::new(0),
            usage: UsageCell::default(),
            frames_returned: AtomicU64::new(0),
            restarts: AtomicU32::new(0),
            state: AtomicU8::new(VmState::Running as u8),
            active: AtomicU32::new(0),
            last_vcpu: [const { AtomicU8::new(0) }; MAX_CPUS],
        }
    }

    /// Gives it its vCPUs, once.
    pub fn set_vcpus(&self, vcpus: ArrayVec<&'static Vcpu, { crate::ids::MAX_VCPUS }>) {
        self.vcpus.call_once(|| vcpus);
    }

    /// Its vCPUs.
    #[inline]
    pub fn vcpus(&self) -> &[&'static Vcpu] {
        self.vcpus.get().map_or(&[], |vcpus| vcpus.as_slice())
    }

    /// Hypervisor memory for it beside its RAM, in bytes.
    pub fn overhead_bytes(&self) -> u64 {
        self.fixed_bytes.load(Ordering::Relaxed) + self.usage.load().table_bytes
    }

    /// What it does.
    #[inline(always)]
    pub fn state(&self) -> VmState {
        VmState::decode(self.state.load(Ordering::Acquire))
    }

    /// Whether its vCPUs may run.
    #[inline(always)]
    pub fn is_running(&self) -> bool {
        self.state.load(Ordering::Acquire) == VmState::Running as u8
    }

    /// Goes from `from` to `to`, unless another vCPU was quicker.
    pub fn change_state(&self, from: VmState, to: VmState) -> bool {
        self.state.compare_exchange(from as u8, to as u8, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// One more vCPU is on. Only while one that is on asks for it, or before the first one runs.
    pub fn enter(&self) {
        self.active.fetch_add(1, Ordering::AcqRel);
    }

    /// One vCPU is off; `true` if it was the last. AcqRel: the last one sees all that the others did.
    pub fn leave(&self) -> bool {
        self.active.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Notes that `vcpu` runs on `cpu` now; `true` if a sibling ran there last, whose private translations must go.
    #[inline(always)]
    pub fn note_runner(&self, cpu: CpuId, vcpu: VcpuIndex) -> bool {
        let Some(last) = self.last_vcpu.get(cpu.index()) else { return true };
        let before = last.load(Ordering::Relaxed);
        last.store(vcpu.0 + 1, Ordering::Relaxed);
        before != 0 && before != vcpu.0 + 1
    }
}
