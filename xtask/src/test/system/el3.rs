//! An image that QEMU enters at EL3.
//!
//! QEMU plays firmware for whatever it takes for Linux, and enters that at EL2. An ELF file is entered as the CPU comes out
//! of reset, with the device tree at the start of RAM and its address in no register: some instructions put it
//! into x0, as real firmware would.

use anyhow::{Context, Result};

/// Where RAM, and in it the device tree, begins on QEMU's `virt`.
const RAM: u32 = 0x4000_0000;
/// Where the image goes: anywhere, at 2 MiB.
const LOAD: u32 = RAM + (64 << 20);
/// Bytes of the ELF header and of the only program header.
const HEADERS: u64 = 64 + 56;

/// Wraps a flat image that takes `memory` bytes with its zeroed data.
///
/// # Errors
/// It is too large.
pub fn wrap(image: &[u8], memory: u64) -> Result<Vec<u8>> {
    // The instructions lie behind the zeroed data, so that both may be where they are.
    let entry = memory.max(image.len() as u64).next_multiple_of(4096);
    let size =
        usize::try_from(entry).ok().filter(|size| *size < 1 << 30).context("an image of 1 GiB or more")?;
    let mut payload = image.to_vec();
    payload.resize(size, 0);
    // movz x0, #RAM, lsl #16; movz x1, #LOAD, lsl #16; br x1
    for instruction in [0xd2a0_0000 | (RAM >> 16) << 5, 0xd2a0_0001 | (LOAD >> 16) << 5, 0xd61f_0020] {
        payload.extend(instruction.to_le_bytes());
    }
    let length = payload.len() as u64;
    let load = u64::from(LOAD);

    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    // An executable (2) for arm64 (183), entry, program headers behind this one, one of them.
    file.extend(2_u16.to_le_bytes());
    file.extend(183_u16.to_le_bytes());
    file.extend(1_u32.to_le_bytes());
    for word in [load + entry, 64, 0] {
        file.extend(word.to_le_bytes());
    }
    file.extend(0_u32.to_le_bytes());
    for half in [64_u16, 56, 1, 64, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    // PT_LOAD (1), read, write and execute (7), offset, addresses, sizes, alignment.
    file.extend(1_u32.to_le_bytes());
    file.extend(7_u32.to_le_bytes());
    for word in [HEADERS, load, load, length, length, 8] {
        file.extend(word.to_le_bytes());
    }
    file.extend(payload);
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::flatten::flatten;

    #[test]
    fn the_entry_is_behind_the_images_zeroed_data() {
        let flat = flatten(&wrap(&[1, 2, 3, 4, 5], 8000).expect("small")).expect("an ELF file");
        assert_eq!((flat.load, flat.entry), (u64::from(LOAD), u64::from(LOAD) + 8192));
        assert_eq!(flat.bytes[..6], [1, 2, 3, 4, 5, 0]);
        // mov x0, #0x40000000
        assert_eq!(flat.bytes[8192..8196], 0xd2a8_0000_u32.to_le_bytes());
        assert!(wrap(&[], 1 << 40).is_err());
    }
}
