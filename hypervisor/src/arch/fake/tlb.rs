//! VTTBR_EL2, and TLBs that keep whatever they may: each instruction of a guest leaves an entry under the VMID that it holds.

use super::{counter, here, machine, step};
use crate::ids::{CpuId, VcpuIndex, VmId, Vmid};
use crate::memory::address::{Ipa, Pa};
use crate::memory::stage2::Stage2Tlb;
use crate::vmid::{Covers, TlbHardware, VmidCell};
use std::collections::HashMap;

/// Whose translations a CPU's TLB holds under a VMID: stage 2 is its VM's, stage 1 may be private to its vCPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Owner {
    vm: VmId,
    /// `None`: stage-1 entries have gone.
    vcpu: Option<VcpuIndex>,
}

/// The TLBs of all CPUs.
#[derive(Debug)]
pub struct Tlbs(Vec<HashMap<Vmid, Owner>>);

impl Tlbs {
    /// Empty ones.
    pub fn new(cpus: usize) -> Tlbs {
        Tlbs(vec![HashMap::new(); cpus])
    }

    /// A vCPU executes an instruction under `vmid`: it must find nobody else's entries.
    pub fn run(&mut self, cpu: usize, vmid: Vmid, vm: VmId, vcpu: VcpuIndex) {
        let owner = self.0[cpu].entry(vmid).or_insert(Owner { vm, vcpu: None });
        assert_eq!(owner.vm, vm, "CPU {cpu} has another VM's translations under {vmid:?}");
        let sibling = owner.vcpu.get_or_insert(vcpu);
        assert_eq!(*sibling, vcpu, "CPU {cpu} has a sibling's private translations under {vmid:?}");
    }

    /// `tlbi vmalle1` on one CPU.
    pub fn forget_stage1(&mut self, cpu: usize, vmid: Vmid) {
        if let Some(owner) = self.0[cpu].get_mut(&vmid) {
            owner.vcpu = None;
        }
    }

    /// `tlbi vmalls12e1is`.
    pub fn forget(&mut self, vmid: Vmid) {
        for tlb in &mut self.0 {
            tlb.remove(&vmid);
        }
    }

    /// `tlbi vmalls12e1` of a VMID, or `tlbi alle1`, on one CPU.
    pub fn forget_here(&mut self, cpu: usize, vmid: Option<Vmid>) {
        self.0[cpu].retain(|&other, _| vmid.is_some_and(|vmid| other != vmid));
    }

    /// `tlbi alle1is`.
    pub fn forget_all(&mut self) {
        self.0.iter_mut().for_each(HashMap::clear);
    }
}

/// See the real one.
pub fn set_vttbr(vttbr: u64) {
    here(|here| here.vttbr.set(vttbr));
    step();
}

/// See the real one.
pub fn isb() {
    step();
}

/// See the real one.
pub fn invalidate_sibling() {
    let (machine, index, vttbr) = (machine(), here(|here| here.index.get()), here(|here| here.vttbr.get()));
    machine.tlbs().forget_stage1(index, Vmid((vttbr >> 48) as u16));
}

/// See the real one.
pub struct GuestTlb;

impl TlbHardware for GuestTlb {
    fn invalidate_all(&self) {
        if super::this_cpu().leaves_tlbis_out() {
            return;
        }
        super::this_cpu().ghost_forgets(Covers::All);
        step();
        machine().tlbs().forget_all();
    }

    fn invalidate_vmids(&self, vmids: &[Vmid]) {
        if super::this_cpu().leaves_tlbis_out() {
            return;
        }
        vmids.iter().for_each(|&vmid| super::this_cpu().ghost_forgets(Covers::Vmid(vmid)));
        step();
        vmids.iter().for_each(|&vmid| machine().tlbs().forget(vmid));
    }

    fn invalidate_all_here(&self) {
        if super::this_cpu().leaves_tlbis_out() {
            return;
        }
        super::this_cpu().ghost_forgets(Covers::AllHere);
        step();
        let index = here(|here| here.index.get());
        machine().tlbs().forget_here(index, None);
    }

    fn invalidate_vmid_here(&self, vmid: Vmid) {
        if super::this_cpu().leaves_tlbis_out() {
            return;
        }
        super::this_cpu().ghost_forgets(Covers::VmidHere(vmid));
        step();
        let index = here(|here| here.index.get());
        machine().tlbs().forget_here(index, Some(vmid));
    }

    /// Simulated CPUs see each other's stores at once.
    fn publish_id(&self) {}

    fn kick(&self, cpu: CpuId) {
        super::send_kick(cpu.0.into());
    }

    fn wait(&self) {
        step();
    }

    fn now(&self) -> u64 {
        counter()
    }
}

/// See the real one.
pub struct NewGuest;

impl Stage2Tlb for NewGuest {
    fn publish(&self) {}

    fn invalidate_ipa(&self, _: Pa, _: Ipa) {}

    fn invalidate_all(&self, _: Pa) {}
}

/// See the real one.
pub struct RunningGuest<'a>(pub &'a VmidCell);

impl Stage2Tlb for RunningGuest<'_> {
    fn publish(&self) {}

    fn invalidate_ipa(&self, root: Pa, _: Ipa) {
        self.invalidate_all(root);
    }

    fn invalidate_all(&self, _: Pa) {
        if let Some(vmid) = self.0.vmid() {
            machine().tlbs().forget(vmid);
        }
    }
}
