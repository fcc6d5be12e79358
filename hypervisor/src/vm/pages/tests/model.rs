//! Random touches, writes, resets and ends of two VMs that boot the same images.

use super::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Read(usize, u64),
    Write(usize, u64, u8),
    /// The same to both VMs.
    Patch(u64, u8),
    Execute(usize, u64),
    Reset(usize),
    End(usize),
}

/// Somewhere in RAM, mostly where something begins or ends.
fn address() -> impl Strategy<Value = u64> {
    let end = |place: &Place| place.ipa + place.size as u64;
    let edges = vec![
        RAM,
        RAM + SIZE - 1,
        KERNEL.ipa,
        end(&KERNEL),
        RAMDISK.ipa,
        end(&RAMDISK),
        TREE.ipa,
        end(&TREE),
        RAM + BLOCK_2M,
        RAM + 2 * BLOCK_2M,
    ];
    let near = (prop::sample::select(edges), 0..64 * PAGE_SIZE)
        .prop_map(|(edge, off)| (edge + off - 32 * PAGE_SIZE).clamp(RAM, RAM + SIZE - 1));
    prop_oneof![near, RAM..RAM + SIZE]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0..2usize, address()).prop_map(|(vm, at)| Op::Read(vm, at)),
        8 => (0..2usize, address(), any::<u8>()).prop_map(|(vm, at, byte)| Op::Write(vm, at, byte)),
        8 => (address(), any::<u8>()).prop_map(|(at, byte)| Op::Patch(at, byte)),
        8 => (0..2usize, address()).prop_map(|(vm, at)| Op::Execute(vm, at)),
        1 => (0..2usize).prop_map(Op::Reset),
        1 => (0..2usize).prop_map(Op::End),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn a_guest_finds_what_it_should_and_nobody_elses(
        ops in prop::collection::vec(op(), 1..60),
        merges in any::<bool>(),
        holes in prop::sample::select(vec![Holes::None, Holes::InBlocks, Holes::EverySecond]),
    ) {
        let mut world = World::new(holes);
        world.merges = merges;
        let before = world.used();
        world.start(0);
        world.start(1);
        for op in ops {
            match op {
                Op::Read(vm, at) => {
                    let page = align_down(at, PAGE_SIZE);
                    let seen = world.vm(vm).read_page(page);
                    prop_assert!(seen == world.vm(vm).expected(page), "page {page:#x} of VM {vm}");
                }
                Op::Write(vm, at, byte) => {
                    world.vm(vm).write(at, byte);
                    let page = align_down(at, PAGE_SIZE);
                    let seen = world.vm(vm).read_page(page);
                    prop_assert!(seen == world.vm(vm).expected(page), "page {page:#x} of VM {vm}");
                }
                Op::Patch(at, byte) => {
                    for vm in 0..2 {
                        world.vm(vm).write(at, byte);
                        world.vm(vm).execute(at);
                    }
                }
                Op::Execute(vm, at) => {
                    world.vm(vm).execute(at);
                    let page = align_down(at, PAGE_SIZE);
                    let seen = world.vm(vm).read_page(page);
                    prop_assert!(seen == world.vm(vm).expected(page), "page {page:#x} of VM {vm}");
                }
                Op::Reset(vm) => world.reset(vm),
                Op::End(vm) => {
                    world.end(vm);
                    world.start(vm);
                }
            }
            world.check();
            world.memory.take_events();
        }
        // What was written long ago is still there, for its VM alone; and the images are as they were.
        for vm in 0..2 {
            let pages: Vec<u64> = world.vm(vm).written.keys().map(|at| align_down(*at, PAGE_SIZE)).collect();
            for page in pages {
                let seen = world.vm(vm).read_page(page);
                prop_assert!(seen == world.vm(vm).expected(page), "page {page:#x} of VM {vm}");
            }
        }
        for place in [&KERNEL, &RAMDISK, &TREE] {
            let mut now = vec![0; place.size];
            world.memory.copy_out(Pa(place.pa), &mut now);
            prop_assert!(now == BYTES[..place.size], "the bundle was written to");
        }
        world.end(0);
        world.end(1);
        prop_assert_eq!(world.used(), before);
    }
}
