//! What is counted, and how an instruction of that kind is recognised (Arm ARM DDI 0487: C5.3 barriers and exception return, C5.5 and
//! D24.1 encodings of system instructions, D1.3.1 vectors).

use crate::tlbi::Tlbi;

/// Why a vector is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vector {
    /// A synchronous exception: ESR_EL2 says of which class.
    Synchronous,
    /// An IRQ.
    Irq,
    /// An FIQ.
    Fiq,
    /// An SError.
    Serror,
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// ERET: Odometer enters a guest.
    Entry,
    /// The first instruction of a vector for a lower exception level: a guest was left.
    Exit(Vector),
    /// The first instruction of a vector for EL2 itself: a fault of Odometer.
    OwnException,
    /// VTTBR_EL2 is written from this general-purpose register.
    VttbrWrite(u8),
    /// TPIDR_EL2 is written from this register: a CPU gets the name that it keeps.
    TpidrWrite(u8),
    /// DSB ISH.
    Barrier,
    /// A TLB invalidation.
    Tlbi(Tlbi),
}

/// An instruction that is counted, small enough to be handed to QEMU and got back with each execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Site {
    word: u32,
    /// The number of the vector, if it is the first instruction of one.
    vector: Option<u8>,
}

impl Site {
    /// The instruction `word` at `offset` bytes into the image, whose vectors are at `vectors`; `None` if it isn't counted.
    pub fn of(word: u32, offset: u64, vectors: u64) -> Option<Site> {
        let into = offset.wrapping_sub(vectors);
        let vector = (into < 0x800 && into.is_multiple_of(0x80)).then_some((into / 0x80) as u8);
        let site = Site { word, vector };
        site.event().map(|_| site)
    }

    /// As a number.
    pub fn pack(self) -> usize {
        let vector = self.vector.map_or(0, |vector| usize::from(vector) + 1);
        vector << 32 | self.word as usize
    }

    /// From its number.
    pub fn unpack(number: usize) -> Site {
        let vector = (number >> 32) as u8;
        Site { word: number as u32, vector: vector.checked_sub(1) }
    }

    /// What its execution is.
    pub fn event(self) -> Option<Event> {
        const ERET: u32 = 0xd69f_03e0;
        const DSB_ISH: u32 = 0xd503_3b9f;
        /// MSR VTTBR_EL2, Xt (S3_4_C2_C1_0), without Xt.
        const MSR_VTTBR: u32 = 0xd51c_2100;
        /// MSR TPIDR_EL2, Xt (S3_4_C13_C0_2), without Xt.
        const MSR_TPIDR: u32 = 0xd51c_d040;
        const RT: u32 = 0x1f;
        let register = (self.word & RT) as u8;
        match self.word {
            _ if self.vector.is_some() => self.vector.map(of_vector),
            ERET => Some(Event::Entry),
            DSB_ISH => Some(Event::Barrier),
            word if word & !RT == MSR_VTTBR => Some(Event::VttbrWrite(register)),
            word if word & !RT == MSR_TPIDR => Some(Event::TpidrWrite(register)),
            word => Tlbi::of(word).map(Event::Tlbi),
        }
    }
}

/// Sixteen vectors: four for EL2 with SP_EL0, four with SP_EL2, four for a lower level in AArch64 and four in AArch32.
fn of_vector(number: u8) -> Event {
    match number {
        0..8 => Event::OwnException,
        8 | 12 => Event::Exit(Vector::Synchronous),
        9 | 13 => Event::Exit(Vector::Irq),
        10 | 14 => Event::Exit(Vector::Fiq),
        _ => Event::Exit(Vector::Serror),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOWHERE: u64 = 0x1_0000;

    fn of(word: u32) -> Option<Event> {
        Site::of(word, 0, NOWHERE).and_then(Site::event)
    }

    /// As an assembler encodes them, with registers where there are any.
    #[test]
    fn instructions_are_told_apart() {
        let encodings = [
            (0xd69f_03e0, Event::Entry),               // eret
            (0xd51c_2100, Event::VttbrWrite(0)),       // msr vttbr_el2, x0
            (0xd51c_2113, Event::VttbrWrite(19)),      // msr vttbr_el2, x19
            (0xd51c_211f, Event::VttbrWrite(31)),      // msr vttbr_el2, xzr
            (0xd51c_d048, Event::TpidrWrite(8)),       // msr tpidr_el2, x8
            (0xd503_3b9f, Event::Barrier),             // dsb ish
            (0xd50c_839f, Event::Tlbi(Tlbi::Alle1Is)), // tlbi alle1is
        ];
        for (word, event) in encodings {
            assert_eq!(of(word), Some(event), "{word:#x}");
        }
    }

    #[test]
    fn all_else_is_nothing() {
        // nop; dsb sy; dsb ishst; dmb ish; isb; mrs x0, vttbr_el2; msr vtcr_el2, x0; mrs x0, tpidr_el2; ic iallu; dc civac, x0;
        // hvc #0; ret; at s1e1r, x0
        let others = [
            0xd503_201f,
            0xd503_3f9f,
            0xd503_3a9f,
            0xd503_3bbf,
            0xd503_3fdf,
            0xd53c_2100,
            0xd51c_2140,
            0xd53c_d040,
            0xd508_751f,
            0xd50b_7e20,
            0xd400_0002,
            0xd65f_03c0,
            0xd508_7800,
        ];
        for word in others {
            assert_eq!(of(word), None, "{word:#x}");
        }
    }

    #[test]
    fn vectors_are_known_by_their_place_and_only_at_their_first_instruction() {
        const STP: u32 = 0xa900_07e0; // stp x0, x1, [sp]
        let at = |into: u64| Site::of(STP, 0x800 + into, 0x800).and_then(Site::event);
        let kinds = [Vector::Synchronous, Vector::Irq, Vector::Fiq, Vector::Serror];
        for (number, kind) in (0..).zip(kinds.into_iter().chain(kinds)) {
            assert_eq!(at(0x80 * number), Some(Event::OwnException));
            assert_eq!(at(0x400 + 0x80 * number), Some(Event::Exit(kind)));
        }
        assert_eq!([at(4), at(0x404), at(0x47c), at(0x800)], [None; 4]);
        assert_eq!(Site::of(STP, 0x700, 0x800), None);
    }

    #[test]
    fn a_site_comes_back_as_it_was() {
        let sites =
            [(0xa900_07e0, 0xf80), (0xa900_07e0, 0x800), (0xd69f_03e0, 0x1000), (0xd51c_2113, 0x2000)];
        for (word, offset) in sites {
            let site = Site::of(word, offset, 0x800).unwrap();
            assert_eq!(Site::unpack(site.pack()), site);
        }
    }
}
