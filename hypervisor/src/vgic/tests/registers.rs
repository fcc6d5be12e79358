//! The register model: what Linux's driver does at its probe, and that no access does harm.

use proptest::prelude::*;

use super::machine::*;
use crate::ids::{IntId, VcpuIndex};
use crate::vgic::fake::FakeLrs;
use crate::vgic::{REDISTRIBUTOR_SIZE, Vgic};

#[test]
fn a_driver_finds_a_gicv3() {
    let vgic = Vgic::new(2);
    assert_eq!(dist_read(&vgic, 0xffe8, 4) & 0xf0, 0x30);
    let typer = dist_read(&vgic, 0x4, 4);
    assert_eq!(32 * ((typer & 0x1f) + 1), 64, "INTIDs");
    assert_eq!((typer >> 19 & 0x1f) + 1, 10, "bits of an INTID");
    assert_eq!(typer & (1 << 10 | 1 << 16 | 1 << 17 | 1 << 18), 0, "one security state, no LPIs");
    assert_eq!(dist_read(&vgic, 0x0, 4), 1 << 4 | 1 << 6, "ARE, DS");
    dist_write(&vgic, 0x0, 4, 0);
    assert_eq!(dist_read(&vgic, 0x0, 4), 1 << 4 | 1 << 6, "ARE, DS can't be cleared");
    dist_write(&vgic, 0x0, 4, 0xffff_ffff);
    assert_eq!(dist_read(&vgic, 0x0, 4), 0b101_0011, "RWP is never set");
    // Redistributors are walked until the last.
    for v in 0..2u64 {
        let vcpu = VcpuIndex(v as u8);
        assert_eq!(redist_read(&vgic, vcpu, 0xffe8, 4) & 0xf0, 0x30);
        let typer = redist_read(&vgic, vcpu, 0x8, 8);
        assert_eq!((typer >> 32, typer >> 4 & 1, typer & 0b11), (v, v, 0));
        assert_eq!(redist_read(&vgic, vcpu, 0x0, 4), 0);
    }
    assert_eq!(vgic.redist_read(V0, &FakeLrs::new(1), VcpuIndex(2), 0x8, 8), 0, "beyond the last");
}

#[test]
fn words_of_bits_are_set_and_cleared_apart() {
    let vgic = Vgic::new(2);
    for (set, clear) in [(0x100, 0x180), (0x200, 0x280), (0x300, 0x380)] {
        dist_write(&vgic, set + 4, 4, 0xff00_0001);
        dist_write(&vgic, set + 8, 4, 0x8000_0000);
        dist_write(&vgic, clear + 4, 4, 0x0f00_0000);
        for block in [set, clear] {
            assert_eq!(dist_read(&vgic, block + 4, 4), 0xf000_0001);
            assert_eq!(dist_read(&vgic, block + 8, 4), 0x8000_0000);
        }
        redist_write(&vgic, V1, SGI_BASE + set, 4, 0x00ff_00f0);
        redist_write(&vgic, V1, SGI_BASE + clear, 4, 0x0000_0030);
        assert_eq!(redist_read(&vgic, V1, SGI_BASE + set, 4), 0x00ff_00c0);
        assert_eq!(redist_read(&vgic, V0, SGI_BASE + set, 4), 0);
        // Private ones aren't in the distributor, SPIs beyond the last nowhere.
        for word in [0, 3, 31] {
            dist_write(&vgic, set + 4 * word, 4, 0xffff_ffff);
            assert_eq!(dist_read(&vgic, set + 4 * word, 4), 0);
        }
    }
    dist_write(&vgic, 0x84, 4, 0x1234_5678);
    assert_eq!((dist_read(&vgic, 0x84, 4), dist_read(&vgic, 0x88, 4)), (0x1234_5678, 0));
    redist_write(&vgic, V0, SGI_BASE + 0x80, 4, 0xffff_0000);
    assert_eq!(redist_read(&vgic, V0, SGI_BASE + 0x80, 4), 0xffff_0000);
}

#[derive(Clone, Debug)]
struct Access {
    by: u8,
    redistributor: Option<u8>,
    offset: u64,
    size: u8,
    value: Option<u64>,
}

/// Any offset, with those near registers often.
fn offset(limit: u64) -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => (0..limit / 0x80, 0..16u64).prop_map(|(block, n)| block * 0x80 + n),
        4 => (0u64..0x1000).prop_map(|n| n & !3),
        2 => (0x6000u64..0x6400).prop_map(|n| n & !3),
        2 => (0x1_0000u64..0x1_1000).prop_map(|n| n & !3),
        1 => 0..limit,
        1 => any::<u64>(),
        1 => (0u64..16).prop_map(|n| u64::MAX - n),
    ]
}

fn access() -> impl Strategy<Value = Access> {
    let size = prop_oneof![6 => Just(4u8), 2 => prop::sample::select(vec![1u8, 2, 8]), 1 => any::<u8>()];
    let value = prop_oneof![Just(0), Just(u64::MAX), any::<u64>()];
    let redistributor = prop::option::of(prop_oneof![8 => 0..4u8, 1 => any::<u8>()]);
    (0..3u8, redistributor, offset(REDISTRIBUTOR_SIZE), size, prop::option::of(value)).prop_map(
        |(by, redistributor, offset, size, value)| Access { by, redistributor, offset, size, value },
    )
}

proptest! {
    /// Whatever three vCPUs write, nothing panics, list registers stay in order, no storm of maintenance interrupts begins, and
    /// nobody is notified who doesn't exist; what is of a size or alignment that no register has reads as zero.
    #[test]
    fn no_access_does_harm(accesses in prop::collection::vec(access(), 1..200)) {
        let vgic = booted(3);
        let cpus = [FakeLrs::open(2), FakeLrs::open(2), FakeLrs::open(2)];
        let mut step = 0u32;
        for Access { by, redistributor, offset, size, value } in accesses {
            let lrs = &cpus[by as usize];
            let by = VcpuIndex(by);
            let mut notify = |vcpu: VcpuIndex| assert!(vcpu.0 < 3 && vcpu != by);
            match (redistributor, value) {
                (Some(n), Some(value)) => {
                    vgic.redist_write(by, lrs, VcpuIndex(n), offset, size, value, &mut notify)
                }
                (None, Some(value)) => vgic.dist_write(by, lrs, offset, size, value, &mut notify),
                (redistributor, None) => {
                    let value = match redistributor {
                        Some(n) => vgic.redist_read(by, lrs, VcpuIndex(n), offset, size),
                        None => vgic.dist_read(by, lrs, offset, size),
                    };
                    if !matches!(size, 1 | 2 | 4 | 8) || offset % u64::from(size) != 0 {
                        prop_assert_eq!(value, 0);
                    } else if size < 8 {
                        prop_assert_eq!(value >> (8 * size), 0, "wider than the access");
                    }
                }
            }
            // Between accesses something happens.
            step += 1;
            match step % 5 {
                0 => vgic.post_spi(IntId(32 + step % 32), &mut anybody),
                1 => vgic.send_sgi(by, sgi(u64::from(step % 16), 0b111), &mut anybody),
                2 => vgic.set_spi_line(IntId(32 + step % 32), step & 64 != 0, &mut anybody),
                3 if lrs.physical_active.borrow().is_empty() => {
                    lrs.physical_fires(27);
                    let _ = vgic.inject_timer(by, lrs, TIMER, TIMER);
                }
                _ => {}
            }
            if vgic.attention(by) {
                let _ = vgic.flush(by, lrs);
            }
            for _ in 0..4 {
                if lrs.maintenance_asserted() {
                    let _ = vgic.maintenance(by, lrs);
                }
            }
            prop_assert!(!lrs.maintenance_asserted(), "a storm");
            lrs.check();
            let intid = lrs.acknowledge();
            if !step.is_multiple_of(3) {
                lrs.end(intid);
            }
        }
    }
}
