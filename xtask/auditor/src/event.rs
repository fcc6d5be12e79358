//! What is counted, and how an instruction of that kind is recognised (Arm ARM DDI 0487: C5.3 barriers and exception return, C5.5 and
//! D24.1 encodings of system instructions).

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Event {
    /// ERET: Odometer enters a guest.
    Entry,
    /// The first instruction of a vector for a lower exception level: a guest was left.
    Exit,
    /// The first instruction of a vector for EL2 itself: a fault of Odometer.
    OwnException,
    /// A write of VTTBR_EL2.
    VttbrWrite,
    /// DSB ISH with invalidations to wait for that this CPU has sent to all since its last one.
    Barrier,
    /// All guests' entries, on every CPU.
    Alle1Is,
    /// All guests' entries, on this CPU.
    Alle1,
    /// All of a VMID, on every CPU.
    Vmalls12e1Is,
    /// All of a VMID, on this CPU.
    Vmalls12e1,
    /// Stage 2 of one page of a VMID, on every CPU.
    Ipas2e1Is,
    /// Stage 1 of a VMID, on every CPU.
    Vmalle1Is,
    /// Stage 1 of a VMID, on this CPU.
    Vmalle1,
    /// Any invalidation of EL2's own translations.
    Own,
    /// Any other TLB invalidation: Odometer has none.
    Other,
}

impl Event {
    /// All of them, each at the place of its number.
    pub const ALL: [Event; 14] = [
        Event::Entry,
        Event::Exit,
        Event::OwnException,
        Event::VttbrWrite,
        Event::Barrier,
        Event::Alle1Is,
        Event::Alle1,
        Event::Vmalls12e1Is,
        Event::Vmalls12e1,
        Event::Ipas2e1Is,
        Event::Vmalle1Is,
        Event::Vmalle1,
        Event::Own,
        Event::Other,
    ];

    /// Its name in the record.
    pub const fn name(self) -> &'static str {
        match self {
            Event::Entry => "entry",
            Event::Exit => "exit",
            Event::OwnException => "own_exception",
            Event::VttbrWrite => "vttbr_write",
            Event::Barrier => "barrier",
            Event::Alle1Is => "alle1is",
            Event::Alle1 => "alle1",
            Event::Vmalls12e1Is => "vmalls12e1is",
            Event::Vmalls12e1 => "vmalls12e1",
            Event::Ipas2e1Is => "ipas2e1is",
            Event::Vmalle1Is => "vmalle1is",
            Event::Vmalle1 => "vmalle1",
            Event::Own => "own_tlbi",
            Event::Other => "other_tlbi",
        }
    }

    /// Whether other CPUs are asked to invalidate, so that a barrier has to wait for them.
    pub const fn is_broadcast(self) -> bool {
        matches!(self, Event::Alle1Is | Event::Vmalls12e1Is | Event::Ipas2e1Is | Event::Vmalle1Is)
    }

    /// The event that the instruction `word` at `offset` bytes into the image is; `vectors` is where the table of vectors is.
    pub fn of(word: u32, offset: u64, vectors: u64) -> Option<Event> {
        Self::of_vector(offset.wrapping_sub(vectors)).or_else(|| Self::of_word(word))
    }

    /// Sixteen vectors, 128 bytes each: four for EL2 with SP_EL0, four with SP_EL2, eight for lower levels (D1.3.1).
    fn of_vector(into: u64) -> Option<Event> {
        match into {
            0..0x400 if into.is_multiple_of(0x80) => Some(Event::OwnException),
            0x400..0x800 if into.is_multiple_of(0x80) => Some(Event::Exit),
            _ => None,
        }
    }

    fn of_word(word: u32) -> Option<Event> {
        const ERET: u32 = 0xd69f_03e0;
        const DSB_ISH: u32 = 0xd503_3b9f;
        /// MSR VTTBR_EL2, Xt (S3_4_C2_C1_0), without Xt.
        const MSR_VTTBR: u32 = 0xd51c_2100;
        const RT: u32 = 0x1f;
        match word {
            ERET => Some(Event::Entry),
            DSB_ISH => Some(Event::Barrier),
            _ if word & !RT == MSR_VTTBR => Some(Event::VttbrWrite),
            _ => Self::of_tlbi(word),
        }
    }

    /// TLBI is SYS with CRn 8, and 9 for its nXS form.
    fn of_tlbi(word: u32) -> Option<Event> {
        /// SYS, without op1, CRn, CRm, op2 and Xt.
        const SYS: u32 = 0xd508_0000;
        let field = |low: u32, bits: u32| word >> low & ((1 << bits) - 1);
        if word & 0xfff8_0000 != SYS || !matches!(field(12, 4), 8 | 9) {
            return None;
        }
        Some(match (field(12, 4), field(16, 3), field(8, 4), field(5, 3)) {
            (8, 0, 3, 0) => Event::Vmalle1Is,
            (8, 0, 7, 0) => Event::Vmalle1,
            (8, 4, 0, 1) => Event::Ipas2e1Is,
            (8, 4, 3, 4) => Event::Alle1Is,
            (8, 4, 7, 4) => Event::Alle1,
            (8, 4, 3, 6) => Event::Vmalls12e1Is,
            (8, 4, 7, 6) => Event::Vmalls12e1,
            // ALLE2, VAE2, VALE2: of this CPU, of all.
            (8, 4, 3 | 7, 0 | 1 | 5) => Event::Own,
            _ => Event::Other,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOWHERE: u64 = 0x1_0000;

    fn of(word: u32) -> Option<Event> {
        Event::of(word, 0, NOWHERE)
    }

    #[test]
    fn each_event_is_at_its_number_and_has_a_name_of_its_own() {
        for (number, event) in Event::ALL.into_iter().enumerate() {
            assert_eq!(event as usize, number);
            assert!(Event::ALL.iter().filter(|other| other.name() == event.name()).count() == 1);
        }
    }

    /// As an assembler encodes them, with registers where there are any.
    #[test]
    fn instructions_are_told_apart() {
        let encodings = [
            (0xd69f_03e0, Event::Entry),        // eret
            (0xd51c_2100, Event::VttbrWrite),   // msr vttbr_el2, x0
            (0xd51c_2113, Event::VttbrWrite),   // msr vttbr_el2, x19
            (0xd503_3b9f, Event::Barrier),      // dsb ish
            (0xd50c_839f, Event::Alle1Is),      // tlbi alle1is
            (0xd50c_879f, Event::Alle1),        // tlbi alle1
            (0xd50c_83df, Event::Vmalls12e1Is), // tlbi vmalls12e1is
            (0xd50c_87df, Event::Vmalls12e1),   // tlbi vmalls12e1
            (0xd50c_8028, Event::Ipas2e1Is),    // tlbi ipas2e1is, x8
            (0xd508_831f, Event::Vmalle1Is),    // tlbi vmalle1is
            (0xd508_871f, Event::Vmalle1),      // tlbi vmalle1
            (0xd50c_871f, Event::Own),          // tlbi alle2
            (0xd50c_8323, Event::Own),          // tlbi vae2is, x3
            (0xd508_8323, Event::Other),        // tlbi vae1is, x3
            (0xd50c_80a3, Event::Other),        // tlbi ipas2le1is, x3
            (0xd508_931f, Event::Other),        // tlbi vmalle1isnxs
            (0xd50e_871f, Event::Other),        // tlbi alle3
        ];
        for (word, event) in encodings {
            assert_eq!(of(word), Some(event), "{word:#x}");
        }
    }

    #[test]
    fn all_else_is_nothing() {
        // nop; dsb sy; dsb ishst; dmb ish; isb; mrs x0, vttbr_el2; msr vtcr_el2, x0; ic iallu; dc civac, x0; hvc #0; ret; at s1e1r, x0
        let others = [
            0xd503_201f,
            0xd503_3f9f,
            0xd503_3a9f,
            0xd503_3bbf,
            0xd503_3fdf,
            0xd53c_2100,
            0xd51c_2140,
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
        let at = |into: u64| Event::of(0xa900_07e0, 0x800 + into, 0x800); // stp x0, x1, [sp]
        for vector in 0..8 {
            assert_eq!(at(0x80 * vector), Some(Event::OwnException));
            assert_eq!(at(0x400 + 0x80 * vector), Some(Event::Exit));
        }
        assert_eq!([at(4), at(0x404), at(0x47c), at(0x800)], [None; 4]);
        assert_eq!(Event::of(0xa900_07e0, 0x700, 0x800), None);
    }
}
