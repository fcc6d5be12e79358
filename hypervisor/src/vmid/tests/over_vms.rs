//! What each policy does as VMs become more: the figures of `cargo xtask plot`, as CSV.

use super::simulator::{Counts, Load, Shape, optimum, run};
use crate::vmid::{Config, Policy};

/// The machine of setup 2; how many VMs there are is said for each point.
const MACHINE: Shape =
    Shape { cpus: 8, vms: 0, vcpus: 2, bits: 4, load: Load::Cyclic, slices: 2_000, one_queue: false };

/// From fewer VMs than VMIDs (15 of them can be used) to eight times as many.
const VMS: [usize; 7] = [8, 16, 24, 32, 40, 64, 128];

/// The line that `cargo xtask plot` looks for; the table ends with an empty line.
const HEADER: &str =
    "policy,vms,vcpus,cpus,bits,slices,broadcast_barriers,slow_paths,lost_coming_back,lost_running";

/// A row. The offline optimum has no barriers and no slow path: it only knows which VM has a VMID.
fn row(name: &str, shape: &Shape, counts: &Counts, real: bool) {
    let shown = |count: u64| if real { count.to_string() } else { String::new() };
    let (barriers, slow) = (shown(counts.barriers), shown(counts.slow));
    let Shape { cpus, vms, vcpus, bits, slices, .. } = shape;
    let Counts { lost_back, lost_running, .. } = counts;
    println!("{name},{vms},{vcpus},{cpus},{bits},{slices},{barriers},{slow},{lost_back},{lost_running}");
}

/// For a short time, or for as many slices as `VMID_SLICES` says; then it prints all.
#[test]
fn vmid_over_vms() {
    let asked = std::env::var("VMID_SLICES").ok().map(|text| text.parse().expect("a number of slices"));
    let print = |name: &str, shape: &Shape, counts: &Counts, real| {
        if asked.is_some() {
            row(name, shape, counts, real);
        }
    };
    if asked.is_some() {
        println!("\n{HEADER}");
    }
    for vms in VMS {
        let shape = Shape { vms, slices: asked.unwrap_or(MACHINE.slices), ..MACHINE };
        let short = vms >= 1 << shape.bits;
        let of = |policy: Policy| run(&shape, Config::from(policy), 0);
        let (merged, trace) = of(Policy::Merged);
        let best = optimum(&shape, &trace);
        for &policy in Policy::ALL {
            let counts = of(policy).0;
            print(policy.name(), &shape, &counts, true);
            assert!(best.allocations <= counts.allocations, "{policy}, {vms} VMs: {counts:?}, MIN {best:?}");
            if policy == Policy::Reclaim {
                assert_eq!((counts.barriers, counts.lost_running), (0, 0), "{vms} VMs: {counts:?}");
            } else {
                assert_eq!(counts.barriers > 0, short, "{policy}, {vms} VMs: {counts:?}");
            }
        }
        let preferred = run(&shape, Policy::Reclaim.into(), 4).0;
        print("reclaim with affinity 4", &shape, &preferred, true);
        print("MIN", &shape, &best, false);
        assert_eq!(preferred.lost() > 0, short, "{vms} VMs: {preferred:?}");
        assert!(preferred.lost() <= merged.lost(), "{vms} VMs: {preferred:?}, merged {merged:?}");
        let left = of(Policy::V3NoClear).0;
        // With one VM too many the two hardly differ, in this time.
        assert!(merged.full < left.full || vms <= 16, "{vms} VMs: merged {merged:?}, v3-no-clear {left:?}");
    }
    if asked.is_some() {
        println!();
    }
}
