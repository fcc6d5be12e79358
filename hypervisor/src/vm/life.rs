//! A VM's life: start, CPU_ON, stop, reset, end.
//!
//! A VM stops by asking each of its vCPUs to; the CPU that meets one retires it, and the one that retires the last has
//! the VM to itself: it gives everything back, or starts it again.

use super::device_tree::DeviceTreeSpec;
use super::host::Host;
use super::pages::{Access, PageError};
use super::ram::RamError;
use super::{RunState, Vcpu, Vm, VmMemory, VmState, layout, psci, stolen};
use crate::arch::{self, context::Held};
use crate::boot::stop;
use crate::memory::address::Ipa;
use crate::platform::options::Afterwards;
use crate::scheduler::{self, Cpu};
use crate::stats::collect;
use crate::system::System;
use crate::trace::TracedTlb;
use core::sync::atomic::Ordering;

/// Gives a VM its memory, ready to start.
///
/// # Errors
///
/// What is wrong, in words.
pub fn prepare(system: &System, vm: &Vm) -> Result<(), RamError> {
    let taken = VmMemory::new(system.store(), &arch::memory(), &system.stage2, vm.memory_bytes, &vm.images)?;
    vm.root.store(taken.root().0, Ordering::Relaxed);
    *vm.memory.lock() = Some(taken);
    load(system, vm)
}

/// Makes a VM's untouched memory ready for its first instruction.
fn load(system: &System, vm: &Vm) -> Result<(), RamError> {
    let mut guard = vm.memory.lock();
    let Some(memory) = guard.as_mut() else { return Ok(()) };
    let start = arch::counter();
    let images = &vm.images;
    let ramdisk = images.ramdisk.zip(images.placement.ramdisk);
    let spec = DeviceTreeSpec {
        vcpus: vm.vgic.vcpus() as u32,
        memory: vm.memory_bytes,
        bootargs: images.bootargs,
        ramdisk: ramdisk.map(|(ramdisk, ipa)| (ipa, ramdisk.len() as u64)),
        virtio: images.devices.len() as u32,
    };
    memory.load(system.store(), &arch::memory(), &arch::NewGuest, images, &spec)?;
    vm.usage.store(memory.usage());
    system.copy_ticks.fetch_add(arch::counter().wrapping_sub(start), Ordering::Relaxed);
    Ok(())
}

/// The VM that is held has touched memory that is not there for this access, at `ipa`: brings it.
///
/// # Errors
///
/// As [`super::pages::Pages::resolve`].
pub fn touch(vm: &Vm, ipa: u64, access: Access) -> Result<(), PageError> {
    let system = arch::this_cpu().system;
    let mut guard = vm.memory.lock();
    let Some(memory) = guard.as_mut() else { return Err(PageError::NotRam) };
    let done = memory.resolve(system.store(), &arch::memory(), &arch::RunningGuest(&vm.vmid), ipa, access);
    vm.usage.store(memory.usage());
    done
}

/// The guest of the vCPU that is held asks for its record of stolen time: where it finds that.
///
/// # Errors
///
/// As [`VmMemory::stolen_time`].
pub fn stolen_time(vcpu: &Vcpu) -> Result<Ipa, PageError> {
    let vm = vcpu.vm;
    let system = arch::this_cpu().system;
    let mut guard = vm.memory.lock();
    let Some(memory) = guard.as_mut() else { return Err(PageError::NotRam) };
    let page = memory.stolen_time(system.store(), &arch::memory(), &arch::RunningGuest(&vm.vmid))?;
    vm.usage.store(memory.usage());
    vcpu.stolen.begin(page, vcpu.index, vcpu.stats.ready_ticks());
    Ok(stolen::record_ipa(vcpu.index))
}

/// Starts vCPU 0 of a VM that is prepared.
pub fn boot(cpu: &'static Cpu, vm: &'static Vm) {
    vm.cntvoff.store(arch::counter(), Ordering::Relaxed);
    if let Some(&first) = vm.vcpus().first() {
        let placement = &vm.images.placement;
        start(cpu, first, placement.entry.0, placement.dtb.0);
    }
}

/// Starts a vCPU that is off.
fn start(cpu: &'static Cpu, vcpu: &'static Vcpu, entry: u64, x0: u64) {
    // SAFETY: it is off, so in no queue and in no CPU's registers, and the caller has claimed it (`on_pending`, or it is
    // the first of a VM of which nothing runs).
    let Some(mut held) = (unsafe { Held::of(vcpu) }) else { return };
    held.reset(entry, x0, vcpu.mpidr());
    scheduler::notify_set(cpu, vcpu, vcpu.vm.vgic.reset_vcpu(vcpu.index));
    // What the watchdog saw of it is of an earlier life; it may not have looked since that ended.
    vcpu.watch.forget();
    vcpu.vm.enter();
    scheduler::start(cpu, vcpu);
}

/// PSCI CPU_ON (DEN 0022, 5.6).
pub fn cpu_on(caller: &Vcpu, target: u64, entry: u64, context: u64) -> psci::Status {
    let vm = caller.vm;
    let Some(&vcpu) = psci::target_index(target, vm.vcpus().len()).and_then(|index| vm.vcpus().get(index))
    else {
        return psci::Status::InvalidParameters;
    };
    let in_ram = entry.checked_sub(layout::RAM_BASE.0).is_some_and(|offset| offset < vm.memory_bytes);
    if !in_ram || !entry.is_multiple_of(4) {
        return psci::Status::InvalidAddress;
    }
    // Two that call at once: one claims it.
    if vcpu.on_pending.compare_exchange(false, true, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return psci::Status::OnPending;
    }
    if vcpu.state.get() != RunState::Off {
        vcpu.on_pending.store(false, Ordering::Release);
        return psci::Status::AlreadyOn;
    }
    start(arch::this_cpu(), vcpu, entry, context);
    psci::Status::Success
}

/// Stops the VM, for `end`: one of [`VmState::Ending`], [`VmState::Failing`], [`VmState::Resetting`].
pub fn begin_stop(vm: &'static Vm, end: VmState) {
    if vm.change_state(VmState::Running, end) {
        scheduler::stop_vm(arch::this_cpu(), vm);
    }
}

/// The vCPU that is held did something hopeless: says what, and stops its VM.
pub fn fail(held: &Held, what: &str, ipa: Option<u64>) {
    let vcpu = held.vcpu;
    crate::exit::fault::report_guest(held, what, ipa);
    begin_stop(vcpu.vm, VmState::Failing);
}

/// The guest of the vCPU that is held does nothing more: says why, and ends its VM, or starts it again.
pub fn give_up(held: &Held, what: &str, then: Afterwards) {
    let vm = held.vcpu.vm;
    crate::exit::fault::report_guest(held, what, None);
    begin_stop(
        vm,
        match then {
            Afterwards::End => VmState::Failing,
            Afterwards::Restart => VmState::Resetting,
        },
    );
}

/// All of a VM's vCPUs are retired: ends it, or starts it again. The last one to end ends the run.
pub fn finish(cpu: &'static Cpu, vm: &'static Vm) {
    let system = cpu.system;
    let end = match vm.state() {
        VmState::Resetting => return restart(cpu, vm),
        VmState::Failing => VmState::Failed,
        _ => VmState::Off,
    };
    release_vmid(cpu, vm);
    vm.vcpus().iter().for_each(|vcpu| vcpu.stolen.end());
    let pages = vm.devices.end(&Host::here());
    system.switch.forget(vm.id);
    let memory = vm.memory.lock().take();
    if let Some(memory) = memory {
        let frames = memory.end(system.store(), &arch::memory());
        vm.frames_returned.fetch_add(frames + pages, Ordering::Relaxed);
    }
    // Whatever it was when its vCPUs switched themselves off one by one.
    for from in [VmState::Running, VmState::Ending, VmState::Failing] {
        vm.change_state(from, end);
    }
    system.console.vm_ended(vm.id);
    if system.vms_left.fetch_sub(1, Ordering::AcqRel) == 1 {
        collect::final_report(cpu, "all VMs have ended");
        stop::end(system);
    }
}

/// The VM runs nowhere any more: its translations go, and its VMID is free.
fn release_vmid(cpu: &Cpu, vm: &Vm) {
    if cpu.ring.is_some() {
        release_traced(cpu, vm);
    } else {
        cpu.system.vmids.release(&vm.vmid, &arch::GuestTlb);
    }
}

/// The same with a trace. A function of its own, so that a test of the image can leave it out.
#[cold]
#[inline(never)]
fn release_traced(cpu: &Cpu, vm: &Vm) {
    cpu.system.vmids.release(&vm.vmid, &TracedTlb::of_vm(cpu, vm));
}

/// SYSTEM_RESET: everything as at the start, but the counters.
fn restart(cpu: &'static Cpu, vm: &'static Vm) {
    let system = cpu.system;
    for vcpu in vm.vcpus() {
        vcpu.requests.store(0, Ordering::Relaxed);
        vcpu.on_pending.store(false, Ordering::Relaxed);
        vcpu.stolen.end();
    }
    vm.devices.reset(&Host::here());
    vm.vgic.reset();
    if let Some(uart) = system.console.uart(vm.id) {
        uart.reset(|_| {});
    }
    system.console.flush(vm.id);
    // The old translations go with the old VMID.
    release_vmid(cpu, vm);
    if let Some(memory) = vm.memory.lock().as_mut() {
        memory.reset(system.store(), &arch::memory());
    }
    if let Err(error) = load(system, vm) {
        log::error!("{}: can't be started again: {error}", vm.name);
        vm.change_state(VmState::Resetting, VmState::Failing);
        return finish(cpu, vm);
    }
    vm.change_state(VmState::Resetting, VmState::Running);
    vm.restarts.fetch_add(1, Ordering::Relaxed);
    log::info!("{}: restarts", vm.name);
    boot(cpu, vm);
}

/// Seconds since 1970, for the VMs' PL031s. They go on while a VM restarts.
pub fn seconds() -> u32 {
    let system = arch::this_cpu().system;
    system.rtc_start.wrapping_add((arch::counter() / system.counter_hz.max(1)) as u32)
}
