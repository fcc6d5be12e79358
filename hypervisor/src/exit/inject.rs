//! Where an exception that the hypervisor injects enters a guest's EL1 (Arm ARM D1.3, AArch64.TakeException).

/// PC and PSTATE with which EL1 begins to handle an exception.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The vector.
    pub pc: u64,
    /// EL1h, all masked, with the flags that carry over.
    pub pstate: u64,
}

const MODE_MASK: u64 = 0x1f;
const AARCH32: u64 = 1 << 4;
const EL1H_MASKED: u64 = 0x3c5;
const PAN: u64 = 1 << 22;
const DIT: u64 = 1 << 24;
const NZCV: u64 = 0xf << 28;
const SSBS: u64 = 1 << 12;
/// SCTLR_EL1.SPAN: PAN is left alone when it is 1, set when it is 0.
const SCTLR_SPAN: u64 = 1 << 23;
const SCTLR_DSSBS: u64 = 1 << 44;

/// The entry of a synchronous exception from a guest in `pstate` (SPSR_EL2), with its VBAR_EL1 and SCTLR_EL1.
pub fn entry(pstate: u64, vbar: u64, sctlr: u64) -> Entry {
    let offset = match pstate & MODE_MASK {
        mode if mode & AARCH32 != 0 => 0x600,
        0b00000 => 0x400,
        0b00100 => 0,
        _ => 0x200,
    };
    let mut new = EL1H_MASKED | pstate & (PAN | DIT | NZCV);
    // SPAN is RES1 on a CPU without PAN, so a 0 says that there is one.
    if sctlr & SCTLR_SPAN == 0 {
        new |= PAN;
    }
    if sctlr & SCTLR_DSSBS != 0 {
        new |= SSBS;
    }
    Entry { pc: (vbar & !0x7ff).wrapping_add(offset), pstate: new }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vector_depends_on_where_the_guest_was() {
        let pc = |mode| entry(mode, 0xffff_0000_0000_0800, SCTLR_SPAN).pc - 0xffff_0000_0000_0800;
        assert_eq!([pc(0b00100), pc(0b00101), pc(0b00000), pc(0b10000)], [0, 0x200, 0x400, 0x600]);
    }

    #[test]
    fn flags_carry_over_and_interrupts_are_masked() {
        let entered = entry(NZCV | DIT | 5, 0, SCTLR_SPAN);
        assert_eq!(entered.pstate, NZCV | DIT | 0x3c5);
        assert_eq!(entry(5, 0, 0).pstate & PAN, PAN);
        assert_eq!(entry(5, 0, SCTLR_SPAN).pstate & PAN, 0);
        assert_eq!(entry(5, 0, SCTLR_SPAN | SCTLR_DSSBS).pstate & SSBS, SSBS);
    }
}
