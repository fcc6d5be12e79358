//! The order of barriers around the invalidation of guests' translations (Arm ARM D8.17): what unit tests can't see, as it is assembly.

use anyhow::{Result, bail};

use super::{function, instructions, parse, refuse};

pub(super) const ISB: u32 = 0xd503_3fdf;
const DSB_ISHST: u32 = 0xd503_3a9f;
const DSB_ISH: u32 = 0xd503_3b9f;
const DSB_NSH: u32 = 0xd503_379f;
const IPAS2E1IS: u32 = 0xd50c_8020;
const VMALLE1IS: u32 = 0xd508_831f;
const ALLE1IS: u32 = 0xd50c_839f;
const VMALLE1: u32 = 0xd508_871f;
const IC_IALLU: u32 = 0xd508_751f;
/// The register of an instruction that takes one.
const RT: u32 = 0x1f;

/// What has to stand before and after an invalidation.
struct Order {
    name: &'static str,
    /// The invalidation, its register aside.
    word: u32,
    before: &'static [u32],
    after: &'static [u32],
}

const ORDERS: [Order; 3] = [
    Order {
        name: "tlbi ipas2e1is",
        word: IPAS2E1IS,
        before: &[],
        // Entries of both stages go after those of stage 2 alone, of which they would be made again.
        after: &[DSB_ISH, VMALLE1IS, DSB_ISH, ISB],
    },
    Order { name: "tlbi alle1is", word: ALLE1IS, before: &[DSB_ISHST], after: &[DSB_ISH, ISB] },
    Order { name: "tlbi vmalle1", word: VMALLE1, before: &[ISB], after: &[IC_IALLU, DSB_NSH] },
];

/// Each of these invalidations is in the file, and everywhere in its order.
///
/// # Errors
/// One is not: its address and function are named. Or the file is no arm64 ELF file.
pub fn invalidations(file: &[u8]) -> Result<()> {
    let elf = parse(file)?;
    let words = instructions(&elf)?;
    let mut found = Vec::new();
    for order in &ORDERS {
        let is_it = |word: u32| word & !RT == order.word & !RT;
        let places = words.iter().enumerate().filter(|(_, (_, word))| is_it(*word));
        let mut count = 0;
        for (at, (address, _)) in places {
            count += 1;
            let around = |start: Option<usize>, expected: &[u32]| {
                let words = start.and_then(|start| words.get(start..start + expected.len()));
                words.is_some_and(|words| words.iter().map(|(_, word)| word).eq(expected))
            };
            if !around(at.checked_sub(order.before.len()), order.before) || !around(Some(at + 1), order.after)
            {
                found.push(format!("{address:#x} {} in {}", order.name, function(&elf, *address)));
            }
        }
        if count == 0 {
            bail!("the image has no `{}`", order.name);
        }
    }
    refuse("invalidations without the barriers that belong to them", &found)
}

#[cfg(test)]
mod tests {
    use super::super::tests::code;
    use super::*;

    const NOP: u32 = 0xd503_201f;
    const GOOD: [u32; 15] = [
        NOP,
        IPAS2E1IS | 3,
        DSB_ISH,
        VMALLE1IS,
        DSB_ISH,
        ISB,
        DSB_ISHST,
        ALLE1IS,
        DSB_ISH,
        ISB,
        ISB,
        VMALLE1,
        IC_IALLU,
        DSB_NSH,
        NOP,
    ];

    #[test]
    fn trap_1_an_invalidation_without_what_belongs_to_it_is_found() {
        assert!(invalidations(&code(&GOOD, &[("$x", 0)])).is_ok());
        // Each barrier or invalidation in turn is left out.
        for at in 1..GOOD.len() - 1 {
            // Where there are two ISBs in a row one of them is enough.
            if GOOD[at] == ISB && at == 10 {
                continue;
            }
            let mut words = GOOD;
            words[at] = NOP;
            let error = invalidations(&code(&words, &[("$x", 0), ("flush", 4)]))
                .expect_err("it is found")
                .to_string();
            assert!(error.contains("tlbi"), "{at}: {error}");
        }
    }
}
