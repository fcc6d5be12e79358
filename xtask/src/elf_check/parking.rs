//! The world switch parks VTTBR_EL2, and waits until the walker knows, before it gives the VMID up (`unbind` in the hypervisor's
//! `scheduler/binding.rs`). No test sees that ISB missing: no emulated walker goes on with an older VTTBR_EL2.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use object::{Object, ObjectSymbol};

use super::{function, instructions, parse, path, place, refuse, tlb::ISB};

/// The allocator's part of leaving a VM.
const GIVE_UP: &str = "odometer::scheduler::binding::vmid_out";
/// `msr vttbr_el2`, its register aside.
const WRITE_VTTBR: u32 = 0xd51c_2100;
const REGISTER: u32 = 0x1f;

/// On every way to a call of [`GIVE_UP`] VTTBR_EL2 is written, and then comes an ISB.
///
/// # Errors
/// There is a way without it, or no call at all; or the file is no arm64 ELF file.
pub fn parking(file: &[u8]) -> Result<()> {
    let elf = parse(file)?;
    let words = instructions(&elf)?;
    let target = place(&elf, GIVE_UP)?.start;
    let calls = words.iter().filter(|(address, word)| path::target(*address, *word) == Some(target));
    let (mut count, mut wrong) = (0, Vec::new());
    for &(call, _) in calls {
        count += 1;
        let around = |symbol: &object::read::elf::ElfSymbol64<'_, '_, _>| {
            (symbol.address()..symbol.address() + symbol.size()).contains(&call)
        };
        let symbol = elf.symbols().find(around).with_context(|| format!("{call:#x} is in no function"))?;
        let end = symbol.address() + symbol.size();
        let at = |address| words.partition_point(|(other, _)| *other < address);
        if !is_parked(&words[at(symbol.address())..at(end)], call) {
            wrong.push(format!("{call:#x} in {}", function(&elf, call)));
        }
    }
    ensure!(count > 0, "nobody calls {GIVE_UP}");
    refuse("calls that give a VMID up without `msr vttbr_el2` and `isb` before them", &wrong)
}

/// Whether, on every way through a function's instructions to the one at `call`, the last write of VTTBR_EL2 is followed by an ISB.
fn is_parked(body: &[(u64, u32)], call: u64) -> bool {
    let mut ways = vec![(call, false)];
    let mut seen = BTreeSet::new();
    while let Some((to, synchronized)) = ways.pop() {
        if !seen.insert((to, synchronized)) {
            continue;
        }
        let leads_here = |&&(address, word): &&(u64, u32)| {
            address + 4 == to && goes_on(word) || !is_call(word) && path::target(address, word) == Some(to)
        };
        let mut from = body.iter().filter(leads_here).peekable();
        if from.peek().is_none() {
            return false; // the function begins here
        }
        for &(address, word) in from {
            match word {
                ISB => ways.push((address, true)),
                word if word & !REGISTER != WRITE_VTTBR => ways.push((address, synchronized)),
                _ if synchronized => {}
                _ => return false,
            }
        }
    }
    true
}

fn is_call(word: u32) -> bool {
    word >> 26 == 0b10_0101 // BL
}

/// Whether the next instruction may come after this one: not after B, BR and RET.
fn goes_on(word: u32) -> bool {
    let by_register = matches!(word & 0xffff_fc1f, 0xd61f_0000 | 0xd65f_0000);
    word >> 26 != 0b00_0101 && !by_register
}

#[cfg(test)]
mod tests {
    use super::super::tests::code;
    use super::*;

    const NOP: u32 = 0xd503_201f;
    const RET: u32 = 0xd65f_03c0;
    const BL: u32 = 0x9400_0000;
    const B: u32 = 0x1400_0000;
    const CBZ: u32 = 0xb400_0000;

    /// `bl`, `b` or `cbz` to some words on or back.
    fn to(kind: u32, by: i32) -> u32 {
        let by = by as u32;
        kind | if kind == CBZ { (by & 0x7_ffff) << 5 } else { by & 0x3ff_ffff }
    }

    fn check<const N: usize>(words: [u32; N]) -> Result<()> {
        parking(&code(&words, &[("$x", 0), (GIVE_UP, 0), ("unbind", 4)]))
    }

    #[test]
    fn a_vmid_given_up_before_the_walker_knows_is_found() {
        assert!(check([RET, WRITE_VTTBR | 8, ISB, NOP, to(BL, -4), RET]).is_ok());
        for wrong in [
            [RET, WRITE_VTTBR | 8, NOP, NOP, to(BL, -4), RET],
            [RET, ISB, WRITE_VTTBR | 8, NOP, to(BL, -4), RET],
            [RET, NOP, ISB, NOP, to(BL, -4), RET],
        ] {
            let error = check(wrong).expect_err("it is found").to_string();
            assert!(error.contains("unbind"), "{error}");
        }
        let error = check([RET, WRITE_VTTBR, ISB, NOP, NOP, RET]).expect_err("no call").to_string();
        assert!(error.contains("nobody calls"), "{error}");
    }

    /// What is seldom done lies behind the function's end, and comes back from there.
    #[test]
    fn every_way_counts() {
        let way = |barrier, aside| {
            check([RET, WRITE_VTTBR, barrier, to(CBZ, 3), to(BL, -4), RET, aside, to(B, -3)])
        };
        assert!(way(ISB, NOP).is_ok());
        assert!(way(ISB, WRITE_VTTBR).is_err(), "written anew, aside");
        assert!(way(NOP, ISB).is_err(), "synchronized aside, but not straight on");
    }
}
