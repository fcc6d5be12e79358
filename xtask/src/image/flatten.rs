//! An ELF file made flat: the bytes as they lie in memory, from the lowest load address up.

use anyhow::{Context, Result, bail, ensure};
use object::Endianness;
use object::elf::{EM_AARCH64, FileHeader64, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};

/// The largest image that is taken for one: a wrong address in a segment would else fill the disk.
const MAX_BYTES: u64 = 1 << 30;

/// A flat program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flat {
    /// The physical address of the first byte, as the ELF file has it.
    pub load: u64,
    /// The physical address of the first instruction.
    pub entry: u64,
    /// The bytes of the file image; what follows up to `memory_bytes` is zero.
    pub bytes: Vec<u8>,
    /// Bytes in memory, with zeroed data.
    pub memory_bytes: u64,
}

/// Flattens an ELF file by its loadable segments' physical addresses.
///
/// # Errors
/// A file that isn't a 64-bit arm64 ELF executable, without loadable segments, with segments that overlap, or
/// that span more than 1 GiB.
pub fn flatten(elf: &[u8]) -> Result<Flat> {
    let header = FileHeader64::<Endianness>::parse(elf).context("not a 64-bit ELF file")?;
    let endian = header.endian().context("ELF byte order")?;
    let machine = header.e_machine(endian);
    ensure!(machine == EM_AARCH64, "an ELF file for machine {machine:?}, not for arm64 (183)");
    let mut segments = Vec::new();
    for segment in header.program_headers(endian, elf).context("ELF program headers")? {
        if segment.p_type(endian) != PT_LOAD || segment.p_memsz(endian) == 0 {
            continue;
        }
        let data = segment
            .data(endian, elf)
            .ok()
            .context("a loadable segment reaches beyond the end of the ELF file")?;
        let (address, memory) = (segment.p_paddr(endian), segment.p_memsz(endian));
        ensure!(
            data.len() as u64 <= memory,
            "the segment at {address:#x} has more bytes in the file than in memory"
        );
        let end = address.checked_add(memory).context("a segment wraps around the address space")?;
        segments.push((address, end, segment.p_vaddr(endian), data));
    }
    segments.sort_by_key(|segment| segment.0);
    let Some(&(load, ..)) = segments.first() else {
        bail!("the ELF file has no loadable segment");
    };
    for pair in segments.windows(2) {
        ensure!(pair[0].1 <= pair[1].0, "segments at {:#x} and {:#x} overlap", pair[0].0, pair[1].0);
    }
    let memory_bytes = segments.last().map_or(0, |segment| segment.1 - load);
    ensure!(memory_bytes <= MAX_BYTES, "the segments span {memory_bytes:#x} bytes, more than 1 GiB");

    let mut bytes = Vec::new();
    for &(address, _, _, data) in segments.iter().filter(|segment| !segment.3.is_empty()) {
        bytes.resize((address - load) as usize, 0);
        bytes.extend_from_slice(data);
    }
    // The entry is a virtual address; kernels that are linked high run from their physical one at first.
    let entry = header.e_entry(endian);
    let entry = segments
        .iter()
        .find(|(start, end, virtual_start, _)| {
            entry.checked_sub(*virtual_start).is_some_and(|offset| offset < end - start)
        })
        .map(|(start, _, virtual_start, _)| entry - virtual_start + start)
        .with_context(|| format!("the entry {entry:#x} lies in no loadable segment"))?;
    Ok(Flat { load, entry, bytes, memory_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF file with these segments: (virtual, physical, bytes in the file, bytes in memory).
    fn elf(machine: u16, entry: u64, segments: &[(u64, u64, &[u8], u64)]) -> Vec<u8> {
        let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        file.extend(2u16.to_le_bytes());
        file.extend(machine.to_le_bytes());
        file.extend(1u32.to_le_bytes());
        for word in [entry, 64, 0] {
            file.extend(word.to_le_bytes());
        }
        file.extend(0u32.to_le_bytes());
        for half in [64u16, 56, segments.len() as u16, 64, 0, 0] {
            file.extend(half.to_le_bytes());
        }
        let mut offset = 64 + 56 * segments.len() as u64;
        for &(virtual_address, physical, data, memory) in segments {
            file.extend(1u32.to_le_bytes());
            file.extend(5u32.to_le_bytes());
            for word in [offset, virtual_address, physical, data.len() as u64, memory, 1] {
                file.extend(word.to_le_bytes());
            }
            offset += data.len() as u64;
        }
        segments.iter().for_each(|segment| file.extend(segment.2));
        file
    }

    #[test]
    fn gaps_are_zero_and_trailing_zeroed_data_is_left_out() {
        let flat = flatten(&elf(183, 0x4, &[(0, 0, b"code", 6), (16, 16, b"data", 32)])).unwrap();
        assert_eq!(flat.bytes, b"code\0\0\0\0\0\0\0\0\0\0\0\0data");
        assert_eq!((flat.load, flat.entry, flat.memory_bytes), (0, 4, 48));
    }

    #[test]
    fn a_kernel_linked_high_is_entered_at_its_physical_address() {
        let flat =
            flatten(&elf(183, 0xffff_0000_0000_0008, &[(0xffff_0000_0000_0000, 0x4008_0000, &[0; 16], 16)]));
        assert_eq!(flat.unwrap().entry, 0x4008_0008);
    }

    #[test]
    fn bad_files_are_named_not_flattened() {
        let message = |file: &[u8]| format!("{:#}", flatten(file).unwrap_err());
        assert!(message(b"\x7fELF").contains("not a 64-bit ELF file"));
        assert!(message(&elf(62, 0, &[(0, 0, b"x", 1)])).contains("not for arm64"));
        assert!(message(&elf(183, 0, &[])).contains("no loadable segment"));
        assert!(message(&elf(183, 0, &[(0, 0, b"abcd", 4), (2, 2, b"ab", 2)])).contains("overlap"));
        assert!(message(&elf(183, 99, &[(0, 0, b"abcd", 4)])).contains("entry 0x63"));
        assert!(message(&elf(183, 0, &[(0, 0, b"abcd", 1 << 40)])).contains("1 GiB"));
        assert!(message(&elf(183, 0, &[(0, u64::MAX, b"abcd", 4)])).contains("wraps"));
        let mut short = elf(183, 0, &[(0, 0, b"abcd", 4)]);
        short.truncate(122);
        assert!(message(&short).contains("beyond the end"));
    }
}
