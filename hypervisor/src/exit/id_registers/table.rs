//! What guests are told of each field of the ID registers (Arm ARM D24.2), as a table. docs/id-registers.md has the same table with
//! the reasons; a test compares the two.
//!
//! A field that is not here reads as zero: a feature that came after this table is not offered until somebody has looked at
//! what it needs.

use super::slot;

/// What guests are told of a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// What the CPU says.
    Offered,
    /// What the CPU says, but at most this: what is above it is hidden.
    AtMost(u64),
    /// Always this.
    Fixed(u64),
    /// 0: there is no such feature.
    Hidden,
}

/// A field of four bits.
pub struct Field {
    /// Its lowest bit.
    pub shift: u32,
    /// What guests are told of it.
    pub rule: Rule,
    /// Its name.
    #[cfg(test)]
    pub name: &'static str,
}

impl Field {
    /// What guests read in the whole register of this field, of a CPU whose register has this value.
    pub const fn apply(&self, value: u64) -> u64 {
        let own = value >> self.shift & 0xf;
        let told = match self.rule {
            Rule::Offered => own,
            Rule::AtMost(most) if own < most => own,
            Rule::AtMost(told) | Rule::Fixed(told) => told,
            Rule::Hidden => 0,
        };
        told << self.shift
    }
}

/// A register of which guests are told something.
pub struct Register {
    /// Its place: CRm, op2.
    pub slot: usize,
    /// Its fields.
    pub fields: &'static [Field],
    /// Its name.
    #[cfg(test)]
    pub name: &'static str,
}

macro_rules! registers {
    ($($register:ident ($crm:literal, $op2:literal) { $($name:ident $shift:literal $rule:expr;)* })*) => {
        /// The registers of AArch64 that are not zero for guests.
        pub const REGISTERS: &[Register] = &[$(Register {
            slot: slot($crm, $op2),
            fields: &[$(Field { shift: $shift, rule: $rule, #[cfg(test)] name: stringify!($name) },)*],
            #[cfg(test)]
            name: stringify!($register),
        },)*];
    };
}

use Rule::{AtMost, Fixed, Hidden, Offered};

registers! {
    ID_AA64PFR0_EL1 (4, 0) {
        EL0 0 Offered;
        EL1 4 AtMost(1);
        EL2 8 Hidden;
        EL3 12 Hidden;
        FP 16 Offered;
        AdvSIMD 20 Offered;
        GIC 24 Fixed(1);
        RAS 28 Hidden;
        SVE 32 Hidden;
        SEL2 36 Hidden;
        MPAM 40 Hidden;
        AMU 44 Hidden;
        DIT 48 Offered;
        RME 52 Hidden;
        CSV2 56 AtMost(1);
        CSV3 60 Offered;
    }
    ID_AA64PFR1_EL1 (4, 1) {
        BT 0 Offered;
        SSBS 4 Offered;
        MTE 8 Hidden;
        RAS_frac 12 Hidden;
        MPAM_frac 16 Hidden;
        SME 24 Hidden;
        RNDR_trap 28 Hidden;
        CSV2_frac 32 Hidden;
        NMI 36 Hidden;
        MTE_frac 40 Hidden;
        GCS 44 Hidden;
        THE 48 Hidden;
        MTEX 52 Hidden;
        DF2 56 Hidden;
        PFAR 60 Hidden;
    }
    ID_AA64DFR0_EL1 (5, 0) {
        DebugVer 0 AtMost(6);
        TraceVer 4 Hidden;
        PMUVer 8 Hidden;
        BRPs 12 AtMost(1);
        PMSS 16 Hidden;
        WRPs 20 AtMost(1);
        SEBEP 24 Hidden;
        CTX_CMPs 28 Hidden;
        PMSVer 32 Hidden;
        DoubleLock 36 Fixed(15);
        TraceFilt 40 Hidden;
        TraceBuffer 44 Hidden;
        MTPMU 48 Hidden;
        BRBE 52 Hidden;
        ExtTrcBuff 56 Hidden;
        HPMN0 60 Hidden;
    }
    ID_AA64ISAR0_EL1 (6, 0) {
        AES 4 Offered;
        SHA1 8 Offered;
        SHA2 12 Offered;
        CRC32 16 Offered;
        Atomic 20 Offered;
        TME 24 Hidden;
        RDM 28 Offered;
        SHA3 32 Offered;
        SM3 36 Offered;
        SM4 40 Offered;
        DP 44 Offered;
        FHM 48 Offered;
        TS 52 Offered;
        TLB 56 Offered;
        RNDR 60 Offered;
    }
    ID_AA64ISAR1_EL1 (6, 1) {
        DPB 0 Offered;
        APA 4 Offered;
        API 8 Offered;
        JSCVT 12 Offered;
        FCMA 16 Offered;
        LRCPC 20 Offered;
        GPA 24 Offered;
        GPI 28 Offered;
        FRINTTS 32 Offered;
        SB 36 Offered;
        SPECRES 40 Offered;
        BF16 44 Offered;
        DGH 48 Offered;
        I8MM 52 Offered;
        XS 56 Offered;
        LS64 60 Hidden;
    }
    ID_AA64ISAR2_EL1 (6, 2) {
        WFxT 0 Hidden;
        RPRES 4 Offered;
        GPA3 8 Offered;
        APA3 12 Offered;
        MOPS 16 Hidden;
        BC 20 Offered;
        PAC_frac 24 Offered;
        CLRBHB 28 Offered;
        SYSREG_128 32 Hidden;
        SYSINSTR_128 36 Hidden;
        PRFMSLC 40 Offered;
        RPRFM 48 Offered;
        CSSC 52 Offered;
        ATS1A 60 Hidden;
    }
    ID_AA64MMFR0_EL1 (7, 0) {
        PARange 0 Offered;
        ASIDBits 4 Offered;
        BigEnd 8 Offered;
        SNSMem 12 Offered;
        BigEndEL0 16 Offered;
        TGran16 20 Offered;
        TGran64 24 Offered;
        TGran4 28 Offered;
        TGran16_2 32 Hidden;
        TGran64_2 36 Hidden;
        TGran4_2 40 Hidden;
        ExS 44 Offered;
        FGT 56 Hidden;
        ECV 60 AtMost(1);
    }
    ID_AA64MMFR1_EL1 (7, 1) {
        HAFDBS 0 AtMost(2);
        VMIDBits 4 Hidden;
        VH 8 Hidden;
        HPDS 12 Offered;
        LO 16 Hidden;
        PAN 20 Offered;
        SpecSEI 24 Offered;
        XNX 28 Hidden;
        TWED 32 Hidden;
        ETS 36 Offered;
        HCX 40 Hidden;
        AFP 44 Offered;
        nTLBPA 48 Offered;
        TIDCP1 52 Hidden;
        CMOW 56 Offered;
        ECBHB 60 Offered;
    }
    ID_AA64MMFR2_EL1 (7, 2) {
        CnP 0 Offered;
        UAO 4 Offered;
        LSM 8 Offered;
        IESB 12 Hidden;
        VARange 16 Offered;
        CCIDX 20 Offered;
        NV 24 Hidden;
        ST 28 Offered;
        AT 32 Offered;
        IDS 36 Offered;
        FWB 40 Hidden;
        TTL 48 Offered;
        BBM 52 Offered;
        EVT 56 Hidden;
        E0PD 60 Offered;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::format;
    use std::string::{String, ToString};
    use std::vec::Vec;

    #[test]
    fn fields_are_in_order_and_named_once() {
        for register in REGISTERS {
            let shifts: Vec<u32> = register.fields.iter().map(|field| field.shift).collect();
            assert!(shifts.iter().all(|shift| shift % 4 == 0) && shifts.is_sorted(), "{}", register.name);
            assert!(shifts.windows(2).all(|pair| pair[0] != pair[1]), "{}", register.name);
        }
    }

    /// Rows of the documents' table: `REGISTER.FIELD` and the word that says what guests are told of it.
    fn documented() -> BTreeMap<String, String> {
        let text = include_str!("../../../../docs/id-registers.md");
        let mut found = BTreeMap::new();
        for line in text.lines().filter(|line| line.starts_with("| `ID_AA64")) {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let (register, fields) = cells[0].trim_matches('`').split_once('.').expect("REGISTER.FIELD");
            for field in fields.split(", ") {
                let twice = found.insert(format!("{register}.{field}"), cells[1].to_string());
                assert!(twice.is_none(), "{register}.{field} stands twice in docs/id-registers.md");
            }
        }
        found
    }

    #[test]
    fn the_documents_table_is_this_one() {
        let word = |rule: Rule| match rule {
            Rule::Offered => "offered".to_string(),
            Rule::AtMost(most) => format!("at most {most}"),
            Rule::Fixed(value) => format!("always {value}"),
            Rule::Hidden => "hidden".to_string(),
        };
        let fields = REGISTERS.iter().flat_map(|register| {
            register
                .fields
                .iter()
                .map(|field| (format!("{}.{}", register.name, field.name), word(field.rule)))
        });
        let here: BTreeMap<String, String> = fields.collect();
        assert_eq!(documented(), here);
    }
}
