//! From the bundle to VMs that are ready to start.

use crate::arch::{self, context::Context};
use crate::bundle::{Bundle, VmConfig};
use crate::ids::{CpuId, MAX_VMS, VcpuIndex, VmId};
use crate::memory::address::{BLOCK_2M, Pa};
use crate::memory::heap::HEAP;
use crate::memory::phys::PhysMemory;
use crate::memory::stage2::ipa_bits_for;
use crate::platform::options::Options;
use crate::system::{MachineConsole, System};
use crate::vm::pages::common::CommonPages;
use crate::vm::{BootImages, Vcpu, Vm, device_tree, layout, life, load};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use arrayvec::ArrayVec;

/// How much is to be made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// VMs.
    pub vms: usize,
    /// vCPUs of all of them.
    pub vcpus: usize,
    /// Heap for the VMs' virtio devices, in bytes.
    pub devices: usize,
    /// Memory for pages that VMs have in common, in bytes.
    pub common: u64,
    /// Bits of the largest guest-physical address.
    pub ipa_bits: u8,
}

/// Counts what the bundle asks for.
pub fn totals(bundle: &Bundle<'static>, options: &Options) -> Totals {
    let mut totals = Totals { common: common_bytes(bundle, options), ..Totals::default() };
    for config in bundle.configs() {
        totals.vms += config.count as usize;
        totals.vcpus += (config.count * config.vcpus) as usize;
        totals.devices += config.count as usize * config.devices().heap_bytes();
        totals.ipa_bits = totals.ipa_bits.max(ipa_bits_for(layout::RAM_BASE.0.saturating_add(config.memory)));
    }
    totals
}

/// A smaller kernel has so little text that having it in common saves nothing worth the exits.
const LEAST_KERNEL: usize = 4 << 20;
/// The most memory for common pages.
const MOST_COMMON: u64 = 64 << 20;

/// Whether several VMs boot the same large kernel as `config`'s, so that what they execute may be alike.
fn has_likes(bundle: &Bundle<'static>, config: &VmConfig<'static>) -> bool {
    let kernel = config.kernel.data;
    let same = bundle.configs().filter(|other| core::ptr::eq(other.kernel.data, kernel));
    kernel.len() >= LEAST_KERNEL && same.map(|other| other.count).sum::<u32>() > 1
}

/// Memory for common pages: half of each kernel that several VMs boot, as about that much of a kernel is text.
fn common_bytes(bundle: &Bundle<'static>, options: &Options) -> u64 {
    if !options.merge {
        return 0;
    }
    let first = |index: usize, kernel: &[u8]| {
        !bundle.configs().take(index).any(|earlier| core::ptr::eq(earlier.kernel.data, kernel))
    };
    let wanted = bundle
        .configs()
        .enumerate()
        .filter(|(index, config)| has_likes(bundle, config) && first(*index, config.kernel.data));
    let bytes =
        wanted.map(|(_, config)| (config.kernel.data.len() as u64 / 2).next_multiple_of(BLOCK_2M)).sum();
    MOST_COMMON.min(bytes)
}

/// Heap that the VMs need, in bytes, and what the CPUs do.
pub fn heap_bytes(totals: Totals, cpus: usize, options: &Options) -> u64 {
    use crate::scheduler::{Cpu, CpuShared};
    use crate::vmid::{self, CpuSlot, Ghost};
    /// For what is taken once, and for what the allocator itself loses.
    const BASE: usize = 1 << 20;
    let timers = totals.vcpus * 24;
    let cpu = size_of::<Cpu>() + size_of::<CpuShared>() + size_of::<CpuSlot>() + timers + 1024;
    let vcpu = size_of::<Vcpu>() + size_of::<Context>() + 256;
    let vm = size_of::<Vm>() + 6 * 1024 + 1024;
    let common = CommonPages::heap_bytes(totals.common);
    // The CPUs aren't asked yet how wide VMIDs are.
    let vmids = 1usize << options.vmid_bits.unwrap_or(vmid::MAX_BITS);
    let ghost = if options.ghost { Ghost::heap_bytes(cpus, vmids) } else { 0 };
    ((BASE + common + ghost + totals.devices + cpus * cpu + totals.vcpus * vcpu + totals.vms * vm) as u64)
        .next_multiple_of(BLOCK_2M / 8)
}

/// Makes all VMs.
///
/// # Errors
///
/// A VM can't be made: which, and why.
pub fn make(system: &'static System, bundle: &Bundle<'static>) -> Result<(), String> {
    // The VMs share its images: instructions in them, too.
    let bytes = bundle.bytes();
    arch::memory().settle(Pa(bytes.as_ptr() as u64), bytes.len() as u64, true);
    let mergeable = system.common.lock().counters().frames != 0;
    let mut vms: Vec<&'static Vm> = Vec::with_capacity(system.vm_names.len());
    let mut vcpus: Vec<&'static Vcpu> = Vec::new();
    for config in bundle.configs() {
        let merges = mergeable && has_likes(bundle, &config);
        let images = images(&config, merges).map_err(|error| format!("VM {}: {error}", config.name))?;
        if let Some(cpu) = config.pin.iter().find(|&&cpu| usize::from(cpu) >= system.cpus.len()) {
            return Err(format!(
                "VM {}: odometer,pin: there is no CPU {cpu}: the machine has CPUs 0 to {}",
                config.name,
                system.cpus.len() - 1
            ));
        }
        for _ in 0..config.count {
            if vms.len() == MAX_VMS {
                return Err(format!("VM {}: more than {MAX_VMS} VMs", config.name));
            }
            let vm = make_one(system, VmId(vms.len() as u16), &config, images.clone(), &mut vcpus)?;
            if config.pinned_vmid {
                // No VM runs yet.
                let pinned = system.vmids.pin(&vm.vmid);
                let vmid =
                    pinned.map_err(|error| format!("VM {}: odometer,vmid = \"pinned\": {error}", vm.name))?;
                log::info!("{}: has VMID {} for good", vm.name, vmid.0);
            }
            vms.push(vm);
        }
    }
    system.vms_left.store(vms.len() as u32, core::sync::atomic::Ordering::Relaxed);
    system.vcpus.call_once(|| vcpus);
    system.vms.call_once(|| vms);
    Ok(())
}

/// Where a configuration's images go in each of its VMs.
fn images(config: &VmConfig<'static>, merges: bool) -> Result<BootImages, load::PlacementError> {
    let placement = load::place(&load::Images {
        kernel: config.kernel.data,
        load: config.kernel.load,
        entry: config.kernel.entry,
        ramdisk: config.ramdisk.map_or(0, |ramdisk| ramdisk.len() as u64),
        dtb: config.fdt.map_or(device_tree::MAX_SIZE as u64, |fdt| fdt.len() as u64),
        memory: config.memory,
    })?;
    Ok(BootImages {
        kernel: config.kernel.data,
        ramdisk: config.ramdisk,
        fdt: config.fdt,
        bootargs: config.bootargs,
        placement,
        devices: config.devices(),
        merges,
    })
}

fn make_one(
    system: &'static System,
    id: VmId,
    config: &VmConfig<'static>,
    images: BootImages,
    vcpus: &mut Vec<&'static Vcpu>,
) -> Result<&'static Vm, String> {
    let name = system.vm_names.get(usize::from(id.0)).cloned().unwrap_or_default();
    let before = HEAP.used();
    let count = config.vcpus as usize;
    let vm: &'static Vm = Box::leak(Box::new(Vm::new(id, name, config.memory, count, images)));
    let mut mine = ArrayVec::new();
    for index in 0..count {
        let pin = config.pin.get(index).map(|&cpu| CpuId(cpu));
        let vcpu: &'static Vcpu =
            Box::leak(Box::new(Vcpu::new(vm, VcpuIndex(index as u8), vcpus.len() as u32, pin)));
        vcpu.set_context(Box::leak(Box::new(Context::new(vcpu))));
        vcpu.stats.start(arch::counter());
        vcpus.push(vcpu);
        // A configuration has at most as many as the table holds.
        let _ = mine.try_push(vcpu);
    }
    vm.set_vcpus(mine);
    vm.fixed_bytes.store(
        (HEAP.used() - before + MachineConsole::BYTES_PER_VM) as u64,
        core::sync::atomic::Ordering::Relaxed,
    );
    life::prepare(system, vm).map_err(|error| format!("VM {}: {error}", vm.name))?;
    Ok(vm)
}
