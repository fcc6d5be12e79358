//! The machine's own GICv3: distributor and redistributors (IHI 0069, 12.9 and 12.11). The CPU interface is in `arch`.
//!
//! Odometer takes few interrupts: the kick (SGI 0), the virtual and the EL2 timer, the maintenance interrupt, the console.
//! All are in group 1 and of one priority.

use crate::ids::IntId;
use crate::memory::address::{Pa, PaRange};
use crate::platform::machine::GicV3;
use core::fmt;

/// Access to device registers at a physical address.
pub trait Registers {
    /// Reads 32 bits.
    fn read32(&self, at: Pa) -> u32;
    /// Writes 32 bits.
    fn write32(&self, at: Pa, value: u32);
}

const GICD_CTLR: u64 = 0x0;
const GICD_TYPER: u64 = 0x4;
const GICD_IGROUPR: u64 = 0x80;
const GICD_ISENABLER: u64 = 0x100;
const GICD_ICENABLER: u64 = 0x180;
const GICD_ICACTIVER: u64 = 0x380;
const GICD_IPRIORITYR: u64 = 0x400;
const GICD_IROUTER: u64 = 0x6000;
const GICD_PIDR2: u64 = 0xffe8;
/// ARE (of the non-secure view too) and group 1 enabled.
const CTLR_ARE_GROUP1: u32 = 1 << 4 | 1 << 1;
const CTLR_RWP: u32 = 1 << 31;

const GICR_CTLR: u64 = 0x0;
const GICR_TYPER: u64 = 0x8;
const GICR_WAKER: u64 = 0x14;
const TYPER_LAST: u32 = 1 << 4;
const TYPER_VLPIS: u32 = 1 << 1;
const WAKER_PROCESSOR_SLEEP: u32 = 1 << 1;
const WAKER_CHILDREN_ASLEEP: u32 = 1 << 2;
const CTLR_GICR_RWP: u32 = 1 << 3;
/// RD_base and SGI_base, 64 KiB each; with virtual LPIs two more.
const FRAME: u64 = 0x1_0000;

/// Above the middle, so that there is room for more urgent ones.
const PRIORITY: u32 = 0xa0a0_a0a0;
/// How often a register is polled before the GIC is taken for dead.
const PATIENCE: u32 = 1_000_000;

/// What is wrong with the GIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GicError {
    /// GICD_PIDR2.ArchRev is not 3 or 4.
    Version(u32),
    /// No redistributor has this affinity.
    NoRedistributor(u64),
    /// A register write has not become effective.
    Stuck(&'static str),
}

impl fmt::Display for GicError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GicError::Version(version) => {
                write!(f, "GICD_PIDR2 says GICv{version}: GICv3 or GICv4 is needed")
            }
            GicError::NoRedistributor(mpidr) => {
                write!(
                    f,
                    "no redistributor for the CPU with affinity {mpidr:#x}: check the GIC's reg in the device tree"
                )
            }
            GicError::Stuck(what) => write!(f, "the GIC does not respond: {what}"),
        }
    }
}

/// The interrupt controller.
pub struct Gic<R> {
    registers: R,
    dist: Pa,
}

fn at(base: Pa, offset: u64) -> Pa {
    Pa(base.0.wrapping_add(offset))
}

impl<R: Registers> Gic<R> {
    /// The GIC whose distributor is at `dist`.
    pub const fn new(registers: R, dist: Pa) -> Gic<R> {
        Gic { registers, dist }
    }

    /// Brings the distributor into use: every SPI disabled, in group 1, routed to the CPU with affinities `mpidr`.
    ///
    /// # Errors
    ///
    /// It is not a GICv3, or does not respond.
    pub fn init_distributor(&self, mpidr: u64) -> Result<(), GicError> {
        let r = &self.registers;
        let version = r.read32(at(self.dist, GICD_PIDR2)) >> 4 & 0xf;
        if !(3..=4).contains(&version) {
            return Err(GicError::Version(version));
        }
        r.write32(at(self.dist, GICD_CTLR), 0);
        self.wait(at(self.dist, GICD_CTLR), CTLR_RWP, "GICD_CTLR.RWP")?;
        let words = u64::from(r.read32(at(self.dist, GICD_TYPER)) & 0x1f) + 1;
        for word in 1..words {
            r.write32(at(self.dist, GICD_IGROUPR + 4 * word), u32::MAX);
            r.write32(at(self.dist, GICD_ICENABLER + 4 * word), u32::MAX);
            r.write32(at(self.dist, GICD_ICACTIVER + 4 * word), u32::MAX);
            for quarter in 8 * word..8 * word + 8 {
                r.write32(at(self.dist, GICD_IPRIORITYR + 4 * quarter), PRIORITY);
            }
        }
        self.wait(at(self.dist, GICD_CTLR), CTLR_RWP, "GICD_CTLR.RWP")?;
        r.write32(at(self.dist, GICD_CTLR), CTLR_ARE_GROUP1);
        self.wait(at(self.dist, GICD_CTLR), CTLR_RWP, "GICD_CTLR.RWP")?;
        for intid in 32..(32 * words).min(1020) {
            r.write32(at(self.dist, GICD_IROUTER + 8 * intid), mpidr as u32 & 0xff_ffff);
            r.write32(at(self.dist, GICD_IROUTER + 8 * intid + 4), (mpidr >> 32) as u32 & 0xff);
        }
        Ok(())
    }

    /// Enables an SPI.
    pub fn enable_spi(&self, intid: IntId) {
        let (word, bit) = (u64::from(intid.0 / 32), 1 << (intid.0 % 32));
        self.registers.write32(at(self.dist, GICD_ISENABLER + 4 * word), bit);
    }

    /// Disables an interrupt: an SPI, or an SGI or PPI of the CPU whose SGI frame this is.
    pub fn disable(&self, sgi_frame: Pa, intid: IntId) {
        let (word, bit) = (u64::from(intid.0 / 32), 1 << (intid.0 % 32));
        let base = if intid.is_private() { sgi_frame } else { self.dist };
        self.registers.write32(at(base, GICD_ICENABLER + 4 * word), bit);
    }

    /// The RD frame of the CPU with affinities `mpidr`, by GICR_TYPER.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn redistributor(&self, gic: &GicV3, mpidr: u64) -> Result<Pa, GicError> {
        let affinity = (mpidr >> 32 & 0xff) << 24 | mpidr & 0xff_ffff;
        for region in &gic.redist {
            if let Some(frame) = self.find_in(region, gic.redist_stride, affinity as u32) {
                return Ok(frame);
            }
        }
        Err(GicError::NoRedistributor(mpidr))
    }

    fn find_in(&self, region: &PaRange, stride: Option<u64>, affinity: u32) -> Option<Pa> {
        let mut offset = 0;
        while offset + 2 * FRAME <= region.size {
            let frame = at(region.base, offset);
            let typer = self.registers.read32(at(frame, GICR_TYPER));
            if self.registers.read32(at(frame, GICR_TYPER + 4)) == affinity {
                return Some(frame);
            }
            if typer & TYPER_LAST != 0 {
                return None;
            }
            offset += stride.unwrap_or(if typer & TYPER_VLPIS != 0 { 4 * FRAME } else { 2 * FRAME });
        }
        None
    }

    /// Wakes this CPU's redistributor and enables `private` (a bit for each SGI and PPI). Returns its SGI frame.
    ///
    /// # Errors
    ///
    /// It does not wake.
    pub fn init_redistributor(&self, frame: Pa, private: u32) -> Result<Pa, GicError> {
        let r = &self.registers;
        let waker = r.read32(at(frame, GICR_WAKER));
        r.write32(at(frame, GICR_WAKER), waker & !WAKER_PROCESSOR_SLEEP);
        self.wait(at(frame, GICR_WAKER), WAKER_CHILDREN_ASLEEP, "GICR_WAKER.ChildrenAsleep")?;
        let sgi = at(frame, FRAME);
        r.write32(at(sgi, GICD_IGROUPR), u32::MAX);
        r.write32(at(sgi, GICD_ICENABLER), u32::MAX);
        r.write32(at(sgi, GICD_ICACTIVER), u32::MAX);
        for quarter in 0..8 {
            r.write32(at(sgi, GICD_IPRIORITYR + 4 * quarter), PRIORITY);
        }
        self.wait(at(frame, GICR_CTLR), CTLR_GICR_RWP, "GICR_CTLR.RWP")?;
        r.write32(at(sgi, GICD_ISENABLER), private);
        Ok(sgi)
    }

    fn wait(&self, register: Pa, bit: u32, what: &'static str) -> Result<(), GicError> {
        for _ in 0..PATIENCE {
            if self.registers.read32(register) & bit == 0 {
                return Ok(());
            }
        }
        Err(GicError::Stuck(what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::collections::HashMap;

    /// Registers as memory, with each redistributor's affinity.
    struct Fake {
        words: RefCell<HashMap<u64, u32>>,
    }

    impl Registers for &Fake {
        fn read32(&self, at: Pa) -> u32 {
            self.words.borrow().get(&at.0).copied().unwrap_or(0)
        }

        fn write32(&self, at: Pa, value: u32) {
            // It stays asleep as the test left it.
            self.words.borrow_mut().insert(at.0, value);
        }
    }

    fn gic(regions: &[(u64, u64)]) -> GicV3 {
        GicV3 {
            dist: PaRange::new(Pa(0x800_0000), 0x1_0000),
            redist: regions.iter().map(|&(base, size)| PaRange::new(Pa(base), size)).collect(),
            redist_stride: None,
            maintenance: IntId(25),
        }
    }

    fn machine(cpus: u64) -> Fake {
        let mut words = HashMap::from([(0x800_ffe8, 0x3b), (0x800_0004, 2)]);
        for cpu in 0..cpus {
            let frame = 0x80a_0000 + cpu * 0x2_0000;
            let last = if cpu == cpus - 1 { TYPER_LAST } else { 0 };
            words.insert(frame + 8, last);
            words.insert(frame + 12, ((cpu / 16) << 8 | (cpu % 16)) as u32);
            words.insert(frame + 0x14, 6);
        }
        Fake { words: RefCell::new(words) }
    }

    #[test]
    fn trap_23_redistributors_are_found_by_affinity_beyond_16_cpus() {
        let fake = machine(40);
        let gic_v3 = gic(&[(0x80a_0000, 40 * 0x2_0000)]);
        let gic = Gic::new(&fake, gic_v3.dist.base);
        assert_eq!(gic.redistributor(&gic_v3, 0x102), Ok(Pa(0x80a_0000 + 18 * 0x2_0000)));
        assert_eq!(gic.redistributor(&gic_v3, 0x300), Err(GicError::NoRedistributor(0x300)));
    }

    #[test]
    fn trap_16_a_redistributor_that_does_not_wake_is_an_error() {
        let fake = machine(1);
        let frame = Pa(0x80a_0000);
        let gic = Gic::new(&fake, Pa(0x800_0000));
        assert_eq!(gic.init_redistributor(frame, 1), Err(GicError::Stuck("GICR_WAKER.ChildrenAsleep")));
        fake.words.borrow_mut().insert(frame.0 + 0x14, 2);
        assert_eq!(gic.init_redistributor(frame, 0x801), Ok(Pa(frame.0 + 0x1_0000)));
        assert_eq!(fake.words.borrow()[&(frame.0 + 0x1_0100)], 0x801);
    }

    #[test]
    fn the_distributor_must_be_a_gicv3() {
        let fake = machine(1);
        let gic = Gic::new(&fake, Pa(0x800_0000));
        assert_eq!(gic.init_distributor(0), Ok(()));
        assert_eq!(fake.words.borrow()[&0x800_0000], CTLR_ARE_GROUP1);
        fake.words.borrow_mut().insert(0x800_ffe8, 0x2b);
        assert_eq!(gic.init_distributor(0), Err(GicError::Version(2)));
    }
}
