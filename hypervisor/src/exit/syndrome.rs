//! ESR_EL2 taken apart (Arm ARM D19.2.37).

use crate::device::AccessSize;
use crate::vm::pages::Access;

/// Exception classes that Odometer knows by name.
pub mod class {
    /// Trapped WFI or WFE.
    pub const WFX: u32 = 0x01;
    /// Trapped use of FP/SIMD (CPTR_EL2.TFP).
    pub const FP: u32 = 0x07;
    /// Trapped pointer authentication instruction (HCR_EL2.API).
    pub const PAUTH: u32 = 0x09;
    /// HVC in AArch64.
    pub const HVC: u32 = 0x16;
    /// SMC in AArch64.
    pub const SMC: u32 = 0x17;
    /// Trapped MSR, MRS or system instruction.
    pub const SYSREG: u32 = 0x18;
    /// Instruction abort from a lower EL.
    pub const INSTRUCTION_ABORT: u32 = 0x20;
    /// Data abort from a lower EL.
    pub const DATA_ABORT: u32 = 0x24;
    /// The `Unknown` class: also what an injected UNDEF carries.
    pub const UNKNOWN: u32 = 0x00;
}

/// ESR_EL2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Syndrome(pub u64);

impl Syndrome {
    /// Exception class, EC.
    #[inline(always)]
    pub const fn class(self) -> u32 {
        (self.0 >> 26) as u32 & 0x3f
    }

    /// Whether the trapped instruction is 32 bits wide (IL), and so how far to step over it.
    #[inline(always)]
    pub const fn length(self) -> u64 {
        if self.0 & 1 << 25 != 0 { 4 } else { 2 }
    }

    /// Whether a trapped WFI, not WFE (TI).
    #[inline(always)]
    pub const fn is_wfi(self) -> bool {
        self.0 & 3 == 0
    }

    /// Whether it reads (of a trapped MSR/MRS: Direction).
    #[inline(always)]
    pub const fn sysreg_is_read(self) -> bool {
        self.0 & 1 != 0
    }

    /// Rt of a trapped MSR/MRS; 31 is xzr.
    #[inline(always)]
    pub const fn sysreg_rt(self) -> u32 {
        (self.0 >> 5) as u32 & 0x1f
    }

    /// Which system register or instruction: op0, op2, op1, CRn and CRm where ISS has them, Rt and direction taken out.
    #[inline(always)]
    pub const fn sysreg(self) -> SysReg {
        SysReg(self.0 as u32 & SysReg::MASK)
    }
}

/// A system register's name as the ISS of a trapped access encodes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SysReg(u32);

impl SysReg {
    const MASK: u32 = 0x3f_fc1e;

    /// The register op0, op1, CRn, CRm, op2.
    pub const fn new(op0: u32, op1: u32, crn: u32, crm: u32, op2: u32) -> SysReg {
        SysReg(op0 << 20 | op2 << 17 | op1 << 14 | crn << 10 | crm << 1)
    }

    /// op0: 1 is a system instruction, 2 a debug register, 3 a system register.
    pub const fn op0(self) -> u32 {
        self.0 >> 20 & 3
    }

    /// op1.
    pub const fn op1(self) -> u32 {
        self.0 >> 14 & 7
    }

    /// CRn.
    pub const fn crn(self) -> u32 {
        self.0 >> 10 & 0xf
    }

    /// CRm.
    pub const fn crm(self) -> u32 {
        self.0 >> 1 & 0xf
    }

    /// op2.
    pub const fn op2(self) -> u32 {
        self.0 >> 17 & 7
    }

    /// Whether it is a key of pointer authentication.
    pub const fn is_pauth_key(self) -> bool {
        self.op0() == 3
            && self.op1() == 0
            && self.crn() == 2
            && matches!((self.crm(), self.op2()), (1 | 2, 0..=3) | (3, 0 | 1))
    }

    /// The slot in the table of ID registers, if it is one of op0 3, op1 0, CRn 0.
    #[inline(always)]
    pub const fn id_slot(self) -> Option<usize> {
        const SPACE: u32 = SysReg::new(3, 7, 0xf, 0, 0).0;
        if self.0 & SPACE == SysReg::new(3, 0, 0, 0, 0).0 {
            Some((self.crm() << 3 | self.op2()) as usize)
        } else {
            None
        }
    }
}

/// What a data abort says of the access (ISS with ISV = 1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataAbort(u64);

impl DataAbort {
    /// The access of a data abort's syndrome.
    #[inline(always)]
    pub const fn new(syndrome: Syndrome) -> DataAbort {
        DataAbort(syndrome.0)
    }

    /// Whether the syndrome describes the access: not for pairs, write-back forms, or a walk of stage 1.
    #[inline(always)]
    pub const fn is_described(self) -> bool {
        self.0 & (1 << 24 | 1 << 7) == 1 << 24
    }

    /// Bytes: 1, 2, 4 or 8.
    #[inline(always)]
    pub const fn size(self) -> u8 {
        1 << (self.0 >> 22 & 3)
    }

    /// The same as the devices want it (SAS).
    #[inline(always)]
    pub const fn access_size(self) -> AccessSize {
        AccessSize::from_sas(self.0 >> 22)
    }

    /// Whether it writes.
    #[inline(always)]
    pub const fn is_write(self) -> bool {
        self.0 & 1 << 6 != 0
    }

    /// The register it loads or stores; 31 is xzr.
    #[inline(always)]
    pub const fn rt(self) -> u32 {
        (self.0 >> 16) as u32 & 0x1f
    }

    /// Whether FAR_EL2 does not hold the address (FnV).
    pub const fn far_is_invalid(self) -> bool {
        self.0 & 1 << 10 != 0
    }

    /// Whether a translation fault: nothing is mapped there. Else a permission fault, or something worse.
    #[inline(always)]
    pub const fn is_translation_fault(self) -> bool {
        self.0 & 0x3c == 0x04
    }

    /// What a load of `value` puts into its register: cut to size, sign-extended if it asks for it (SSE), to 32 or 64
    /// bits (SF).
    #[inline(always)]
    pub const fn extend(self, value: u64) -> u64 {
        let unused = 64 - 8 * self.size() as u32;
        let signed = self.0 & 1 << 21 != 0;
        let wide = self.0 & 1 << 15 != 0;
        if signed {
            let extended = ((value << unused) as i64 >> unused) as u64;
            if wide { extended } else { extended & 0xffff_ffff }
        } else {
            value << unused >> unused
        }
    }
}

/// Where the guest-physical address of an abort is to be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultAddress {
    /// In HPFAR_EL2.
    Reported,
    /// Nowhere: FAR_EL2 has to be looked up in the guest's own tables.
    Walk,
    /// It is no abort that a change of stage 2 would cure.
    None,
}

/// What an instruction or data abort says of the page that was accessed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryFault {
    /// Where its address is.
    pub address: FaultAddress,
    /// What the access needs.
    pub access: Access,
}

impl MemoryFault {
    /// What a data abort (`data`) or an instruction abort says.
    pub fn new(syndrome: Syndrome, data: bool) -> MemoryFault {
        let bit = |n: u32| syndrome.0 & 1 << n != 0;
        /// DFSC and IFSC without the level.
        const TRANSLATION: u64 = 0x04;
        const PERMISSION: u64 = 0x0c;
        let permission = syndrome.0 & 0x3c == PERMISSION;
        // S1PTW: it was a walk of the guest's own tables. HPFAR_EL2 holds the address of a walk, and of a translation fault.
        let walk = bit(7);
        let address = match syndrome.0 & 0x3c {
            TRANSLATION => FaultAddress::Reported,
            PERMISSION if walk => FaultAddress::Reported,
            PERMISSION => FaultAddress::Walk,
            _ => FaultAddress::None,
        };
        let write = if walk {
            // WnR is not to be relied on for a walk. Reading is always permitted, so a walk that is not permitted writes: it updates
            // an access flag or dirty state.
            permission
        } else {
            // CM: cache maintenance counts as a write (WnR), and only needs a page to be there.
            data && bit(6) && (permission || !bit(8))
        };
        let access = match (write, data || walk) {
            (true, _) => Access::Write,
            (false, true) => Access::Read,
            (false, false) => Access::Execute,
        };
        MemoryFault { address, access }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memory_fault_is_a_read_or_a_write_and_has_its_address_somewhere() {
        const WNR: u64 = 1 << 6;
        const S1PTW: u64 = 1 << 7;
        const CM: u64 = 1 << 8;
        let fault = |iss: u64, data| {
            let fault = MemoryFault::new(Syndrome(iss), data);
            (fault.address, fault.access)
        };
        for level in 0..4 {
            let (translation, permission) = (0x04 | level, 0x0c | level);
            assert_eq!(fault(translation, true), (FaultAddress::Reported, Access::Read));
            assert_eq!(fault(translation | WNR, true), (FaultAddress::Reported, Access::Write));
            assert_eq!(fault(translation, false), (FaultAddress::Reported, Access::Execute));
            assert_eq!(fault(permission, false), (FaultAddress::Walk, Access::Execute));
            assert_eq!(fault(translation | S1PTW, false), (FaultAddress::Reported, Access::Read));
            // Bit 6 of an instruction abort is reserved.
            assert_eq!(fault(translation | WNR, false), (FaultAddress::Reported, Access::Execute));
            assert_eq!(fault(permission | WNR, true), (FaultAddress::Walk, Access::Write));
            assert_eq!(fault(translation | S1PTW | WNR, true), (FaultAddress::Reported, Access::Read));
            assert_eq!(fault(permission | S1PTW, true), (FaultAddress::Reported, Access::Write));
            assert_eq!(fault(permission | S1PTW, false), (FaultAddress::Reported, Access::Write));
            // DC CIVAC of a page that is not there must not copy it; one that is not permitted must have it.
            assert_eq!(fault(translation | WNR | CM, true), (FaultAddress::Reported, Access::Read));
            assert_eq!(fault(permission | WNR | CM, true), (FaultAddress::Walk, Access::Write));
        }
        for other in [0x08, 0x10, 0x21, 0x30, 0x35] {
            assert_eq!(fault(other, true).0, FaultAddress::None, "{other:#x}");
        }
    }

    #[test]
    fn a_sysreg_is_named_by_five_numbers() {
        // MRS X3, ID_AA64MMFR0_EL1 (op0 3, op1 0, CRn 0, CRm 7, op2 0).
        let syndrome = Syndrome(0x18 << 26 | 1 << 25 | 3 << 20 | 3 << 5 | 7 << 1 | 1);
        assert_eq!(syndrome.class(), class::SYSREG);
        assert_eq!(syndrome.sysreg(), SysReg::new(3, 0, 0, 7, 0));
        assert_eq!(syndrome.sysreg().id_slot(), Some(7 * 8));
        assert_eq!((syndrome.sysreg_rt(), syndrome.sysreg_is_read(), syndrome.length()), (3, true, 4));
        let other = SysReg::new(2, 5, 3, 9, 6);
        assert_eq!((other.op0(), other.op1(), other.crn(), other.crm(), other.op2()), (2, 5, 3, 9, 6));
    }

    #[test]
    fn trap_29_sgi_registers_are_told_from_their_neighbours() {
        let sgi1r = SysReg::new(3, 0, 12, 11, 5);
        for other in
            [SysReg::new(3, 0, 12, 11, 6), SysReg::new(3, 0, 12, 11, 7), SysReg::new(3, 0, 12, 12, 5)]
        {
            assert_ne!(sgi1r, other);
        }
        assert_eq!(sgi1r.id_slot(), None);
        assert!(SysReg::new(3, 0, 2, 3, 1).is_pauth_key() && SysReg::new(3, 0, 2, 1, 0).is_pauth_key());
        // TTBR0_EL1, and what lies behind the last key.
        assert!(!SysReg::new(3, 0, 2, 0, 0).is_pauth_key() && !SysReg::new(3, 0, 2, 3, 2).is_pauth_key());
        assert_eq!(SysReg::new(2, 0, 0, 7, 0).id_slot(), None);
        assert_eq!(SysReg::new(3, 1, 0, 0, 0).id_slot(), None);
    }

    #[test]
    fn loads_are_cut_and_extended() {
        let access =
            |size: u64, signed: u64, wide: u64| DataAbort(1 << 24 | size << 22 | signed << 21 | wide << 15);
        assert_eq!(access(0, 0, 0).extend(0xffff_ff80), 0x80);
        assert_eq!(access(0, 1, 0).extend(0x80), 0xffff_ff80);
        assert_eq!(access(0, 1, 1).extend(0x80), 0xffff_ffff_ffff_ff80);
        assert_eq!(access(1, 1, 1).extend(0x7fff), 0x7fff);
        assert_eq!(access(2, 0, 0).extend(u64::MAX), 0xffff_ffff);
        assert_eq!(access(3, 0, 1).extend(u64::MAX), u64::MAX);
    }

    #[test]
    fn trap_32_pairs_and_stage_1_walks_are_not_described() {
        assert!(DataAbort(1 << 24).is_described());
        assert!(!DataAbort(0).is_described());
        assert!(!DataAbort(1 << 24 | 1 << 7).is_described());
    }
}
