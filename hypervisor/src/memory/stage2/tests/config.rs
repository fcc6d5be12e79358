//! VTCR_EL2, VTTBR_EL2 and descriptors, bit by bit against the Arm ARM.

use super::super::config::{has_stage1_granule, has_stage2_granule};
use super::super::descriptor::leaf;
use super::*;

fn bits(value: u64, high: u32, low: u32) -> u64 {
    (value >> low) & ((1 << (high - low + 1)) - 1)
}

#[test]
fn vtcr_has_each_field_where_the_architecture_puts_it() {
    let vtcr = config(32).vtcr();
    assert_eq!(bits(vtcr, 5, 0), 32, "T0SZ = 64 - 32");
    assert_eq!(bits(vtcr, 7, 6), 1, "SL0: level 1");
    assert_eq!(bits(vtcr, 9, 8), 1, "IRGN0: write-back, write-allocate");
    assert_eq!(bits(vtcr, 11, 10), 1, "ORGN0: write-back, write-allocate");
    assert_eq!(bits(vtcr, 13, 12), 3, "SH0: inner shareable");
    assert_eq!(bits(vtcr, 15, 14), 0, "TG0: 4 KiB");
    assert_eq!(bits(vtcr, 18, 16), 5, "PS: 48 bits");
    assert_eq!(bits(vtcr, 19, 19), 1, "VS: 16-bit VMIDs");
    assert_eq!(bits(vtcr, 20, 20), 0, "RES0");
    assert_eq!(bits(vtcr, 22, 21), 0, "HA, HD: off");
    assert_eq!(bits(vtcr, 30, 23), 0, "RES0, HWU, NSW, NSA");
    assert_eq!(bits(vtcr, 31, 31), 1, "RES1");
    assert_eq!(bits(vtcr, 63, 32), 0, "DS, SL2 and later ones");
    assert_eq!(vtcr, 0x800d_3560);
}

#[test]
fn vs_goes_with_16_bit_vmids_only() {
    // TRAPS 3: without VS the upper byte of a 16-bit VMID is ignored and VMs alias.
    for (mmfr1, width) in
        [(0, 8), (2 << 4, 16), (1 << 4, 8), (0xf << 4, 8), (!(0xf << 4), 8), (!0xf0 | 0x20, 16)]
    {
        let config = Stage2Config::from_id(MMFR0, mmfr1, 0, 32).unwrap();
        assert_eq!((vmid_bits(mmfr1), config.vmid_bits()), (width, width));
        assert_eq!(bits(config.vtcr(), 19, 19) == 1, width == 16);
    }
}

#[test]
fn the_output_size_follows_pa_range() {
    for (pa_range, width, ps) in
        [(0, 32, 0), (1, 36, 1), (2, 40, 2), (3, 42, 3), (4, 44, 4), (5, 48, 5), (6, 48, 5), (7, 48, 5)]
    {
        let config = Stage2Config::from_id(pa_range, 0, 0, 32).unwrap();
        assert_eq!(config.pa_bits(), width);
        assert_eq!(bits(config.vtcr(), 18, 16), ps);
        // A guest can't have more intermediate bits than the machine has physical ones.
        assert_eq!(Stage2Config::from_id(pa_range, 0, 0, width).unwrap().ipa_bits(), width);
        let error = ConfigError::IpaTooWide { needed: width + 1, available: width };
        assert_eq!(Stage2Config::from_id(pa_range, 0, 0, width + 1), Err(error));
        assert!(error.to_string().contains("less memory"));
    }
}

#[test]
fn walks_start_at_level_1_with_as_few_tables_as_the_bits_take() {
    for needed in 0..=48u8 {
        let config = config(needed);
        let bits_used = config.ipa_bits();
        assert_eq!(bits_used, needed.max(32));
        let t0sz = bits(config.vtcr(), 5, 0);
        assert_eq!(t0sz, 64 - u64::from(bits_used));
        let sl0 = bits(config.vtcr(), 7, 6);
        // Arm ARM, "Implications of the choice of the starting level" for 4 KiB: SL0 = 1 allows 31 to 43 bits,
        // SL0 = 2 allows 40 to 48.
        match config.start_level() {
            1 => assert!(sl0 == 1 && (31..=43).contains(&bits_used)),
            0 => assert!(sl0 == 2 && (44..=48).contains(&bits_used)),
            level => panic!("starts at level {level}"),
        }
        let pages = config.root_bytes() / 4096;
        let expected = if (40..=43).contains(&bits_used) { 1 << (bits_used - 39) } else { 1 };
        assert_eq!(pages, expected, "{bits_used} bits");
        assert_eq!(config.root_entries() << shift(config.start_level()), 1 << bits_used);
    }
    assert!(Stage2Config::from_id(MMFR0, 0, 0, 49).is_err());
}

#[test]
fn guests_addresses_take_as_many_bits_as_their_end_needs() {
    assert_eq!(ipa_bits_for(0), 0);
    assert_eq!(ipa_bits_for(1), 0);
    assert_eq!(ipa_bits_for(2), 1);
    assert_eq!(ipa_bits_for(RAM + (96 << 20)), 31);
    assert_eq!(ipa_bits_for(0x8000_0000), 31);
    assert_eq!(ipa_bits_for(0x1_0000_0000), 32);
    assert_eq!(ipa_bits_for(0x1_0000_0001), 33);
    assert_eq!(ipa_bits_for(u64::MAX), 64);
}

#[test]
fn a_cpu_without_the_granule_is_refused() {
    // TGran4, bits 31:28: 0 and 1 are yes, 15 is no. TGran4_2, bits 43:40: 0 asks TGran4, 1 is no, 2 and 3 are yes.
    for (tgran4, tgran4_2, stage1, stage2) in [
        (0, 0, true, true),
        (1, 0, true, true),
        (15, 0, false, false),
        (0, 1, true, false),
        (15, 2, false, true),
        (0, 3, true, true),
    ] {
        let mmfr0 = MMFR0 | tgran4 << 28 | tgran4_2 << 40;
        assert_eq!((has_stage1_granule(mmfr0), has_stage2_granule(mmfr0)), (stage1, stage2));
        assert_eq!(Stage2Config::from_id(mmfr0, 0, 0, 32).is_ok(), stage2);
    }
}

#[test]
fn vttbr_holds_the_vmid_above_the_root() {
    use crate::ids::Vmid;
    assert_eq!(vttbr(Pa(0x8000_2000), Vmid(0xabcd)), 0xabcd_0000_8000_2000);
    assert_eq!(vttbr(Pa(0xffff_ffff_f000), Vmid(0xffff)), 0xffff_ffff_ffff_f000);
}

#[test]
fn descriptors_have_each_field_where_the_architecture_puts_it() {
    let ram = leaf(Pa(HOST), Attr::RAM, 2, false);
    assert_eq!(bits(ram, 1, 0), 0b01, "block");
    assert_eq!(bits(ram, 5, 2), 0b1111, "MemAttr: Normal, write-back");
    assert_eq!(bits(ram, 7, 6), 0b11, "S2AP: read and write");
    assert_eq!(bits(ram, 9, 8), 0b11, "SH: inner shareable");
    assert_eq!(bits(ram, 10, 10), 1, "AF");
    assert_eq!(bits(ram, 47, 12) << 12, HOST);
    assert_eq!(bits(ram, 63, 48), 0, "DBM, contiguous, XN, software and hardware bits");
    assert_eq!(ram, HOST | 0x7fd);
    assert_eq!(leaf(Pa(HOST), Attr::RAM, 3, false), HOST | 0x7ff, "page");
    assert_eq!(leaf(Pa(HOST), Attr::RAM, 1, false), HOST | 0x7fd, "1 GiB block");
    assert_eq!(leaf(Pa(HOST), Attr::RAM_READ_ONLY, 3, false), HOST | 0x77f, "S2AP: read");
    let device = leaf(Pa(0x0900_0000), Attr::DEVICE, 3, false);
    assert_eq!(bits(device, 5, 2), 0b0001, "MemAttr: Device-nGnRE");
    assert_eq!(bits(device, 54, 53), 0b10, "XN for EL1 and EL0, with and without FEAT_XNX");
    assert_eq!(device, 0x0900_0000 | 1 << 54 | 0x4c7);
}

#[test]
fn with_forced_write_back_memattr_says_so_and_the_rest_is_as_without() {
    let config = |mmfr2| Stage2Config::from_id(MMFR0, 0, mmfr2, 32).unwrap();
    assert!(config(1 << 40).forces_write_back());
    for others in [0, !(0xf << 40)] {
        assert!(!config(others).forces_write_back());
    }
    for attr in [Attr::RAM, Attr::RAM_READ_ONLY] {
        let (plain, forced) = (leaf(Pa(HOST), attr, 3, false), leaf(Pa(HOST), attr, 3, true));
        assert_eq!(bits(forced, 5, 2), 0b0110, "Normal, write-back");
        assert_eq!(plain & !(0xf << 2), forced & !(0xf << 2));
    }
    assert_eq!(leaf(Pa(HOST), Attr::DEVICE, 3, true), leaf(Pa(HOST), Attr::DEVICE, 3, false));
}

#[test]
fn attributes_survive_a_descriptor() {
    for kind in [Kind::Normal, Kind::Device] {
        for (write, execute) in [(false, false), (false, true), (true, false), (true, true)] {
            let attr = Attr { kind, write, execute };
            for forced in [false, true] {
                assert_eq!(Attr::from_bits(leaf(Pa(HOST), attr, 3, forced)), attr);
            }
        }
    }
}
