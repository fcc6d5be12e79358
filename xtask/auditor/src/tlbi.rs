//! TLB invalidations by kind.

/// A kind of TLB invalidation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tlbi {
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
    /// Any other: Odometer has none.
    Other,
}

impl Tlbi {
    /// The invalidation that an instruction is: SYS with CRn 8, and 9 for the nXS form.
    pub fn of(word: u32) -> Option<Tlbi> {
        /// SYS, without op1, CRn, CRm, op2 and Xt.
        const SYS: u32 = 0xd508_0000;
        let field = |low: u32, bits: u32| word >> low & ((1 << bits) - 1);
        if word & 0xfff8_0000 != SYS || !matches!(field(12, 4), 8 | 9) {
            return None;
        }
        Some(match (field(12, 4), field(16, 3), field(8, 4), field(5, 3)) {
            (8, 0, 3, 0) => Tlbi::Vmalle1Is,
            (8, 0, 7, 0) => Tlbi::Vmalle1,
            (8, 4, 0, 1) => Tlbi::Ipas2e1Is,
            (8, 4, 3, 4) => Tlbi::Alle1Is,
            (8, 4, 7, 4) => Tlbi::Alle1,
            (8, 4, 3, 6) => Tlbi::Vmalls12e1Is,
            (8, 4, 7, 6) => Tlbi::Vmalls12e1,
            // ALLE2, VAE2, VALE2: of this CPU, of all.
            (8, 4, 3 | 7, 0 | 1 | 5) => Tlbi::Own,
            _ => Tlbi::Other,
        })
    }

    /// Its name in the record.
    pub const fn name(self) -> &'static str {
        match self {
            Tlbi::Alle1Is => "alle1is",
            Tlbi::Alle1 => "alle1",
            Tlbi::Vmalls12e1Is => "vmalls12e1is",
            Tlbi::Vmalls12e1 => "vmalls12e1",
            Tlbi::Ipas2e1Is => "ipas2e1is",
            Tlbi::Vmalle1Is => "vmalle1is",
            Tlbi::Vmalle1 => "vmalle1",
            Tlbi::Own => "own_tlbi",
            Tlbi::Other => "other_tlbi",
        }
    }

    /// Whether other CPUs are asked to invalidate guests' entries, so that a barrier has to wait for them.
    pub const fn is_broadcast(self) -> bool {
        matches!(self, Tlbi::Alle1Is | Tlbi::Vmalls12e1Is | Tlbi::Ipas2e1Is | Tlbi::Vmalle1Is)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_apart() {
        let encodings = [
            (0xd50c_839f, Tlbi::Alle1Is),
            (0xd50c_879f, Tlbi::Alle1),
            (0xd50c_83df, Tlbi::Vmalls12e1Is),
            (0xd50c_87df, Tlbi::Vmalls12e1),
            (0xd50c_8028, Tlbi::Ipas2e1Is), // of x8
            (0xd508_831f, Tlbi::Vmalle1Is),
            (0xd508_871f, Tlbi::Vmalle1),
            (0xd50c_871f, Tlbi::Own),   // alle2
            (0xd50c_8323, Tlbi::Own),   // vae2is, x3
            (0xd508_8323, Tlbi::Other), // vae1is, x3
            (0xd50c_80a3, Tlbi::Other), // ipas2le1is, x3
            (0xd508_931f, Tlbi::Other), // vmalle1isnxs
            (0xd50e_871f, Tlbi::Other), // alle3
        ];
        for (word, kind) in encodings {
            assert_eq!(Tlbi::of(word), Some(kind), "{word:#x}");
        }
        // ic iallu; dc civac, x0; at s1e1r, x0
        assert_eq!([0xd508_751f, 0xd50b_7e20, 0xd508_7800].map(Tlbi::of), [None; 3]);
    }
}
