//! Placement: where QEMU puts things, and never outside RAM or onto each other.

use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

/// A kernel of `length` bytes with an arm64 `Image` header.
fn image(text_offset: u64, image_size: u64, flags: u64, length: usize) -> Vec<u8> {
    let mut kernel = vec![0; length.max(64)];
    for (at, field) in [(8, text_offset), (16, image_size), (24, flags)] {
        kernel[at..at + 8].copy_from_slice(&field.to_le_bytes());
    }
    kernel[56..60].copy_from_slice(b"ARM\x64");
    kernel
}

fn images(kernel: &[u8], memory: u64) -> Images<'_> {
    Images { kernel, load: None, entry: None, ramdisk: 0, dtb: 0x4000, memory }
}

#[test]
fn a_linux_image_goes_where_qemu_puts_it() {
    let new = image(0, 40 * MIB, 0xa, 4096);
    let spec = Images { ramdisk: 5 * MIB, ..images(&new, 1 << 30) };
    let expected = Placement {
        kernel: Ipa(0x4020_0000),
        entry: Ipa(0x4020_0000),
        ramdisk: Some(Ipa(0x4800_0000)),
        dtb: Ipa(0x4850_0000),
    };
    assert_eq!(place(&spec), Ok(expected));
    let old = image(0x8_0000, MIB, 0, 4096);
    assert_eq!(place(&images(&old, 64 * MIB)).unwrap().kernel, Ipa(0x4008_0000));
    let ancient = image(0, 0, 0, 4096);
    assert_eq!(place(&images(&ancient, 64 * MIB)).unwrap().kernel, Ipa(0x4008_0000));
}

#[test]
fn a_raw_kernel_goes_512_kib_up_and_has_room_behind_it() {
    let placement = place(&images(&[0; 100], 64 * MIB)).unwrap();
    assert_eq!((placement.kernel, placement.entry), (Ipa(0x4008_0000), Ipa(0x4008_0000)));
    assert_eq!((placement.ramdisk, placement.dtb), (None, Ipa(0x4200_0000)));
    assert!(place(&images(&[0; 100], MIB)).is_ok(), "the least RAM is enough for something small");
}

#[test]
fn explicit_addresses_win() {
    let spec = Images { load: Some(0x4100_0000), entry: Some(0x4100_0040), ..images(&[0; 100], 64 * MIB) };
    let placement = place(&spec).unwrap();
    assert_eq!((placement.kernel, placement.entry), (Ipa(0x4100_0000), Ipa(0x4100_0040)));
    for entry in [0x4100_0064, 0x4100_0002, 0x40ff_fffc, 0, u64::MAX] {
        assert_eq!(place(&Images { entry: Some(entry), ..spec }), Err(PlacementError::Entry { entry }));
    }
}

#[test]
fn a_flat_elf_with_its_header_in_front_is_taken_and_an_elf_file_refused() {
    let mut kernel = [0; 100];
    kernel[..4].copy_from_slice(b"\x7fELF");
    let spec = images(&kernel, 64 * MIB);
    assert!(matches!(place(&spec), Err(PlacementError::Format { what: "an ELF file" })));
    assert!(place(&Images { load: Some(0x4000_0000), entry: Some(0x4000_0040), ..spec }).is_ok());
}

/// Trap 36: outside RAM, in a device window, wrapping.
#[test]
fn what_isnt_in_ram_is_refused_with_numbers() {
    let kernel = [0; 0x2000];
    for load in [0, 0x900_0000, 0x3fff_f000, 0x43ff_f000, u64::MAX - 0xfff] {
        let error = place(&Images { load: Some(load), ..images(&kernel, 64 * MIB) }).unwrap_err();
        assert!(matches!(error, PlacementError::OutsideRam { what: "kernel", start, .. } if start == load));
        assert!(error.to_string().contains(&format!("{load:#x}")), "{error}");
    }
    let huge = image(u64::MAX, u64::MAX, 0, 4096);
    assert!(matches!(place(&images(&huge, 64 * MIB)), Err(PlacementError::OutsideRam { .. })));
    let big = Images { ramdisk: 64 * MIB, ..images(&kernel, 64 * MIB) };
    assert!(matches!(place(&big), Err(PlacementError::OutsideRam { what: "ramdisk", .. })));
    let full = Images { ramdisk: 63 * MIB + MIB / 4, dtb: MIB, ..images(&kernel, 64 * MIB) };
    assert!(matches!(place(&full), Err(PlacementError::OutsideRam { what: "device tree", .. })));
}

#[test]
fn a_big_ramdisk_goes_right_behind_the_kernel() {
    let spec = Images { ramdisk: 40 * MIB, ..images(&[0; 0x2000], 64 * MIB) };
    let placement = place(&spec).unwrap();
    assert_eq!(placement.ramdisk, Some(Ipa(0x4009_0000)));
    assert_eq!(placement.dtb, Ipa(0x4289_0000));
}

#[test]
fn a_big_endian_kernel_is_refused() {
    let kernel = image(0, MIB, 1, 4096);
    let message = place(&images(&kernel, 64 * MIB)).unwrap_err().to_string();
    assert!(message.contains("flags = 0x1") && message.contains("big-endian"), "{message}");
}

proptest! {
    #[test]
    fn nothing_overlaps_and_all_is_in_ram(
        has_header in any::<bool>(),
        text_offset in prop_oneof![Just(0), Just(0x8_0000), 0..1u64 << 22, any::<u64>()],
        image_size in prop_oneof![0..1u64 << 28, any::<u64>()],
        length in 1usize..300_000,
        load in prop::option::of(prop_oneof![0x4000_0000..0x5000_0000u64, any::<u64>()]),
        ramdisk in prop_oneof![Just(0), 0..1u64 << 28, any::<u64>()],
        dtb in 1..2u64 << 20,
        memory in prop_oneof![1u64 << 20..1u64 << 29, any::<u64>()],
    ) {
        let kernel = if has_header { image(text_offset, image_size, 0, length) } else { vec![0; length] };
        let spec = Images { kernel: &kernel, load, entry: None, ramdisk, dtb, memory };
        let Ok(placement) = place(&spec) else { return Ok(()) };
        let size = if has_header { image_size.max(kernel.len() as u64) } else { kernel.len() as u64 };
        let mut parts = vec![(placement.kernel.0, size), (placement.dtb.0, dtb)];
        if let Some(start) = placement.ramdisk {
            parts.push((start.0, ramdisk));
        }
        prop_assert_eq!(placement.ramdisk.is_some(), ramdisk > 0);
        parts.sort();
        for &(start, size) in &parts {
            prop_assert!(start >= RAM_BASE.0 && start - RAM_BASE.0 + size <= memory);
        }
        for pair in parts.windows(2) {
            prop_assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{:x?}", parts);
        }
        let last = placement.dtb.0 + dtb - 1;
        prop_assert_eq!(placement.dtb.0 / BLOCK, last / BLOCK, "the device tree is in one block");
        prop_assert!(placement.dtb.0.is_multiple_of(8));
    }
}
